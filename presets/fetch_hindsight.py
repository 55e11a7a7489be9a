"""Gymnasium-Robotics' Fetch tasks with sparse rewards, SAC and hindsight replay; needs `tfsac[robotics]`.

FetchReach takes a few thousand steps. The other levels have larger batches and half a million steps.
"""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    FilterParameters,
    HindsightExperienceReplayParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)

# A step costs 1 until the goal is reached, and an episode has 50 steps.
THRESHOLDS = {"FetchPush-v4": -15.0, "FetchSlide-v4": -35.0, "FetchPickAndPlace-v4": -25.0}
LONG = {
    "agent.networks.*.batch_size": 512,
    "agent.algorithm.rate_for_copying_weights_to_target": 0.02,
    "schedule.improve_steps": "EnvironmentSteps(499000)",
    "schedule.steps_between_evaluation_periods": "EnvironmentSteps(10000)",
}
LEVELS = {
    "gymnasium_robotics:FetchReach-v4": {"validation.min_reward_threshold": -3.0},
    **{
        f"gymnasium_robotics:{name}": {**LONG, "validation.min_reward_threshold": threshold}
        for name, threshold in THRESHOLDS.items()
    },
}

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(discount=0.95, rate_for_copying_weights_to_target=0.01),
        memory=HindsightExperienceReplayParameters(max_size=1_000_000),
        networks=twin_soft_actor_critic_networks(layers=(256, 256, 256), learning_rate=1e-3, batch_size=256),
    ),
    environment=EnvironmentParameters(
        level="gymnasium_robotics:FetchReach-v4",
        filters=FilterParameters(observation_normalization=True, observation_clipping=5.0),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(9_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(1_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-3.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
