"""MuJoCo with SimBa: residual critics and policy with layer normalisation, 2 updates per step.

Lee et al. 2024, arXiv 2410.09754; github.com/SonyResearch/simba, whose 2 updates belong to an action repeat of 2.

The discount is for episodes of 1000 steps.
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    QHeadParameters,
    ResidualMiddlewareParameters,
    SACPolicyHeadParameters,
    ScheduleParameters,
    TrainingSteps,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    discount_of_episodes,
    ensemble_soft_actor_critic_networks,
)

ONE_CRITIC = "agent.networks.q.head_parameters.num_critics"  # for tasks that do not terminate
LEVELS = {
    "HalfCheetah-v5": {"validation.min_reward_threshold": 4500.0, ONE_CRITIC: 1},
    "Hopper-v5": {"validation.min_reward_threshold": 1000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 1000.0},
    "Ant-v5": {"validation.min_reward_threshold": 1000.0},
    "Humanoid-v5": {"validation.min_reward_threshold": 1000.0},
}

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=discount_of_episodes(1_000),
            update_order="policy_first",
            num_consecutive_training_steps=2,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(
                initial_alpha=0.01, target_entropy_factor=-0.5, loss="alpha", learning_rate=1e-4
            ),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(
                num_critics=2,
                residual_blocks=ResidualMiddlewareParameters("simba", width=512, num_blocks=2),
                initializer="orthogonal",
            ),
            policy=ResidualMiddlewareParameters("simba", width=128, num_blocks=1),
            policy_head=SACPolicyHeadParameters(initializer="orthogonal", log_std="tanh", log_std_bounds=(-10.0, 2.0)),
            initializer="orthogonal",
            optimizer_type="AdamW",
            weight_decay=0.01,
            learning_rate=1e-4,
            batch_size=256,
        ),
    ),
    environment=EnvironmentParameters(level="Hopper-v5", filters=FilterParameters(observation_normalization=True)),
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
