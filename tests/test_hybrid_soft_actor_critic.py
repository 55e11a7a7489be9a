"""Soft actor-critic for factored and hybrid actions: distribution, gradients, masks, exploration, parameters."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import named, one
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from toys import discrete_spec, hybrid_spec, random_batches, team_spec, tiny_preset, vector_spec

from tfsac.agents import HybridSoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.environments.actions import action_spec
from tfsac.errors import TfsacError
from tfsac.losses.soft_actor_critic import hybrid_soft_value
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    EpsilonGreedyParameters,
    FixedAlphaParameters,
    HybridSoftActorCriticAgentParameters,
    HybridSoftActorCriticAlgorithmParameters,
    TwinSoftActorCriticAgentParameters,
    hybrid_soft_actor_critic_networks,
    override,
)
from tfsac.policies.distributions import HybridDistribution
from tfsac.training.run_directory import spaces_of, spec_in
from tfsac.types import ArraySpec, Spec

MASKED = hybrid_spec((3, 1, 2), 2, masked=True)


def parameters(num_critics=2, exploration=None, **algorithm):
    networks = hybrid_soft_actor_critic_networks((8, 8), num_critics, learning_rate=1e-2, batch_size=8)
    algorithm = HybridSoftActorCriticAlgorithmParameters(**algorithm)
    return HybridSoftActorCriticAgentParameters(algorithm=algorithm, networks=networks, exploration=exploration)


def agent_of(spec, eager=True, **changes):
    return HybridSoftActorCriticAgent(parameters(**changes), spec, eager=eager)


def test_a_run_folder_keeps_the_structure_of_actions():
    space = Dict(arm=Dict(grip=Discrete(2), move=Box(-1, 1, (3,))), leg=Tuple((Discrete(3, start=1), Discrete(2))))
    spec = Spec({"observation": ArraySpec((2,), "float32")}, action_spec(space))
    agent_of(spec)  # TensorFlow wraps the dicts of its attributes
    saved = spec_in(json.loads(json.dumps(spaces_of(spec)))).action
    expected = {"arm": {"grip": "arm_grip", "move": "arm_move"}, "leg": ("leg_0", "leg_1")}
    assert saved.structure == expected and saved.leaves.keys() == spec.action.leaves.keys()
    assert saved.leaves["leg_0"] == spec.action.leaves["leg_0"]


def test_the_policys_loss_has_the_gradients_of_finite_differences():
    action, rng = hybrid_spec((3, 2), 2).action, np.random.default_rng(0)
    inputs = [rng.standard_normal((4, n)) * 0.5 for n in (5, 2, 2)]  # logits, mean, log sigma
    noise, mask = rng.standard_normal((4, 2)), rng.random((4, 5)) < 0.7
    mask[:, [0, 3]] = True
    mixing = rng.standard_normal((2, 6))

    def loss(logits, mean, log_std):
        policy = HybridDistribution(action, [logits, mean, log_std], tf.constant(mask))
        u, log_prob = policy.continuous.sample_and_log_prob(tf.constant(noise))
        q = tf.sin(3.0 * u @ mixing) + tf.constant(mixing[:1])  # of every combination
        return -tf.reduce_mean(
            hybrid_soft_value(q, *policy.joint(), log_prob, tf.constant(0.3, q.dtype), tf.constant(0.2, q.dtype))
        )

    tensors = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = loss(*tensors)
    for i, gradient in enumerate(tape.gradient(value, tensors)):
        for index in np.ndindex(inputs[i].shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [x.copy() for x in inputs]
                moved[i][index] += step
                ends.append(loss(*map(tf.constant, moved)).numpy())
            np.testing.assert_allclose(gradient.numpy()[index], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-8)
        assert np.abs(gradient.numpy()).max() > 1e-3


def test_invalid_combinations_have_probability_zero_and_the_others_sum_to_one():
    spec, rng = MASKED, np.random.default_rng(1)
    mask = rng.random((16, 6)) < 0.5
    mask[:, spec.action.offsets] = True
    policy = HybridDistribution(spec.action, [tf.random.normal([16, 6]), *[tf.zeros([16, 2])] * 2], tf.constant(mask))
    prob, log_prob = (x.numpy() for x in policy.joint())
    valid = np.stack([mask[:, [a, 3, 4 + c]].all(-1) for a in range(3) for c in range(2)], axis=-1)
    assert (prob[~valid] == 0).all() and (log_prob[~valid] == 0).all() and (prob[valid] > 0).all()
    np.testing.assert_allclose(prob.sum(-1), 1, rtol=1e-6)
    exact = -(prob * log_prob).sum(-1)
    np.testing.assert_allclose(policy.discrete.entropy(), exact, rtol=1e-5)
    np.testing.assert_allclose(policy.discrete.max_entropy(), np.log(valid.sum(-1)), rtol=1e-6)


def test_an_empty_mask_after_a_terminated_step_leaves_everything_finite():
    agent, stacked = agent_of(MASKED), random_batches(MASKED, 3, 8)
    stacked.next_observation["action_mask"][:, 0, 4:] = False
    stacked.discount[:, 0] = 0
    result = agent.update(stacked)
    assert np.isfinite(result.metrics).all()
    assert all(np.isfinite(v.numpy()).all() for trained in agent.trained.values() for v in trained)


@pytest.mark.parametrize(
    "spec", [MASKED, hybrid_spec((3, 2), 0), hybrid_spec((), 2)], ids=["both", "factors", "numbers"]
)
def test_no_way_of_acting_leaves_the_mask_and_the_bounds(spec):
    exploration = EpsilonGreedyParameters(0.5, 0.5) if spec.action.sizes else None
    agent, rng = agent_of(spec, exploration=exploration), np.random.default_rng(0)
    observation = {"observation": rng.standard_normal((500, 3)).astype("float32")}
    if "action_mask" in spec.observation:
        mask = rng.random((500, 6)) < 0.5
        mask[:, spec.action.offsets] = True
        observation["action_mask"] = mask
    for mode in ("random", "explore", "sample", "greedy"):
        discrete, continuous = spec.action.parts(agent.policy.act(observation, mode=mode).action)
        if discrete is not None:
            assert discrete.dtype == np.int32 and discrete.shape == (500, len(spec.action.sizes))
            assert (discrete >= 0).all() and (discrete < spec.action.sizes).all()
            if "action_mask" in observation:
                assert np.take_along_axis(mask, discrete + spec.action.offsets, axis=1).all()
        if continuous is not None:
            assert continuous.dtype == np.float32 and continuous.shape == (500, 2) and np.abs(continuous).max() <= 1


def test_warm_up_draws_all_values_equally_often():
    agent = agent_of(hybrid_spec((3, 2), 1))
    action = agent.policy.act({"observation": np.zeros((6000, 3), "float32")}, mode="random").action
    for i, size in enumerate((3, 2)):
        counts = np.bincount(action["discrete"][:, i], minlength=size)
        assert np.abs(counts - 6000 / size).max() < 5 * np.sqrt(6000 / size)
    assert abs(action["continuous"].mean()) < 0.05 and action["continuous"].min() < -0.95


def test_one_coin_replaces_all_factors_and_leaves_the_numbers():
    spec = hybrid_spec((50, 50), 1)
    plain, exploring = agent_of(spec), agent_of(spec, exploration=EpsilonGreedyParameters(0.3, 0.3))
    observation = {"observation": np.zeros((2000, 3), "float32")}
    sampled, explored = (agent.policy.act(observation, mode="explore").action for agent in (plain, exploring))
    np.testing.assert_array_equal(sampled["continuous"], explored["continuous"])  # the noise is drawn before the coins
    changed = (sampled["discrete"] != explored["discrete"]).any(axis=1)
    assert abs(changed.mean() - 0.3) < 0.05
    both = (sampled["discrete"] != explored["discrete"]).all(axis=1)
    assert both[changed].mean() > 0.9


@pytest.mark.parametrize(
    "options", [{"num_critics": 4, "critic_subset": 2}, {"target_reduction": "mean", "policy_reduction": "mean"}]
)
def test_options_of_an_ensemble_change_the_update(options):
    spec = hybrid_spec((3, 2), 2)
    usual, other = agent_of(spec, num_critics=options.get("num_critics", 2)), agent_of(spec, **options)
    stacked = random_batches(spec, 1, 8)
    assert named(usual, stacked)["q/target"] != named(other, stacked)["q/target"]


def test_temperatures_are_fixed_or_learned_on_their_own():
    spec = hybrid_spec((3, 2), 2)
    agent = agent_of(
        spec, discrete_temperature=FixedAlphaParameters(0.3), continuous_temperature=AutoAlphaParameters(0.5)
    )
    metrics = named(agent, random_batches(spec, 1, 8))
    assert "loss/continuous_temperature" in metrics and "loss/discrete_temperature" not in metrics
    assert metrics["discrete_temperature/alpha"] == np.float32(0.3)
    assert metrics["continuous_temperature/alpha"] == pytest.approx(0.5)
    assert {"learning_rate/continuous_temperature"} == {name for name in metrics if "rate" in name and "temp" in name}
    alone = named(agent_of(hybrid_spec((3, 2), 0)), random_batches(hybrid_spec((3, 2), 0), 1, 8))
    assert not [name for name in alone if "continuous" in name or "log_std" in name]


def test_values_are_those_that_the_policy_maximises():
    spec = hybrid_spec((3, 2), 2)
    agent, batch = agent_of(spec), one(random_batches(spec, 1, 8))
    values = agent.values(batch.observation, batch.action)["q"].numpy()
    q = agent.q("q", batch.observation, batch.action["continuous"]).numpy().min(1)
    index = np.ravel_multi_index(tuple(batch.action["discrete"].numpy().T), (3, 2))
    np.testing.assert_allclose(values, q[np.arange(8), index], rtol=1e-6)
    beyond = {**batch.action, "discrete": batch.action["discrete"] + [[0, 2]]}
    assert np.isnan(agent.values(batch.observation, beyond)["q"].numpy()).all()


def test_distributions_of_tensorflow_probability_agree():
    from tfsac.policies.tfp_distributions import tfp_distribution

    spec = hybrid_spec((3, 2), 2)
    agent, batch = agent_of(spec), one(random_batches(spec, 1, 8))
    policy = agent.policy.distribution_at({"observation": batch.observation["observation"].numpy()}, {})
    joint = tfp_distribution(policy, spec.action, (8,))
    ours = agent.distribution(batch.observation)
    noise = tf.random.normal([8, 2])
    u, log_prob = ours.continuous.sample_and_log_prob(noise)
    index = np.ravel_multi_index(tuple(batch.action["discrete"].numpy().T), (3, 2))
    expected = ours.joint()[1].numpy()[np.arange(8), index] + log_prob.numpy()
    found = joint.log_prob({"press": batch.action["discrete"], "turn": u})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    sample = joint.sample(5)
    assert sample["press"].shape == (5, 8, 2) and sample["turn"].shape == (5, 8, 2)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: agent_of(discrete_spec()), "MultiDiscrete"),
        (lambda: agent_of(vector_spec()), "MultiDiscrete"),
        (lambda: agent_of(team_spec()), "MultiDiscrete"),
        (lambda: TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), hybrid_spec()), "hybrid_sac"),
        (lambda: agent_of(hybrid_spec()._replace(num_rewards=2)), "rewards"),
        (lambda: agent_of(hybrid_spec((), 2), exploration=EpsilonGreedyParameters()), "exploration"),
        (
            lambda: agent_of(hybrid_spec(), discrete_temperature=DiscreteAutoAlphaParameters(target_entropy=2.0)),
            "target_entropy",
        ),
        (
            lambda: agent_of(hybrid_spec(), continuous_temperature=AutoAlphaParameters(target_entropy=5.0)),
            "target_entropy",
        ),
        (lambda: parameters(target_reduction="own"), "target_reduction"),
        (
            lambda: override(
                dataclasses.replace(tiny_preset(), agent=parameters()),
                {"agent.networks.q.head_parameters.distribution": {"kind": "quantile"}},
            ),
            "distribution",
        ),
        (lambda: dataclasses.replace(parameters(), networks=TwinSoftActorCriticAgentParameters().networks), "Hybrid"),
    ],
)
def test_what_does_not_fit_is_refused(make, word):
    with pytest.raises((TfsacError, ValueError), match=word):
        make()
