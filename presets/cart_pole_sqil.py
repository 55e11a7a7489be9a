"""CartPole-v1 learned from ten demonstrations instead of rewards: soft Q imitation learning (arXiv 1905.11108)."""

import pathlib

from tfsac.parameters import (
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    FixedAlphaParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SQILExperienceReplayParameters,
    discrete_soft_actor_critic_networks,
)

DEMONSTRATIONS = pathlib.Path(__file__).parent / "demonstrations" / "cart_pole.npz"

preset = Preset(
    agent=DiscreteSoftActorCriticAgentParameters(
        algorithm=DiscreteSoftActorCriticAlgorithmParameters(
            discount=0.99,
            rate_for_copying_weights_to_target=0.01,
            temperature=FixedAlphaParameters(alpha=0.1),
        ),
        memory=SQILExperienceReplayParameters(demonstrations=str(DEMONSTRATIONS), max_size=100_000),
        networks=discrete_soft_actor_critic_networks(layers=(128, 128), learning_rate=1e-3, batch_size=128),
    ),
    environment=EnvironmentParameters(level="CartPole-v1"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(19_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(1_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=450.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
