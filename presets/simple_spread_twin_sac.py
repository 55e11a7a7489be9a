"""pettingzoo:mpe2.simple_spread_v3, continuous actions: three agents with a shared policy cover three landmarks."""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.95,
            num_consecutive_playing_steps=EnvironmentSteps(2),
            num_steps_between_copying_online_weights_to_target=EnvironmentSteps(2),
            rate_for_copying_weights_to_target=0.01,
            temperature=AutoAlphaParameters(initial_alpha=0.05, learning_rate=3e-4),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=twin_soft_actor_critic_networks(
            layers=(128, 128),
            policy_input="agent_state",
            critic_input="global_state",
            learning_rate=5e-4,
            batch_size=128,
        ),
    ),
    environment=EnvironmentParameters(
        level="pettingzoo:mpe2.simple_spread_v3", kwargs={"N": 3, "max_cycles": 25, "continuous_actions": True}
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(2_000),
        improve_steps=EnvironmentSteps(98_000),
        evaluation_steps=EnvironmentEpisodes(100),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=-22.0),  # random actions get -26
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
