"""MuJoCo tasks without their velocities, with recurrent soft actor-critic (Ni et al. 2021, arXiv 2110.05038)."""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    Preset,
    PresetValidationParameters,
    RecurrentSoftActorCriticAgentParameters,
    RecurrentSoftActorCriticAlgorithmParameters,
    ScheduleParameters,
    SequenceReplayParameters,
    recurrent_soft_actor_critic_networks,
)

# Positions come first in these observations.
LEVELS = {
    "Hopper-v5": {"environment.visible_entries": [*range(5)], "validation.min_reward_threshold": 1000.0},
    "HalfCheetah-v5": {"environment.visible_entries": [*range(8)], "validation.min_reward_threshold": 2000.0},
}

preset = Preset(
    agent=RecurrentSoftActorCriticAgentParameters(
        algorithm=RecurrentSoftActorCriticAlgorithmParameters(
            burn_in=16,
            # An update learns from 32 * 48 steps, six times as many as without an LSTM.
            num_consecutive_playing_steps=EnvironmentSteps(4),
        ),
        memory=SequenceReplayParameters(max_size=1_000_000, sequence_length=65),
        networks=recurrent_soft_actor_critic_networks(),
    ),
    environment=EnvironmentParameters(level="Hopper-v5", visible_entries=(0, 1, 2, 3, 4)),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_000),
        improve_steps=EnvironmentSteps(490_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(10_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=1000.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
