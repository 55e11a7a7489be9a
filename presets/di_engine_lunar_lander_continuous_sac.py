"""LunarLanderContinuous-v3 with DI-engine's soft actor-critic and hyper-parameters: 256 updates after every 256
steps.
"""

import dataclasses

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

networks = twin_soft_actor_critic_networks(layers=(64, 64), init_w=3e-3, learning_rate=1e-3, batch_size=128)

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            num_consecutive_playing_steps=EnvironmentSteps(256),
            num_consecutive_training_steps=256,
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(initial_alpha=0.2, learning_rate=3e-4),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks={"policy": dataclasses.replace(networks["policy"], learning_rate=3e-4), "q": networks["q"]},
    ),
    environment=EnvironmentParameters(level="LunarLanderContinuous-v3", num_envs=4),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(140_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=200.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
