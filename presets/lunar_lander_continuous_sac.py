"""LunarLanderContinuous-v3 with Coach's soft actor-critic."""

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
            rate_for_copying_weights_to_target=0.005,
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=soft_actor_critic_networks(layers=(256, 256), learning_rate=3e-4, batch_size=256),
    ),
    environment=EnvironmentParameters(
        level="LunarLanderContinuous-v3",
        filters=FilterParameters(reward_rescale_factor=5.0),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(190_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=200.0, max_episodes_to_achieve_reward=1_000),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
