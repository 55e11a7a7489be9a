"""CartPole-v1 with discrete soft actor-critic, solved in a minute."""

from tfsac.parameters import (
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    discrete_soft_actor_critic_networks,
)

preset = Preset(
    agent=DiscreteSoftActorCriticAgentParameters(
        algorithm=DiscreteSoftActorCriticAlgorithmParameters(
            discount=0.99,
            # High, because values must rise to 100: with 0.01 it takes twice as long.
            rate_for_copying_weights_to_target=0.05,
            # With a reward of 1 in every step, nothing limits an automatic temperature with a high target.
            temperature=FixedAlphaParameters(alpha=0.2),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=discrete_soft_actor_critic_networks(layers=(128, 128), learning_rate=1e-3, batch_size=128),
    ),
    environment=EnvironmentParameters(level="CartPole-v1"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(29_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(2_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=475.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
