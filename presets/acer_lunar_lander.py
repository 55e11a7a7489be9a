"""LunarLander-v3 with actor-critic with experience replay: 150 within 500 000 steps."""

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
            t_max=20,
            n_times_replay=8,
            beta=1e-3,
            truncation_threshold=5.0,
            trust_region_delta=3e-3,
            use_deterministic_for_evaluation=True,
        ),
        memory=EpisodicReplayParameters(max_size=50_000, replay_start_size=1_000),
        networks=discrete_acer_networks(
            layers=(256, 256), learning_rate=5e-4, optimizer_epsilon=1e-5, clip_gradients=40.0, batch_size=8
        ),
    ),
    environment=EnvironmentParameters(
        "LunarLander-v3",
        num_envs=8,
        filters=FilterParameters(reward_rescale_factor=1e-2),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(0),
        improve_steps=EnvironmentSteps(500_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(20_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=150.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
