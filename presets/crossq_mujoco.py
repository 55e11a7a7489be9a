"""MuJoCo with CrossQ: critics with batch renormalisation and without a target network, one update per step.

Published at 100 000 steps (v4, 2048 units): HalfCheetah 8112, Hopper 2764, Walker2d 3914, Ant 2299, Humanoid 2603
(Bhatt et al. 2024, arXiv 1902.05605; github.com/adityab/CrossQ). With 512 units, a step costs one fifteenth:
`--set='agent.networks.q.head_parameters.network_layers_sizes=[512, 512]'`.
"""

from tfsac.parameters import (
    AutoAlphaParameters,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FCMiddlewareParameters,
    NormalizationParameters,
    Preset,
    PresetValidationParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
)

LEVELS = {
    "HalfCheetah-v5": {"validation.min_reward_threshold": 4500.0},
    "Hopper-v5": {"validation.min_reward_threshold": 1000.0},
    "Walker2d-v5": {"validation.min_reward_threshold": 1000.0},
    "Ant-v5": {"validation.min_reward_threshold": 1000.0},
    "Humanoid-v5": {"validation.min_reward_threshold": 1000.0},
}

RENORMALISED = NormalizationParameters("batch_renorm", "after", normalize_input=True)

preset = Preset(
    agent=TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            discount=0.99,
            joint_critic_forward=True,
            num_updates_between_policy_updates=3,
            temperature=AutoAlphaParameters(initial_alpha=1.0, learning_rate=1e-3, loss="alpha"),
        ),
        memory=ExperienceReplayParameters(max_size=1_000_000),
        networks=ensemble_soft_actor_critic_networks(
            critics=QHeadParameters(
                num_critics=2,
                network_layers_sizes=(2048, 2048),
                normalization=RENORMALISED,
                loss_weight=0.5,
                initializer="lecun_normal",
            ),
            policy=FCMiddlewareParameters((256, 256), normalization=RENORMALISED),
            policy_head=SACPolicyHeadParameters(initializer="lecun_normal"),
            target_network=False,
            initializer="lecun_normal",
            learning_rate=1e-3,
            adam_optimizer_beta1=0.5,
            batch_size=256,
        ),
    ),
    environment=EnvironmentParameters(level="Hopper-v5"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(5_000),
        improve_steps=EnvironmentSteps(995_000),
        evaluation_steps=EnvironmentEpisodes(10),
        steps_between_evaluation_periods=EnvironmentSteps(5_000),
    ),
    validation=PresetValidationParameters(min_reward_threshold=1000.0),
    levels={
        **LEVELS,
        "Swimmer-v5": {"agent.algorithm.discount": 0.9999, "validation.min_reward_threshold": 50.0},
    },
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
