"""Gymnasium's MuJoCo levels with Coach's soft actor-critic (arXiv 1801.01290, appendix D)."""

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

# Changes for each level. The reward scales are the paper's: 5, and 20 for Humanoid.
LEVELS = {
    "InvertedPendulum-v5": {
        "agent.networks.*.learning_rate": 1e-3,
        "agent.algorithm.rate_for_copying_weights_to_target": 0.01,
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
    "Reacher-v5": {"schedule.improve_steps": "EnvironmentSteps(190000)", "validation.min_reward_threshold": -10.0},
    "Pusher-v5": {"schedule.improve_steps": "EnvironmentSteps(490000)", "validation.min_reward_threshold": -50.0},
    "Swimmer-v5": {"validation.min_reward_threshold": 40.0},
    "Hopper-v5": {"validation.min_reward_threshold": 1000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 1000.0},
    "HalfCheetah-v5": {"validation.min_reward_threshold": 3500.0},
    "Ant-v5": {"validation.min_reward_threshold": 1000.0},
    "Humanoid-v5": {
        "environment.filters.reward_rescale_factor": 20.0,
        "validation.min_reward_threshold": 1000.0,
    },
    "HumanoidStandup-v5": {"validation.min_reward_threshold": 80000.0},
}

preset = Preset(
    agent=SoftActorCriticAgentParameters(
        algorithm=SoftActorCriticAlgorithmParameters(
            discount=0.99,
            rate_for_copying_weights_to_target=0.005,
            num_steps_between_copying_online_weights_to_target=EnvironmentSteps(1),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=soft_actor_critic_networks(layers=(256, 256), learning_rate=3e-4, batch_size=256),
    ),
    environment=EnvironmentParameters(level="HalfCheetah-v5", filters=FilterParameters(reward_rescale_factor=5.0)),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(990_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=3500.0, max_episodes_to_achieve_reward=1_000),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
