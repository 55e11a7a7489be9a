"""Actor-critic with experience replay: what an update computes, which rows count, where gradients go, the average
policy.
"""

import numpy as np
import pytest
import tensorflow as tf
from acer_tools import (
    COLUMNS,
    KINDS,
    SOME,
    SOME_RECURRENT,
    alone,
    assert_gradients,
    columns_of,
    fix_noise,
    fresh_and_replayed,
    kept_agent,
    make_agent,
    metrics_of,
    mixed,
    named,
    probe,
    segments_of,
    side_by_side,
    stack,
)
from agent_tools import changed, weights
from toys import discrete_spec

of_kinds = pytest.mark.parametrize("given", SOME, ids=named)
of_both = pytest.mark.parametrize("kind", ["discrete", "gaussian"])


# -- segments ----------------------------------------------------------------------------------------------------------


@of_kinds
def test_an_update_is_the_mean_over_its_segments_one_at_a_time(given):
    agent = kept_agent(**given)
    batch, parts = mixed(agent), []
    segments = segments_of(batch)
    assert [(b, len(rows)) for b, rows in segments] == [(0, 1), (0, 1), (0, 2), (1, 4), (2, 2), (3, 3)]
    for b, rows in segments:
        fix_noise(agent, where=(b, rows))
        parts.append(probe(agent, alone(batch, b, rows)))
    fix_noise(agent)
    gradients, metrics = probe(agent, batch)
    mean = {
        name: [np.mean(x, axis=0) for x in zip(*(part[name] for part, _ in parts), strict=True)] for name in gradients
    }
    assert_gradients(gradients, mean)
    lengths = [len(rows) for _, rows in segments]
    for name, value in metrics.items():
        of_parts = [found[name] for _, found in parts]
        if name.startswith("loss/") or name == "segments/length":
            assert value == pytest.approx(np.mean(of_parts), rel=1e-4, abs=1e-6), name
        elif name.startswith(("policy/", "q/", "importance/", "trust_region/")):
            assert value == pytest.approx(np.average(of_parts, weights=lengths), rel=1e-4, abs=1e-6), name
    assert metrics["segments/length"] == pytest.approx(13 / 6)
    assert 0 < metrics["trust_region/active"] < 1 and 0 < metrics["importance/truncated"] < 1


@of_both
def test_without_normalisation_a_segments_steps_are_added(kind):
    agent, plain = (make_agent(kind, normalize_loss_by_steps=normalize) for normalize in (True, False))
    batch, sums = columns_of(mixed(agent), slice(2, 4)), []
    for b, rows in segments_of(batch):
        fix_noise(agent, where=(b, rows))
        of_mean, _ = probe(agent, alone(batch, b, rows))
        sums.append({name: [len(rows) * x for x in values] for name, values in of_mean.items()})
    fix_noise(plain, 2)
    assert_gradients(
        probe(plain, batch)[0],
        {name: [(x + y) / 2 for x, y in zip(sums[0][name], sums[1][name], strict=True)] for name in sums[0]},
    )


