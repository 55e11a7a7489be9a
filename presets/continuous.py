"""Continuous actions: start here. CrossQ with critics as narrow as SAC's, which predict distributions of returns.

Ours: `crossq_mujoco` with critics of 256 units and 101 atoms on scaled returns, as `xqc_mujoco` has them, and without
the policy delay. There is no target network. docs/preset_choices.md has what else was tried.
"""

from tfsac.presets.crossq_mujoco import preset as wide

from tfsac.parameters import CategoricalValueParameters, ReturnScalingParameters, override

preset = override(
    wide,
    {
        "agent.algorithm.num_updates_between_policy_updates": 1,
        "agent.algorithm.target_reduction": "index_min",
        "agent.algorithm.temperature.initial_alpha": 0.01,  # with 1, entropy alone exceeds the last atom at first
        "agent.networks.q.head_parameters.network_layers_sizes": (256, 256),
        "agent.networks.q.head_parameters.distribution": CategoricalValueParameters(num_atoms=101),
        "environment.filters.return_scaling": ReturnScalingParameters(bound=None),
        "schedule.improve_steps": "EnvironmentSteps(95000)",
    },
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
