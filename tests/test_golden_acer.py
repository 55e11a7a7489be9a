"""ACER returns and the updates of both agents match golden vectors.

The files have the outputs of the networks in every step. Observations are one-hot encodings of the step, so that linear
networks are tables of these outputs, and the gradients of their kernels are the gradients in the files.
"""

import golden_tools
import numpy as np
import pytest
import tensorflow as tf

from tfsac.agents import DiscreteACERAgent, GaussianACERAgent
from tfsac.losses import acer as losses
from tfsac.parameters import (
    DiscreteACERAgentParameters,
    DiscreteACERAlgorithmParameters,
    GaussianACERAgentParameters,
    GaussianACERAlgorithmParameters,
    discrete_acer_networks,
    gaussian_acer_networks,
)
from tfsac.types import ArraySpec, DiscreteSpec, Segments, Spec

DTYPES = [tf.float64, tf.float32]
# On-policy, and off-policy with truncation at infinity, 5 and 10; each with and without trust region and q_opc.
COMBOS = range(16)
GEOMETRIES = {
    "discrete": {"chainerrl": "logits", "pfrl": "log_probs"},
    "gaussian": {"chainerrl": "variance", "pfrl": "scale"},
}
RATE, ALPHA = 0.1, 0.75  # learning rate, decay of the average policy
IGNORED_V = 7.0  # V after a terminated step


