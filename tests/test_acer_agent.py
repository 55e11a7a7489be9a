"""ACER updates: means over segments, padding, recurrent states and the average policy."""

import numpy as np
import pytest
import tensorflow as tf
from acer_tools import (
    COLUMNS,
    KINDS,
    QUICK_KINDS,
    QUICK_RECURRENT,
    assert_gradients,
    cached_agent,
    compute_gradients,
    concat_columns,
    fix_noise,
    fresh_and_replayed,
    kind_id,
    make_agent,
    mixed_batch,
    segments_of,
    select_columns,
    single_segment,
    stack,
    update_metrics,
)
from agent_tools import changed, weights
from toys import discrete_spec

each_kind = pytest.mark.parametrize("case", QUICK_KINDS, ids=kind_id)
both_kinds = pytest.mark.parametrize("kind", ["discrete", "gaussian"])


@each_kind
def test_update_is_mean_over_single_segments(case):
    agent = cached_agent(**case)
    batch, parts = mixed_batch(agent), []
    segments = segments_of(batch)
    assert [(b, len(rows)) for b, rows in segments] == [(0, 1), (0, 1), (0, 2), (1, 4), (2, 2), (3, 3)]
    for b, rows in segments:
        fix_noise(agent, segment=(b, rows))
        parts.append(compute_gradients(agent, single_segment(batch, b, rows)))
    fix_noise(agent)
    gradients, metrics = compute_gradients(agent, batch)
    mean = {
        name: [np.mean(x, axis=0) for x in zip(*(part[name] for part, _ in parts), strict=True)] for name in gradients
    }
    assert_gradients(gradients, mean)
    lengths = [len(rows) for _, rows in segments]
    for name, value in metrics.items():
        values = [part[name] for _, part in parts]
        if name.startswith("loss/") or name == "segments/length":
            assert value == pytest.approx(np.mean(values), rel=1e-4, abs=1e-6), name
        elif name.startswith(("policy/", "q/", "importance/", "trust_region/")):
            assert value == pytest.approx(np.average(values, weights=lengths), rel=1e-4, abs=1e-6), name
    assert metrics["segments/length"] == pytest.approx(13 / 6)
    assert 0 < metrics["trust_region/active"] < 1 and 0 < metrics["importance/truncated"] < 1


@both_kinds
def test_normalize_loss_by_steps_false_sums_over_steps(kind):
    agent, plain = (make_agent(kind, normalize_loss_by_steps=normalize) for normalize in (True, False))
    batch, sums = select_columns(mixed_batch(agent), slice(2, 4)), []
    for b, rows in segments_of(batch):
        fix_noise(agent, segment=(b, rows))
        mean, _ = compute_gradients(agent, single_segment(batch, b, rows))
        sums.append({name: [len(rows) * x for x in values] for name, values in mean.items()})
    fix_noise(plain, 2)
    assert_gradients(
        compute_gradients(plain, batch)[0],
        {name: [(x + y) / 2 for x, y in zip(sums[0][name], sums[1][name], strict=True)] for name in sums[0]},
    )


