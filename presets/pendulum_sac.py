"""Pendulum-v1 with Coach's soft actor-critic: the built-in default, done in a minute or two."""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    soft_actor_critic_networks,
)

preset = Preset(
    agent=SoftActorCriticAgentParameters(
        algorithm=SoftActorCriticAlgorithmParameters(
            discount=0.99,
            rate_for_copying_weights_to_target=0.01,
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=soft_actor_critic_networks(layers=(128, 128), learning_rate=1e-3, batch_size=128),
    ),
    environment=EnvironmentParameters(
        level="Pendulum-v1",
        filters=FilterParameters(reward_rescale_factor=1.0),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(9_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(1_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-180.0, max_episodes_to_achieve_reward=50),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
