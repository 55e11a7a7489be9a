"""Hopper, Walker2d, HalfCheetah and Ant with DI-engine's soft actor-critic and hyper-parameters: a fixed
temperature.
"""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)

# DI-engine stops at these thresholds.
LEVELS = {
    "Hopper-v5": {"validation.min_reward_threshold": 6000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 6000.0},
    "HalfCheetah-v5": {"agent.algorithm.ignore_done": True, "validation.min_reward_threshold": 12000.0},
    "Ant-v5": {"validation.min_reward_threshold": 6000.0},
}

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            rate_for_copying_weights_to_target=0.005,
            temperature=FixedAlphaParameters(alpha=0.2),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=twin_soft_actor_critic_networks(layers=(256, 256), init_w=3e-3, learning_rate=1e-3, batch_size=256),
    ),
    environment=EnvironmentParameters(level="Hopper-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(2_990_000),
        evaluation_steps=EnvironmentEpisodes(8),
        steps_between_evaluation_periods=EnvironmentSteps(10_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=6000.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
