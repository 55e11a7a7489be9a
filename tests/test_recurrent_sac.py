"""Recurrent soft actor-critic: sequences, updates, acting and invalid parameters."""

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import batch_at, changed, weights
from toys import discrete_spec, random_sequences, vector_spec

from tfsac.agents import RecurrentDiscreteSoftActorCriticAgent, RecurrentSoftActorCriticAgent
from tfsac.errors import TfsacError
from tfsac.losses import soft_actor_critic as losses
from tfsac.parameters import (
    ParameterError,
    Preset,
    RecurrentDiscreteSoftActorCriticAgentParameters,
    RecurrentDiscreteSoftActorCriticAlgorithmParameters,
    RecurrentSoftActorCriticAgentParameters,
    RecurrentSoftActorCriticAlgorithmParameters,
    SequenceReplayParameters,
    override,
    recurrent_soft_actor_critic_networks,
)
from tfsac.policies.base_policy import with_reward
from tfsac.types import EMPTY, FIRST, LAST, MID, PREVIOUS_ACTION, PREVIOUS_REWARD, STATE, ArraySpec, Spec

STEPS, BATCH, UNITS = 6, 4, 5
KINDS = ("continuous", "discrete")


def make_parameters(kind, burn_in=2, **algorithm):
    discrete = kind == "discrete"
    algorithms = RecurrentSoftActorCriticAlgorithmParameters, RecurrentDiscreteSoftActorCriticAlgorithmParameters
    agents = RecurrentSoftActorCriticAgentParameters, RecurrentDiscreteSoftActorCriticAgentParameters
    return agents[discrete](
        algorithm=algorithms[discrete](burn_in=burn_in, **algorithm),
        memory=SequenceReplayParameters(sequence_length=STEPS + 1),
        networks=recurrent_soft_actor_critic_networks(
            (8,), UNITS, (8,), discrete, learning_rate=1e-2, batch_size=BATCH
        ),
    )


def make_agent(kind, spec=None, eager=True, **algorithm):
    agents = RecurrentSoftActorCriticAgent, RecurrentDiscreteSoftActorCriticAgent
    spec = spec or (discrete_spec(3, 4, masked=True) if kind == "discrete" else vector_spec(3, 2))
    agent = agents[kind == "discrete"](make_parameters(kind, **algorithm), spec, seed=3, eager=eager)
    rng = np.random.default_rng(1)
    for network in agent.networks.values():
        for variable in network.trainable_variables:
            variable.assign(0.5 * rng.standard_normal(variable.shape))
    agent.policy.refresh()
    return agent


def batch_of(agent, updates=1):
    return random_sequences(agent.spec, updates, STEPS + 1, BATCH, state=agent.policy.recurrent_state)


def batch_without_ends(agent):
    """Returns a batch in which no episode starts or ends."""
    batch = batch_of(agent)
    ones = np.ones(batch.reward.shape, np.float32)
    return batch._replace(step_type=np.full_like(batch.step_type, MID), nonterminal=ones)


@pytest.mark.parametrize("kind", KINDS)
def test_acting_step_by_step_matches_one_pass(kind):
    agent = make_agent(kind, burn_in=0, initial_state="stored")
    batch, state, q_states, hidden = batch_without_ends(agent), None, [], []
    batch.step_type[:, 0], batch.step_type[:, 3] = FIRST, FIRST
    for name, start in ((PREVIOUS_ACTION, -1 if kind == "discrete" else 0), (PREVIOUS_REWARD, 0)):
        batch.extras[STATE + name][batch.step_type == FIRST] = start
    for t in range(STEPS + 1):
        observation = {key: x[0, t] for key, x in batch.observation.items()}
        is_first = batch.step_type[0, t] == FIRST
        result = agent.policy.act(observation, state, is_first, "explore")
        np.testing.assert_array_equal(
            result.extras[STATE + PREVIOUS_REWARD], batch.extras[STATE + PREVIOUS_REWARD][0, t]
        )
        hidden.append(result.state["hidden"])
        q_states.append(result.state["q_hidden"])
        if t < STEPS:  # replace the sampled action by the batch's
            state = {**result.state, PREVIOUS_ACTION: batch.extras[STATE + PREVIOUS_ACTION][0, t + 1]}
            state = with_reward(state, batch.extras[STATE + PREVIOUS_REWARD][0, t + 1])
    for name, states in (("policy", hidden), ("q", q_states)):
        np.testing.assert_allclose(agent.features(agent.networks[name], batch_at(batch)), states, atol=1e-5)


def test_empty_steps_have_zero_weight():
    agent = make_agent("continuous")
    batch = batch_without_ends(agent)
    empty = batch._replace(step_type=np.full_like(batch.step_type, EMPTY))
    assert not agent.weights(batch_at(empty)).numpy().any()


