"""MuJoCo with FlashSAC: residual, batch-normalised categorical critics with unit weights, one update per step.

Published at 100 000 steps (v4): HalfCheetah 9815, Hopper 2121, Walker2d 3299, Ant 3196, Humanoid 6138
(github.com/Holiday-Robot/FlashSAC).
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    CategoricalValueParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FilterParameters,
    NoiseRepetitionParameters,
    Preset,
    PresetValidationParameters,
    QHeadParameters,
    ResidualMiddlewareParameters,
    ReturnScalingParameters,
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

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            update_order="policy_first",
            target_reduction="index_min",
            joint_critic_forward=True,
            joint_policy_forward=True,
            num_updates_between_policy_updates=2,
            first_policy_update=1,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.01,
            temperature=AutoAlphaParameters(
                initial_alpha=0.01,
                target_entropy_sigma=0.15,
                loss="alpha",
                learning_rate=3e-4,
                learning_rate_decay_type="cosine",
                learning_rate_decay_steps="run",
                learning_rate_end=1.5e-4,
            ),
        ),
        exploration=NoiseRepetitionParameters(mu=2.0, max_repeats=16),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(
                num_critics=2,
                residual_blocks=ResidualMiddlewareParameters("flash", width=256, num_blocks=2),
                distribution=CategoricalValueParameters(num_atoms=101),
                loss_weight=0.5,
                initializer="orthogonal",
            ),
            policy=ResidualMiddlewareParameters("flash", width=128, num_blocks=2),
            policy_head=SACPolicyHeadParameters(initializer="orthogonal", log_std="tanh", log_std_bounds=(-10.0, 2.0)),
            initializer="orthogonal",
            unit_weights="all",
            learning_rate=3e-4,
            learning_rate_decay_type="cosine",
            learning_rate_decay_steps="run",
            learning_rate_end=1.5e-4,
            batch_size=512,
        ),
    ),
    environment=EnvironmentParameters(
        level="Hopper-v5", filters=FilterParameters(return_scaling=ReturnScalingParameters(bound=5.0))
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(990_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=1000.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
