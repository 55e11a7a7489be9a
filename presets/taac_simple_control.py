"""Small control tasks with TAAC, which learns how long to repeat an action (arXiv 2104.06521, simple control).

Use `--set=agent.algorithm.trajectory=linear` (or quadratic) for TaacL (TaacQ).
"""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SequenceReplayParameters,
    TemporallyAbstractActorCriticAgentParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    temporally_abstract_networks,
)

LEVELS = {
    "Pendulum-v1": {"validation.min_reward_threshold": -200.0},
    "InvertedDoublePendulum-v5": {
        "schedule.improve_steps": "EnvironmentSteps(40000)",
        "validation.min_reward_threshold": 8000.0,
    },
    "MountainCarContinuous-v0": {  # 10 000 warm-up steps may have no success; the agent then learns to stand still
        "schedule.heatup_steps": "EnvironmentSteps(30000)",
        "schedule.improve_steps": "EnvironmentSteps(70000)",
        "schedule.steps_between_evaluation_periods": "EnvironmentSteps(5000)",
        "schedule.evaluation_steps": "EnvironmentEpisodes(5)",
        "validation.min_reward_threshold": 90.0,
    },
}

preset = Preset(
    agent=TemporallyAbstractActorCriticAgentParameters(
        algorithm=TemporallyAbstractActorCriticAlgorithmParameters(
            trajectory="constant",
            discount=0.99,
            rate_for_copying_weights_to_target=0.005,
            alpha_learning_rate=1e-4,
            min_prob=(0.05, 0.1),
        ),
        memory=SequenceReplayParameters(max_size=1_000_000, sequence_length=4),
        networks=temporally_abstract_networks(layers=(256, 256), learning_rate=1e-4, batch_size=256),
    ),
    environment=EnvironmentParameters(
        level="Pendulum-v1",
        filters=FilterParameters(reward_normalization=True, reward_clipping_range=(-5.0, 5.0)),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(20_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(1_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-200.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
