"""MuJoCo with XQC: batch-normalised categorical critics with kernels of unit norm, 2 updates per step.

Published at 100 000 steps (v4): HalfCheetah 8597, Hopper 2828, Walker2d 3612, Ant 3018, Humanoid 3265
(github.com/danielpalenicek/xqc).

The discount is for episodes of 1000 steps.
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    CategoricalValueParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FCMiddlewareParameters,
    FilterParameters,
    NormalizationParameters,
    Preset,
    PresetValidationParameters,
    QHeadParameters,
    ReturnScalingParameters,
    SACPolicyHeadParameters,
    ScheduleParameters,
    TrainingSteps,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    discount_of_episodes,
    ensemble_soft_actor_critic_networks,
)

LEVELS = {
    "HalfCheetah-v5": {"validation.min_reward_threshold": 4500.0},
    "Hopper-v5": {"validation.min_reward_threshold": 1000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 1000.0},
    "Ant-v5": {"validation.min_reward_threshold": 1000.0},
    "Humanoid-v5": {"validation.min_reward_threshold": 1000.0},
}

NORMALISED = NormalizationParameters("batch", "before", normalize_input=True)

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=discount_of_episodes(1_000),
            target_reduction="index_min",
            joint_critic_forward=True,
            num_consecutive_training_steps=2,
            num_updates_between_policy_updates=3,
            first_policy_update=1,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(
                initial_alpha=0.01,
                target_entropy_factor=-0.5,
                loss="alpha",
                learning_rate=3e-4,
                learning_rate_decay_type="linear",
                learning_rate_decay_steps="run",
                learning_rate_end=3e-5,
            ),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(
                num_critics=2,
                network_layers_sizes=(512, 512, 512, 512),
                normalization=NORMALISED,
                distribution=CategoricalValueParameters(num_atoms=101),
                initializer="orthogonal",
            ),
            policy=FCMiddlewareParameters((256, 256, 256, 256), normalization=NORMALISED),
            policy_head=SACPolicyHeadParameters(initializer="orthogonal", log_std_bounds=(-10.0, 2.0)),
            initializer="orthogonal",
            unit_weights="kernels",
            learning_rate=3e-4,
            learning_rate_decay_type="linear",
            learning_rate_decay_steps="run",
            learning_rate_end=3e-5,
            batch_size=256,
        ),
    ),
    environment=EnvironmentParameters(
        level="Hopper-v5", filters=FilterParameters(return_scaling=ReturnScalingParameters(bound=None))
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(995_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=1000.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
