"""Gymnasium's MuJoCo levels with twin-target soft actor-critic and automatic temperature (arXiv 1812.05905)."""

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

LEVELS = {
    "InvertedPendulum-v5": {
        "schedule.heatup_steps": "EnvironmentSteps(1000)",
        "schedule.improve_steps": "EnvironmentSteps(29000)",
        "schedule.steps_between_evaluation_periods": "EnvironmentSteps(1000)",
        "validation.min_reward_threshold": 1000.0,
    },
    "InvertedDoublePendulum-v5": {
        "schedule.heatup_steps": "EnvironmentSteps(1000)",
        "schedule.improve_steps": "EnvironmentSteps(99000)",
        "validation.min_reward_threshold": 8000.0,
    },
    "Hopper-v5": {"validation.min_reward_threshold": 1000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 1000.0},
    "HalfCheetah-v5": {"validation.min_reward_threshold": 4500.0},
    "Ant-v5": {"validation.min_reward_threshold": 1000.0},
}

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            rate_for_copying_weights_to_target=0.005,
            temperature=AutoAlphaParameters(initial_alpha=0.2, learning_rate=3e-4),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=twin_soft_actor_critic_networks(layers=(256, 256), learning_rate=1e-3, batch_size=256),
    ),
    environment=EnvironmentParameters(level="HalfCheetah-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(990_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=4500.0, max_episodes_to_achieve_reward=1_000),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
