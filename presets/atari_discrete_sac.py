"""ALE/Pong-v5 with discrete soft actor-critic on 84x84x4 frames; other Atari games by --level."""

from tfsac.parameters import (
    AtariPreprocessingParameters,
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EmbedderScheme,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    discrete_soft_actor_critic_networks,
)

# Steps count actions; each action lasts four frames. Learning rate, batch, target and warm-up are those of
# arXiv 1910.07207; its target entropy of 0.98 leaves the policy almost uniform, so it is lower here.
preset = Preset(
    agent=DiscreteSoftActorCriticAgentParameters(
        algorithm=DiscreteSoftActorCriticAlgorithmParameters(
            discount=0.99,
            num_consecutive_playing_steps=EnvironmentSteps(4),
            num_steps_between_copying_online_weights_to_target=EnvironmentSteps(8_000),
            rate_for_copying_weights_to_target=1.0,
            temperature=DiscreteAutoAlphaParameters(initial_alpha=0.2, learning_rate=3e-4, target_entropy_ratio=0.5),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),  # 0.7 GB when full
        networks=discrete_soft_actor_critic_networks(
            layers=(512,), embedder=EmbedderScheme.Medium, learning_rate=3e-4, optimizer_epsilon=1e-4, batch_size=64
        ),
        shared_encoder=True,
    ),
    environment=EnvironmentParameters(
        level="ALE/Pong-v5",
        atari=AtariPreprocessingParameters(),
        filters=FilterParameters(reward_clipping_range=(-1.0, 1.0)),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(20_000),
        improve_steps=EnvironmentSteps(1_980_000),
        evaluation_steps=EnvironmentEpisodes(3),
        steps_between_evaluation_periods=EnvironmentSteps(50_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=15.0),  # a goal; not yet trained that long
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
