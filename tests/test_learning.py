"""Learning: a task of one step in seconds, and the embedded default to its threshold."""

import dataclasses

import numpy as np
import pytest
from learning_tools import one_step_task

import tfsac
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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"environment__num_envs": 5}, marks=pytest.mark.slow),
        pytest.param({"environment__filters__observation_normalization": True}, marks=pytest.mark.slow),
        {
            "agent__algorithm__num_consecutive_playing_steps": 10,
            "agent__algorithm__num_consecutive_training_steps": 10,
        },
    ],
    ids=["one environment", "five environments", "normalised observations", "grouped updates"],
)
def test_the_policy_learns_to_repeat_what_it_sees(tmp_path, changes):
    result = Trainer(one_step_task(**changes), tmp_path / "run", RunParameters(seed=1), quiet=True).run()
    assert result.best_return > -0.15  # a uniform policy gets -2.7, one that stays in the middle -1.1


@pytest.mark.slow
def test_a_policy_without_reward_stays_as_random_as_it_can(tmp_path):
    # With nothing to gain, entropy is all there is: the uniform density on [-1, 1]^2 has log density -2 log 2.
    preset = one_step_task(environment__filters__reward_rescale_factor=1e-6)
    trainer = Trainer(preset, tmp_path / "run", RunParameters(seed=1), quiet=True)
    trainer.run()
    observation = {"observation": np.zeros((2000, 2), np.float32)}
    action = trainer.agent.policy.act(observation, mode="sample").action
    assert np.abs(action.mean(axis=0)).max() < 0.15
    np.testing.assert_allclose(action.std(axis=0), 1 / np.sqrt(3), atol=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["uniform", "prioritized"])
@pytest.mark.parametrize("temperature", [FixedAlphaParameters(0.02), AutoAlphaParameters(target_entropy=-4.0, learning_rate=1e-2)], ids=["fixed", "automatic"])
def test_the_twin_target_agent_learns_it_too(tmp_path, temperature, memory):
    agent = TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(temperature=temperature),
        networks=twin_soft_actor_critic_networks((32, 32), learning_rate=3e-3, batch_size=64),
    )
    preset = dataclasses.replace(one_step_task(environment__filters__reward_rescale_factor=1.0), agent=agent)
    preset = override(preset, {"agent.memory": {"kind": memory, "max_size": 2000}})
    result = Trainer(preset, tmp_path / "run", RunParameters(seed=1), quiet=True).run()
    assert result.best_return > -0.15


CHOICES = {  # of one agent, and of the three of a team
    "a choice": ("DiscreteIdentity", {"size": 5}, 0.2),
    "a masked choice": ("DiscreteIdentity", {"size": 5, "masked": True}, 1 / 3),
    "a team of choices": ("TeamIdentity", {"discrete": True}, 1 / 3),
}
TEAM = {"policy_input": "agent_state", "critic_input": "global_state"}
TRAINED = {"learning_rate": 3e-3, "batch_size": 64}
GROUPED = {
    "environment.filters.reward_rescale_factor": 1.0,
    "environment.num_envs": 4,
    "agent.algorithm.num_consecutive_playing_steps": 20,
    "agent.algorithm.num_consecutive_training_steps": 20,
    "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(1)",
}


def one_step_choice(agent, level, kwargs):
    preset = dataclasses.replace(one_step_task(), agent=agent)
    return override(preset, {**GROUPED, "environment.level": f"tfsac.testing:{level}-v0", "environment.kwargs": kwargs})


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_learned_by_one_agent_and_by_each_of_a_team(tmp_path, name):
    level, kwargs, by_chance = CHOICES[name]
    temperature = DiscreteAutoAlphaParameters(target_entropy_ratio=0.2, learning_rate=1e-2)
    networks = discrete_soft_actor_critic_networks((32, 32), **(TEAM if level == "TeamIdentity" else {}), **TRAINED)
    algorithm = DiscreteSoftActorCriticAlgorithmParameters(temperature=temperature)
    agent = DiscreteSoftActorCriticAgentParameters(algorithm, None, ExperienceReplayParameters(2000), networks)
    trainer = Trainer(one_step_choice(agent, level, kwargs), tmp_path / "run", RunParameters(seed=1), quiet=True)
    result = trainer.run()
    first = trainer.memory.between(0, 50)["reward"]  # of the heat-up
    assert first.mean() == pytest.approx(by_chance, abs=0.12)
    assert result.best_return > 0.95


@pytest.mark.slow
def test_each_agent_of_a_team_learns_its_numbers_from_one_reward(tmp_path):
    networks = twin_soft_actor_critic_networks((64, 64), **TEAM, **TRAINED)
    algorithm = TwinSoftActorCriticAlgorithmParameters(temperature=FixedAlphaParameters(0.01))
    agent = TwinSoftActorCriticAgentParameters(algorithm, None, ExperienceReplayParameters(2000), networks)
    preset = one_step_choice(agent, "TeamIdentity", {"discrete": False})
    result = Trainer(preset, tmp_path / "run", RunParameters(seed=1), quiet=True).run()
    assert result.best_return > -0.15  # uniform actions get -1.1, zeros -0.43


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cart_pole_discrete_sac", "cart_pole_sqil", "pendulum_sqil"])
def test_a_preset_of_choices_or_imitation_reaches_its_threshold(tmp_path, name):
    preset = tfsac.load_preset(name)
    result = tfsac.train(preset, tmp_path / "run", RunParameters(seed=1, stop_at_threshold=True), quiet=True)
    assert result.accepted, result
    done = tfsac.evaluate(tmp_path / "run", episodes=20, seed=7)
    assert done.returns.mean() > (400 if name.startswith("cart_pole") else -250)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [("pendulum_sac", {}), ("pendulum_twin_sac", {}), ("taac_simple_control", {"agent.algorithm.trajectory": "linear"})],
)
def test_a_pendulum_preset_reaches_its_threshold(tmp_path, name, changes):
    preset = override(tfsac.load_preset(name), changes)
    result = tfsac.train(preset, tmp_path / "run", RunParameters(seed=1, stop_at_threshold=True), quiet=True)
    assert result.accepted, result
    done = tfsac.evaluate(tmp_path / "run", episodes=20, seed=7)
    assert done.returns.mean() > -250 and done.returns.min() > -1000  # swings up from everywhere


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("acer_cartpole", 400), ("acer_pendulum", -750)])
def test_a_preset_that_replays_segments_reaches_its_threshold(tmp_path, name, least):
    result = tfsac.train(tfsac.load_preset(name), tmp_path / "run", RunParameters(seed=1, stop_at_threshold=True), quiet=True)
    assert result.accepted, result
    assert tfsac.evaluate(tmp_path / "run", episodes=20, seed=7).returns.mean() > least
