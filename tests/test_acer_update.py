"""Actor-critic with experience replay: the loss of an update by hand, where its gradients go, what options and
metrics mean.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
from acer_tools import (
    KINDS,
    assert_gradients,
    fix_noise,
    fresh_and_replayed,
    make_agent,
    metrics_of,
    mixed,
    named,
    probe,
    stack,
)
from critic_tools import layers_of_critics
from toys import discrete_spec, vector_spec

from tfsac.policies.recurrent import MEAN, VARIANCE, features_of_segments

of_both = pytest.mark.parametrize("kind", ["discrete", "gaussian"])
CRITICS = {"discrete": ("q",), "gaussian": ("v", "advantage")}


# -- the loss ----------------------------------------------------------------------------------------------------------


def gaussian_log_prob(mean, variance, action):
    return -0.5 * tf.reduce_sum((action - mean) ** 2 / variance + tf.math.log(2 * math.pi * variance), axis=-1)


GEOMETRIES = {"discrete": ["logits", "log_probs", "probabilities"], "gaussian": ["variance", "scale"]}


@of_both
def test_a_trust_region_that_no_step_leaves_changes_nothing_in_any_statistics(kind):
    free = make_agent(kind, use_trust_region=False)
    batch = mixed(free)
    fix_noise(free)
    expected, _ = probe(free, batch)
    for statistics in GEOMETRIES[kind]:
        agent = make_agent(kind, trust_region_statistics=statistics, trust_region_delta=1e6)
        fix_noise(agent)
        gradients, metrics = probe(agent, batch)
        assert_gradients(gradients, expected, rtol=1e-3, atol=1e-5)
        assert metrics["trust_region/active"] == 0.0


@pytest.mark.parametrize(("kind", "statistics"), [(kind, one) for kind in GEOMETRIES for one in GEOMETRIES[kind]])
@pytest.mark.parametrize("truncation", [None, 0.0, 5.0])
def test_sure_policies_have_finite_gradients(kind, statistics, truncation):
    agent = make_agent(kind, trust_region_statistics=statistics, truncation_threshold=truncation)
    batch, discrete = mixed(agent), kind == "discrete"
    stored = "behaviour/logits" if discrete else "behaviour/variance"
    certain = {"policy": [1e10, 0.0, -1e10], "policy_target": [-1e10, 0.0, 1e10], "behaviour": [0.0, 1e10, 0.0]}
    for sure in (["policy"], ["policy_target"], ["behaviour"], [*certain]):
        for name in ("policy", "policy_target"):
            head = agent.networks[name].head
            layer = head.logits if discrete else head.variance
            layer.kernel.assign(0 * layer.kernel)
            layer.bias.assign((certain[name] if discrete else [-60.0] * 2) if name in sure else 0 * layer.bias)
        values = np.float32(certain["behaviour"] if discrete else 1e-10)
        extras = {**batch.extras, **({stored: 0 * batch.extras[stored] + values} if "behaviour" in sure else {})}
        gradients, metrics = probe(agent, batch._replace(extras=extras))
        assert all(np.isfinite(x).all() for every in gradients.values() for x in every), sure
        assert all(np.isfinite(value) for value in metrics.values()), (sure, metrics)


@pytest.mark.parametrize("on_policy", [False, True])
def test_the_trace_of_many_dimensions_is_the_root_of_the_whole_ratio(on_policy):
    agent = make_agent("gaussian", vector_spec(3, 16))
    batch = fresh_and_replayed(agent)[0]
    batch = batch._replace(action=3 * batch.action, on_policy=np.full_like(batch.on_policy, on_policy))
    batch = tf.nest.map_structure(tf.constant, batch)
    rows = agent.row_values(batch, features_of_segments(agent.networks, batch))
    action, mean, variance = (
        tf.reshape(x, [-1, 16]) for x in (batch.action, batch.extras[MEAN], batch.extras[VARIANCE])
    )
    raw = (rows.policy.log_prob(action) - gaussian_log_prob(mean, variance, action)).numpy().astype(float)
    assert raw.min() < -60.0  # far below what the other importance weights are clipped to
    expected = np.ones_like(raw) if on_policy else np.exp(np.minimum(0.0, raw / 16))
    np.testing.assert_allclose(rows.trace_R, expected, rtol=1e-4)


# -- where gradients go ------------------------------------------------------------------------------------------------


@of_both
def test_the_losses_of_separate_networks_do_not_reach_each_other(kind):
    agent = make_agent(kind)
    parts = {
        name: make_agent(kind, weights={other: 0.0 for other in agent.network_parameters if other != name})
        for name in agent.network_parameters
    }
    batch = mixed(agent)
    for one in (agent, *parts.values()):
        fix_noise(one)
    (whole, _), apart = probe(agent, batch), {name: probe(part, batch)[0] for name, part in parts.items()}
    trains = {
        name: {found for found, values in gradients.items() if any(x.any() for x in values)}
        for name, gradients in apart.items()
    }
    assert trains == {name: {"advantage", "v"} if name == "advantage" else {name} for name in agent.network_parameters}
    for name in {"policy", "q", "advantage"} & whole.keys():
        assert_gradients({name: whole[name]}, {name: apart[name][name]}, rtol=0, atol=0)
    if kind == "gaussian":
        both = [x + y for x, y in zip(apart["v"]["v"], apart["advantage"]["v"], strict=True)]
        assert_gradients({"v": whole["v"]}, {"v": both}, rtol=1e-4)


@pytest.mark.parametrize("given", [KINDS[1], KINDS[7]], ids=named)
def test_a_trunk_learns_from_all_losses(given):
    names = ("policy", *CRITICS[given["kind"]])
    agents = [make_agent(**given)] + [
        make_agent(**given, weights={other: 0.0 for other in names if other != name}) for name in names
    ]
    batch, trunks = mixed(agents[0]), []
    for agent in agents:
        fix_noise(agent)
        trunks.append(probe(agent, batch)[0]["trunk"])
    for whole, *parts in zip(*trunks, strict=True):
        assert all(np.abs(part).max() > 0 for part in parts)
        np.testing.assert_allclose(whole, np.sum(parts, axis=0), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("given", [KINDS[3], KINDS[4]], ids=named)
def test_the_penalty_pulls_the_kernels_of_all_networks(given):
    plain, pulled = make_agent(**given), make_agent(**given, networks={"l2_regularization": 0.25})
    batch, found = mixed(plain), []
    for agent in (plain, pulled):
        fix_noise(agent)
        found.append(probe(agent, batch)[0])
    for name, variables in plain.trained.items():
        for variable, free, bound in zip(variables, *(gradients[name] for gradients in found), strict=True):
            pull = 0.25 * variable.numpy() if variable.name.endswith("kernel") else 0.0
            np.testing.assert_allclose(bound - free, pull * np.ones_like(free), atol=1e-5)


@pytest.mark.parametrize(("given", "bound"), [(KINDS[1], 0.1), (KINDS[4], 0.1), (KINDS[4], 1e6)])
def test_gradients_are_clipped_by_the_common_norm_of_all_networks(given, bound, monkeypatch):
    agent = make_agent(**given, networks={"clip_gradients": bound}, own={"policy": {"clip_gradients": 2 * bound}})
    fix_noise(agent)
    batch, received = mixed(agent), {}
    gradients, _ = probe(agent, batch)
    norm = np.sqrt(sum(np.square(x).sum() for values in gradients.values() for x in values))
    for name, optimizer in agent.optimizers.items():
        monkeypatch.setattr(optimizer, "apply", lambda values, variables, name=name: received.update({name: values}))
    metrics = metrics_of(agent, stack(batch))
    assert metrics["gradient_norm"][0] == pytest.approx(norm, rel=1e-5) and 0.2 < norm < 1e6
    for name, values in gradients.items():
        factor = min(1.0, (2 if name == "policy" else 1) * bound / norm)
        assert_gradients({name: received[name]}, {name: [factor * x for x in values]}, rtol=1e-4)


# -- options -----------------------------------------------------------------------------------------------------------


@of_both
def test_batches_have_t_max_rows_and_a_column_for_each_of_the_batch(kind):
    agent = make_agent(kind, cells=3, steps=6, columns=2, spec=None)
    rows = agent.batch_spec()
    assert rows.reward.shape == (6, 2) and rows.observation["observation"].shape == (7, 2, 3)
    assert {x.shape.as_list()[0] for x in rows.initial_state.values()} == {
        2
    } and rows.initial_state.keys() == agent.policy.recurrent_state.keys()
    with pytest.raises(ValueError):
        agent.update(stack(mixed(make_agent(kind, cells=3))))
    with pytest.raises(ValueError):
        agent.update(stack(fresh_and_replayed(make_agent(kind, steps=6, columns=2), columns=2)[0]))


# -- metrics -----------------------------------------------------------------------------------------------------------


def constant_agent(**algorithm):
    """Two choices with probabilities 0.8 and 0.2, on average 0.5, of values 1 and -1: V is 0.6."""
    agent = make_agent(spec=discrete_spec(3, 2), stirred=False, steps=2, columns=3, discount=0.5, **algorithm)
    for network in agent.networks.values():
        for variable in network.trainable_variables:
            variable.assign(0 * variable)
    nets = agent.networks
    for head, values in (
        (nets["policy"].head.logits, np.log([0.8, 0.2])),
        (layers_of_critics(nets["q"])[0][-1], [1.0, -1.0]),
    ):
        head.bias.assign(values)
    return agent


def by_hand():
    """A fresh column of two steps, with which a task ended, and two replayed ones of one step: an end, and a cut."""
    batch = fresh_and_replayed(constant_agent(), columns=3)[0]
    row = np.float32
    mu = np.log(row([[[0.8, 0.2], [0.1, 0.9], [0.6, 0.4]], [[0.8, 0.2], [1, 1], [1, 1]]]))
    return batch._replace(
        action=np.int32([[0, 0, 1], [1, 0, 0]]),
        reward=row([[1, 0, 1], [2, 0, 0]]),
        nonterminal=row([[1, 0, 1], [0, 0, 0]]),
        is_first=row([[1, 0, 0], [0, 0, 0]]),
        length=row([[2, 1, 1], [2, 0, 0]]),
        on_policy=row([[1, 0, 0], [1, 0, 0]]),
        extras={"behaviour/logits": mu},
    )


# Ratios 1, 1, 0.8 / 0.1 = 8 and 0.2 / 0.4 = 0.5; Qret 1 + (2 + 1 + 0.6) / 2 = 2.8, 2, 0 and 1 + 0.6 / 2 = 1.3.
METRICS = {
    "loss/q": 0.5 * ((1.62 + 4.5) / 2 + 0.5 + 2.645) / 3,
    "policy/value": 0.6,
    "policy/entropy": -0.8 * math.log(0.8) - 0.2 * math.log(0.2),
    "policy/kl": math.log(1.25),
    "average/value": 0.25 * 0.6,
    "average/kl": 0.25 * math.log(1.25),
    "q/q": 0.0,
    "q/target": (2.8 + 2.0 + 0.0 + 1.3) / 4,
    "importance/ratio": (1 + 1 + 8 + 0.5) / 4,
    "segments/length": 4 / 3,
    "learning_rate/q": 0.01,
}


# The divergence's gradient is (-0.3, 0.3). The first step's is -2.2 (0.2, -0.2): their product is 0.264, others' are
# negative.
@pytest.mark.parametrize(
    ("given", "metrics"),
    [
        (
            {"truncation_threshold": 5.0, "trust_region_delta": 0.25},
            {"importance/truncated": 0.25, "trust_region/active": 0.25},
        ),
        (
            {"truncation_threshold": 9.0, "trust_region_delta": 0.27},
            {"importance/truncated": 0.0, "trust_region/active": 0.0},
        ),
        (
            {"truncation_threshold": 0.75, "trust_region_delta": 0.0},
            {"importance/truncated": 0.25, "trust_region/active": 0.25},
        ),
        (
            {"truncation_threshold": None, "use_trust_region": False},
            {"importance/truncated": 0.0, "trust_region/active": 0.0},
        ),
    ],
    ids=["some", "none", "most", "without"],
)
def test_metrics_by_hand(given, metrics):
    agent = constant_agent(statistics_decay=0.75, **given)
    found = {name: values[0] for name, values in metrics_of(agent, stack(by_hand())).items()}
    for name, value in {**METRICS, **metrics}.items():
        assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


@of_both
def test_names_of_metrics_and_their_running_averages(kind):
    agent = make_agent(kind, statistics_decay=0.75)
    found = metrics_of(agent, stack(*[mixed(agent, seed) for seed in (5, 3, 1)]))
    critics = ["q"] if kind == "discrete" else ["advantage", "v"]
    assert [*found] == [
        "loss/policy",
        *(f"loss/{name}" for name in critics),
        "policy/value",
        "policy/entropy",
        "policy/kl",
        "q/target",
        "trust_region/active",
        "q/q",
        "importance/ratio",
        "importance/truncated",
        "average/value",
        "average/entropy",
        "average/kl",
        "segments/length",
        "gradient_norm",
        *(f"learning_rate/{name}" for name in agent.network_parameters),
    ]
    for i, name in enumerate(("value", "entropy", "kl")):
        average = 0.0
        for value, running in zip(found[f"policy/{name}"], found[f"average/{name}"], strict=True):
            average = 0.75 * average + 0.25 * value
            assert running == pytest.approx(average, rel=1e-4)
        assert float(agent.averages[i]) == pytest.approx(average, rel=1e-4)