def close(ours, golden, name, rtol=1e-4, atol=2e-5):
    np.testing.assert_allclose(ours, golden, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", ["discrete", "continuous", "on_policy"])
def test_returns_match(kind, dtype):
    z, meta = golden_tools.read("retrace.npz")
    reward, q, v, rho = (tf.cast(z[f"input/{name}"].T, dtype) for name in ("reward", "q", "v", "rho"))
    log_rho = tf.zeros_like(rho) if kind == "on_policy" else tf.math.log(rho)
    trace = losses.trace_coefficient(log_rho, meta["act"] if kind == "continuous" else 1)
    returns = losses.retrace_returns(
        reward,
        meta["gamma"] * tf.ones_like(reward),
        q,
        v,
        trace,
        tf.cast(z["input/bootstrap"], dtype),
        tf.fill(reward.shape, True),
    )
    for name, ours in (("c", trace), ("q_ret", returns.q_ret), ("q_opc", returns.q_opc)):
        close(tf.transpose(ours), z[f"{kind}/{name}"], name, 0.0, 1e-12 if dtype == tf.float64 else 2e-6)


def single(x):
    return np.asarray(x, np.float32)


def rows(z, name):
    """Reads an input `[S, T, ...]` as `[S * T, ...]`."""
    return z[f"input/{name}"].reshape(-1, *z[f"input/{name}"].shape[2:])


def with_ends(values_R, ends=0.0):
    """Appends the table entries of the observations after the segments, `[S]` or one for both."""
    return np.concatenate(
        [values_R, np.broadcast_to(np.reshape(ends, (-1, *[1] * (values_R.ndim - 1))), (2, *values_R.shape[1:]))]
    )


def segments(z, meta, on_policy, **stored):
    """Returns the segments of a file as one update, `[1, T, B, ...]`; the first segment terminates."""
    steps, columns = meta["length"], meta["segments"]
    number = np.arange(steps * columns).reshape(columns, steps)
    number = np.concatenate(
        [number, steps * columns + np.arange(columns)[:, None]], axis=1
    ).T  # also final observations

    def column(x):
        return np.moveaxis(x, 0, 1)[None]

    discount, first = np.ones((1, steps, columns), np.float32), np.zeros((1, steps, columns), np.float32)
    discount[:, -1, 0], first[:, 0] = 0.0, 1.0
    assert z["input/bootstrap"][0] == 0.0
    action = z["input/action"]
    return Segments(
        {"observation": np.eye((steps + 1) * columns, dtype=np.float32)[number][None]},
        column(action.astype(np.int32) if action.ndim == 2 else single(action)),
        column(single(z["input/reward"])),
        discount,
        first,
        np.full_like(first, steps),
        np.full_like(first, on_policy),
        {},
        {f"behaviour/{name}": column(single(x)) for name, x in stored.items()},
    )


def algorithm_of(meta, combo, statistics):
    region = {"trust_region_delta": meta["delta"], "trust_region_statistics": statistics}
    return {
        "discount": meta["gamma"],
        "t_max": meta["length"],
        "beta": meta["beta"],
        "use_trust_region": combo["trust_region"],
        "trust_region_alpha": ALPHA,
        "truncation_threshold": combo["truncation"],
        "use_q_opc": combo["q_opc"],
        **(region if combo["trust_region"] else {}),
    }


def network_options(meta):
    # With this epsilon, Adam's first step is the rate times g / (|g| + 1).
    return {"layers": (), "q_loss_weight": meta["q_coef"], "learning_rate": RATE, "batch_size": meta["segments"],
            "optimizer_epsilon": 0.001**0.5}  # fmt: skip


def assign(layer, table):
    layer.kernel.assign(table)
    layer.bias.assign(tf.zeros_like(layer.bias))


def discrete(z, meta, number, geometry, eager):
    """Returns an agent with the logits and Q of the file, its batch, and kernels with their expected gradients."""
    combo = meta["combos"][number]
    parameters = DiscreteACERAgentParameters(
        DiscreteACERAlgorithmParameters(**algorithm_of(meta, combo, GEOMETRIES["discrete"][geometry])),
        networks=discrete_acer_networks(**network_options(meta)),
    )
    width = (meta["length"] + 1) * meta["segments"]
    spec = Spec({"observation": ArraySpec((width,), "float32")}, DiscreteSpec(meta["actions"]))
    agent = DiscreteACERAgent(parameters, spec, eager=eager)
    policy, average = (agent.networks[name].head.logits for name in ("policy", "policy_target"))
    assign(policy, with_ends(rows(z, "logits")))
    assign(average, with_ends(rows(z, "avg_logits")))
    ends = [IGNORED_V, z["input/bootstrap"][1]]  # Q of every action, so also V
    out = agent.networks["q"].head.critics.output_layer
    assign(out, with_ends(rows(z, "q"), ends)[None])
    update = segments(z, meta, not combo["off_policy"], logits=z["input/mu_logits"])
    kernels = [
        (policy.kernel, lambda grad: with_ends(grad("logits"))),
        (out.kernel, lambda grad: with_ends(grad("q"))[None]),
    ]
    return agent, update, kernels


def gaussian(z, meta, number, geometry, eager):
    """Does the same with means, variances and V, and advantages at the two actions of each step of the file.

    Relative to the baseline, the taken action and the fresh one are a basis. A hidden layer computes both coordinates,
    for its own step only. All samples of the baseline are the same action, at which the advantage is zero.
    """
    combo, min_variance = meta["combos"][number], 1e-6
    count, width, size = meta["length"] * meta["segments"], (meta["length"] + 1) * meta["segments"], meta["act"]
    parameters = GaussianACERAgentParameters(
        GaussianACERAlgorithmParameters(**algorithm_of(meta, combo, GEOMETRIES["gaussian"][geometry])),
        networks=gaussian_acer_networks(
            **network_options(meta), advantage_layers=(size * count,), bound_mean=False, min_variance=min_variance
        ),
    )
    spec = Spec({"observation": ArraySpec((width,), "float32")}, ArraySpec((size,), "float32"))
    agent = GaussianACERAgent(parameters, spec, eager=eager)
    policy, average = agent.networks["policy"].head, agent.networks["policy_target"].head
    for head, mean, variance in ((policy, "mean", "var"), (average, "avg_mean", "avg_var")):
        assign(head.mean, with_ends(rows(z, mean)))
        assign(head.variance, with_ends(np.log(np.expm1(rows(z, variance) - min_variance))))
    v, (hidden, _, out) = agent.networks["v"].head.out, agent.networks["advantage"].head.critics.layers
    assign(v, with_ends(rows(z, "v")[:, None], [IGNORED_V, z["input/bootstrap"][1]]))
    taken, fresh = rows(z, "action"), rows(z, "correction_action")
    baseline = taken + (fresh - taken)[:, ::-1] * [-1.0, 1.0]  # at a right angle
    basis = np.linalg.inv(np.stack([taken - baseline, fresh - baseline], axis=1))  # [R, A, 2]
    kernel = np.full((width + size, count, size), -1e6)
    kernel[np.arange(count), np.arange(count)] = -np.einsum("ra,rak->rk", baseline, basis)
    kernel[width:] = np.moveaxis(basis, 0, 1)
    assign(hidden, kernel.reshape(1, width + size, -1))
    advantages = np.stack([rows(z, "q") - rows(z, "v"), rows(z, "q_correction") - rows(z, "v")], axis=1)
    assign(out, advantages.reshape(1, -1, 1))
    noise = [(action - rows(z, "mean")) / np.sqrt(rows(z, "var")) for action in (baseline, fresh)]
    noise = [single(x).reshape(meta["segments"], meta["length"], 1, size).swapaxes(0, 1) for x in noise]
    agent.noise = lambda name, shape: tf.broadcast_to(noise[name == "correction"], shape)
    slope = 1.0 - np.exp(min_variance - rows(z, "var"))  # derivative of softplus
    update = segments(z, meta, not combo["off_policy"], mean=z["input/mu_mean"], variance=z["input/mu_var"])
    kernels = [
        (policy.mean.kernel, lambda grad: with_ends(grad("mean"))),
        (policy.variance.kernel, lambda grad: with_ends(grad("var") * slope)),
        # Q includes V. The fresh action does not train the critic.
        (v.kernel, lambda grad: with_ends((grad("v") + grad("q"))[:, None])),
        (out.kernel, lambda grad: np.stack([grad("q"), np.zeros(count)], axis=1).reshape(1, -1, 1)),
    ]
    return agent, update, kernels


AGENTS = {"discrete": discrete, "gaussian": gaussian}
CASES = [(kind, "chainerrl", number, True) for kind in AGENTS for number in COMBOS]
# Without a trust region, both geometries give the same numbers.
CASES += [(kind, "pfrl", number, True) for kind in AGENTS for number in COMBOS if number % 4 >= 2]
CASES += [(kind, "chainerrl", number, False) for kind in AGENTS for number in (3, 15)]


@pytest.mark.parametrize(
    ("kind", "geometry", "number", "eager"),
    CASES,
    ids=[f"{k}-{g}-{n}-{'eager' if e else 'compiled'}" for k, g, n, e in CASES],
)
def test_updates_match(kind, geometry, number, eager, monkeypatch):
    z, meta = golden_tools.read(f"acer_{kind}.npz")
    agent, update, kernels = AGENTS[kind](z, meta, number, geometry, eager)

    def golden(name):
        return z[f"{geometry}/{name}"][number]

    def gradient(name):  # of the mean over segments
        return golden(f"grad_{name}").reshape(-1, *golden(f"grad_{name}").shape[2:]) / meta["segments"]

    def by_segment(x_R):
        return np.reshape(x_R, (meta["length"], meta["segments"])).T

    calls, expected = {}, [(variable, variable.numpy(), of(gradient)) for variable, of in kernels]
    averages = agent.networks["policy_target"].head.outputs
    average_before = [layer.kernel.numpy() for layer in averages]
    golden_tools.record(calls, monkeypatch, agent, "update")
    if eager:
        for owner, name in ((agent, "row_values"), (losses, "retrace_returns"), (losses, "constrained")):
            golden_tools.record(calls, monkeypatch, owner, name)
        received = golden_tools.first_gradients(agent, update, monkeypatch)
        (_, steps), (_, returns), (_, (_, region)) = calls["row_values"], calls["retrace_returns"], calls["constrained"]
        computed = {"v": steps.v_R, "rho": np.exp(steps.log_ratio_R), "q_ret": returns.q_ret, "q_opc": returns.q_opc}
        if geometry == "chainerrl":  # only these are in the file
            computed["trust_region_factor"] = region.factor
        for name, ours in computed.items():
            close(by_segment(ours), z[f"inter/{name}"][number], name)
        for variable, _, values in expected:
            close(received[id(variable)], values, variable.path, atol=1e-5)
    else:
        agent.update(update)
    metrics = dict(zip(agent.metric_names, calls["update"][1].metrics[0], strict=True))
    close(metrics["loss/policy"], golden("pi_loss").mean(), "policy loss")
    critic_losses = sum(metrics[f"loss/{name}"] for name in agent.network_parameters if name != "policy")
    close(critic_losses, golden("q_loss").mean(), "critic losses")
    for variable, before, values in expected:
        close(variable, before - RATE * values / (np.abs(values) + 1.0), variable.path, rtol=1e-5, atol=1e-6)
    for layer, was, online in zip(averages, average_before, agent.networks["policy"].head.outputs, strict=True):
        close(layer.kernel, ALPHA * was + (1.0 - ALPHA) * online.kernel.numpy(), "average policy", rtol=1e-5, atol=1e-6)
