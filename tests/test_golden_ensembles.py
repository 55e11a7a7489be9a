"""Ensembles of critics match golden vectors: two critic updates, the policy step, and batch (re)normalisation."""

import dataclasses

import golden_tools
import numpy as np
import pytest
import tensorflow as tf

from tfsac.agents import EnsembleSoftActorCriticAgent, ensemble_sac
from tfsac.networks.batch_normalization import BatchNormalization
from tfsac.networks.layers import ForwardMode, tensor
from tfsac.networks.unit_weights import normalizations
from tfsac.parameters import (
    CategoricalValueParameters,
    FCMiddlewareParameters,
    FixedAlphaParameters,
    MiddlewareScheme,
    NormalizationParameters,
    QHeadParameters,
    ResidualMiddlewareParameters,
    SACPolicyHeadParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
)
from tfsac.policies.distributions import SquashedGaussian
from tfsac.types import Transition

CASES = ["crossq/warm_up", "crossq/renorm", "xqc", "flash_sac", "droq", "simba"]
UNIT_WEIGHTS = {"xqc": "kernels", "flash": "all"}


def body_of(meta):
    case, hidden = meta["case"], meta["hidden"]
    if case in ("simba", "flash_sac"):
        return ResidualMiddlewareParameters("simba" if case == "simba" else "flash", hidden, meta["blocks"])
    normalization = {
        "crossq": NormalizationParameters("batch_renorm", "after", normalize_input=True),
        "xqc": NormalizationParameters("batch", "before", normalize_input=True),
        "droq": NormalizationParameters("layer", "before"),
    }[case]
    return FCMiddlewareParameters(tuple(hidden), normalization=normalization, dropout=meta.get("dropout", 0.0))


def agent_of(meta):
    categorical = meta["head"] == "categorical"
    head = QHeadParameters(
        num_critics=meta["critics"],
        body_parameters=body_of(meta),
        distribution=CategoricalValueParameters(meta["atoms"], meta["low"], meta["high"]) if categorical else None,
        loss_weight=meta["loss_weight"],
    )
    networks = ensemble_soft_actor_critic_networks(
        head,
        FCMiddlewareParameters(MiddlewareScheme.Empty),
        target_network=meta["target_network"],
        batch_size=meta["batch"],
        learning_rate=meta["lr"],
        adam_optimizer_beta1=meta["beta_1"],
        **({"optimizer_type": "AdamW", "weight_decay": meta["weight_decay"]} if meta["weight_decay"] else {}),
    )
    unit_weights = UNIT_WEIGHTS.get(meta.get("projection"), "none")
    networks["q"] = dataclasses.replace(networks["q"], unit_weights=unit_weights)
    algorithm = TwinSoftActorCriticAlgorithmParameters(
        discount=meta["gamma"],
        temperature=FixedAlphaParameters(meta["alpha"]),
        target_reduction=meta["target_reduction"],
        policy_reduction=meta["policy_reduction"],
        joint_critic_forward=meta["joint"],
        **({"rate_for_copying_weights_to_target": meta["tau"]} if meta["target_network"] else {}),
    )
    parameters = TwinSoftActorCriticAgentParameters(algorithm=algorithm, networks=networks)
    return EnsembleSoftActorCriticAgent(parameters, golden_tools.spec_of(meta), eager=True)


def weights_of(network):
    """Yields the weights and running statistics of a network with their names in the file."""
    layers = network.head.critics.layers if hasattr(network.head, "critics") else [*network.middleware]
    for layer in layers:
        for inner in getattr(layer, "layers", [layer]):
            for variable in inner.weights:
                statistic = variable.name in ("mean", "variance", "steps")
                name = variable.name.replace("variance", "var")
                yield variable, f"{inner.name.removeprefix('body_').replace('block_0_', 'block_0/')}/{name}", statistic


def load(network, golden, prefix, statistics):
    for variable, name, statistic in weights_of(network):
        keys = [f"{statistics}/{name}", f"stats/{name}"] if statistic else [f"{prefix}/{name}"]
        values = [golden[key] for key in keys if key in golden]
        if values:
            variable.assign(values[0])
        else:
            assert statistic, name


