"""Properties of all agents: equivalent ways to update, checkpoints, noise, and importance weights."""

import numpy as np
import pytest
import strategy_tools as tools
import tensorflow as tf
from agent_tools import batch_at, variables

# Some have a policy delay.
NAMES = [
    "v, prioritized, policy delay",
    "twin, temperature outside log space, policy delay",
    "discrete, shared encoder, policy delay",
    "taac",
    "ensemble, batch renormalisation, no target",
    "acer, discrete, lstm",
    "acer, gaussian",
]


def batches_of(agent):
    """Returns three global batches."""
    return tf.nest.map_structure(lambda x: x[:3], tools.global_batches(agent))


def call(agent, batches, *parts):
    """Updates with each part of the batches in one call, and returns all metrics and priorities."""
    results = [agent.update(tf.nest.map_structure(lambda x, part=part: x[part], batches)) for part in parts]
    return [np.concatenate([getattr(result, name) for result in results]) for name in ("metrics", "priority")]


def assert_equal(agent, other, **tolerance):
    actual, expected = variables(agent), variables(other)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, err_msg=name, **tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_batched_single_and_eager_updates_agree(name):
    together, single, eager = (tools.make_agent(name, eager=eager) for eager in (False, False, True))
    for agent in (together, single, eager):
        tools.fix_noise(agent)
    batches = batches_of(together)
    expected = call(eager, batches, slice(None))
    for agent, parts in ((together, [slice(None)]), (single, [slice(i, i + 1) for i in range(3)])):
        for ours, theirs in zip(call(agent, batches, *parts), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
        assert agent.metric_names == eager.metric_names
        assert agent.compiled.traces == 1
        assert_equal(agent, eager, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_checkpoint_restores_all_trained_state(name, tmp_path):
    saved, restored = (tools.make_agent(name, seed=seed, eager=True) for seed in (1, 2))
    batches = batches_of(saved)
    saved.update(batches)
    path = tf.train.Checkpoint(agent=saved).write(str(tmp_path / "agent"))
    tf.train.Checkpoint(agent=restored).read(path).assert_consumed()
    for agent in (saved, restored):
        agent.update(batches)
    assert_equal(restored, saved, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_noise_depends_on_name_seed_and_update_number(name):
    first, same, other = (tools.make_agent(name, seed=seed, eager=True) for seed in (1, 1, 2))
    draws = [agent.noise("policy", [4, 4]).numpy() for agent in (first, same, other)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).all() and (draws[0] != first.noise("next", [4, 4]).numpy()).all()
    same.updates.assign_add(1)
    assert (same.noise("policy", [4, 4]).numpy() != draws[0]).all()


@pytest.mark.parametrize("name", ["v, prioritized, policy delay", "discrete", "ensemble, subset"])
def test_importance_weights_scale_losses_but_not_priorities(name):
    agent = tools.make_agent(name, eager=True)
    batch = batch_at(tools.global_batches(agent))

    def losses_and_priorities(weight):
        step = agent.critic_step(batch._replace(weight=tf.constant(weight, tf.float32)))
        return [float(x) for name, x in step.metrics.items() if name.startswith("loss/q")], step.values_B.numpy()

    weight = np.array([0, 2, 1, 0.5, 0, 1, 1, 3])
    losses, priorities = losses_and_priorities(weight)
    alone = [losses_and_priorities(row) for row in np.eye(len(weight))]
    np.testing.assert_allclose(losses, weight @ [loss for loss, _ in alone], rtol=1e-4)
    for _, same in alone:
        np.testing.assert_array_equal(same, priorities)
