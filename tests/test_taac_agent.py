"""The temporally abstract agent: trajectories, acting in two stages, updates of stretches, several rewards."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import assert_same, changed, named, one, weights
from critic_tools import layers_of_critics
from toys import discrete_spec, random_batches, random_sequences, team_spec, vector_spec

from tfsac.agents import TemporallyAbstractActorCriticAgent
from tfsac.errors import TfsacError
from tfsac.losses import taac as losses
from tfsac.networks import GraphForward, NumpyForward
from tfsac.parameters import (
    Conv2d,
    InputEmbedderParameters,
    SequenceReplayParameters,
    TemporallyAbstractActorCriticAgentParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    temporally_abstract_networks,
)
from tfsac.types import LAST, ArraySpec, Spec

BATCH, STEPS = 8, 4
SPEC = vector_spec(3, 2)
TWO_REWARDS = SPEC._replace(num_rewards=2)
IMAGES = Spec({"observation": ArraySpec((8, 8, 3), "uint8")}, SPEC.action)
CONVOLUTIONS = {"observation": InputEmbedderParameters((Conv2d(4, 4, 2), 8))}
KINDS = {
    "taac": dict(trajectory="constant"),
    "taacl": dict(trajectory="linear"),
    "taacl, forward": dict(trajectory="linear", inverse_mode=False),
    "taacq": dict(trajectory="quadratic"),
    "taacq, forward": dict(trajectory="quadratic", inverse_mode=False),
}


def make_agent(spec=SPEC, embedders=None, **algorithm):
    """Small networks, TaacL unless told."""
    networks = temporally_abstract_networks((8, 8), init_w=0.5, learning_rate=1e-2, batch_size=BATCH)
    if embedders:
        networks = {
            name: dataclasses.replace(network, input_embedders_parameters=embedders)
            for name, network in networks.items()
        }
    given = {
        "trajectory": "linear",
        "rate_for_copying_weights_to_target": 0.25,
        "alpha_learning_rate": 1e-2,
        **algorithm,
    }
    parameters = TemporallyAbstractActorCriticAgentParameters(
        algorithm=TemporallyAbstractActorCriticAlgorithmParameters(**given),
        memory=SequenceReplayParameters(sequence_length=STEPS),
        networks=networks,
    )
    return TemporallyAbstractActorCriticAgent(parameters, spec, seed=0, eager=True)


def batches(agent, updates, seed=0):
    return random_sequences(agent.spec, updates, agent.steps, agent.batch_size, seed)


def compute(agent, stacked):
    """Computes the gradients of the first of these updates, by name, and moves nothing."""
    applied, alpha = [], agent.policy.choice_alpha.numpy()
    agent.apply, agent.update_target = lambda *steps: applied.extend(steps), lambda name: None
    agent.update_once(one(stacked))
    del agent.apply, agent.update_target
    agent.policy.choice_alpha.assign(alpha)
    return {gradients.name: gradients for gradients in applied}


def observations(rows, seed=0):
    return {"observation": np.random.default_rng(seed).standard_normal((rows, 3)).astype(np.float32)}


def random_state(agent, rows, seed=1):
    """A trajectory in the middle of an episode."""
    rng, size = np.random.default_rng(seed), agent.policy.action_size
    state = {name: rng.uniform(-1, 1, (rows, size)).astype(np.float32) for name in agent.policy.trajectory.fields}
    return {**state, "repeats": rng.integers(1, 5, rows).astype(np.int32)}


def tensors(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


def prefer(agent, kept, advantage):
    """Makes the critics of acting say that anything but a kept action is better by so much."""

    def q(observation, tau):
        same = (tau[:, : agent.policy.action_size] == kept[: len(tau)]).all(axis=1)
        return [np.where(same, 0.0, advantage).astype(np.float32)[:, None, None]]

    agent.policy.forwards["q"] = q


# -- steps -------------------------------------------------------------------------------------------------------------


def test_every_step_has_gradients_of_its_own_weights_and_moves_them_alone():
    agent = make_agent()
    before, steps = weights(agent), compute(agent, batches(agent, 1))
    assert changed(before, weights(agent)) == set()  # computing moves nothing
    assert sorted(steps) == ["choice_temperature", "policy", "proposal_temperature", "q"] == sorted(agent.trained)
    for step in steps.values():
        assert len(step.values) == len(agent.trained[step.name])
        assert all(np.abs(value).max() > 0 for value in step.values)
        before = weights(agent)
        agent.apply(step)
        assert changed(before, weights(agent)) == {step.name}


# -- periods and delays ------------------------------------------------------------------------------------------------


def test_policy_and_temperatures_wait_for_their_turn_also_with_one_update_per_call():
    agent, moved = make_agent(num_updates_between_policy_updates=3), []
    stacked = batches(agent, 6)
    for i in range(6):
        before = weights(agent)
        metrics = named(agent, tf.nest.map_structure(lambda x, i=i: x[i : i + 1], stacked))
        after = weights(agent)
        moved.append(changed(before, after))
        assert (metrics["policy/gradient_norm"] > 0) == ("policy" in moved[-1])
        for target, online, new in zip(before["q_target"], after["q"], after["q_target"], strict=True):
            np.testing.assert_allclose(new, 0.75 * target + 0.25 * online, rtol=1e-5, atol=1e-7)
    rest = {"q", "q_target"}
    assert moved == [rest, rest, rest | {"policy", "proposal_temperature", "choice_temperature"}] * 2


# -- which rows count --------------------------------------------------------------------------------------------------


def spoiled(stacked, rows, *names):
    """Puts other numbers into some rows of the named fields."""
    rng = np.random.default_rng(9)

    def other(x):
        x = x.copy()
        x[rows] = rng.uniform(2.0, 3.0, x[rows].shape)
        return x

    extras = {name: other(x) if name in names else x for name, x in stacked.extras.items()}
    fields = {name: other(getattr(stacked, name)) for name in ("action", "reward", "nonterminal") if name in names}
    if "observation" in names:
        fields["observation"] = {key: other(x) for key, x in stacked.observation.items()}
    return stacked._replace(**fields, extras=extras)


OF_STEPS = ("action", "reward", "nonterminal", "next_state/tau_a", "next_state/tau_v", "switch")


@pytest.mark.parametrize(
    ("rows", "terminated", "names"),
    [
        ("after an episode", False, OF_STEPS),
        ("after an episode", True, ("observation", "state/tau_a", "state/tau_v")),
        ("last of a sequence", False, OF_STEPS),
    ],
)
def test_what_entries_without_a_step_hold_does_not_matter(rows, terminated, names):
    agent, other = make_agent(), make_agent()
    stacked = batches(agent, 2)
    last = stacked.step_type == LAST
    assert 5 < last.sum() < 30
    if terminated:  # there is no value of what comes after, either
        stacked.nonterminal[:, :-1][last[:, 1:]] = 0.0
    if rows == "last of a sequence":
        last = np.broadcast_to(np.arange(STEPS)[:, None] == STEPS - 1, last.shape)
    agent.update(stacked)
    other.update(spoiled(stacked, last, *names))
    assert_same(agent, other)


@pytest.mark.parametrize("name", ["observation", "state/tau_a", "state/tau_v"])
def test_rows_after_an_episode_give_the_value_of_where_it_was_cut_off(name):
    agent, other = make_agent(), make_agent()
    stacked = batches(agent, 1)
    stacked.nonterminal[:] = 1.0
    other.update(spoiled(stacked, stacked.step_type == LAST, name))
    before = weights(agent)
    agent.update(stacked)
    assert changed(weights(agent), weights(other)) >= {"q"}
    assert "q" in changed(before, weights(agent))


# -- temperatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "choice", "proposal"),
    [
        ({"min_prob": 0.2}, 0.500402, 2 * -0.916291),
        ({"min_prob": (0.05, 0.1)}, 0.198515, 2 * -1.609438),
        ({"target_entropy": (0.3, -4.0)}, 0.3, -4.0),
    ],
)
def test_target_entropies_are_given_or_follow_from_a_probability(algorithm, choice, proposal):
    agent = make_agent(**algorithm)
    assert agent.choice_target_entropy == pytest.approx(choice, abs=1e-5)
    assert agent.proposal_target_entropy == pytest.approx(proposal, abs=1e-5)


# -- several rewards ---------------------------------------------------------------------------------------------------


def test_a_reward_without_weight_is_learned_by_the_critics_alone():
    steps = []
    for shift in (0.0, 5.0):
        agent = make_agent(TWO_REWARDS, reward_weights=(1.0, 0.0))
        for critic in layers_of_critics(agent.networks["q"]):
            critic[-1].kernel.assign_add([[0.0, shift]] * 8)
        steps.append(compute(agent, batches(agent, 1)))
    for name in ("policy", "proposal_temperature", "choice_temperature"):
        for ours, theirs in zip(steps[0][name].values, steps[1][name].values, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    bias = steps[0]["q"].values[-1]  # of the last layers
    assert bias.shape == (2, 2) and np.abs(bias).min() > 1e-3


def test_each_reward_has_its_discount(monkeypatch):
    agent = make_agent(TWO_REWARDS, reward_discounts=(0.9, 0.0))
    seen, stacked, loss = {}, batches(agent, 1), losses.critic_loss
    monkeypatch.setattr(losses, "critic_loss", lambda q, target, huber: seen.update(t=target) or loss(q, target, huber))
    compute(agent, stacked)
    target = seen["t"].numpy()
    np.testing.assert_allclose(target[..., 1], stacked.reward[0, :-1, :, 1], rtol=1e-6)
    assert np.abs(target[..., 0] - stacked.reward[0, :-1, :, 0]).max() > 0.1
    np.testing.assert_array_equal(make_agent(TWO_REWARDS, discount=0.8).reward_discounts, np.float32([0.8, 0.8]))
    np.testing.assert_array_equal(make_agent(TWO_REWARDS).policy.reward_weights, np.float32([1.0, 1.0]))


# -- acting ------------------------------------------------------------------------------------------------------------


ACTING = {name: (SPEC, kind) for name, kind in KINDS.items()} | {
    "two rewards": (TWO_REWARDS, dict(reward_weights=(1.0, -0.5))),
    "clipped": (SPEC, dict(b1_advantage_clipping=(-0.02, 0.03))),
    "at most 3": (SPEC, dict(max_repeat_steps=3)),
    "images": (IMAGES, dict(embedders=CONVOLUTIONS)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "fields"), ACTING.values(), ids=ACTING.keys())
def test_acting_in_numpy_equals_the_exported_tensors(spec, fields):
    agent, rows = make_agent(spec, initial_alpha=0.05, **fields), 200
    agent.update(batches(agent, 3))  # the weights that act are the new ones
    images = fields.get("embedders") is not None
    assert isinstance(agent.policy.forwards["policy"], GraphForward if images else NumpyForward)
    assert isinstance(agent.policy.forwards["q"], GraphForward if images else NumpyForward)
    x = {key: value[0] for key, value in random_batches(spec, 1, rows).observation.items()}
    state = random_state(agent, rows)
    previous = tensors(state)
    for mode in ("greedy", "sample"):
        agent.policy.rng, draws, noise = np.random.default_rng(5), np.random.default_rng(5), None
        if mode == "sample":
            normal, _, uniform = draws.standard_normal((rows, 2), np.float32), draws.random(rows), draws.random(rows)
            noise = tf.concat([normal, tf.cast(uniform, tf.float32)[:, None]], axis=-1)
        found = agent.policy.act(x, state, mode=mode)
        action, after = agent.policy.act_tensors(tensors(x), noise, previous)
        assert set(after) == set(found.state) and 0 < found.extras["switch"].mean() < 1
        np.testing.assert_array_equal(after["repeats"], found.state["repeats"])
        np.testing.assert_allclose(action, found.action, rtol=1e-4, atol=1e-5)
        for name in agent.policy.trajectory.fields:
            np.testing.assert_allclose(after[name], found.state[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_exported_values_are_those_of_keeping_and_of_a_proposal():
    agent = make_agent(TWO_REWARDS, reward_weights=(2.0, 0.5))
    x, state = observations(5), random_state(agent, 5)
    values = agent.value_tensors(tensors(x), tf.fill((5, 2), 0.25), tensors(state))
    taus = {
        "keep_q": np.hstack([np.clip(state["tau_a"] + 2 * state["tau_v"], -1, 1), state["tau_v"]]),
        "switch_q": np.hstack([np.full((5, 2), 0.25), (0.25 - state["tau_a"]) / 2]),
    }
    assert set(values) == set(taus)
    for name, tau in taus.items():
        q = agent.networks["q"](tensors(x), tf.constant(tau, tf.float32)).numpy()
        np.testing.assert_allclose(values[name], q.min(axis=1) @ [2.0, 0.5], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "switch", "sampled"),
    [(0.0, 1.0, 0.0), (0.5, 0.5 + 0.5 / (1 + math.exp(-1)), 0.5), (1.0, 1 / (1 + math.exp(-1)), 1.0)],
)
def test_a_greedy_policy_draws_both_stages_independently_with_its_probability(epsilon, switch, sampled):
    agent, rows = make_agent(trajectory="constant", epsilon_greedy=epsilon), 20000
    state = {"tau_a": np.full((rows, 2), 0.123, np.float32), "repeats": np.ones(rows, np.int32)}
    prefer(agent, state["tau_a"], 1.0)
    x = {"observation": np.ones((rows, 3), np.float32)}
    mode = np.tanh(agent.policy.forwards["policy"]({**x, "tau_a": state["tau_a"]})[0])
    found = agent.policy.act(x, state, mode="greedy")
    switched, drawn = found.extras["switch"] > 0, (found.action != mode).all(axis=1)
    assert switched.mean() == pytest.approx(switch, abs=0.015)
    assert drawn[switched].mean() == pytest.approx(sampled, abs=0.015)
    for explored in ("sample", "explore"):  # these draw always
        found = agent.policy.act(x, state, mode=explored)
        assert found.extras["switch"].mean() == pytest.approx(1 / (1 + math.exp(-1)), abs=0.015)
        assert (found.action != mode)[found.extras["switch"] > 0].all()


def test_what_is_equal_is_kept():
    agent = make_agent(**KINDS["taacq"])
    for variable in agent.networks["q"].trainable_variables:
        variable.assign(tf.zeros_like(variable))
    agent.policy.refresh()
    x, state = observations(20), random_state(agent, 20)
    assert agent.policy.act(x, state, mode="greedy").extras["switch"].sum() == 0
    _, after = agent.policy.act_tensors(tensors(x), None, tensors(state))
    np.testing.assert_array_equal(after["repeats"], state["repeats"] + 1)
    x, state = tensors(observations(20000)), tensors(random_state(agent, 20000))
    _, after = agent.policy.act_tensors(x, agent.policy.sample_noise(x), state)
    assert np.mean(after["repeats"] == 1) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("mode", ["greedy", "sample"])
def test_a_trajectory_lasts_no_longer_than_it_may(mode):
    agent, switches = make_agent(trajectory="constant", max_repeat_steps=3, initial_alpha=0.01), []
    state = agent.policy.initial_state(4)
    for step in range(8):
        prefer(agent, state["tau_a"], -10.0)  # the critics would keep for ever
        previous, found = state, agent.policy.act(observations(4, step), state, mode=mode)
        switches.append(found.extras["switch"].tolist())
        state = found.state
        assert (state["tau_a"] != previous["tau_a"]).all() == bool(switches[-1][0])
    assert switches == [[float(switch)] * 4 for switch in (0, 0, 0, 1, 0, 0, 1, 0)]


def test_an_episode_begins_with_zeros_row_by_row():
    agent = make_agent()
    x, state = observations(3), random_state(agent, 3)
    found = agent.policy.act(x, state, np.array([True, False, True]), mode="explore")
    for name in agent.policy.trajectory.fields:
        np.testing.assert_array_equal(found.extras[f"state/{name}"][[0, 2]], 0.0)
        np.testing.assert_array_equal(found.extras[f"state/{name}"][1], state[name][1])
    np.testing.assert_array_equal(found.state["repeats"][[0, 2]], 1)
    first = agent.policy.act(x, None, mode="greedy")
    for name, value in agent.policy.act(x, agent.policy.initial_state(3), mode="greedy").state.items():
        np.testing.assert_array_equal(first.state[name], value)


@pytest.mark.parametrize(("mode", "random"), [("random", True), ("explore", True), ("sample", False)])
def test_first_trajectories_are_random_while_playing_if_wanted(mode, random):
    agent, rows = make_agent(randomize_first_state_tau=True), 5000
    state = random_state(agent, rows)
    begins = np.arange(rows) % 2 == 0
    found = agent.policy.act(observations(rows), state, begins, mode)
    begun = {name: found.extras[f"state/{name}"] for name in agent.policy.trajectory.fields}
    for name, before in begun.items():
        np.testing.assert_array_equal(before[~begins], state[name][~begins])
        assert before[begins].std() == pytest.approx(3**-0.5 if random else 0.0, abs=0.02)
        assert before[begins].mean() == pytest.approx(0.0, abs=0.05) and np.abs(before).max() <= 1
    kept, stays = agent.policy.trajectory.step(begun), found.extras["switch"] == 0
    np.testing.assert_array_equal(found.action[stays], kept["tau_a"][stays])


def test_random_acting_switches_half_of_the_time_to_uniform_proposals():
    agent, rows = make_agent(trajectory="constant"), 20000
    state = random_state(agent, rows)
    found = agent.policy.act(observations(rows), state, mode="random")
    switch = found.extras["switch"] > 0
    assert switch.mean() == pytest.approx(0.5, abs=0.015)
    np.testing.assert_array_equal(found.action[~switch], state["tau_a"][~switch])
    new = found.action[switch]
    np.testing.assert_allclose(np.quantile(new, [0.1, 0.5, 0.9], axis=0), [[-0.8] * 2, [0.0] * 2, [0.8] * 2], atol=0.04)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "algorithm", "word"),
    [
        (discrete_spec(), {}, "discrete"),
        (team_spec(3, discrete=False), {}, "agents"),
        (SPEC, {"reward_weights": (1.0, 2.0)}, "reward_weights"),
        (SPEC, {"target_entropy": (0.7, -1.0)}, "target_entropy"),
        (SPEC._replace(observation={"tau_a": SPEC.observation["observation"]}), {}, "tau_a"),
    ],
)
def test_what_the_agent_cannot_do_is_refused(spec, algorithm, word):
    with pytest.raises(TfsacError, match=word):
        make_agent(spec, **algorithm)
