"""ACER updates: trust region, gradients of each loss, options, and hand-computed metrics."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from acer_tools import (
    KINDS,
    assert_gradients,
    compute_gradients,
    fix_noise,
    fresh_and_replayed,
    kind_id,
    make_agent,
    mixed_batch,
    stack,
    update_metrics,
)
from toys import discrete_spec, vector_spec

from tfsac.policies.distributions import DiagonalGaussian
from tfsac.policies.recurrent import MEAN, VARIANCE, features_of_segments

CRITICS = {"discrete": ("q",), "gaussian": ("v", "advantage")}
GEOMETRIES = {"discrete": ["logits", "log_probs", "probabilities"], "gaussian": ["variance", "scale"]}


def test_inactive_trust_region_has_no_effect():
    free = make_agent(use_trust_region=False)
    batch = mixed_batch(free)
    fix_noise(free)
    expected, _ = compute_gradients(free, batch)
    for statistics in GEOMETRIES["discrete"]:
        agent = make_agent(trust_region_statistics=statistics, trust_region_delta=1e6)
        fix_noise(agent)
        gradients, metrics = compute_gradients(agent, batch)
        assert_gradients(gradients, expected, rtol=1e-3, atol=1e-5)
        assert metrics["trust_region/active"] == 0.0


@pytest.mark.parametrize(("kind", "statistics"), [(kind, name) for kind in GEOMETRIES for name in GEOMETRIES[kind]])
@pytest.mark.parametrize("truncation", [None, 0.0, 5.0])
def test_deterministic_policies_have_finite_gradients(kind, statistics, truncation):
    agent = make_agent(kind, trust_region_statistics=statistics, truncation_threshold=truncation)
    batch, discrete = mixed_batch(agent), kind == "discrete"
    stored = "behaviour/logits" if discrete else "behaviour/variance"
    certain = {"policy": [1e10, 0.0, -1e10], "policy_target": [-1e10, 0.0, 1e10], "behaviour": [0.0, 1e10, 0.0]}
    for deterministic in (["policy"], ["policy_target"], ["behaviour"], [*certain]):
        for name in ("policy", "policy_target"):
            head = agent.networks[name].head
            layer = head.logits if discrete else head.variance
            layer.kernel.assign(0 * layer.kernel)
            bias = certain[name] if discrete else [-60.0] * 2
            layer.bias.assign(bias if name in deterministic else 0 * layer.bias)
        values = np.float32(certain["behaviour"] if discrete else 1e-10)
        extras = {**batch.extras}
        if "behaviour" in deterministic:
            extras[stored] = 0 * batch.extras[stored] + values
        gradients, metrics = compute_gradients(agent, batch._replace(extras=extras))
        assert all(np.isfinite(x).all() for every in gradients.values() for x in every), deterministic
        assert all(np.isfinite(value) for value in metrics.values()), (deterministic, metrics)


def test_trace_is_ratio_to_the_power_of_one_over_action_size():
    agent = make_agent("gaussian", vector_spec(3, 16))
    batch = fresh_and_replayed(agent)[0]
    batch = batch._replace(action=3 * batch.action, on_policy=0 * batch.on_policy)
    batch = tf.nest.map_structure(tf.constant, batch)
    rows = agent.row_values(batch, features_of_segments(agent.networks, batch))
    action, mean, variance = (
        tf.reshape(x, [-1, 16]) for x in (batch.action, batch.extras[MEAN], batch.extras[VARIANCE])
    )
    raw = (rows.policy.log_prob(action) - DiagonalGaussian(mean, variance).log_prob(action)).numpy().astype(float)
    assert raw.min() < -60.0  # far below the lower bound of the other importance weights
    np.testing.assert_allclose(rows.trace_R, np.exp(np.minimum(0.0, raw / 16)), rtol=1e-4)


@pytest.mark.parametrize("case", [KINDS[1], KINDS[7]], ids=kind_id)
def test_trunk_gradient_is_sum_over_losses(case):
    plain, names = make_agent(**case), ("policy", *CRITICS[case["kind"]])
    heads = {name: plain.network_parameters[name].head_parameters for name in names}
    off = {name: {"head_parameters": dataclasses.replace(head, loss_weight=0.0)} for name, head in heads.items()}
    agents = [plain, *(make_agent(**case, overrides={n: off[n] for n in names if n != name}) for name in names)]
    batch, trunks = mixed_batch(plain), []
    for agent in agents:
        fix_noise(agent)
        trunks.append(compute_gradients(agent, batch)[0]["trunk"])
    for total, *parts in zip(*trunks, strict=True):
        assert all(np.abs(part).max() > 0 for part in parts)
        np.testing.assert_allclose(total, np.sum(parts, axis=0), rtol=1e-3, atol=1e-5)


def test_l2_penalty_applies_to_all_kernels():
    plain, regularized = make_agent(**KINDS[3]), make_agent(**KINDS[3], networks={"l2_regularization": 0.25})
    batch, gradients = mixed_batch(plain), []
    for agent in (plain, regularized):
        fix_noise(agent)
        gradients.append(compute_gradients(agent, batch)[0])
    for name, variables in plain.trained.items():
        for variable, without, with_penalty in zip(variables, *(x[name] for x in gradients), strict=True):
            penalty = 0.25 * variable.numpy() if variable.name.endswith("kernel") else 0.0
            np.testing.assert_allclose(with_penalty - without, penalty * np.ones_like(without), atol=1e-5)


@pytest.mark.parametrize(("case", "bound"), [(KINDS[1], 0.1), (KINDS[4], 0.1), (KINDS[4], 1e6)])
def test_gradients_are_clipped_by_global_norm(case, bound, monkeypatch):
    agent = make_agent(**case, networks={"clip_gradients": bound}, overrides={"policy": {"clip_gradients": 2 * bound}})
    fix_noise(agent)
    batch, received = mixed_batch(agent), {}
    gradients, _ = compute_gradients(agent, batch)
    norm = np.sqrt(sum(np.square(x).sum() for values in gradients.values() for x in values))
    for name, optimizer in agent.optimizers.items():
        monkeypatch.setattr(optimizer, "apply", lambda values, variables, name=name: received.update({name: values}))
    metrics = update_metrics(agent, stack(batch))
    assert metrics["gradient_norm"][0] == pytest.approx(norm, rel=1e-5) and 0.2 < norm < 1e6
    for name, values in gradients.items():
        factor = min(1.0, (2 if name == "policy" else 1) * bound / norm)
        assert_gradients({name: received[name]}, {name: [factor * x for x in values]}, rtol=1e-4)


def constant_agent(**algorithm):
    """Two actions: probabilities 0.8 and 0.2, Q 1 and -1, so V is 0.6; the average policy is uniform."""
    agent = make_agent(spec=discrete_spec(3, 2), randomize=False, steps=2, columns=3, discount=0.5, **algorithm)
    for network in agent.networks.values():
        for variable in network.trainable_variables:
            variable.assign(0 * variable)
    agent.networks["policy"].head.logits.bias.assign(np.log([0.8, 0.2]))
    agent.networks["q"].head.critics.output_layer.bias.assign([[1.0, -1.0]])
    return agent


def small_batch():
    """Returns a fresh column of two steps that terminates, and replayed steps: one terminates, one is truncated."""
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


# The gradient of the KL divergence is (-0.3, 0.3), that of the first step -2.2 (0.2, -0.2): their product is 0.264. The
# products of the other steps are negative.
@pytest.mark.parametrize(
    ("truncation", "delta", "truncated", "active"),
    [(5.0, 0.25, 0.25, 0.25), (9.0, 0.27, 0.0, 0.0), (0.75, 0.0, 0.25, 0.25), (None, None, 0.0, 0.0)],
)
def test_metrics_match_hand_computation(truncation, delta, truncated, active):
    region = {"use_trust_region": False} if delta is None else {"trust_region_delta": delta}
    agent = constant_agent(statistics_decay=0.75, truncation_threshold=truncation, **region)
    metrics = update_metrics(agent, stack(small_batch(), small_batch()))
    for name, value in {**METRICS, "importance/truncated": truncated, "trust_region/active": active}.items():
        assert metrics[name][0] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    second = 0.75 * metrics["average/kl"][0] + 0.25 * metrics["policy/kl"][1]
    assert metrics["average/kl"][1] == pytest.approx(second, rel=1e-4) == float(agent.averages[2])
