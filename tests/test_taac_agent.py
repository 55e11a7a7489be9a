"""The temporally abstract agent: policy delays, temperatures, several rewards, acting in two stages."""

import dataclasses
import math

import numpy as np
import pytest
import strategy_tools
import tensorflow as tf
from agent_tools import changed, named, one, weights
from critic_tools import layers_of_critics
from toys import discrete_spec, random_batches, random_sequences, team_spec, vector_spec

from tfsac.agents import TemporallyAbstractActorCriticAgent
from tfsac.errors import TfsacError
from tfsac.losses import taac as losses
from tfsac.networks import GraphForward, NumpyForward
from tfsac.parameters import Conv2d, InputEmbedderParameters
from tfsac.types import ArraySpec, Spec

SPEC = vector_spec(3, 2)
TWO_REWARDS = SPEC._replace(num_rewards=2)
IMAGES = Spec({"observation": ArraySpec((8, 8, 3), "uint8")}, SPEC.action)
CONVOLUTIONS = {"observation": InputEmbedderParameters((Conv2d(4, 4, 2), 8))}


def make_agent(spec=SPEC, embedders=None, **algorithm):
    """Small networks, TaacL unless told."""
    given = {"trajectory": "linear", "rate_for_copying_weights_to_target": 0.25, **algorithm}
    parameters, _ = strategy_tools.abstract(spec, **given)
    if embedders:
        networks = {
            name: dataclasses.replace(network, input_embedders_parameters=embedders)
            for name, network in parameters.networks.items()
        }
        parameters = dataclasses.replace(parameters, networks=networks)
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


# -- temperatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "choice", "proposal"),
    [
        ({"min_prob": 0.2}, 0.500402, 2 * -0.916291),
        ({"min_prob": (0.05, 0.1)}, 0.198515, 2 * -1.609438),
    ],
)
def test_target_entropies_follow_from_probabilities(algorithm, choice, proposal):
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


ACTING = {
    "quadratic, forward": (SPEC, dict(trajectory="quadratic", inverse_mode=False)),
    "two rewards": (TWO_REWARDS, dict(reward_weights=(1.0, -0.5))),
    "clipped, at most 3": (SPEC, dict(b1_advantage_clipping=(-0.02, 0.03), max_repeat_steps=3)),
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
        (SPEC._replace(observation={"tau_a": SPEC.observation["observation"]}), {}, "tau_a"),
    ],
)
def test_what_the_agent_cannot_do_is_refused(spec, algorithm, word):
    with pytest.raises(TfsacError, match=word):
        make_agent(spec, **algorithm)
