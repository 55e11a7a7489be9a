"""LunarLander-v3 with discrete soft actor-critic and automatic temperature."""

from tfsac.parameters import (
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    EpsilonGreedyParameters,
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
            n_step=3,
            rate_for_copying_weights_to_target=0.01,
            temperature=DiscreteAutoAlphaParameters(initial_alpha=0.2, learning_rate=1e-3, target_entropy_ratio=0.5),
        ),
        # With less entropy, smaller n_step or no random actions, some seeds hover: they hardly ever see a landing.
        exploration=EpsilonGreedyParameters(1.0, 0.05, decay_steps=40_000, decay="linear"),
        memory=ExperienceReplayParameters(max_size=200_000),
        networks=discrete_soft_actor_critic_networks(layers=(128, 128), learning_rate=1e-3, batch_size=128),
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