def check(network, golden, prefix, statistics, allowed):
    checked = 0
    for variable, name, statistic in weights_of(network):
        key = f"{statistics if statistic else prefix}/{name}"
        if statistics is None and statistic:
            continue
        tolerance = allowed.get(name, 5e-6 if statistic else 1e-5)
        np.testing.assert_allclose(variable.numpy(), golden[key], rtol=tolerance, atol=tolerance, err_msg=key)
        checked += 1
    assert checked > 4


def noise(golden, meta, place, shape, step=None):
    """Returns the dropout masks of the file as factors, and zeros for other noise."""
    if not place.startswith("dropout"):
        return tf.zeros(shape)
    _, step_name, layer, _ = place.split("/")
    mask = golden[f"batch/mask/{step_name}/{layer.replace('dropout', 'dense')}"]
    mask = mask if step_name == "policy" else mask[step]
    return tf.transpose(tf.constant(mask / (1.0 - meta["dropout"]), tf.float32), [1, 0, 2])


class GivenPolicy:
    """A policy that returns given actions and log-probabilities."""

    def __init__(self, batches):
        self.batches = iter(batches)

    def __call__(self, *outputs):
        return self

    def sample_and_log_prob(self, noise):
        return next(self.batches)


def critic_batches(golden):
    names = ("obs", "action", "reward", "discount", "next_obs", "next_action", "next_log_prob")
    for i in range(2):
        obs, action, reward, discount, next_obs, *next_sample = (
            tf.constant(golden[f"batch/{name}"][i]) for name in names
        )
        yield Transition({"observation": obs}, action, reward, discount, {"observation": next_obs}), next_sample


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_two_critic_updates_match(case, at_once, monkeypatch):
    name, _, variant = case.partition("/")
    golden, meta = golden_tools.read(f"modern_{name}.npz")
    under = f"{variant}/" if variant else ""
    agent = agent_of(meta)
    q = agent.networks["q"]
    for network in {id(n): n for n in (q, agent.targets["q"])}.values():
        network.head.critics.at_once = at_once
        for layer in normalizations(network):
            if isinstance(layer, BatchNormalization):
                layer.momentum, layer.epsilon = meta["momentum"], meta["batch_epsilon"]
                layer.unbiased = meta.get("unbiased", False)
                layer.bounds, layer.warm_up = (meta.get("r_max", 3), meta.get("d_max", 5)), meta.get("warm_up", 0)
    load(q, golden, "init/q", f"{under}stats")
    if meta["target_network"]:
        load(agent.targets["q"], golden, "init/q_target", f"{under}stats")
    step = 0

    monkeypatch.setattr(agent, "noise", lambda place, shape, *_: noise(golden, meta, place, shape, step))
    batches = list(critic_batches(golden))
    monkeypatch.setattr(ensemble_sac, "SquashedGaussian", GivenPolicy([next_sample for _, next_sample in batches]))
    for step, (batch, _) in enumerate(batches):
        result = agent.critic_step(batch)
        loss = sum(result.metrics[f"loss/q{i + 1}"].numpy() for i in range(meta["critics"]))
        np.testing.assert_allclose(loss, golden[f"{under}loss/critic"][step], rtol=5e-5)
        if step == 0:
            np.testing.assert_allclose(
                [result.metrics[f"q/q{i + 1}"].numpy() for i in range(meta["critics"])],
                golden[f"{under}inter/q"].mean(axis=0),
                atol=5e-5,
            )
            gradients = dict(zip((v.path for v in agent.trained["q"]), result.gradients[0].values, strict=True))
            for variable, place, statistic in weights_of(q):
                if not statistic:
                    expected = golden[f"{under}grad/q/{place}"]
                    np.testing.assert_allclose(gradients[variable.path], expected, rtol=5e-5, atol=5e-5, err_msg=place)
            if f"{under}first_stats/norm_0/mean" in golden:
                for variable, place, statistic in weights_of(q):
                    if statistic:
                        expected = golden[f"{under}first_stats/{place}"]
                        np.testing.assert_allclose(variable.numpy(), expected, rtol=5e-6, atol=5e-6)
        agent.apply(*result.gradients)
        agent.update_target("q")
    # The gradient of a bias before batch normalisation is rounding noise, which Adam turns into steps.
    allowed = {"norm_0/bias": 2 * meta["lr"]} if name == "xqc" else {}
    check(q, golden, f"{under}after_keras/q", f"{under}after_keras_stats", allowed)
    if meta["target_network"]:
        check(agent.targets["q"], golden, f"{under}after_keras/q_target", None, allowed)


