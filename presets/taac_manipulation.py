"""Gymnasium-Robotics' Fetch tasks with TAAC (arXiv 2104.06521, manipulation); needs `tfsac[robotics]`.

FetchReach uses ten environments, small batches and more updates, to train on two cores. The other levels use the
published 38 environments and batches of 4864, for long runs.
"""

from tfsac.parameters import (
    EmbedderScheme,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    InputEmbedderParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SequenceReplayParameters,
    TemporallyAbstractActorCriticAgentParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    TrainingSteps,
    temporally_abstract_networks,
)

# A step costs 1 until the goal is reached, and an episode has 50 steps.
THRESHOLDS = {"FetchPush-v4": -15.0, "FetchSlide-v4": -35.0, "FetchPickAndPlace-v4": -25.0}
PUBLISHED = {
    "environment.num_envs": 38,
    "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(1900)",
    "agent.algorithm.num_consecutive_training_steps": 40,
    "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(40)",
    "agent.algorithm.rate_for_copying_weights_to_target": 0.05,
    "agent.networks.*.batch_size": 4864,
    "schedule.heatup_steps": "EnvironmentSteps(10000)",
    "schedule.improve_steps": "EnvironmentSteps(990000)",
    "schedule.steps_between_evaluation_periods": "EnvironmentSteps(20000)",
}
LEVELS = {
    "gymnasium_robotics:FetchReach-v4": {"validation.min_reward_threshold": -5.0},
    **{
        f"gymnasium_robotics:{name}": {**PUBLISHED, "validation.min_reward_threshold": threshold}
        for name, threshold in THRESHOLDS.items()
    },
}

# A goal-conditioned observation: the hand, where the object is and where it should be.
KEYS = ("observation", "achieved_goal", "desired_goal")

preset = Preset(
    agent=TemporallyAbstractActorCriticAgentParameters(
        algorithm=TemporallyAbstractActorCriticAlgorithmParameters(
            trajectory="constant",
            discount=0.98,
            num_consecutive_playing_steps=EnvironmentSteps(10),
            num_consecutive_training_steps=5,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.005,
            alpha_learning_rate=1e-3,
            min_prob=(0.05, 0.2),
        ),
        memory=SequenceReplayParameters(max_size=1_900_000, sequence_length=4),
        networks=temporally_abstract_networks(
            layers=(256, 256, 256),
            learning_rate=1e-3,
            batch_size=256,
            input_embedders_parameters={key: InputEmbedderParameters(EmbedderScheme.Empty) for key in KEYS},
        ),
    ),
    environment=EnvironmentParameters(level="gymnasium_robotics:FetchReach-v4", num_envs=10),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(55_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-5.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
