"""Discrete actions: start here. Soft actor-critic with exact expectations, for vector observations.

The settings are those of `lunar_lander_discrete_sac`, with CartPole-v1 and its shorter schedule.
"""

from tfsac.presets.lunar_lander_discrete_sac import preset as lander

from tfsac.parameters import override

preset = override(
    lander,
    {
        "environment.level": "CartPole-v1",
        "schedule.heatup_steps": "EnvironmentSteps(1000)",
        "schedule.improve_steps": "EnvironmentSteps(29000)",
        "schedule.steps_between_evaluation_periods": "EnvironmentSteps(2000)",
        "validation.min_reward_threshold": 475.0,
    },
)

if __name__ == "__main__":
    from tfsac.cli import run_preset

    run_preset(__file__)
