"""Soft actor-critic as OpenAI's Spinning Up trains it by default: fixed temperature, HalfCheetah-v5 or another
level.
"""

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FixedAlphaParameters,
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
            discount=0.99,
            num_consecutive_playing_steps=EnvironmentSteps(50),
            num_consecutive_training_steps=50,
            rate_for_copying_weights_to_target=0.005,  # 1 - polyak of 0.995
            update_order="simultaneous",
            temperature=FixedAlphaParameters(alpha=0.2),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=twin_soft_actor_critic_networks(
            layers=(256, 256), critic_loss_weight=0.5, learning_rate=1e-3, batch_size=100
        ),
    ),
    environment=EnvironmentParameters(level="HalfCheetah-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        random_action_steps=10_000,
        improve_steps=EnvironmentSteps(399_000),  # 100 epochs of 4000 steps, warm-up included
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(4_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=3000.0, max_episodes_to_achieve_reward=400),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
