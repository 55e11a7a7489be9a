"""ALE/Pong-v5 with actor-critic with experience replay on 84x84x4 frames; other Atari games by --level.

With an LSTM of 256 cells: --set='agent.networks.trunk.middleware_parameters={"kind": "lstm", "number_of_lstm_cells":
256, "scheme": [256]}'
"""

from tfsac.parameters import (
    AtariPreprocessingParameters,
    Conv2d,
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

NUM_ENVS, IMPROVE_STEPS, T_MAX, REPLAYS = 8, 2_500_000, 5, 4

# Steps count actions; each action lasts four frames. Segments, replay and network are those of ChainerRL's Atari
# example, with eight parallel environments instead of processes. Losses are means over segments here but sums there:
# with the example's epsilon of 4e-3 the steps are so small that Q does not learn what precedes a lost point.
preset = Preset(
    agent=DiscreteACERAgentParameters(
        algorithm=DiscreteACERAlgorithmParameters(
            t_max=T_MAX,
            n_times_replay=REPLAYS,
            beta=1e-2,
            truncation_threshold=10.0,
            trust_region_delta=1.0,
            trust_region_alpha=0.99,
        ),
        memory=EpisodicReplayParameters(
            max_size=100_000, replay_start_size=10_000
        ),  # 0.8 GB when full, plus the unfinished games
        networks=discrete_acer_networks(
            layers=(Conv2d(16, 8, 4), Conv2d(32, 4, 2), 256),
            shared=True,
            optimizer_type="RMSProp",
            learning_rate=7e-4,
            rms_prop_optimizer_decay=0.99,
            optimizer_epsilon=1e-5,
            learning_rate_decay_type="linear",
            learning_rate_decay_steps=IMPROVE_STEPS // (T_MAX * NUM_ENVS) * (1 + REPLAYS),
            clip_gradients=40.0,
            batch_size=NUM_ENVS,
        ),
    ),
    environment=EnvironmentParameters(
        "ALE/Pong-v5",
        num_envs=NUM_ENVS,
        atari=AtariPreprocessingParameters(),
        filters=FilterParameters(reward_clipping_range=(-1.0, 1.0)),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(0),
        improve_steps=EnvironmentSteps(IMPROVE_STEPS),
        evaluation_steps=EnvironmentEpisodes(3),
        steps_between_evaluation_periods=EnvironmentSteps(100_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=15.0),  # a goal; not yet trained that long
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
