"""CartPole-v1 without its velocities: an LSTM solves it, and networks that see only the current observation do not."""

from tfsac.parameters import (
    DiscreteACERAgentParameters,
    DiscreteACERAlgorithmParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    EpisodicReplayParameters,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    discrete_acer_networks,
)

preset = Preset(
    agent=DiscreteACERAgentParameters(
        algorithm=DiscreteACERAlgorithmParameters(
            t_max=32,
            n_times_replay=4,
            beta=1e-3,
            truncation_threshold=5.0,
            trust_region_delta=0.1,
            use_deterministic_for_evaluation=True,
        ),
        memory=EpisodicReplayParameters(max_size=50_000, replay_start_size=1_000),
        networks=discrete_acer_networks(
            layers=(64,), lstm_cells=64, shared=True, learning_rate=1e-3, clip_gradients=40.0, batch_size=8
        ),
    ),
    environment=EnvironmentParameters(
        "CartPole-v1",
        num_envs=8,
        visible_entries=(0, 2),
        filters=FilterParameters(reward_rescale_factor=1e-2),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(0),
        improve_steps=EnvironmentSteps(300_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(10_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=400.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
