"""A thousand environments of MuJoCo Playground with FlashSAC, as published for simulators on a GPU.

1024 environments, two updates with batches of 2048 per step of all environments, 100 000 random steps, a memory of ten
million transitions; networks and the rest are those of `flash_sac_mujoco` (arXiv 2604.04539;
github.com/Holiday-Robot/FlashSAC, README and scripts). Published runs use a discount of 0.97 on the humanoid G1 of
MuJoCo Playground, and on Isaac Lab three-step returns.

The default level is tfsac.playground:CheetahRun.
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

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            num_consecutive_playing_steps=EnvironmentSteps(1024),
            num_consecutive_training_steps=2,
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
        memory=ExperienceReplayParameters(max_size=10_000_000, device="auto"),
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
            batch_size=2048,
        ),
    ),
    environment=EnvironmentParameters(
        level="tfsac.playground:CheetahRun",
        num_envs=1024,
        vectorization="vector",
        filters=FilterParameters(return_scaling=ReturnScalingParameters(bound=5.0)),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(100_000),
        improve_steps=EnvironmentSteps(50_000_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(1_000_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=500.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