def test_policy_uses_running_statistics_and_dropout(monkeypatch):
    for case in CASES:
        name, _, variant = case.partition("/")
        golden, meta = golden_tools.read(f"modern_{name}.npz")
        under = f"{variant}/" if variant else ""
        agent = agent_of(meta)
        load(agent.networks["q"], golden, f"{under}after/q", f"{under}after_stats")
        for layer in normalizations(agent.networks["q"]):
            if isinstance(layer, BatchNormalization):
                layer.epsilon = meta["batch_epsilon"]

        masks = lambda place, shape, *_, golden=golden, meta=meta: noise(golden, meta, place, shape)  # noqa: E731
        monkeypatch.setattr(agent, "noise", masks)
        action = tf.constant(golden["policy/action"])
        observation = {"observation": tf.constant(golden["batch/obs"][0])}
        with tf.GradientTape() as tape:
            tape.watch(action)
            outputs = agent.networks["q"].compute(
                observation,
                action,
                batch_statistics=False,
                dropout_mask=agent.dropout_mask("policy", agent.num_critics, 1),
            )
            q_BN = agent.critics.q(outputs)
            q_B = ensemble_sac.reduce_q(q_BN, meta["policy_reduction"])
        np.testing.assert_allclose(q_BN, golden[f"{under}policy/q_all"], rtol=5e-5, atol=5e-5)
        np.testing.assert_allclose(q_B, golden[f"{under}policy/q"], rtol=5e-5, atol=5e-5)
        np.testing.assert_allclose(
            tape.gradient(q_B, action), golden[f"{under}policy/dq_daction"], rtol=1e-4, atol=5e-5
        )


class GivenCritics:
    """Critics `Q_i = offset_i - 2 |a - center_i|^2` that replace those of a network."""

    def __init__(self, golden):
        self.offset, self.center = golden["input/offset"], golden["input/center"]

    def q(self, action_BA):
        squares = tf.reduce_sum(tf.square(action_BA[:, None] - self.center), axis=-1)
        return self.offset - 2.0 * squares


