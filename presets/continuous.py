"""Continuous actions: start here. CrossQ with critics as narrow as SAC's, which do without a target network.

Ours: `crossq_mujoco` with critics of 256 units. A step has 0.55 GFLOP, where SAC's has 0.56 and that of 2048 units 29
(`python benchmarks/budgets.py --arithmetic`). docs/results.md has its returns.
"""

from tfsac.presets.crossq_mujoco import preset as wide

from tfsac.parameters import override

preset = override(
    wide,
    {
        "agent.networks.q.head_parameters.network_layers_sizes": (256, 256),
        "schedule.improve_steps": "EnvironmentSteps(95000)",
    },
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
