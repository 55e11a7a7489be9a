"""tfsac.environments.platform:HybridPlatform-v0, parametrised actions: run, hop or leap, and how far.

It needs `pip install 'tfsac[platform]'`. Two gaps and two enemies lie between the start and the goal; the return is the
fraction of the distance covered, 1 at the goal (Masson et al. 2016, arXiv 1509.01644).
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    HybridSoftActorCriticAgentParameters,
    HybridSoftActorCriticAlgorithmParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    hybrid_soft_actor_critic_networks,
)

preset = Preset(
    agent=HybridSoftActorCriticAgentParameters(
        algorithm=HybridSoftActorCriticAlgorithmParameters(
            discount=0.95,
            # The return of an episode is at most 1.
            discrete_temperature=DiscreteAutoAlphaParameters(initial_alpha=0.1, target_entropy_ratio=0.2),
            continuous_temperature=AutoAlphaParameters(initial_alpha=0.1),
        ),
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=hybrid_soft_actor_critic_networks(layers=(256, 256), learning_rate=3e-4, batch_size=256),
    ),
    environment=EnvironmentParameters(level="tfsac.environments.platform:HybridPlatform-v0"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(59_000),
        evaluation_steps=EnvironmentEpisodes(20),
        steps_between_evaluation_periods=EnvironmentSteps(2_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=0.75),
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