@pytest.mark.parametrize("variant", ["single", "joint"])
def test_policy_step_with_batch_normalisation_matches(variant, monkeypatch):
    golden, meta = golden_tools.read("modern_policy.npz")
    config = meta[variant]
    normalised = FCMiddlewareParameters(
        tuple(meta["hidden"]), normalization=NormalizationParameters("batch", "before", normalize_input=True)
    )
    head = SACPolicyHeadParameters(log_std=config["log_std"], log_std_bounds=(meta["log_std_min"], meta["log_std_max"]))
    parameters = TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(
            temperature=FixedAlphaParameters(meta["alpha"]),
            joint_critic_forward=True,
            joint_policy_forward=config["joint"],
        ),
        networks=ensemble_soft_actor_critic_networks(QHeadParameters(), normalised, head, batch_size=meta["batch"]),
    )
    agent = EnsembleSoftActorCriticAgent(parameters, golden_tools.spec_of(meta), eager=True)
    policy = agent.networks["policy"]
    for layer in normalizations(policy):
        layer.momentum, layer.epsilon, layer.unbiased = meta["momentum"], config["batch_epsilon"], config["unbiased"]
    load(policy, golden, "init/policy", "stats")
    policy.head.output.kernel.assign(golden["init/policy/out/kernel"])
    policy.head.output.bias.assign(golden["init/policy/out/bias"])
    monkeypatch.setattr(agent, "noise", lambda name, shape: tf.constant(golden["input/eps"]))
    monkeypatch.setattr(agent, "critics", GivenCritics(golden))
    monkeypatch.setattr(agent.networks["q"], "compute", lambda observation, action, **more: action)
    observation, following = ({"observation": tf.constant(golden[f"input/{name}"])} for name in ("obs", "next_obs"))
    rows = tf.zeros(meta["batch"])
    step = agent.policy_step(Transition(observation, rows, rows, rows, following))
    np.testing.assert_allclose(step.metrics["loss/policy"], golden[f"{variant}/loss"], rtol=5e-5)
    expected = {
        name: golden[f"{variant}/grad/policy/{name}"] for _, name, statistic in weights_of(policy) if not statistic
    }
    expected |= {f"out/{name}": golden[f"{variant}/grad/policy/out/{name}"] for name in ("kernel", "bias")}
    for (name, value), gradient in zip(expected.items(), step.gradients[0].values, strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-4, atol=1e-4, err_msg=name)
    for variable, name, statistic in weights_of(policy):
        if statistic:
            np.testing.assert_allclose(variable.numpy(), golden[f"{variant}/after_stats/{name}"], rtol=5e-6, atol=5e-6)
    agent.policy.refresh()
    for forward in (policy, agent.policy.forwards["policy"]):
        squashed = SquashedGaussian(*(tf.constant(x) for x in forward({"observation": golden["input/next_obs"]})))
        action, log_prob = squashed.sample_and_log_prob(tf.constant(golden["input/eps"]))
        np.testing.assert_allclose(action, golden[f"{variant}/next_action"], rtol=5e-5, atol=5e-5)
        np.testing.assert_allclose(log_prob, golden[f"{variant}/next_log_prob"], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(squashed.mode(), golden[f"{variant}/greedy_action"], rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("variant", ["batch", "renorm", "batch_unbiased"])
@pytest.mark.parametrize("at_once", [False, True])
def test_batch_normalisation_and_renormalisation_match(variant, at_once):
    golden, meta = golden_tools.read("modern_batch_renorm.npz")
    critics, features = meta["critics"], meta["features"]
    layer = BatchNormalization("norm", critics, variant == "renorm", unbiased=variant == "batch_unbiased")
    layer.momentum, layer.bounds, layer.warm_up = meta["momentum"], (meta["r_max"], meta["d_max"]), meta["warm_up"]
    layer.build((None, features))
    layer.scale.assign(golden["input/scale"])
    layer.bias.assign(golden["input/bias"])
    for step in range(meta["steps"]):
        x, upstream = tf.constant(golden["input/x"][step]), golden["input/upstream"][step]
        moments = {}
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = normalised(layer, x, at_once, batch_statistics=True, moments=moments)
            total = tf.reduce_sum(y * upstream)
        gradients = tape.gradient(total, [x, layer.scale.value, layer.bias.value])
        layer.update_statistics(moments[layer])
        np.testing.assert_allclose(y, golden[f"{variant}/y"][step], rtol=5e-5, atol=5e-5)
        np.testing.assert_allclose(layer.mean.numpy(), golden[f"{variant}/mean"][step], rtol=5e-6, atol=5e-6)
        np.testing.assert_allclose(layer.variance.numpy(), golden[f"{variant}/var"][step], rtol=5e-6, atol=5e-6)
        for gradient, name in zip(gradients, ("grad_x", "grad_scale", "grad_bias"), strict=True):
            np.testing.assert_allclose(gradient, golden[f"{variant}/{name}"][step], rtol=5e-5, atol=5e-5, err_msg=name)
    inference = normalised(layer, tf.constant(golden["input/inference_x"]), at_once)
    np.testing.assert_allclose(inference, golden[f"{variant}/inference_y"], rtol=5e-5, atol=5e-5)


def normalised(layer, x_NBF, at_once, batch_statistics=False, moments=None):
    mode = ForwardMode(batch_statistics, moments)
    if at_once:
        return layer.forward(x_NBF, lambda variable: tensor(variable)[:, None], mode)
    return tf.stack(
        [layer.forward(x, lambda variable, i=i: tensor(variable)[i], mode) for i, x in enumerate(tf.unstack(x_NBF))]
    )
