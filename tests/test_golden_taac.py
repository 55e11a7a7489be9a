"""TAAC matches golden vectors: trajectories, switching, returns, losses and gradients."""

import golden_tools
import numpy as np
import pytest
import tensorflow as tf

from tfsac.agents import TemporallyAbstractActorCriticAgent, taac
from tfsac.losses import taac as losses
from tfsac.losses.temperature import continuous_target_entropy, discrete_target_entropy
from tfsac.parameters import (
    SequenceReplayParameters,
    TemporallyAbstractActorCriticAgentParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    temporally_abstract_networks,
)
from tfsac.policies.temporally_abstract import Trajectory, choice

KINDS = {"taac": "constant", "taacl": "linear", "taacq": "quadratic"}
VARIANTS = [
    (kind, variant)
    for kind in KINDS
    for variant in (("plain", "clipped") if kind == "taac" else ("inverse", "direct", "inverse_clipped"))
]


@pytest.mark.parametrize("tensors", [False, True], ids=["numpy", "tensors"])
@pytest.mark.parametrize("mode", ["inverse", "direct"])
@pytest.mark.parametrize("kind", KINDS)
def test_trajectories_match(kind, mode, tensors):
    golden, _ = golden_tools.read("taac_tables.npz")
    convert = tf.constant if tensors else np.asarray
    trajectory = Trajectory(KINDS[kind], mode == "inverse")
    previous = {name: convert(golden[name.replace("_", "/")]) for name in trajectory.fields}
    assert [name.removeprefix("tau_") for name in trajectory.fields] == ["a", "v", "u"][: len(trajectory.fields)]

    def check(tau, prefix, row=...):
        assert tuple(tau) == trajectory.fields
        for name in trajectory.fields:
            np.testing.assert_allclose(
                tau[name], golden[f"{kind}/{prefix}/{name[-1]}"][row], rtol=0.0, atol=1e-12, err_msg=name
            )

    check(trajectory.step(previous), "update_tau")
    tau = trajectory.plan(convert(golden["tau/action"]), previous)
    check(tau, f"action2tau_{mode}")
    for row in range(5):
        check(tau, f"rollout5_{mode}", row)
        tau = trajectory.step(tau)


