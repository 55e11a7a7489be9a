"""Hybrid SAC: masks, exploration, options, values and errors."""

import dataclasses
import json

import numpy as np
import pytest
import strategy_tools
import tensorflow as tf
from agent_tools import batch_at, last_metrics
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from toys import discrete_spec, hybrid_spec, random_batches

from tfsac.agents import HybridSoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.environments.actions import action_spec
from tfsac.errors import TfsacError
from tfsac.parameters import EpsilonGreedyParameters, TwinSoftActorCriticAgentParameters
from tfsac.training.run_directory import spaces_of, spec_in
from tfsac.types import ArraySpec, Spec

MASKED = hybrid_spec((3, 1, 2), 2, masked=True)


def agent_of(spec, num_critics=2, exploration=None, **algorithm):
    parameters, _ = strategy_tools.hybrid(spec, num_critics, **algorithm)
    return HybridSoftActorCriticAgent(dataclasses.replace(parameters, exploration=exploration), spec, eager=True)


def test_run_folder_keeps_action_structure():
    space = Dict(arm=Dict(grip=Discrete(2), move=Box(-1, 1, (3,))), leg=Tuple((Discrete(3, start=1), Discrete(2))))
    spec = Spec({"observation": ArraySpec((2,), "float32")}, action_spec(space))
    agent_of(spec)  # TensorFlow wraps dict attributes
    saved = spec_in(json.loads(json.dumps(spaces_of(spec)))).action
    expected = {"arm": {"grip": "arm_grip", "move": "arm_move"}, "leg": ("leg_0", "leg_1")}
    assert saved.structure == expected and saved.leaves.keys() == spec.action.leaves.keys()
    assert saved.leaves["leg_0"] == spec.action.leaves["leg_0"]


def test_empty_mask_after_termination_keeps_values_finite():
    agent, stacked = agent_of(MASKED), random_batches(MASKED, 3, 8)
    stacked.next_observation["action_mask"][:, 0, 4:] = False
    stacked.discount[:, 0] = 0
    result = agent.update(stacked)
    assert np.isfinite(result.metrics).all()
    assert all(np.isfinite(v.numpy()).all() for trained in agent.trained.values() for v in trained)


@pytest.mark.parametrize(
    "spec", [MASKED, hybrid_spec((3, 2), 0), hybrid_spec((), 2)], ids=["hybrid", "discrete", "continuous"]
)
def test_every_mode_respects_mask_and_bounds(spec):
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


def test_warm_up_samples_uniformly():
    agent = agent_of(hybrid_spec((3, 2), 1))
    action = agent.policy.act({"observation": np.zeros((6000, 3), "float32")}, mode="random").action
    for i, size in enumerate((3, 2)):
        counts = np.bincount(action["discrete"][:, i], minlength=size)
        assert np.abs(counts - 6000 / size).max() < 5 * np.sqrt(6000 / size)
    assert abs(action["continuous"].mean()) < 0.05 and action["continuous"].min() < -0.95


def test_epsilon_greedy_replaces_all_factors_together():
    spec = hybrid_spec((50, 50), 1)
    plain, exploring = agent_of(spec), agent_of(spec, exploration=EpsilonGreedyParameters(0.3, 0.3))
    observation = {"observation": np.zeros((2000, 3), "float32")}
    sampled, explored = (agent.policy.act(observation, mode="explore").action for agent in (plain, exploring))
    np.testing.assert_array_equal(sampled["continuous"], explored["continuous"])  # drawn before epsilon
    changed = (sampled["discrete"] != explored["discrete"]).any(axis=1)
    assert abs(changed.mean() - 0.3) < 0.05
    both = (sampled["discrete"] != explored["discrete"]).all(axis=1)
    assert both[changed].mean() > 0.9


@pytest.mark.parametrize(
    "options", [{"num_critics": 4, "critic_subset": 2}, {"target_reduction": "mean", "policy_reduction": "mean"}]
)
def test_ensemble_options_change_the_update(options):
    spec = hybrid_spec((3, 2), 2)
    plain, other = agent_of(spec, num_critics=options.get("num_critics", 2)), agent_of(spec, **options)
    stacked = random_batches(spec, 1, 8)
    assert last_metrics(plain, stacked)["q/target"] != last_metrics(other, stacked)["q/target"]


def test_values_match_critics():
    spec = hybrid_spec((3, 2), 2)
    agent, batch = agent_of(spec), batch_at(random_batches(spec, 1, 8))
    values = agent.values(batch.observation, batch.action)["q"].numpy()
    q = agent.q("q", batch.observation, batch.action["continuous"]).numpy().min(1)
    index = np.ravel_multi_index(tuple(batch.action["discrete"].numpy().T), (3, 2))
    np.testing.assert_allclose(values, q[np.arange(8), index], rtol=1e-6)
    beyond = {**batch.action, "discrete": batch.action["discrete"] + [[0, 2]]}
    assert np.isnan(agent.values(batch.observation, beyond)["q"].numpy()).all()


def test_tensorflow_probability_distribution_matches():
    from tfsac.policies.tfp_distributions import tfp_distribution

    spec = hybrid_spec((3, 2), 2)
    agent, batch = agent_of(spec), batch_at(random_batches(spec, 1, 8))
    policy = agent.policy.distribution_at({"observation": batch.observation["observation"].numpy()}, {})
    joint = tfp_distribution(policy, spec.action, (8,))
    ours = agent.distribution(batch.observation)
    noise = tf.random.normal([8, 2])
    u, log_prob = ours.continuous.sample_and_log_prob(noise)
    index = np.ravel_multi_index(tuple(batch.action["discrete"].numpy().T), (3, 2))
    expected = ours.joint()[1].numpy()[np.arange(8), index] + log_prob.numpy()
    joint_log_prob = joint.log_prob({"press": batch.action["discrete"], "turn": u})
    np.testing.assert_allclose(joint_log_prob, expected, rtol=1e-4, atol=1e-4)
    sample = joint.sample(5)
    assert sample["press"].shape == (5, 8, 2) and sample["turn"].shape == (5, 8, 2)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: agent_of(discrete_spec()), "MultiDiscrete"),
        (lambda: TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), hybrid_spec()), "hybrid_sac"),
        (lambda: agent_of(hybrid_spec((), 2), exploration=EpsilonGreedyParameters()), "exploration"),
        (lambda: agent_of(hybrid_spec(), discrete_temperature={"kind": "auto", "target_entropy": 2.0}), "target"),
        (lambda: agent_of(hybrid_spec(), target_reduction="own"), "target_reduction"),
    ],
)
def test_invalid_options_are_rejected(make, word):
    with pytest.raises((TfsacError, ValueError), match=word):
        make()
