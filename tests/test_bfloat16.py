"""Mixed precision: each run has its own setting, and value outputs stay float32."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from toys import tiny_preset

from tfsac import load_preset
from tfsac.environments import spec_of
from tfsac.networks import bfloat16
from tfsac.networks.initializers import Initializers
from tfsac.networks.lstm import LSTM
from tfsac.parameters import LSTMMiddlewareParameters, RunParameters, override
from tfsac.training import Callback, Trainer
from tfsac.training.build import build_agent
from tfsac.training.devices import set_numerics


@pytest.fixture(autouse=True)
def reset_numerics():
    yield
    set_numerics(RunParameters())


@pytest.mark.slow
def test_nested_runs_use_their_own_precision(monkeypatch, tmp_path):
    monkeypatch.setattr(bfloat16, "warning_about_bfloat16", lambda: None)
    precisions = {}

    class Watch(Callback):
        def on_step(self, trainer):
            precisions.setdefault(trainer.directory.path.name, set()).add(bfloat16.uses_bfloat16())

    plain = RunParameters(updates_between_diagnostics=1)
    narrow = dataclasses.replace(plain, mixed_precision="bfloat16")

    class TrainAnother(Callback):
        def on_training_begin(self, trainer):
            Trainer(tiny_preset(), tmp_path / "inner", plain, callbacks=[Watch()], quiet=True).run()

    Trainer(tiny_preset(), tmp_path / "outer", narrow, callbacks=[TrainAnother(), Watch()], quiet=True).run()
    assert precisions == {"outer": {True}, "inner": {False}} and not bfloat16.uses_bfloat16()


@pytest.mark.parametrize(
    "name, network",
    [
        ("pendulum_sac", "v"),
        ("pendulum_twin_sac", "q"),
        ("taac_simple_control", "q"),
        ("redq_mujoco", "q"),
        ("cart_pole_discrete_sac", "q"),
        ("acer_cartpole", "q"),
    ],
)
def test_value_outputs_keep_float32_precision(name, network):
    level = "CartPole-v1" if name in ("cart_pole_discrete_sac", "acer_cartpole") else "Pendulum-v1"
    spec = spec_of(gymnasium.make(level))
    agent = build_agent(override(load_preset(name), {"environment.level": level}), RunParameters(), spec)
    values = agent.networks[network]
    biases = [x for x in values.trainable_variables if x.path in ("v/bias", "q1/bias", "q2/bias", "critics/out/bias")]
    for bias in biases:
        bias.assign(tf.fill(bias.shape, 300.37))
    observation = {"observation": tf.random.stateless_normal([256, *spec.observation["observation"].shape], [1, 2])}
    action = [tf.random.stateless_uniform([256, 1], [3, 4])] if level == "Pendulum-v1" and network == "q" else []
    bfloat16.use_bfloat16(True)
    computed = tf.function(lambda: values(observation, *action), autograph=False)().numpy()
    assert biases and len(np.unique(computed.reshape(256, -1)[:, 0])) > 100  # near 300, bfloat16 has a resolution of 2


def test_probabilities_sum_to_one():
    spec = spec_of(gymnasium.make("CartPole-v1"))
    policy = build_agent(load_preset("cart_pole_discrete_sac"), RunParameters(), spec).networks["policy"]
    observation = {"observation": tf.random.stateless_normal([256, 4], [1, 2])}
    bfloat16.use_bfloat16(True)
    computed = tf.function(lambda: tf.exp(tf.nn.log_softmax(policy(observation))), autograph=False)()
    np.testing.assert_allclose(tf.reduce_sum(computed, axis=-1), 1.0, atol=1e-6)


def test_lstm_states_are_not_rounded_at_every_step():
    lstm = LSTM(LSTMMiddlewareParameters(number_of_lstm_cells=32), 8, Initializers("xavier", np.random.default_rng(0)))
    features = tf.random.stateless_normal([16, 64, 8], [1, 2])
    state, ones = {"hidden": tf.zeros([64, 32]), "cell": tf.zeros([64, 32])}, tf.ones([16, 64])
    bfloat16.use_bfloat16(True)
    unroll = tf.function(lambda: lstm.unroll(features, state, 0.0 * ones, ones > 0.0), autograph=False)
    hidden = unroll()
    rounded = tf.cast(tf.cast(hidden, tf.bfloat16), tf.float32)
    assert np.mean(hidden != rounded) > 0.9
