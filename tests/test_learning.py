"""Learning a one-step task in seconds; tests/acceptance/test_thresholds.py trains presets to their thresholds."""

import dataclasses

import numpy as np
import pytest
from tiny import one_step_task

from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    RunParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    discrete_soft_actor_critic_networks,
    override,
    twin_soft_actor_critic_networks,
)
from tfsac.training import Trainer

GROUPED = {
    "agent__algorithm__num_consecutive_playing_steps": 10,
    "agent__algorithm__num_consecutive_training_steps": 10,
}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"environment__num_envs": 5}, marks=pytest.mark.acceptance),
        pytest.param({"environment__filters__observation_normalization": True}, marks=pytest.mark.acceptance),
        GROUPED,
    ],
    ids=["five environments", "normalised observations", "grouped updates"],
)
@pytest.mark.slow
def test_sac_solves_one_step_task(tmp_path, changes):
    result = Trainer(one_step_task(**changes), tmp_path / "run", RunParameters(seed=1), quiet=True).run()
    assert result.best_return > -0.15  # uniform actions get -2.7, zeros -1.1


@pytest.mark.acceptance
def test_policy_without_reward_stays_uniform(tmp_path):
    # Without reward, only entropy is maximised, by uniform actions on [-1, 1]^2.
    preset = one_step_task(environment__filters__reward_rescale_factor=1e-6)
    trainer = Trainer(preset, tmp_path / "run", RunParameters(seed=1), quiet=True)
    trainer.run()
    observation = {"observation": np.zeros((2000, 2), np.float32)}
    action = trainer.agent.policy.act(observation, mode="sample").action
    assert np.abs(action.mean(axis=0)).max() < 0.15
    np.testing.assert_allclose(action.std(axis=0), 1 / np.sqrt(3), atol=0.08)


FIXED, AUTOMATIC = FixedAlphaParameters(0.02), AutoAlphaParameters(target_entropy=-4.0, learning_rate=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "memory"),
    [(AUTOMATIC, "prioritized"), pytest.param(FIXED, "uniform", marks=pytest.mark.acceptance)],
    ids=["automatic, prioritized", "fixed, uniform"],
)
def test_twin_sac_solves_one_step_task(tmp_path, temperature, memory):
    agent = TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(temperature=temperature),
        networks=twin_soft_actor_critic_networks((32, 32), learning_rate=3e-3, batch_size=64),
    )
    preset = dataclasses.replace(one_step_task(environment__filters__reward_rescale_factor=1.0), agent=agent)
    preset = override(preset, {"agent.memory": {"kind": memory, "max_size": 2000}})
    result = Trainer(preset, tmp_path / "run", RunParameters(seed=1), quiet=True).run()
    assert result.best_return > -0.15


DISCRETE_TASKS = {  # level, kwargs, return by chance
    "discrete": ("DiscreteIdentity", {"size": 5}, 0.2),
    "masked": ("DiscreteIdentity", {"size": 5, "masked": True}, 1 / 3),
    "team": ("TeamIdentity", {"discrete": True}, 1 / 3),
}
TEAM = {"policy_input": "agent_state", "critic_input": "global_state"}
OPTIONS = {"learning_rate": 3e-3, "batch_size": 64}
ONE_STEP = {
    "environment.filters.reward_rescale_factor": 1.0,
    "environment.num_envs": 4,
    "agent.algorithm.num_consecutive_playing_steps": 20,
    "agent.algorithm.num_consecutive_training_steps": 20,
    "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(1)",
}


def one_step_preset(agent, level, kwargs):
    preset = dataclasses.replace(one_step_task(), agent=agent)
    return override(preset, {**ONE_STEP, "environment.level": f"toys:{level}-v0", "environment.kwargs": kwargs})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["masked", *(pytest.param(name, marks=pytest.mark.acceptance) for name in ("discrete", "team"))]
)
def test_discrete_sac_solves_one_step_task(tmp_path, name):
    level, kwargs, by_chance = DISCRETE_TASKS[name]
    temperature = DiscreteAutoAlphaParameters(target_entropy_ratio=0.2, learning_rate=1e-2)
    networks = discrete_soft_actor_critic_networks((32, 32), **(TEAM if level == "TeamIdentity" else {}), **OPTIONS)
    algorithm = DiscreteSoftActorCriticAlgorithmParameters(temperature=temperature)
    agent = DiscreteSoftActorCriticAgentParameters(algorithm, None, ExperienceReplayParameters(2000), networks)
    trainer = Trainer(one_step_preset(agent, level, kwargs), tmp_path / "run", RunParameters(seed=1), quiet=True)
    result = trainer.run()
    first = trainer.memory.between(0, 50)["reward"]  # random warm-up
    assert first.mean() == pytest.approx(by_chance, abs=0.12)
    assert result.best_return > 0.95


@pytest.mark.acceptance
def test_continuous_team_solves_one_step_task(tmp_path):
    networks = twin_soft_actor_critic_networks((64, 64), **TEAM, **OPTIONS)
    algorithm = TwinSoftActorCriticAlgorithmParameters(temperature=FixedAlphaParameters(0.01))
    agent = TwinSoftActorCriticAgentParameters(algorithm, None, ExperienceReplayParameters(2000), networks)
    preset = one_step_preset(agent, "TeamIdentity", {"discrete": False})
    result = Trainer(preset, tmp_path / "run", RunParameters(seed=1), quiet=True).run()
    assert result.best_return > -0.15  # uniform actions get -1.1, zeros -0.43
