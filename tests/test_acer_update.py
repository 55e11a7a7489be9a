"""Actor-critic with experience replay: the loss of an update by hand, where its gradients go, what options and
metrics mean.
"""

import dataclasses
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
from toys import discrete_spec, vector_spec

from tfsac.policies.distributions import DiagonalGaussian
from tfsac.policies.recurrent import MEAN, VARIANCE, features_of_segments

CRITICS = {"discrete": ("q",), "gaussian": ("v", "advantage")}


# -- the loss ----------------------------------------------------------------------------------------------------------


GEOMETRIES = {"discrete": ["logits", "log_probs", "probabilities"], "gaussian": ["variance", "scale"]}


def test_a_trust_region_that_no_step_leaves_changes_nothing_in_any_statistics():
    free = make_agent(use_trust_region=False)
    batch = mixed(free)
    fix_noise(free)
    expected, _ = probe(free, batch)
    for statistics in GEOMETRIES["discrete"]:
        agent = make_agent(trust_region_statistics=statistics, trust_region_delta=1e6)
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


def test_the_trace_of_many_dimensions_is_the_root_of_the_whole_ratio():
    agent = make_agent("gaussian", vector_spec(3, 16))
    batch = fresh_and_replayed(agent)[0]
    batch = batch._replace(action=3 * batch.action, on_policy=0 * batch.on_policy)
    batch = tf.nest.map_structure(tf.constant, batch)
    rows = agent.row_values(batch, features_of_segments(agent.networks, batch))
    action, mean, variance = (
        tf.reshape(x, [-1, 16]) for x in (batch.action, batch.extras[MEAN], batch.extras[VARIANCE])
    )
    raw = (rows.policy.log_prob(action) - DiagonalGaussian(mean, variance).log_prob(action)).numpy().astype(float)
    assert raw.min() < -60.0  # far below what the other importance weights are clipped to
    np.testing.assert_allclose(rows.trace_R, np.exp(np.minimum(0.0, raw / 16)), rtol=1e-4)


# -- where gradients go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [KINDS[1], KINDS[7]], ids=named)
def test_a_trunk_learns_from_all_losses(given):
    plain, names = make_agent(**given), ("policy", *CRITICS[given["kind"]])
    heads = {name: plain.network_parameters[name].head_parameters for name in names}
    off = {name: {"head_parameters": dataclasses.replace(head, loss_weight=0.0)} for name, head in heads.items()}
    agents = [plain, *(make_agent(**given, own={n: off[n] for n in names if n != name}) for name in names)]
    batch, trunks = mixed(plain), []
    for agent in agents:
        fix_noise(agent)
        trunks.append(probe(agent, batch)[0]["trunk"])
    for whole, *parts in zip(*trunks, strict=True):
        assert all(np.abs(part).max() > 0 for part in parts)
        np.testing.assert_allclose(whole, np.sum(parts, axis=0), rtol=1e-3, atol=1e-5)


def test_the_penalty_pulls_the_kernels_of_all_networks():
    plain, pulled = make_agent(**KINDS[3]), make_agent(**KINDS[3], networks={"l2_regularization": 0.25})
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


# -- metrics -----------------------------------------------------------------------------------------------------------


def constant_agent(**algorithm):
    """Two choices with probabilities 0.8 and 0.2, on average 0.5, of values 1 and -1: V is 0.6."""
    agent = make_agent(spec=discrete_spec(3, 2), stirred=False, steps=2, columns=3, discount=0.5, **algorithm)
    for network in agent.networks.values():
        for variable in network.trainable_variables:
            variable.assign(0 * variable)
    agent.networks["policy"].head.logits.bias.assign(np.log([0.8, 0.2]))
    agent.networks["q"].head.critics.output_layer.bias.assign([[1.0, -1.0]])
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
    ("truncation", "delta", "truncated", "active"),
    [(5.0, 0.25, 0.25, 0.25), (9.0, 0.27, 0.0, 0.0), (0.75, 0.0, 0.25, 0.25), (None, None, 0.0, 0.0)],
)
def test_metrics_by_hand(truncation, delta, truncated, active):
    region = {"use_trust_region": False} if delta is None else {"trust_region_delta": delta}
    agent = constant_agent(statistics_decay=0.75, truncation_threshold=truncation, **region)
    found = metrics_of(agent, stack(by_hand(), by_hand()))
    for name, value in {**METRICS, "importance/truncated": truncated, "trust_region/active": active}.items():
        assert found[name][0] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    second = 0.75 * found["average/kl"][0] + 0.25 * found["policy/kl"][1]
    assert found["average/kl"][1] == pytest.approx(second, rel=1e-4) == float(agent.averages[2])
