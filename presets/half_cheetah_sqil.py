"""HalfCheetah-v5 learned from four demonstrations instead of rewards: soft Q imitation learning (arXiv 1905.11108)."""

import pathlib

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    FixedAlphaParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SQILExperienceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)

DEMONSTRATIONS = pathlib.Path(__file__).parent / "demonstrations" / "half_cheetah.npz"

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            rate_for_copying_weights_to_target=0.005,
            # An automatic temperature rises until entropy is worth more than imitation.
            temperature=FixedAlphaParameters(alpha=0.03),
        ),
        memory=SQILExperienceReplayParameters(demonstrations=str(DEMONSTRATIONS), max_size=1_000_000),
        networks=twin_soft_actor_critic_networks(layers=(256, 256), learning_rate=3e-4, batch_size=256),
    ),
    environment=EnvironmentParameters(level="HalfCheetah-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(95_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=3000.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
