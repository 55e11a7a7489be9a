"""Gymnasium-Robotics' Fetch tasks with TAAC in 38 environments (arXiv 2104.06521, manipulation); needs
`tfsac[robotics]`.
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

# A step costs 1 until the goal is reached, and an episode has 50.
LEVELS = {
    "gymnasium_robotics:FetchReach-v4": {"validation.min_reward_threshold": -5.0},
    "gymnasium_robotics:FetchPush-v4": {"validation.min_reward_threshold": -15.0},
    "gymnasium_robotics:FetchSlide-v4": {"validation.min_reward_threshold": -35.0},
    "gymnasium_robotics:FetchPickAndPlace-v4": {"validation.min_reward_threshold": -25.0},
}

# A goal-conditioned observation: the hand, where the object is and where it should be.
KEYS = ("observation", "achieved_goal", "desired_goal")

preset = Preset(
    agent=TemporallyAbstractActorCriticAgentParameters(
        algorithm=TemporallyAbstractActorCriticAlgorithmParameters(
            trajectory="constant",
            discount=0.98,
            num_consecutive_playing_steps=EnvironmentSteps(1_900),
            num_consecutive_training_steps=40,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(40),
            rate_for_copying_weights_to_target=0.05,
            alpha_learning_rate=1e-3,
            min_prob=(0.05, 0.2),
        ),
        memory=SequenceReplayParameters(max_size=1_900_000, sequence_length=4),
        networks=temporally_abstract_networks(
            layers=(256, 256, 256),
            learning_rate=1e-3,
            batch_size=4864,
            input_embedders_parameters={key: InputEmbedderParameters(EmbedderScheme.Empty) for key in KEYS},
        ),
    ),
    environment=EnvironmentParameters(level="gymnasium_robotics:FetchReach-v4", num_envs=38),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(990_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(20_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-5.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
