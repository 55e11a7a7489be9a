"""Acting for many environments through a graph, as on an accelerator, matches acting with NumPy."""

import dataclasses

import numpy as np
import pytest
import strategy_tools as tools
import tensorflow as tf
from toys import random_batches, tiny_preset

from tfsac.networks import GraphForward
from tfsac.parameters import AdditiveNoiseParameters, EpsilonGreedyParameters, RunParameters, override
from tfsac.policies import stateless
from tfsac.training import Trainer
from tfsac.types import ACTION_MASK, ArraySpec

ROWS = 64
STATELESS = [name for name, case in tools.CASES.items() if issubclass(case[0].policy_class, stateless.StatelessPolicy)]


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["GPU"])
    monkeypatch.setattr(stateless, "MIN_ROWS_ON_ACCELERATOR", ROWS)


def compare(policy, spec):
    """Compares actions and consumed random numbers of NumPy and the graph in every mode; returns the actions."""
    observation = {key: x[0] for key, x in random_batches(spec, 1, ROWS, seed=4).observation.items()}
    if ACTION_MASK in observation:
        observation[ACTION_MASK][..., 0] = True
    actions_by_mode, forward = {}, policy.graph_forward
    for mode in ("random", "sample", "explore", "greedy"):
        ways = []
        for policy.graph_forward in (None, forward):
            policy.rng = np.random.default_rng(3)
            actions = tf.nest.flatten(policy.act(observation, mode=mode, env_steps=5).action)
            ways.append((actions, policy.rng.random()))
        actions_by_mode[mode] = np.concatenate([action.reshape(ROWS, -1) for action in ways[1][0]], axis=-1)
        for numpys, graphs in zip(*(actions for actions, _ in ways), strict=True):
            np.testing.assert_allclose(graphs, numpys, rtol=1e-4, atol=1e-5)
            assert graphs.dtype == numpys.dtype
        assert ways[1][1] == ways[0][1]
    assert forward.compute.experimental_get_tracing_count() == 1
    return actions_by_mode


@pytest.mark.parametrize("name", STATELESS)
def test_graph_actions_match_numpy(accelerator, name):
    agent, parameters, spec = tools.CASES[name]
    continuous = isinstance(spec.action, ArraySpec)
    noise = AdditiveNoiseParameters(0.3) if continuous else EpsilonGreedyParameters(0.5)
    policy = agent.policy_class.build(dataclasses.replace(parameters, exploration=noise), spec, seed=1)
    before, rng = compare(policy, spec), np.random.default_rng(5)
    for variable in policy.variables.values():
        variable.assign_add(abs(rng.normal(scale=0.3, size=variable.shape)))
    policy.refresh()
    after = compare(policy, spec)
    assert (after["sample"] != before["sample"]).any() and (after["explore"] != after["sample"]).any()


@pytest.mark.parametrize("name", ["twin, automatic temperature", "discrete, team"])
def test_graph_uses_updated_weights(accelerator, name):
    agent = tools.make_agent(name, eager=True)
    before = compare(agent.policy, agent.spec)
    agent.update(tools.global_batches(agent))
    after = compare(agent.policy, agent.spec)
    assert (after["sample"] != before["sample"]).any()
    follower = type(agent.policy).build(agent.policy.parameters, agent.spec, seed=2)
    follower.load_acting_weights(agent.policy.actor_weights())
    assert follower.graph_forward is None  # a graph would read other variables


def test_run_acts_through_graph_with_newest_weights(tmp_path, monkeypatch):
    calls = []

    class Compared(GraphForward):
        def __call__(self, observation, action=None):
            outputs, expected = super().__call__(observation), policy.forwards["policy"](observation)
            np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
            calls.append(outputs[0])
            return outputs

    monkeypatch.setattr(stateless, "MIN_ROWS_ON_ACCELERATOR", 4)  # evaluations have one environment
    preset = override(tiny_preset(), {"environment.num_envs": 4, "environment.filters.observation_normalization": True})
    trainer = Trainer(preset, tmp_path / "run", RunParameters(seed=1, tensorboard=False), quiet=True)
    policy = trainer.agent.policy
    policy.graph_forward = Compared(policy.networks["policy"], policy.spec)
    trainer.run()
    assert len(calls) == 25 and trainer.counters.updates > 0
