"""Gymnasium's MuJoCo levels with actor-critic with experience replay (arXiv 1611.01224, section 7); others by
--level.
"""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    EpisodicReplayParameters,
    FilterParameters,
    GaussianACERAgentParameters,
    GaussianACERAlgorithmParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    gaussian_acer_networks,
)

LEVELS = {
    "InvertedPendulum-v5": {
        "schedule.improve_steps": "EnvironmentSteps(200000)",
        "validation.min_reward_threshold": 900.0,
    },
    "Hopper-v5": {"validation.min_reward_threshold": 1000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 500.0},
    "HalfCheetah-v5": {"validation.min_reward_threshold": 1000.0},
}

# Widths and truncation as in ChainerRL's continuous example; shorter segments and Adam learn faster here.
preset = Preset(
    agent=GaussianACERAgentParameters(
        algorithm=GaussianACERAlgorithmParameters(
            t_max=10,
            n_times_replay=4,
            beta=1e-3,
            truncation_threshold=5.0,
            trust_region_delta=0.1,
            use_deterministic_for_evaluation=True,
        ),
        memory=EpisodicReplayParameters(max_size=50_000, replay_start_size=1_000),
        networks=gaussian_acer_networks(
            layers=(100, 100),
            advantage_layers=(25, 25),
            learning_rate=5e-4,
            optimizer_epsilon=1e-5,
            clip_gradients=40.0,
            batch_size=8,
        ),
    ),
    environment=EnvironmentParameters(
        "HalfCheetah-v5",
        num_envs=8,
        filters=FilterParameters(reward_rescale_factor=0.1, observation_normalization=True),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(0),
        improve_steps=EnvironmentSteps(500_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(20_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=1000.0),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