def test_bootstrap_at_truncated_and_terminated_steps(monkeypatch):
    agent, calls, target = make_agent("continuous", burn_in=0), [], losses.bootstrap_target
    monkeypatch.setattr(losses, "bootstrap_target", lambda *arguments: calls.append(arguments) or target(*arguments))
    batch = batch_without_ends(agent)
    batch.step_type[:, 3], batch.step_type[:, 4] = LAST, FIRST
    batch.nonterminal[:, 2, 0] = 0
    x = batch_at(batch)
    agent.critic_step(x, agent.policy_outputs(x), agent.weights(x))
    reward, discount, value = (np.reshape(arguments, (STEPS, BATCH)) for arguments in calls[0])
    np.testing.assert_allclose(discount[2], 0.99 * np.float32([0, 1, 1, 1]))
    np.testing.assert_array_equal(reward, batch.reward[0, :-1])
    # The value after the truncated step is that of its final observation, not of the next episode.
    other_observation = {"observation": batch.observation["observation"].copy()}
    other_observation["observation"][:, 4:] += 1.0
    y = batch_at(batch._replace(observation=other_observation))
    agent.critic_step(y, agent.policy_outputs(y), agent.weights(y))
    after = np.reshape(calls[1][2], (STEPS, BATCH))
    np.testing.assert_array_equal(after[:3], value[:3])
    assert (after[3:] != value[3:]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_policy_delay_with_separate_calls(kind):
    agent = make_agent(kind, num_updates_between_policy_updates=2, initial_state="stored", eager=False)
    stacked = batch_of(agent, 2)
    first, second = (tf.nest.map_structure(lambda x, i=i: x[i : i + 1], stacked) for i in range(2))
    before = weights(agent)
    agent.update(first)
    between = weights(agent)
    assert changed(before, between) == {"q", "q_target"}
    agent.update(second)
    assert changed(between, weights(agent)) == {"policy", "q", "q_target", "temperature"}
    result = agent.update(stacked)
    assert np.isfinite(result.metrics[result.reported]).all()
    assert agent.compiled.traces <= 4


def test_invalid_actions_have_zero_probability():
    agent = make_agent("discrete", burn_in=0)
    batch = batch_without_ends(agent)
    mask = batch.observation["action_mask"]
    mask[:] = True
    mask[..., 3] = False
    batch.action[:] = np.minimum(batch.action, 2)
    x = batch_at(batch)
    policy = agent.distribution(agent.policy_outputs(x), x, slice(1, None))
    assert not policy.prob.numpy()[:, 3].any() and not policy.log_prob.numpy()[:, 3].any()
    np.testing.assert_allclose(policy.max_entropy(), np.log(3.0), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_policy_state_has_previous_action_and_reward(kind):
    agent = make_agent(kind, initial_state="stored")
    observation = {key: x[0, 0] for key, x in batch_of(agent).observation.items()}
    fields = {"hidden", "cell", PREVIOUS_ACTION, PREVIOUS_REWARD}
    for mode in ("random", "explore", "sample", "greedy"):
        collecting = mode in ("random", "explore")
        result = agent.policy.act(observation, mode=mode)
        assert result.state.keys() == fields | ({"q_hidden", "q_cell"} if collecting else set())
        np.testing.assert_array_equal(result.state[PREVIOUS_ACTION], result.action)
        assert np.isnan(result.state[PREVIOUS_REWARD]).all()
        assert result.extras.keys() == ({STATE + field for field in result.state} if collecting else set())
        state = with_reward(result.state, np.arange(BATCH))
        next_result = agent.policy.act(observation, state, np.arange(BATCH) == 1, mode)
        for field in result.state if collecting else ():
            initial = -1 if field == PREVIOUS_ACTION and kind == "discrete" else 0
            np.testing.assert_array_equal(next_result.extras[STATE + field][1], np.full_like(state[field][1], initial))
            np.testing.assert_array_equal(next_result.extras[STATE + field][2], state[field][2])


def test_critics_do_not_act_without_stored_states():
    agent = make_agent("continuous")
    assert list(agent.policy.networks) == ["policy"] and not agent.policy.recurrent_state
    assert agent.batch_spec().initial_state == ()
    assert set(agent.spec.extras) == {STATE + PREVIOUS_ACTION, STATE + PREVIOUS_REWARD}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"agent.algorithm.burn_in": STEPS}, "burn_in"),
        ({"agent.networks.q.middleware_parameters": {"kind": "fc", "scheme": [8]}}, "lstm"),
        ({"agent.algorithm.n_step": 3}, "n_step"),
        ({"agent.exploration": {"kind": "additive_noise"}}, "exploration"),
    ],
)
def test_incompatible_parameters_are_rejected(changes, word):
    with pytest.raises(ParameterError, match=word):
        override(Preset(agent=make_parameters("continuous")), changes)


@pytest.mark.parametrize(
    ("spec", "algorithm", "word"),
    [
        (discrete_spec(), {}, "'recurrent_discrete_sac'"),
        (Spec({"previous_reward": ArraySpec((1,), "float32")}, vector_spec().action), {}, "previous_reward"),
        (None, {"temperature": {"kind": "auto", "target_entropy": 3.0}}, "target_entropy"),
    ],
)
def test_unsupported_specs_are_rejected(spec, algorithm, word):
    with pytest.raises(TfsacError, match=word):
        make_agent("continuous", spec, **algorithm)


def test_custom_models_and_recurrent_values_are_rejected():
    with pytest.raises(TfsacError, match="custom Keras models"):
        RecurrentSoftActorCriticAgent(make_parameters("continuous"), vector_spec(3, 2), models=dict)
    with pytest.raises(TfsacError, match="values"):
        make_agent("continuous").values_through  # noqa: B018
