"""Pendulum-v1 with DI-engine's soft actor-critic and hyper-parameters: ten environments, automatic temperature."""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
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
            num_consecutive_playing_steps=EnvironmentSteps(10),
            num_consecutive_training_steps=1,
            num_steps_between_copying_online_weights_to_target=EnvironmentSteps(10),
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(initial_alpha=0.2, learning_rate=3e-4),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=twin_soft_actor_critic_networks(layers=(128, 128), init_w=3e-3, learning_rate=1e-3, batch_size=128),
    ),
    environment=EnvironmentParameters(level="Pendulum-v1", num_envs=10),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(99_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-250.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
