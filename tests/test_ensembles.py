"""SAC with an ensemble of critics: subsets, running statistics, policy delay, unit weights and parameters."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tiny
from agent_tools import batch_at, changed, weights
from tiny import one_step_task
from toys import random_batches, team_spec, vector_spec

import tfsac
from tfsac.agents import EnsembleSoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.agents.ensemble_sac import dropout_factors
from tfsac.networks.batch_normalization import BatchNormalization
from tfsac.networks.bfloat16 import use_bfloat16
from tfsac.networks.unit_weights import normalizations
from tfsac.parameters import (
    CategoricalValueParameters,
    EmbedderScheme,
    FCMiddlewareParameters,
    HeadParameters,
    InputEmbedderParameters,
    NormalizationParameters,
    ParameterError,
    QHeadParameters,
    ResidualMiddlewareParameters,
    RunParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
    from_json,
    override,
    twin_soft_actor_critic_networks,
)
from tfsac.policies.distributions import SquashedGaussian
from tfsac.preset_lookup import load_preset
from tfsac.training.build import build_agent

SPEC = vector_spec(3, 2)
PLAIN = FCMiddlewareParameters((16, 16))
BATCH_NORM = NormalizationParameters("batch", "before", normalize_input=True)
NORMALISED = FCMiddlewareParameters((16, 16), normalization=BATCH_NORM)
RENORMALISED = FCMiddlewareParameters((16,), normalization=NormalizationParameters("batch_renorm", "after"))
JOINT = {"joint_critic_forward": True}
ROWS = 8


def parameters(body=PLAIN, critics=2, policy=PLAIN, distribution=None, networks=None, **algorithm):
    return TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(**algorithm),
        networks=ensemble_soft_actor_critic_networks(
            QHeadParameters(num_critics=critics, body_parameters=body, distribution=distribution),
            policy,
            batch_size=ROWS,
            **networks or {},
        ),
    )


def agent_of(*args, seed=3, eager=True, **kwargs):
    return EnsembleSoftActorCriticAgent(parameters(*args, **kwargs), SPEC, seed, eager=eager)


def batches(updates=1, seed=0):
    return random_batches(SPEC, updates, ROWS, seed)


def statistics(agent):
    """Returns the running statistics of every network, by name, for `changed`."""
    return {
        f"{name}/{variable.path}": [variable.numpy()]
        for name, network in agent.networks.items()
        for variable in network.model.non_trainable_variables
    }


def random_observation(rows=ROWS):
    return {"observation": np.random.default_rng(4).standard_normal((rows, 3)).astype(np.float32)}


def test_ensemble_trains_for_a_team():
    agent_parameters, spec = parameters(NORMALISED, critics=3, **JOINT), team_spec(2, discrete=False)
    networks = {
        name: dataclasses.replace(
            agent_parameters.networks[name], input_embedders_parameters={key: InputEmbedderParameters(())}
        )
        for name, key in (("policy", "agent_state"), ("q", "global_state"))
    }
    agent = EnsembleSoftActorCriticAgent(
        dataclasses.replace(agent_parameters, networks=networks), spec, seed=3, eager=True
    )
    before = weights(agent)
    assert np.isfinite(agent.update(random_batches(agent.spec, 2, ROWS)).metrics).all()
    assert {"policy", "q", "q_target"} <= changed(before, weights(agent))


def test_plain_ensemble_of_two_equals_twin_agent():
    plain = TwinSoftActorCriticAgentParameters(networks=twin_soft_actor_critic_networks((16, 16), batch_size=ROWS))
    twin, ensemble = TwinSoftActorCriticAgent(plain, SPEC, eager=True), agent_of()
    for name, network in ensemble.networks.items():
        network.copy_from(twin.networks[name])
    ensemble.noise_seed.assign(twin.noise_seed.numpy())
    twin.update(batches(3)), ensemble.update(batches(3))
    for name, network in ensemble.networks.items():
        for ours, theirs in zip(network.variables, twin.networks[name].variables, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


def test_critic_subsets_are_uniform_and_reproducible():
    agent, counts = agent_of(critics=4, critic_subset=2), {}
    for update in range(600):
        agent.updates.assign(update)
        pair = tuple(sorted(agent.subset().numpy()))
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 6 and min(counts.values()) > 60 and all(a < b for a, b in counts)
    again = agent_of(critics=4, critic_subset=2)
    again.updates.assign(599)
    np.testing.assert_array_equal(again.subset(), agent.subset())


def test_target_uses_the_critic_subset_only(monkeypatch):
    agent = agent_of(critics=4, critic_subset=2)
    batch = batch_at(batches())
    first = agent.critic_step(batch).metrics["q/target"]
    out = agent.networks["q_target"].head.critics.output_layer.bias
    others = [i for i in range(4) if i not in agent.subset().numpy()]
    out.assign(out.numpy() + 100.0 * np.isin(np.arange(4), others)[:, None])
    assert agent.critic_step(batch).metrics["q/target"] == first
    out.assign(out.numpy() + 100.0)
    assert agent.critic_step(batch).metrics["q/target"] > first + 50


def test_entropy_in_target_false_drops_entropy_term():
    target = {}
    for entropy in (True, False):
        agent = agent_of(entropy_in_target=entropy)
        batch = batch_at(batches())._replace(discount=tf.ones(ROWS))
        target[entropy] = float(agent.critic_step(batch).metrics["q/target"])
    noise = agent.noise("next", [ROWS, 2])
    policy = SquashedGaussian(*agent.networks["policy"](batch.next_observation))
    log_prob = float(tf.reduce_mean(policy.sample_and_log_prob(noise)[1]))
    assert target[False] - target[True] == pytest.approx(0.2 * log_prob, abs=1e-5)


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_dropout_is_uniform_and_independent(rate):
    factors = np.stack([dropout_factors(rate, [64, 2, 255], tf.constant([i, 7])).numpy() for i in range(200)])
    dropped = factors == 0.0
    assert set(np.unique(factors)) == {np.float32(0.0), np.float32(1.0 / (1.0 - rate))}
    counts, size = dropped.reshape(200, -1).sum(1), 64 * 2 * 255
    deviation = (size * rate * (1 - rate)) ** 0.5  # standard deviation of the binomial distribution
    assert abs(counts.mean() - size * rate) < 5 * deviation / 200**0.5
    assert 0.75 < counts.std() / deviation < 1.25
    for axis in range(4):
        along = np.moveaxis(dropped, axis, 0)
        a, b = along[:-1].ravel(), along[1:].ravel()
        assert abs(np.corrcoef(a, b)[0, 1]) < 6 / a.size**0.5


def test_running_statistics_change_in_updates_only():
    agent = agent_of(NORMALISED, policy=NORMALISED, num_updates_between_policy_updates=2, **JOINT)
    first = statistics(agent)
    agent.policy.act(random_observation(), mode="sample")
    agent.policy.act(random_observation(1), mode="greedy")
    agent.values(random_observation(), np.zeros((ROWS, 2), np.float32))
    assert not changed(first, statistics(agent))
    agent.update(batches())  # the policy delay skips the policy step
    assert {name.partition("/")[0] for name in changed(first, statistics(agent))} == {"q"}
    second, before = statistics(agent), weights(agent)
    agent.update(batches(seed=1))
    assert {name.partition("/")[0] for name in changed(second, statistics(agent))} == {"q", "policy"}
    assert "policy" in changed(before, weights(agent))


@pytest.mark.parametrize("together", [False, True])
def test_first_policy_update_offsets_policy_delay(together):
    agent = agent_of(num_updates_between_policy_updates=3, first_policy_update=1)
    agent.trace(single=not together)
    stacked = batches(5)
    calls = [slice(0, 5)] if together else [slice(i, i + 1) for i in range(5)]
    metrics = [agent.update(tf.nest.map_structure(lambda x, call=call: x[call], stacked)).metrics for call in calls]
    policy = np.concatenate(metrics)[:, agent.metric_names.index("loss/policy")]
    assert np.isfinite(policy).tolist() == [True, False, False, True, False]
    assert int(agent.optimizers["policy"].iterations) == 2


@pytest.mark.parametrize("preset", ["xqc_mujoco", "simba_mujoco"])  # export tests cover others
def test_numpy_forward_matches_network(preset):
    agent = build_agent(tiny.ensemble(preset), RunParameters(seed=1, eager=True), SPEC)
    agent.update(random_batches(SPEC, 1, agent.batch_size))
    forward, observation = agent.policy.forwards["policy"], random_observation(1)
    assert type(forward).__name__ == "NumpyForward"
    for ours, theirs in zip(forward(observation), agent.networks["policy"](observation), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


SLOW_PRESETS = ("xqc", "droq", "tqc", "crossq", "flash_sac", "simba")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["redq", *(pytest.param(x, marks=pytest.mark.acceptance) for x in SLOW_PRESETS)])
def test_every_preset_solves_one_step_task(name, tmp_path):
    loaded = load_preset(f"{name}_mujoco")
    agent = override(
        tiny.shrunk(loaded),
        {
            "agent.networks.*.learning_rate": 3e-3,
            "agent.networks.*.batch_size": 64,
            "agent.algorithm.num_consecutive_training_steps": 1,
            "agent.algorithm.num_updates_between_policy_updates": 1,
            "agent.algorithm.temperature": {"kind": "fixed", "alpha": 0.01},
            "agent.memory.max_size": 2000,
        },
    ).agent
    filters = {"environment.filters.return_scaling": {"bound": 5.0}, "environment.filters.reward_rescale_factor": 1.0}
    preset = dataclasses.replace(override(one_step_task(), filters), agent=agent)
    result = tfsac.train(preset, run_dir=tmp_path / "run", run=RunParameters(seed=1), quiet=True)
    assert result.best_return > -0.3  # uniform actions get -2.7, zeros -1.1


@pytest.mark.parametrize("kind", ["kernels", "all"])
@pytest.mark.slow
def test_unit_weights_keep_unit_norm(kind):
    flash = ResidualMiddlewareParameters("flash", 8)
    agent = agent_of(flash, policy=flash, networks={"unit_weights": kind}, **JOINT)
    for stage in ("first", "learned"):
        for name in ("policy", "q") if stage == "learned" else agent.networks:
            for variable in agent.networks[name].trainable_variables:
                if variable.name == "kernel":
                    norms = np.linalg.norm(variable.numpy(), axis=-2)
                    np.testing.assert_allclose(norms, 1.0, atol=1e-6)
            for layer in normalizations(agent.networks[name]):
                if kind == "all" and isinstance(layer, BatchNormalization):
                    squares = (layer.scale.numpy() ** 2 + layer.bias.numpy() ** 2).sum(-1)
                    np.testing.assert_allclose(squares, layer.scale.shape[-1], rtol=1e-5)
        agent.update(batches(4))


@pytest.mark.slow
def test_statistics_and_unit_weights_stay_float32_with_bfloat16():
    agents = {}
    for narrow in (False, True):
        use_bfloat16(narrow)
        try:
            agents[narrow] = build_agent(tiny.ensemble("xqc_mujoco"), RunParameters(seed=1), SPEC)
            agents[narrow].update(random_batches(SPEC, 1, 32))
        finally:
            use_bfloat16(False)
    wide, narrow = (
        {f"{name}/{x.path}": x.numpy() for name, network in agent.networks.items() for x in network.variables}
        for agent in (agents[False], agents[True])
    )
    statistics = [name for name in wide if name.endswith(("/mean", "/variance"))]
    assert statistics
    for name in statistics:  # in bfloat16, 0.99 is off by 0.0017
        np.testing.assert_allclose(narrow[name], wide[name], atol=4e-4, err_msg=name)
    kernels = [x for name, x in narrow.items() if name.endswith("/kernel") and "target" not in name]
    assert kernels and all(np.abs(np.linalg.norm(x, axis=-2) - 1).max() < 1e-5 for x in kernels)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: parameters(NORMALISED), "joint_critic_forward"),
        (lambda: EnsembleSoftActorCriticAgent(parameters(NORMALISED, **JOINT), SPEC, models=dict), "network 'q'"),
        (lambda: parameters(NORMALISED, update_order="simultaneous", **JOINT), "update_order"),
        (lambda: parameters(RENORMALISED, **JOINT), "create_target_network"),
        (lambda: parameters(distribution=CategoricalValueParameters(), target_reduction="min"), "target_reduction"),
        (lambda: override(load_preset("redq_mujoco"), {"agent.algorithm.critic_subset": 11}), "critic_subset"),
        (lambda: tiny.ensemble("xqc_mujoco", **{"environment.filters.return_scaling": None}), "Atoms"),
        (lambda: override(load_preset("simba_mujoco"), {"agent.hidden_layers": [256, 256]}), "residual"),
        (lambda: override(load_preset("crossq_mujoco"), {"agent.hidden_layers": 256}), "list of widths"),
    ],
)
def test_incompatible_options_are_rejected(make, word):
    with pytest.raises(ParameterError, match=word):
        make()


@pytest.mark.parametrize(
    ("saved", "head"),
    [
        ({"kind": "sac_q", "network_layers_sizes": [3], "twin_critic": False}, QHeadParameters((3,), num_critics=1)),
        ({"kind": "discrete_q", "network_layers_sizes": [], "twin_critic": True}, QHeadParameters(())),
        ({"kind": "trajectory_q", "num_critics": 4, "init_w": 0.1}, QHeadParameters(num_critics=4, init_w=0.1)),
        (
            {"kind": "ensemble_q", "body_parameters": {"scheme": [3], "dropout": 0.1}, "distribution": None},
            QHeadParameters((3,), dropout=0.1),
        ),
        (
            {"kind": "ensemble_q", "body_parameters": {"kind": "residual", "width": 8}},
            QHeadParameters(residual_blocks=ResidualMiddlewareParameters(width=8)),
        ),
    ],
)
def test_heads_of_older_configs_are_read(saved, head):
    assert from_json(HeadParameters, json.dumps(saved)) == head


@pytest.mark.parametrize(
    ("name", "embedder", "middleware", "critics"),
    [
        ("pendulum_twin_sac", (32,), (16,), (32, 16)),
        ("cart_pole_discrete_sac", EmbedderScheme.Empty, (32, 16), (32, 16)),
        ("taac_simple_control", EmbedderScheme.Empty, (32, 16), (32, 16)),
        ("acer_cartpole", EmbedderScheme.Empty, (32, 16), ()),
        ("redq_mujoco", EmbedderScheme.Empty, (32, 16), (32, 16)),
    ],
)
def test_hidden_layers_apply_to_policy_and_critics(name, embedder, middleware, critics):
    networks = override(load_preset(name), {"agent.hidden_layers": [32, 16]}).agent.networks
    policy, q = networks["policy"], networks["q"]
    assert policy.input_embedders_parameters["observation"].scheme == embedder
    assert policy.middleware_parameters.scheme == middleware
    assert q.head_parameters.network_layers_sizes == critics
    assert critics or q.middleware_parameters.scheme == middleware
