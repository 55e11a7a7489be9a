"""Discrete actions and images: start here. Soft actor-critic with an encoder shared by policy and critics.

The default level is tfsac.environments.minatar:Breakout-v0, a small Breakout. The convolutions depend on the size of
the images. For continuous actions and images use the preset `continuous`.
"""

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
    TrainingSteps,
    discrete_soft_actor_critic_networks,
)

preset = Preset(
    agent=DiscreteSoftActorCriticAgentParameters(
        algorithm=DiscreteSoftActorCriticAlgorithmParameters(
            discount=0.99,
            n_step=3,
            num_consecutive_playing_steps=EnvironmentSteps(4),
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.01,
            temperature=DiscreteAutoAlphaParameters(initial_alpha=0.2, learning_rate=3e-4, target_entropy_ratio=0.5),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=discrete_soft_actor_critic_networks(layers=(512,), embedder=(128,), learning_rate=3e-4, batch_size=64),
        shared_encoder=True,
    ),
    environment=EnvironmentParameters(level="tfsac.environments.minatar:Breakout-v0"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(195_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(10_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=5.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
