"""BipedalWalker-v3 with TAAC: 32 environments, one update with 4096 sequences per 5 steps of all environments (arXiv
2104.06521, terrain).
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
    TrainingSteps,
    temporally_abstract_networks,
)

preset = Preset(
    agent=TemporallyAbstractActorCriticAgentParameters(
        algorithm=TemporallyAbstractActorCriticAlgorithmParameters(
            trajectory="constant",
            discount=0.99,
            num_consecutive_playing_steps=EnvironmentSteps(160),
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.005,
            alpha_learning_rate=5e-4,
            min_prob=(0.05, 0.1),
        ),
        memory=SequenceReplayParameters(max_size=3_200_000, sequence_length=6),
        networks=temporally_abstract_networks(layers=(256, 256), learning_rate=5e-4, batch_size=4096),
    ),
    environment=EnvironmentParameters(
        level="BipedalWalker-v3", num_envs=32, filters=FilterParameters(reward_clipping_range=(-1.0, 1.0))
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(20_000),
        improve_steps=EnvironmentSteps(4_980_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(100_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=250.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
