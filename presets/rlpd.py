"""Hopper-v5 with prior data (RLPD): half of every batch comes from four recorded episodes, with their rewards.

10 critics with layer normalisation, 2 of them in the target, 20 updates per step (Ball et al. 2023, arXiv 2302.02948;
github.com/ikostrikov/rlpd). The paper uses other levels.
"""

import pathlib

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    FCMiddlewareParameters,
    NormalizationParameters,
    Preset,
    PresetValidationParameters,
    PriorDataReplayParameters,
    QHeadParameters,
    ScheduleParameters,
    TrainingSteps,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
)

DEMONSTRATIONS = pathlib.Path(__file__).parent / "demonstrations" / "hopper.npz"

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            critic_subset=2,
            target_reduction="min",
            policy_reduction="mean",
            num_consecutive_training_steps=20,
            num_updates_between_policy_updates=20,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(
                initial_alpha=1.0, learning_rate=3e-4, target_entropy_factor=-0.5, loss="alpha"
            ),
        ),
        memory=PriorDataReplayParameters(
            demonstrations=str(DEMONSTRATIONS), num_episodes=4, share=0.5, max_size=1_000_000
        ),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(
                num_critics=10,
                network_layers_sizes=(256, 256),
                normalization=NormalizationParameters("layer", "before"),
                loss_weight=0.1,
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
    validation=PresetValidationParameters(min_reward_threshold=2500.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
