"""Pendulum-v1 learned from ten demonstrations instead of rewards: soft Q imitation learning (arXiv 1905.11108)."""

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

DEMONSTRATIONS = pathlib.Path(__file__).parent / "demonstrations" / "pendulum.npz"

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.97,
            rate_for_copying_weights_to_target=0.01,
            # An automatic temperature rises until entropy is worth more than imitation.
            temperature=FixedAlphaParameters(alpha=0.03),
        ),
        memory=SQILExperienceReplayParameters(demonstrations=str(DEMONSTRATIONS), max_size=100_000),
        networks=twin_soft_actor_critic_networks(layers=(128, 128), learning_rate=1e-3, batch_size=128),
    ),
    environment=EnvironmentParameters(level="Pendulum-v1"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(19_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(1_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-180.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
