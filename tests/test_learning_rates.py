"""Learning rate decay over a number of updates or over the run, for all optimizers."""

import json

import golden_tools
import numpy as np
import pytest
import tensorflow as tf
import tiny
from toys import random_batches, vector_spec

from tfsac import parameters as p
from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.networks.optimizers import learning_rate_of
from tfsac.preset_lookup import load_preset
from tfsac.training import Trainer
from tfsac.training.build import build_agent

SPEC, BATCH = vector_spec(3, 2), 8
TWIN = tiny.shrunk(load_preset("pendulum_twin_sac"))
NAMES = ("policy", "q", "temperature")


def network(**fields):
    return p.NetworkParameters(p.VHeadParameters(), **fields)


def make_agent(temperature=None, delay=1, **trained):
    algorithm = p.TwinSoftActorCriticAlgorithmParameters(
        num_updates_between_policy_updates=delay, temperature=temperature or p.AutoAlphaParameters()
    )
    networks = p.twin_soft_actor_critic_networks((8,), batch_size=BATCH, **trained)
    return TwinSoftActorCriticAgent(p.TwinSoftActorCriticAgentParameters(algorithm, networks=networks), SPEC)


def rates_of(agent, updates):
    """Makes updates and returns their learning rates by name."""
    metrics = agent.update(random_batches(SPEC, updates, BATCH)).metrics
    return {name: metrics[:, agent.metric_names.index(f"learning_rate/{name}")] for name in NAMES}


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("make", [network, p.AutoAlphaParameters, p.DiscreteAutoAlphaParameters])
def test_learning_rates_match_golden_vectors(kind, make):
    golden, meta = golden_tools.read("modern_tables.npz")
    decaying = make(
        learning_rate=meta["learning_rate"],
        learning_rate_end=meta["learning_rate_end"],
        learning_rate_decay_type=kind,
        learning_rate_decay_steps=meta["schedule_updates"],
    )
    updates = tf.Variable(0, dtype=tf.int64)
    rate = learning_rate_of(decaying, updates)
    for update, expected in zip(golden["schedule/update"], golden[f"schedule/{kind}"], strict=True):
        updates.assign(update)
        assert float(rate(999)) == pytest.approx(expected, rel=1e-5)  # independent of the optimizer's iterations


def test_skipped_policy_updates_count_for_its_learning_rate():
    decay = {"learning_rate_decay_type": "linear", "learning_rate_decay_steps": 6}
    temperature = p.AutoAlphaParameters(learning_rate=0.2, learning_rate_end=0.1, **decay)
    agent = make_agent(temperature, delay=3, learning_rate=0.06, **decay)
    rates = rates_of(agent, 8)
    falling = np.array([0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 0.0, 0.0])
    np.testing.assert_allclose(rates["q"], falling, atol=1e-7)
    np.testing.assert_allclose(rates["policy"], falling, atol=1e-7)
    np.testing.assert_allclose(rates["temperature"], 0.1 + falling / 0.6, atol=1e-7)
    assert int(agent.optimizers["policy"].iterations.numpy()) == 2
    before = [variable.numpy() for variable in agent.trained["policy"]]
    agent.update(random_batches(SPEC, 1, BATCH))  # the ninth updates the policy with a learning rate of zero
    assert int(agent.optimizers["policy"].iterations.numpy()) == 3
    for old, variable in zip(before, agent.trained["policy"], strict=True):
        np.testing.assert_array_equal(old, variable.numpy())


COSINE = {"learning_rate_decay_type": "cosine", "learning_rate_decay_steps": "run"}


@pytest.mark.parametrize(
    ("playing", "steps", "updates"),
    [
        (p.EnvironmentSteps(4), p.EnvironmentSteps(402), 600),
        (p.EnvironmentSteps(4), p.EnvironmentSteps(3), 1),
        (p.EnvironmentSteps(4), p.TrainingSteps(77), 77),
        (p.EnvironmentEpisodes(2), p.EnvironmentEpisodes(9), 24),
    ],
)
def test_updates_in_a_run(playing, steps, updates):
    algorithm = p.TwinSoftActorCriticAlgorithmParameters(
        num_consecutive_playing_steps=playing, num_consecutive_training_steps=6
    )
    assert algorithm.updates_in(steps, 1) == updates
    if playing == p.EnvironmentEpisodes(2):
        with pytest.raises(p.ParameterError, match="improve_steps"):
            algorithm.updates_in(p.EnvironmentSteps(9), 1)


@pytest.mark.parametrize(("online", "updates"), [(True, 80), (False, 60)])
def test_acer_updates_in_a_run(online, updates):
    algorithm = p.DiscreteACERAlgorithmParameters(t_max=5, n_times_replay=3, disable_online_update=not online)
    assert algorithm.updates_in(p.EnvironmentSteps(209), num_envs=2) == updates


@pytest.mark.slow
def test_learning_rates_end_with_the_run(tmp_path):
    changes = {
        "agent.networks.*.learning_rate_end": 1e-5,
        "agent.algorithm.temperature.learning_rate_end": 1e-6,
        "agent.algorithm.num_updates_between_policy_updates": 4,
        **{f"agent.networks.*.{name}": value for name, value in COSINE.items()},
        **{f"agent.algorithm.temperature.{name}": value for name, value in COSINE.items()},
    }
    preset = p.override(TWIN, changes)
    assert p.from_json(p.Preset, json.dumps(p.to_json(preset))) == preset
    trainer = Trainer(preset, tmp_path / "run", p.RunParameters(seed=1, tensorboard=False), quiet=True)
    updates = trainer.run().counters.updates
    assert updates == preset.updates > 8
    ends = {name: float(optimizer.learning_rate) for name, optimizer in trainer.agent.optimizers.items()}
    assert ends == pytest.approx({"policy": 1e-5, "q": 1e-5, "temperature": 1e-6}, rel=1e-4)
    last = tiny.rows(tmp_path / "run")[-1]
    assert 1e-5 < float(last["learning_rate/policy"]) == float(last["learning_rate/q"]) < 1e-3


def test_decay_over_run_requires_a_preset():
    with pytest.raises(ValueError, match="learning_rate_decay_steps"):
        make_agent(**COSINE)
    preset = p.override(TWIN, {f"agent.networks.q.{name}": value for name, value in COSINE.items()})
    agent = build_agent(preset, p.RunParameters(seed=1), SPEC)
    assert agent.network_parameters["q"].learning_rate_decay_steps == preset.updates
