"""CartPole-v1 without its velocities, with recurrent soft actor-critic for discrete actions (arXiv 2110.05038)."""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    FilterParameters,
    FixedAlphaParameters,
    Preset,
    PresetValidationParameters,
    RecurrentDiscreteSoftActorCriticAgentParameters,
    RecurrentDiscreteSoftActorCriticAlgorithmParameters,
    ScheduleParameters,
    SequenceReplayParameters,
    recurrent_soft_actor_critic_networks,
)

preset = Preset(
    agent=RecurrentDiscreteSoftActorCriticAgentParameters(
        algorithm=RecurrentDiscreteSoftActorCriticAlgorithmParameters(
            burn_in=8,
            temperature=FixedAlphaParameters(alpha=0.0025),
            rate_for_copying_weights_to_target=0.02,
            num_consecutive_playing_steps=EnvironmentSteps(2),
        ),
        memory=SequenceReplayParameters(max_size=100_000, sequence_length=33),
        networks=recurrent_soft_actor_critic_networks((64,), 64, (64,), discrete=True, learning_rate=1e-3),
    ),
    environment=EnvironmentParameters(
        level="CartPole-v1",
        visible_entries=(0, 2),
        filters=FilterParameters(reward_rescale_factor=0.05),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(29_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(2_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=400.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
