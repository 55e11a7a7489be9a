"""A thousand environments of MuJoCo Playground with SAC: a few large updates per step of all environments.

Four updates with batches of 4096 read as many transitions per step as the 32 with batches of 512 that A. Raffin tuned
for training time with 1024 environments ("Getting SAC to Work on a Massive Parallel Simulator",
iclr-blogposts.github.io/2026/blog/2026/sac-massive-sim). Temperature, learning rate and layers are from there. Its
discount for a robot at 50 Hz, 0.983, is too low for tasks at 100 Hz; 0.99 is from Playground's own settings for SAC.
The policy's standard deviation starts at 0.08 and never exceeds 1, observations are normalised, and updates start after
ten steps, as in FastSAC (arXiv 2512.01996; github.com/amazon-far/holosoma). The policy learns in every second update
and rewards are divided by the deviation of returns, as in FlashSAC (arXiv 2604.04539). The update rate of the target
network is our own choice, between those of the three.

The default level is tfsac.playground:CheetahRun. Other simulators need action bounds that match the joint limits.
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FCMiddlewareParameters,
    FilterParameters,
    NormalizationParameters,
    Preset,
    PresetValidationParameters,
    QHeadParameters,
    ReturnScalingParameters,
    SACPolicyHeadParameters,
    ScheduleParameters,
    TrainingSteps,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
)

LAYERS, NORMALIZATION = (512, 256, 128), NormalizationParameters("layer", "before")

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            num_consecutive_playing_steps=EnvironmentSteps(1024),
            num_consecutive_training_steps=4,
            num_updates_between_policy_updates=2,
            num_steps_between_copying_online_weights_to_target=TrainingSteps(1),
            rate_for_copying_weights_to_target=0.01,
            temperature=AutoAlphaParameters(initial_alpha=0.01, learning_rate=4.5e-4),
        ),
        memory=ExperienceReplayParameters(max_size=2_000_000, device="auto"),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(LAYERS, "elu", normalization=NORMALIZATION),
            policy=FCMiddlewareParameters(LAYERS, "elu", NORMALIZATION),
            policy_head=SACPolicyHeadParameters(log_std="tanh", log_std_bounds=(-5.0, 0.0)),
            learning_rate=4.5e-4,
            batch_size=4096,
        ),
    ),
    environment=EnvironmentParameters(
        level="tfsac.playground:CheetahRun",
        num_envs=1024,
        vectorization="vector",
        filters=FilterParameters(observation_normalization=True, return_scaling=ReturnScalingParameters()),
    ),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(10_240),
        improve_steps=EnvironmentSteps(25_000_000),
        evaluation_steps=EnvironmentEpisodes(5),
        steps_between_evaluation_periods=EnvironmentSteps(500_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=500.0),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
