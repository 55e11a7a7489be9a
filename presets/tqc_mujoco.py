"""MuJoCo with truncated quantile critics (TQC): 5 critics with 25 quantiles each, the largest of which are dropped.

The random steps are our addition (the published code has none). Kuznetsov et al. 2020, arXiv 2005.04269;
github.com/SamsungLabs/tqc_pytorch.
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FCMiddlewareParameters,
    Preset,
    PresetValidationParameters,
    QHeadParameters,
    QuantileValueParameters,
    SACPolicyHeadParameters,
    ScheduleParameters,
    TrainingSteps,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
)

LEVELS = {
    "HalfCheetah-v5": {"validation.min_reward_threshold": 4500.0},
    "Hopper-v5": {"validation.min_reward_threshold": 1000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 1000.0},
    "Ant-v5": {"validation.min_reward_threshold": 1000.0},
    "Humanoid-v5": {"validation.min_reward_threshold": 1000.0},
}

DROPPED = "agent.networks.q.head_parameters.distribution.drop_per_critic"

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            update_order="simultaneous",
            target_reduction="pool",
            policy_reduction="mean",
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(initial_alpha=1.0, learning_rate=3e-4),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(
                num_critics=5,
                network_layers_sizes=(512, 512, 512),
                distribution=QuantileValueParameters(num_quantiles=25, drop_per_critic=2),
                loss_weight=0.2,
                initializer="fan_in_uniform",
            ),
            policy=FCMiddlewareParameters((256, 256)),
            policy_head=SACPolicyHeadParameters(initializer="fan_in_uniform"),
            initializer="fan_in_uniform",
            learning_rate=3e-4,
            batch_size=256,
        ),
    ),
    environment=EnvironmentParameters(level="Walker2d-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(995_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=1000.0),
    levels={
        level: {**changes, DROPPED: {"HalfCheetah-v5": 0, "Hopper-v5": 5}.get(level, 2)}
        for level, changes in LEVELS.items()
    },
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
