"""BipedalWalker-v3 with DI-engine's soft actor-critic and hyper-parameters: eight environments, automatic
temperature.
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            ignore_done=True,
            num_consecutive_playing_steps=EnvironmentSteps(128),
            num_consecutive_training_steps=1,
            num_steps_between_copying_online_weights_to_target=EnvironmentSteps(128),
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(initial_alpha=0.2, learning_rate=3e-4),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=twin_soft_actor_critic_networks(layers=(128, 128), init_w=3e-3, learning_rate=1e-3, batch_size=128),
    ),
    # A fall costs 10 instead of 100.
    environment=EnvironmentParameters(
        level="BipedalWalker-v3", num_envs=8, filters=FilterParameters(reward_clipping_range=(-10.0, 1000.0))
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(4_999_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(100_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=300.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
