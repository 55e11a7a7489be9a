"""Continuous actions: start here. CrossQ with critics as narrow as SAC's and no target network.

Ours: `crossq_mujoco` with critics of 256 units, without the policy delay, and with an averaged policy.
docs/decisions.md has what else was tried, docs/results.md its returns.
"""

from tfsac.presets.crossq_mujoco import preset as wide

from tfsac.parameters import override

preset = override(
    wide,
    {
        "agent.algorithm.num_updates_between_policy_updates": 1,
        "agent.algorithm.rate_for_averaging_policy": 0.001,
        "agent.networks.q.head_parameters.network_layers_sizes": (256, 256),
        "schedule.improve_steps": "EnvironmentSteps(95000)",
    },
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
