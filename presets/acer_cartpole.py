"""CartPole-v1 with actor-critic with experience replay: 475 within 100 000 steps."""

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
            trust_region_delta=3e-4,
            use_deterministic_for_evaluation=True,
        ),
        memory=EpisodicReplayParameters(max_size=5_000, replay_start_size=1_000),
        networks=discrete_acer_networks(
            layers=(100, 100), learning_rate=1e-3, optimizer_epsilon=1e-5, clip_gradients=40.0, batch_size=8
        ),
    ),
    environment=EnvironmentParameters(
        "CartPole-v1",
        num_envs=8,
        # Without a target network, Q diverges with rewards of 1 per step. The trust region's delta is tuned to this
        # scale.
        filters=FilterParameters(reward_rescale_factor=1e-2),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(0),
        improve_steps=EnvironmentSteps(100_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=475.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
