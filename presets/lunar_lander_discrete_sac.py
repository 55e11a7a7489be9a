"""LunarLander-v3 with discrete soft actor-critic and automatic temperature."""

from tfsac.parameters import (
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    discrete_soft_actor_critic_networks,
)

preset = Preset(
    agent=DiscreteSoftActorCriticAgentParameters(
        algorithm=DiscreteSoftActorCriticAlgorithmParameters(
            discount=0.99,
            rate_for_copying_weights_to_target=0.005,
            temperature=DiscreteAutoAlphaParameters(initial_alpha=0.2, learning_rate=5e-4, target_entropy_ratio=0.5),
        ),
        memory=ExperienceReplayParameters(max_size=200_000),
        networks=discrete_soft_actor_critic_networks(layers=(256, 256), learning_rate=5e-4, batch_size=256),
    ),
    environment=EnvironmentParameters(level="LunarLander-v3"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(195_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(10_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=150.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