@of_kinds
def test_empty_columns_and_rows_without_a_step_change_nothing(given):
    agent = make_agent(**given, spec=discrete_spec(3, 3, masked=True) if given["kind"] == "discrete" else None)
    batch = mixed(agent)
    empty = tf.nest.map_structure(np.zeros_like, columns_of(batch, slice(1)))
    spoiled, rng = side_by_side(batch, empty), np.random.default_rng(9)
    without = np.concatenate([spoiled.length == 0, [[False] * COLUMNS + [True]]])
    for x in spoiled.observation.values():
        x[without] = (
            rng.uniform(20, 30, x[without].shape) > 25 if x.dtype == bool else rng.uniform(20, 30, x[without].shape)
        )
    fix_noise(agent)
    (ours, metrics), averages = probe(agent, batch), agent.averages.numpy()
    fix_noise(agent, COLUMNS + 1)
    theirs, others = probe(agent, spoiled)
    assert_gradients(ours, theirs, rtol=1e-4)
    assert metrics == pytest.approx(others, rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(agent.averages, averages, rtol=1e-5)
    assert all(np.isfinite(x).all() for values in (ours | theirs).values() for x in values)
    assert np.isfinite([*metrics.values(), *others.values()]).all()


# -- the end of a column -----------------------------------------------------------------------------------------------


def values_along(agent, observation, initial):
    """Returns V of single observations `[L, ...]` after one another, computed by Keras step by step."""
    state = {field: tf.constant(x[None]) for field, x in initial.items()}
    values = []
    for row in observation:
        outputs, given = {}, {"observation": tf.constant(row[None])}
        for name in agent.network_parameters:  # a trunk is the first
            read = {**given, **{field: state[f"{name}_{field}"] for field in agent.networks[name].lstm_state}}
            found = tf.nest.flatten(agent.networks[name](read, *([tf.zeros([1, 2])] if name == "advantage" else [])))
            state |= {f"{name}_{field}": found.pop() for field in reversed([*agent.networks[name].lstm_state])}
            outputs[name], given = found[0], {"features": found[0]} if name == "trunk" else given
        v = outputs["v"][0] if "v" in outputs else tf.reduce_sum(tf.nn.softmax(outputs["policy"]) * outputs["q"][:, 0])
        values.append(float(v))
    return values


@of_kinds
def test_a_column_that_was_cut_off_is_worth_what_comes_after_it(given):
    agent = make_agent(**given, discount=0.5)
    fix_noise(agent, 1)
    fresh, _ = fresh_and_replayed(agent, seed=5)
    batch = alone(fresh, 1, np.arange(1))  # one of four rows
    batch.is_first[:] = batch.nonterminal[0] = 0
    batch.nonterminal[0] = 1
    first, after = batch.observation["observation"][[0, -1], 0]
    (v, v_after) = values_along(agent, [first, after], {field: x[0] for field, x in batch.initial_state.items()})
    _, metrics = probe(agent, batch)
    assert metrics["policy/value"] == pytest.approx(v, rel=1e-4)
    assert metrics["q/target"] == pytest.approx(batch.reward[0, 0] + 0.5 * v_after, rel=1e-4)


@pytest.mark.parametrize("given", SOME_RECURRENT, ids=named)
def test_columns_begin_with_the_state_that_was_stored_for_each_network(given):
    agent = make_agent(**given, trust_region_delta=0.0)
    fix_noise(agent, 2)
    batch = columns_of(mixed(agent, seed=1), [1, 0])  # the first goes on from before, and has a second episode
    names = ["trunk", "trunk_target"] if given["shared"] else [*agent.network_parameters, "policy_target"]
    assert agent.policy.recurrent_state.keys() == {f"{name}_{field}" for name in names for field in ("hidden", "cell")}
    ours, metrics = probe(agent, batch)
    for name in names:
        field = f"{name}_cell"
        other = {**batch.initial_state, field: batch.initial_state[field] + np.float32([[0.5], [0.0]])}
        theirs, others = probe(agent, batch._replace(initial_state=other))
        assert name.removesuffix("_target") in changed(ours, theirs)
        assert (metrics["policy/kl"] != others["policy/kl"]) == name.startswith(("policy", "trunk"))
        # The second column begins with an episode: what came before it does not matter.
        other[field] = batch.initial_state[field] + np.float32([[0.0], [0.5]])
        assert changed(ours, probe(agent, batch._replace(initial_state=other))[0]) == set()


# -- the average policy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [KINDS[1], KINDS[7]], ids=named)  # golden vectors have no trunk
def test_the_average_policy_follows_after_the_update_and_learns_nothing_itself(given):
    agent = make_agent(**given)
    averaged = ["trunk", "policy"]
    assert agent.networks.keys() - agent.trained.keys() == {f"{name}_target" for name in averaged}
    before = weights(agent)
    agent.update(stack(mixed(agent)))
    after = weights(agent)
    assert changed(before, after) == agent.networks.keys()
    for name in averaged:
        for slow, online, moved in zip(before[f"{name}_target"], after[name], after[f"{name}_target"], strict=True):
            np.testing.assert_allclose(moved, 0.75 * slow + 0.25 * online, rtol=1e-5, atol=1e-7)


@of_both
def test_the_average_policy_begins_as_the_policy(kind):
    agent = make_agent(kind, stirred=False)
    for slow, online in zip(weights(agent)["policy_target"], weights(agent)["policy"], strict=True):
        np.testing.assert_array_equal(slow, online)
    kl = metrics_of(agent, stack(mixed(agent), mixed(agent, 3)))["policy/kl"]
    assert kl[0] == pytest.approx(0.0, abs=1e-6) and kl[1] > 1e-6


@pytest.mark.parametrize("given", [KINDS[1], KINDS[7]], ids=named)
def test_without_a_trust_region_there_need_not_be_an_average_policy(given):
    none = {name: {"create_target_network": False} for name in ("policy", "trunk")}
    agent, other = make_agent(**given, own=none, use_trust_region=False), make_agent(**given, use_trust_region=False)
    for ours, theirs in zip(agent.networks.values(), (other.networks[name] for name in agent.networks), strict=True):
        ours.copy_from(theirs)
    assert [*agent.networks] == [*agent.network_parameters]
    for one in (agent, other):
        fix_noise(one)
    batch = mixed(other)
    fitting = {field: x for field, x in batch.initial_state.items() if field in agent.policy.recurrent_state}
    (ours, metrics), (theirs, others) = probe(agent, batch._replace(initial_state=fitting)), probe(other, batch)
    assert_gradients(ours, theirs, rtol=1e-5)
    assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6) and others["policy/kl"] > 0.01


# -- values ------------------------------------------------------------------------------------------------------------


def test_values_are_those_of_q_and_actions_that_do_not_exist_have_none():
    agent, seen = make_agent("discrete"), {"observation": tf.ones([4, 3])}
    values = agent.value_tensors(seen, tf.constant([-1, 0, 2, 3]))
    q, prob = agent.networks["q"](seen)[0, 0].numpy(), tf.nn.softmax(agent.networks["policy"](seen))[0].numpy()
    np.testing.assert_allclose(values["q"], [np.nan, q[0], q[2], np.nan], rtol=1e-5)
    np.testing.assert_allclose(values["v"], [prob @ q] * 4, rtol=1e-4)
