"""Learned temperatures: losses, and target entropies that count only valid actions."""

import dataclasses
import math

import golden_tools
import numpy as np
import pytest
import tensorflow as tf
import tiny
from agent_tools import last_metrics
from toys import discrete_spec, random_batches, vector_spec

from tfsac.agents.learner import LearnedTemperature
from tfsac.errors import TfsacError
from tfsac.losses.temperature import check_target_entropy
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    RunParameters,
    gaussian_entropy,
    override,
)
from tfsac.preset_lookup import load_preset
from tfsac.training.build import build_agent

BATCH = 8
EAGER = RunParameters(seed=1, eager=True, updates_between_diagnostics=1)


def discrete(**temperature):
    preset = tiny.shrunk(load_preset("cart_pole_discrete_sac"))
    algorithm = dataclasses.replace(preset.agent.algorithm, temperature=DiscreteAutoAlphaParameters(**temperature))
    agent = dataclasses.replace(preset.agent, algorithm=algorithm)
    return dataclasses.replace(preset, agent=agent), discrete_spec(3, 4, masked=True)


def agent_of(preset_and_spec, **changes):
    preset, spec = preset_and_spec
    changes = {f"agent.{path}": value for path, value in changes.items()}
    return build_agent(override(preset, {"agent.networks.*.batch_size": BATCH, **changes}), EAGER, spec)


# 1, 2, 3 or 4 of four actions are valid; uniform entropies are log 1, log 2, log 3 and log 4.
VALID = np.tril(np.ones((4, 4), bool))[np.arange(BATCH) % 4]
MEAN_ENTROPY = math.log(24) / 4  # 0.7945; log 4 = 1.3863 without masks


@pytest.mark.parametrize("ratio", [0.5, 0.98])
def test_target_entropy_counts_valid_actions(ratio):
    agent = agent_of(discrete(initial_alpha=0.2, learning_rate=0.01, target_entropy_ratio=ratio))
    for variable in agent.networks["policy"].trainable_variables[-2:]:  # of the logits
        variable.assign(np.zeros(variable.shape, np.float32))
    stacked = random_batches(agent.spec, 1, BATCH)
    masked = {**stacked.observation, "action_mask": VALID[None]}
    stacked = stacked._replace(observation=masked, next_observation=masked, action=np.zeros_like(stacked.action))
    metrics = last_metrics(agent, stacked)
    assert metrics["policy/entropy"] == pytest.approx(MEAN_ENTROPY, rel=1e-5)
    assert metrics["policy/target_entropy"] == pytest.approx(ratio * MEAN_ENTROPY, rel=1e-5)
    assert metrics["loss/temperature"] == pytest.approx(math.log(0.2) * (1 - ratio) * MEAN_ENTROPY, rel=1e-4)
    # The entropy is above its target, so Adam's first step lowers alpha. With log 4 for every entry it would rise.
    assert agent.trained["temperature"][0].numpy() == pytest.approx(math.log(0.2) - 0.01, rel=1e-5)


@pytest.mark.parametrize("kind", [AutoAlphaParameters, DiscreteAutoAlphaParameters])
@pytest.mark.parametrize("loss", ["log", "alpha"])
def test_losses_and_gradients_match_golden_values(loss, kind):
    golden, _ = golden_tools.read("modern_tables.npz")
    temperature = LearnedTemperature(kind(initial_alpha=math.exp(golden["temperature/log_alpha"]), loss=loss))
    with tf.GradientTape() as tape:
        loss_B = temperature.loss(
            tf.constant(golden["temperature/log_prob"]), float(golden["temperature/target_entropy"])
        )
        value = tf.reduce_mean(loss_B)
    assert float(value) == pytest.approx(float(golden[f"temperature/loss_{loss}"]), rel=1e-5)
    gradient = tape.gradient(value, temperature.variable.value)
    assert float(gradient) == pytest.approx(float(golden[f"temperature/grad_{loss}"]), rel=1e-5)


def test_gaussian_target_entropies_match_golden_values():
    golden, _ = golden_tools.read("modern_tables.npz")
    for size, row in zip(golden["target_entropy/action_size"], golden["target_entropy/value"], strict=True):
        for sigma, expected in zip(golden["target_entropy/sigma"], row, strict=True):
            assert gaussian_entropy(float(sigma), int(size)) == pytest.approx(expected, abs=2e-6)
            target = AutoAlphaParameters(target_entropy_sigma=float(sigma)).target(int(size))
            assert target == pytest.approx(expected, abs=2e-6)
    check_target_entropy(-1.0, 1)
    with pytest.raises(TfsacError, match="target_entropy"):
        check_target_entropy(0.7, 1)  # a uniform action has entropy log 2


@pytest.mark.parametrize(("factor", "target"), [(None, -2.0), (-0.5, -1.0)])
def test_target_entropy_factor_times_action_size(factor, target):
    twin = tiny.shrunk(load_preset("pendulum_twin_sac")), vector_spec(3, 2)
    agent = agent_of(twin, **{"algorithm.temperature.target_entropy_factor": factor})
    assert agent.target_entropy == pytest.approx(target, abs=1e-6)