@each_kind
def test_padding_has_no_effect(case):
    agent = make_agent(**case, spec=discrete_spec(3, 3, masked=True) if case["kind"] == "discrete" else None)
    batch = mixed_batch(agent)
    empty = tf.nest.map_structure(np.zeros_like, select_columns(batch, slice(1)))
    spoiled, rng = concat_columns(batch, empty), np.random.default_rng(9)
    padding = np.concatenate([spoiled.length == 0, [[False] * COLUMNS + [True]]])
    for x in spoiled.observation.values():
        garbage = rng.uniform(20, 30, x[padding].shape)
        x[padding] = garbage > 25 if x.dtype == bool else garbage
    fix_noise(agent)
    (ours, metrics), averages = compute_gradients(agent, batch), agent.averages.numpy()
    fix_noise(agent, COLUMNS + 1)
    theirs, others = compute_gradients(agent, spoiled)
    assert_gradients(ours, theirs, rtol=1e-4)
    assert metrics == pytest.approx(others, rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(agent.averages, averages, rtol=1e-5)
    assert all(np.isfinite(x).all() for values in (ours | theirs).values() for x in values)
    assert np.isfinite([*metrics.values(), *others.values()]).all()


def values_along(agent, observation, initial):
    """Returns V of consecutive observations `[L, ...]`, computed by Keras step by step."""
    state = {field: tf.constant(x[None]) for field, x in initial.items()}
    values = []
    for row in observation:
        outputs, inputs = {}, {"observation": tf.constant(row[None])}
        for name in agent.network_parameters:  # the trunk comes first
            read = {**inputs, **{field: state[f"{name}_{field}"] for field in agent.networks[name].lstm_state}}
            result = tf.nest.flatten(agent.networks[name](read, *([tf.zeros([1, 2])] if name == "advantage" else [])))
            state |= {f"{name}_{field}": result.pop() for field in reversed([*agent.networks[name].lstm_state])}
            outputs[name], inputs = result[0], {"features": result[0]} if name == "trunk" else inputs
        v = outputs["v"][0] if "v" in outputs else tf.reduce_sum(tf.nn.softmax(outputs["policy"]) * outputs["q"][:, 0])
        values.append(float(v))
    return values


@each_kind
def test_truncated_column_bootstraps_from_next_observation(case):
    agent = make_agent(**case, discount=0.5)
    fix_noise(agent, 1)
    fresh, _ = fresh_and_replayed(agent, seed=5)
    batch = single_segment(fresh, 1, np.arange(1))  # one of four steps
    batch.is_first[:] = batch.nonterminal[0] = 0
    batch.nonterminal[0] = 1
    first, after = batch.observation["observation"][[0, -1], 0]
    (v, v_after) = values_along(agent, [first, after], {field: x[0] for field, x in batch.initial_state.items()})
    _, metrics = compute_gradients(agent, batch)
    assert metrics["policy/value"] == pytest.approx(v, rel=1e-4)
    assert metrics["q/target"] == pytest.approx(batch.reward[0, 0] + 0.5 * v_after, rel=1e-4)


@pytest.mark.parametrize("case", QUICK_RECURRENT, ids=kind_id)
def test_columns_start_from_stored_recurrent_states(case):
    agent = make_agent(**case, trust_region_delta=0.0)
    fix_noise(agent, 2)
    # The first column continues an episode; the second column begins with one.
    batch = select_columns(mixed_batch(agent, seed=1), [1, 0])
    names = ["trunk", "trunk_target"] if case["shared"] else [*agent.network_parameters, "policy_target"]
    assert agent.policy.recurrent_state.keys() == {f"{name}_{field}" for name in names for field in ("hidden", "cell")}
    ours, metrics = compute_gradients(agent, batch)
    for name in names:
        field = f"{name}_cell"
        other = {**batch.initial_state, field: batch.initial_state[field] + np.float32([[0.5], [0.0]])}
        theirs, others = compute_gradients(agent, batch._replace(initial_state=other))
        assert name.removesuffix("_target") in changed(ours, theirs)
        assert (metrics["policy/kl"] != others["policy/kl"]) == name.startswith(("policy", "trunk"))
        # A stored state has no effect on a column that begins with an episode.
        other[field] = batch.initial_state[field] + np.float32([[0.0], [0.5]])
        assert changed(ours, compute_gradients(agent, batch._replace(initial_state=other))[0]) == set()


@pytest.mark.parametrize("case", [KINDS[1], KINDS[7]], ids=kind_id)  # golden vectors have no trunk
def test_average_policy_is_updated_by_averaging_only(case):
    agent = make_agent(**case)
    averaged = ["trunk", "policy"]
    assert agent.networks.keys() - agent.trained.keys() == {f"{name}_target" for name in averaged}
    before = weights(agent)
    agent.update(stack(mixed_batch(agent)))
    after = weights(agent)
    assert changed(before, after) == agent.networks.keys()
    for name in averaged:
        for before_update, online, updated in zip(
            before[f"{name}_target"], after[name], after[f"{name}_target"], strict=True
        ):
            np.testing.assert_allclose(updated, 0.75 * before_update + 0.25 * online, rtol=1e-5, atol=1e-7)


@both_kinds
def test_average_policy_starts_as_copy_of_policy(kind):
    agent = make_agent(kind, randomize=False)
    for average, online in zip(weights(agent)["policy_target"], weights(agent)["policy"], strict=True):
        np.testing.assert_array_equal(average, online)
    kl = update_metrics(agent, stack(mixed_batch(agent), mixed_batch(agent, 3)))["policy/kl"]
    assert kl[0] == pytest.approx(0.0, abs=1e-6) and kl[1] > 1e-6


@pytest.mark.parametrize("case", [KINDS[1], KINDS[7]], ids=kind_id)
def test_average_policy_is_optional_without_trust_region(case):
    none = {name: {"create_target_network": False} for name in ("policy", "trunk")}
    agent, other = (make_agent(**case, overrides=x, use_trust_region=False) for x in (none, None))
    for ours, theirs in zip(agent.networks.values(), (other.networks[name] for name in agent.networks), strict=True):
        ours.copy_from(theirs)
    assert [*agent.networks] == [*agent.network_parameters]
    for each in (agent, other):
        fix_noise(each)
    batch = mixed_batch(other)
    state = {field: x for field, x in batch.initial_state.items() if field in agent.policy.recurrent_state}
    (ours, metrics), (theirs, others) = (
        compute_gradients(agent, batch._replace(initial_state=state)),
        compute_gradients(other, batch),
    )
    assert_gradients(ours, theirs, rtol=1e-5)
    assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6) and others["policy/kl"] > 0.01


def test_values_are_q_and_nan_for_invalid_actions():
    agent, observation = make_agent("discrete"), {"observation": tf.ones([4, 3])}
    values = agent.value_tensors(observation, tf.constant([-1, 0, 2, 3]))
    q = agent.networks["q"](observation)[0, 0].numpy()
    prob = tf.nn.softmax(agent.networks["policy"](observation))[0].numpy()
    np.testing.assert_allclose(values["q"], [np.nan, q[0], q[2], np.nan], rtol=1e-5)
    np.testing.assert_allclose(values["v"], [prob @ q] * 4, rtol=1e-4)
