"""MuJoCo with dropout Q-functions (DroQ): 2 critics with dropout and layer normalisation, 20 updates per step.

Published at 100 000 steps (v4): HalfCheetah 7744, Hopper 1813, Walker2d 2277, Ant 1365, Humanoid 1278 (Hiraoka et al.
2022, arXiv 2110.02034;
github.com/TakuyaHiraoka/Dropout-Q-Functions-for-Doubly-Efficient-Reinforcement-Learning).
Each level has the dropout rate of the authors' code based on REDQ's; HalfCheetah, which is missing there, has 0.01 from
their own code. Levels that are not listed use Hopper's target entropy and dropout.
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FCMiddlewareParameters,
    NormalizationParameters,
    Preset,
    PresetValidationParameters,
    QHeadParameters,
    ScheduleParameters,
    TrainingSteps,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
)

TARGET_ENTROPY = {"Hopper-v5": -1.0, "HalfCheetah-v5": -3.0, "Walker2d-v5": -3.0, "Ant-v5": -4.0, "Humanoid-v5": -2.0}
DROPOUT = {"Hopper-v5": 0.0001, "HalfCheetah-v5": 0.01, "Walker2d-v5": 0.005, "Ant-v5": 0.01, "Humanoid-v5": 0.1}
LEVELS = {
    level: {
        "agent.algorithm.temperature.target_entropy": entropy,
        "agent.networks.q.head_parameters.dropout": DROPOUT[level],
        "validation.min_reward_threshold": 4500.0 if level == "HalfCheetah-v5" else 1000.0,
    }
    for level, entropy in TARGET_ENTROPY.items()
}

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            target_reduction="min",
            policy_reduction="mean",
            num_consecutive_training_steps=20,
            num_updates_between_policy_updates=20,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(initial_alpha=1.0, learning_rate=3e-4, target_entropy=-1.0),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(
                num_critics=2,
                network_layers_sizes=(256, 256),
                normalization=NormalizationParameters("layer", "before"),
                dropout=0.0001,
            ),
            policy=FCMiddlewareParameters((256, 256)),
            learning_rate=3e-4,
            batch_size=256,
        ),
    ),
    environment=EnvironmentParameters(level="Hopper-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(95_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=1000.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
