"""Policies loaded without critics act as the policy of their agent; values need critics."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tiny
from toys import tiny_preset

import tfsac
from tfsac.environments import Filters, as_arrays, maker, spec_of
from tfsac.exporting import PolicyGraph
from tfsac.parameters import (
    DiscreteSoftActorCriticAgentParameters,
    ExperienceReplayParameters,
    RunParameters,
    discrete_soft_actor_critic_networks,
    override,
)
from tfsac.training import RunDirectory
from tfsac.training.build import build_agent
from tfsac.training.policy_weights import save_weights

STEPS, ROWS = 6, 3
MASKED, MASKS = "toys:DiscreteIdentity-v0", {"environment.kwargs": {"masked": True}}
NORMALISED = {"environment.filters.observation_normalization": True}


def shared_encoder():
    networks = discrete_soft_actor_critic_networks((16,), embedder=(16,), batch_size=32)
    memory = ExperienceReplayParameters(1000)
    agent = DiscreteSoftActorCriticAgentParameters(memory=memory, networks=networks, shared_encoder=True)
    return override(dataclasses.replace(tiny_preset(MASKED), agent=agent), MASKS)


# Preset and the networks that acting needs.
CASES = {
    "sac with v": (lambda: tiny_preset(**{"environment__filters__observation_normalization": True}), "policy"),
    "ensemble, running statistics": (lambda: tiny.ensemble(level="Pendulum-v1", **NORMALISED), "policy"),
    "discrete sac, shared encoder, masks": (shared_encoder, "policy"),
    "taac": (lambda: tiny.taac(**{"agent.algorithm.trajectory": "quadratic", **NORMALISED}), "policy q"),
    "acer, LSTMs": (lambda: tiny.acer(MASKED, lstm=True, **MASKS), "policy"),
    "acer, trunk with an LSTM": (lambda: tiny.acer(lstm=True, shared=True), "trunk policy"),
    "gaussian acer, LSTMs": (lambda: tiny.acer("Pendulum-v1", lstm=True), "policy"),
}


class Run:
    """An agent with changed weights and statistics, saved as the best policy of a run."""

    def __init__(self, folder, name):
        preset = CASES[name][0]()
        env, self.folder, run = maker(preset.environment)(), folder, RunParameters(seed=2)
        self.spec = spec_of(env)
        rows = [as_arrays(env.reset(seed=seed)[0], self.spec) for seed in range(STEPS * ROWS)]
        env.close()
        arrays = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        self.observations = {key: x.reshape(STEPS, ROWS, *x.shape[1:]) for key, x in arrays.items()}
        self.agent, self.filters = build_agent(preset, run, self.spec), Filters(preset.environment.filters, self.spec)
        rng = np.random.default_rng(5)
        for network in self.agent.networks.values():
            for variable in network.variables:
                change = rng.normal(scale=0.3, size=variable.shape)
                variable.assign_add(abs(change) if variable.name == "variance" else change)
        if name == "taac":
            self.agent.policy.choice_alpha.assign(0.4)
        self.agent.policy.refresh()
        self.filters.learn(arrays)
        directory = RunDirectory(folder)
        directory.create(preset, run)
        save_weights(directory.best, self.agent, self.filters)

    def act_repeatedly(self, policy, mode):
        """Returns the actions and states of consecutive steps, with a fixed random seed."""
        policy.acting.rng, state, results = np.random.default_rng(7), None, []
        for step in range(STEPS):
            seen = policy.filters.observation({key: x[step] for key, x in self.observations.items()})
            result = policy.acting.act(seen, state, np.full(ROWS, step == 3), mode)
            state = result.state
            results += [result.action, *(state[name] for name in policy.acting.state)]
        return results


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory):
    loaded = Run(tmp_path_factory.mktemp("policies") / "run", request.param)
    loaded.has_values = not request.param.endswith("LSTMs")  # recurrent critics have no values
    loaded.acting = set(CASES[request.param][1].split())
    loaded.policy = tfsac.load_policy(loaded.folder)
    loaded.full_policy = tfsac.load_policy(loaded.folder, critics=True)
    return loaded


@pytest.mark.slow
def test_policy_without_critics_acts_identically(run):
    assert run.policy.acting.networks.keys() == run.acting and run.policy.critics is None
    assert run.full_policy.critics.networks.keys() == run.agent.networks.keys()
    source = tfsac.Policy(run.agent.policy, run.filters)
    for mode in ("greedy", "sample"):
        expected = run.act_repeatedly(source, mode)
        assert any(x.any() for x in expected)
        for policy in (run.policy, run.full_policy):
            for ours, theirs in zip(run.act_repeatedly(policy, mode), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_values_match_the_exported_graph(run):
    policy = run.full_policy
    policy.reset()
    first, second = ({key: x[step] for key, x in run.observations.items()} for step in (0, 1))
    actions, graph = policy.act(first), PolicyGraph(policy, values=True)
    if not run.has_values:
        with pytest.raises(ValueError, match="LSTM"):
            policy.values(second, actions)
        return
    inputs = {key: tf.constant(x) for key, x in {**second, **policy.state}.items()}
    expected = graph.values(inputs, tf.constant(actions, policy.acting.spec.action.dtype))
    results = policy.values(second, actions)
    assert results.keys() == expected.keys() and {"q", "switch_q"} & results.keys()
    for name, value in expected.items():
        assert results[name].shape == (ROWS,)
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-5)
    policy.reset()
    pair_values = [policy.values({key: x[1] for key, x in first.items()}, action) for action in actions]
    of_one = policy.values({key: x[1] for key, x in first.items()}, actions)
    grid = policy.values({key: x[:, None] for key, x in first.items()}, actions)
    by_one_action = policy.values(first, actions[2])
    for name, values in of_one.items():
        np.testing.assert_allclose(values, [pair[name] for pair in pair_values], rtol=1e-5, atol=1e-5)
        assert grid[name].shape == (ROWS, ROWS) and by_one_action[name].shape == (ROWS,)
        np.testing.assert_allclose(grid[name][1], values, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(grid[name][:, 2], by_one_action[name], rtol=1e-5, atol=1e-5)
    assert any(np.ptp(values) > 0 for values in grid.values())


def test_values_need_critics_and_valid_actions(run, tmp_path):
    batch = {key: x[0] for key, x in run.observations.items()}
    single = {key: x[0] for key, x in batch.items()}
    out = tmp_path / "out"
    for values in (lambda: run.policy.values(single, 0), lambda: tfsac.export(run.policy, out, values=True)):
        with pytest.raises(ValueError, match="critics=True"):
            values()
    assert not list(tmp_path.iterdir())
    policy, action_spec = run.full_policy, run.spec.action
    policy.reset()
    out_of_bounds = np.zeros((ROWS, *action_spec.shape), action_spec.dtype)
    out_of_bounds[1] += 7
    for action in (np.concatenate([out_of_bounds, out_of_bounds]), out_of_bounds):
        with pytest.raises(ValueError, match="takes|mismatch" if run.has_values else "LSTM"):
            policy.values(batch, action)


@pytest.mark.filterwarnings("ignore:.* encountered in matmul")
def test_overflowing_policy_raises(tmp_path):
    preset = tiny.shrunk(tfsac.load_preset("cart_pole_discrete_sac"))
    policy = tfsac.load_policy(tiny.untrained_run(tmp_path / "run", "CartPole-v1", preset))
    for variable in policy.acting.networks["policy"].trainable_variables:
        variable.assign(tf.fill(variable.shape, np.float32(3e38)))
    policy.acting.refresh()
    with pytest.raises(ValueError, match="too large"):
        policy.act(np.ones(4, np.float32))