@pytest.mark.parametrize("convert", [np.asarray, tf.constant], ids=["numpy", "tensors"])
@pytest.mark.parametrize(
    ("suffix", "clipped", "tiny"), [("", False, False), ("_clipped", True, False), ("_tiny_alpha", False, True)]
)
def test_choices_match(suffix, clipped, tiny, convert):
    golden, meta = golden_tools.read("taac_tables.npz")
    clipping = (meta["clip_low"], meta["clip_high"]) if clipped else None
    alpha = 1e-12 if tiny else meta["alpha_beta"]
    result = choice(convert(golden["beta/q0"]), convert(golden["beta/q1"]), alpha, clipping)
    np.testing.assert_allclose(result.keep_B, golden[f"beta/probs{suffix}"][:, 0], rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(result.switch_B, golden[f"beta/probs{suffix}"][:, 1], rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(result.entropy_B, golden[f"beta/entropy{suffix}"], rtol=0.0, atol=1e-12)


def test_returns_and_errors_match():
    golden, meta = golden_tools.read("taac_tables.npz")
    z = golden.with_prefix("returns/")
    last, switched, would_switch = z["step_type"] == 2, z["rollout_b"] > 0, z["b"] > 0
    # The file has V only, which equals Q if both Qs are equal.
    value = tf.constant(z["target_value"][..., None])
    returns = losses.compare_through_returns(
        tf.constant(golden_tools.align_with_actions(z["reward"])[..., None]),
        tf.constant(golden_tools.align_with_actions(z["discount"])),
        tf.constant([meta["gamma"]], tf.float64),
        value,
        value,
        tf.fill(value.shape[:2], tf.constant(0.5, tf.float64)),
        tf.constant(last),
        tf.constant(switched),
        tf.constant(would_switch),
    )
    np.testing.assert_array_equal(np.vstack([last[:1], (last | switched | would_switch)[1:]]), z["stop"])
    np.testing.assert_allclose(returns[..., 0], z["expected"], rtol=0.0, atol=1e-12)
    loss = losses.critic_loss(tf.constant(z["value"][..., None, None]), returns)
    np.testing.assert_allclose(loss[..., 0], z["td_loss"], rtol=0.0, atol=1e-12)


def test_target_entropies_match():
    # Actions in tfsac are always in [-1, 1].
    golden, _ = golden_tools.read("taac_tables.npz")
    rows = [row for row in golden["target_entropy/rows"] if tuple(row[2:4]) == (-1.0, 1.0)]
    assert len(rows) == 9
    for min_prob, size, _, _, choice_entropy, action_entropy in rows:
        assert discrete_target_entropy(min_prob, 2) == pytest.approx(choice_entropy, abs=1e-8)
        assert continuous_target_entropy(min_prob, int(size)) == pytest.approx(action_entropy, abs=1e-7)


def golden_agent(kind, variant, monkeypatch, eager):
    golden, meta = golden_tools.read(f"taac_loss_{kind}.npz")
    parameters = TemporallyAbstractActorCriticAgentParameters(
        algorithm=TemporallyAbstractActorCriticAlgorithmParameters(
            discount=meta["gamma"],
            trajectory=KINDS[kind],
            inverse_mode="direct" not in variant,
            b1_advantage_clipping=(meta["clip_low"], meta["clip_high"]) if "clipped" in variant else None,
            target_entropy=(meta["target_entropy_beta"], meta["target_entropy_action"]),
        ),
        memory=SequenceReplayParameters(sequence_length=meta["length"]),
        networks=temporally_abstract_networks(batch_size=meta["batch"]),
    )
    agent = TemporallyAbstractActorCriticAgent(
        parameters, golden_tools.spec_of(meta), eager=eager, models=golden_tools.make_models(meta)
    )
    golden_tools.load_taac_weights(agent, golden, monkeypatch)
    values = golden.with_prefix(f"{variant}/")
    # Clipping does not affect the first stage; the file has its values for one variant only.
    unclipped = "plain" if kind == "taac" else "inverse"
    for name in ("q", "q0", "q1", "action", "mean", "log_std", "action_entropy"):
        values.setdefault(f"inter/{name}", golden[f"{unclipped}/inter/{name}"])
    return agent, values, golden_tools.load_sequence(golden, meta)


def close(ours, golden, name, rtol=1e-4, atol=1e-5):
    ours = np.asarray(ours)
    assert ours.size == np.size(golden), name
    np.testing.assert_allclose(ours.reshape(np.shape(golden)), golden, rtol=rtol, atol=atol, err_msg=name)


def actor_loss(golden):
    """Converts ALF's actor loss, a square with the same gradient."""
    square = 0.5 * (golden["inter/dqda"] ** 2).sum(-1)
    return golden["loss/actor"] - square - golden["inter/beta_probs"][..., 1] * golden["inter/q1"]


def check_metrics(agent, result, golden, stacked):
    """Compares losses and gradient norms."""
    metrics = dict(zip(agent.metric_names, result.metrics[0], strict=True))
    counts = stacked.step_type[0] != 2
    actor = actor_loss(golden)
    close(metrics["loss/policy"], (counts * actor).mean(), "policy")
    close(metrics["loss/q1"] + metrics["loss/q2"], (counts * golden["loss/critic"]).mean(), "critic")
    temperatures = metrics["loss/proposal_temperature"] + metrics["loss/choice_temperature"]
    close(temperatures, (counts * golden["loss/alpha"]).mean(), "alpha")
    close(
        metrics["loss/policy"] + metrics["loss/q1"] + metrics["loss/q2"] + temperatures,
        golden["total"] - (counts * (golden["loss/actor"] - actor)).mean(),
        "total",
    )
    close(metrics["q/target"], golden["inter/returns"][counts[:-1]].mean(), "returns")
    for network, prefix in (("policy", "grad/policy"), ("q", "grad/q")):
        norm = np.sqrt(sum((golden[name] ** 2).sum() for name in golden if name.startswith(prefix)))
        close(metrics[f"{network}/gradient_norm"], norm, network)
    close(metrics["switch/keep_prob"], golden["inter/beta_probs"][..., 0][counts].mean(), "keep")


@pytest.mark.parametrize(("kind", "variant"), VARIANTS)
def test_values_losses_and_gradients_match(kind, variant, monkeypatch):
    agent, golden, stacked = golden_agent(kind, variant, monkeypatch, eager=True)
    calls, checked = {}, 0
    golden_tools.record(calls, monkeypatch, agent, "update")
    golden_tools.record(calls, monkeypatch, taac, "choice")
    for name in ("compare_through_returns", "critic_loss", "policy_loss"):
        golden_tools.record(calls, monkeypatch, losses, name)
    golden_tools.record(calls, monkeypatch, agent, "propose")
    golden_tools.record(calls, monkeypatch, agent.policy.trajectory, "plan")
    received = golden_tools.first_gradients(agent, stacked, monkeypatch)
    check_metrics(agent, calls["update"][1], golden, stacked)
    (_, proposed), (arguments, result) = calls["propose"], calls["choice"]
    close(proposed.policy.loc, golden["inter/mean"], "mean")
    close(proposed.policy.log_scale, golden["inter/log_std"], "log_std")
    close(calls["plan"][0][0], golden["inter/action"], "action")
    close(-proposed.log_prob_R, golden["inter/action_entropy"], "action entropy")
    for prefix, tau in (("tau0", proposed.kept), ("tau1", proposed.planned)):
        for name in agent.policy.trajectory.fields:
            if f"inter/{prefix}/{name[-1]}" in golden:
                close(tau[name], golden[f"inter/{prefix}/{name[-1]}"], f"{prefix} {name}")
    close(arguments[0], golden["inter/q0"], "q0")
    close(arguments[1], golden["inter/q1"], "q1")
    close(result.keep_B, golden["inter/beta_probs"][..., 0], "keep")
    close(result.switch_B, golden["inter/beta_probs"][..., 1], "switch")
    if "inter/advantage" in golden:
        close(result.advantage_B, golden["inter/advantage"], "advantage")
        close(result.entropy_B, golden["inter/beta_entropy"], "entropy of the choice")
    arguments, returns = calls["compare_through_returns"]
    keep_q, switch_q, keep, would_switch = arguments[3][..., 0], arguments[4][..., 0], arguments[5], arguments[8]
    close(keep * keep_q + (1.0 - keep) * switch_q, golden["inter/target_q"], "target value")
    np.testing.assert_array_equal(would_switch, golden["b"] > 0)
    close(returns, golden["inter/returns"], "returns")
    arguments, loss = calls["critic_loss"]
    close(arguments[0], golden["inter/q"], "q")
    close(tf.reduce_sum(loss, axis=-1), golden["loss/critic"], "critic loss")
    close(calls["policy_loss"][1], actor_loss(golden), "policy loss")
    for variable, name in golden_tools.model_names(agent):
        if "_target" not in name:
            close(received[id(variable)], golden[f"grad/{name}"], name)
            checked += 1
    assert checked == 20
    temperatures = [agent.choice_temperature.variable, agent.proposal_temperature.variable]
    close(np.array([received[id(variable)] for variable in temperatures]), golden["grad/log_alpha"], "log_alpha")


def test_compiled_update_matches(monkeypatch):
    agent, golden, stacked = golden_agent("taacq", "inverse_clipped", monkeypatch, eager=False)
    check_metrics(agent, agent.update(stacked), golden, stacked)
