"""Pendulum-v1 with actor-critic with experience replay for continuous actions: above -600 within 300 000 steps."""

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

# Threshold and widths as in ChainerRL's continuous example; shorter segments, more replay and Adam learn faster here.
preset = Preset(
    agent=GaussianACERAgentParameters(
        algorithm=GaussianACERAlgorithmParameters(
            t_max=25,
            n_times_replay=8,
            beta=1e-3,
            truncation_threshold=5.0,
            trust_region_delta=0.01,
            use_deterministic_for_evaluation=True,
        ),
        memory=EpisodicReplayParameters(max_size=20_000, replay_start_size=1_000),
        networks=gaussian_acer_networks(
            layers=(100, 100), advantage_layers=(25, 25), learning_rate=7e-4, clip_gradients=40.0, batch_size=8
        ),
    ),
    environment=EnvironmentParameters("Pendulum-v1", num_envs=8, filters=FilterParameters(reward_rescale_factor=1e-2)),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(0),
        improve_steps=EnvironmentSteps(300_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(10_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-600.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
