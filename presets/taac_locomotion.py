"""MuJoCo locomotion with TAAC, which learns how long to repeat an action (arXiv 2104.06521, locomotion).

Use `--set=agent.algorithm.trajectory=linear` (or quadratic) for TaacL (TaacQ).
"""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SequenceReplayParameters,
    TemporallyAbstractActorCriticAgentParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    temporally_abstract_networks,
)

LEVELS = {
    "Hopper-v5": {"validation.min_reward_threshold": 2000.0},
    "Ant-v5": {"validation.min_reward_threshold": 3000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 2000.0},
    "HalfCheetah-v5": {"validation.min_reward_threshold": 5000.0},
}

preset = Preset(
    agent=TemporallyAbstractActorCriticAgentParameters(
        algorithm=TemporallyAbstractActorCriticAlgorithmParameters(
            trajectory="constant",
            discount=0.99,
            rate_for_copying_weights_to_target=0.005,
            b1_advantage_clipping=(0.0, None),
            alpha_learning_rate=3e-4,
            min_prob=(0.05, 0.184),
        ),
        memory=SequenceReplayParameters(max_size=1_000_000, sequence_length=4),
        networks=temporally_abstract_networks(layers=(256, 256), learning_rate=3e-4, batch_size=256),
    ),
    environment=EnvironmentParameters(level="HalfCheetah-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(50_000),
        improve_steps=EnvironmentSteps(2_950_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=5000.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
