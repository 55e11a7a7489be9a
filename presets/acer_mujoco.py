"""Gymnasium's MuJoCo levels with actor-critic with experience replay (arXiv 1611.01224, section 7); others by --level."""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    EpisodicReplayParameters,
    FilterParameters,
    GaussianACERAgentParameters,
    GaussianACERAlgorithmParameters,
    Preset,
    ScheduleParameters,
    gaussian_acer_networks,
)

LEVELS = {
    "InvertedPendulum-v5": {
        "schedule.improve_steps": "EnvironmentSteps(200000)",
        "validation.min_reward_threshold": 900.0,
    },
    "Hopper-v5": {},
    "Walker2d-v5": {},
    "HalfCheetah-v5": {},
}

# Threshold, segments and correction as in ChainerRL's continuous example; its RMSProp is an Adam here, which learns faster.
preset = Preset(
    agent=GaussianACERAgentParameters(
        algorithm=GaussianACERAlgorithmParameters(
            t_max=50,
            n_times_replay=8,
            beta=1e-3,
            truncation_threshold=5.0,
            trust_region_delta=0.01,
            use_deterministic_for_evaluation=True,
        ),
        memory=EpisodicReplayParameters(max_size=50_000, replay_start_size=1_000),
        networks=gaussian_acer_networks(
            layers=(100, 100), advantage_layers=(25, 25), learning_rate=5e-4, clip_gradients=40.0, batch_size=8
        ),
    ),
    environment=EnvironmentParameters(
        "HalfCheetah-v5",
        num_envs=8,
        filters=FilterParameters(reward_rescale_factor=1e-2, observation_normalization=True),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(0),
        improve_steps=EnvironmentSteps(1_000_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(20_000),
    ),
    levels=LEVELS,
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
