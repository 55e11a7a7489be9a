"""TAAC agents: policy delay, temperatures, vector rewards and two-stage acting."""

import dataclasses
import math

import numpy as np
import pytest
import strategy_tools
import tensorflow as tf
from agent_tools import batch_at, changed, last_metrics, weights
from critic_tools import critic_layers
from toys import discrete_spec, random_batches, random_sequences, vector_spec

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
    """Returns a small agent, TaacL by default."""
    given = {"trajectory": "linear", "rate_for_copying_weights_to_target": 0.25, **algorithm}
    parameters, _ = strategy_tools.taac(spec, **given)
    if embedders:
        networks = {
            name: dataclasses.replace(network, input_embedders_parameters=embedders)
            for name, network in parameters.networks.items()
        }
        parameters = dataclasses.replace(parameters, networks=networks)
    return TemporallyAbstractActorCriticAgent(parameters, spec, seed=0, eager=True)


def batches(agent, updates, seed=0):
    return random_sequences(agent.spec, updates, agent.steps, agent.batch_size, seed)


def compute_gradients(agent, stacked):
    """Returns the gradients of the first update by name, without applying them."""
    applied, alpha = [], agent.policy.choice_alpha.numpy()
    agent.apply, agent.update_target = lambda *steps: applied.extend(steps), lambda name: None
    agent.update_once(batch_at(stacked))
    del agent.apply, agent.update_target
    agent.policy.choice_alpha.assign(alpha)
    return {gradients.name: gradients for gradients in applied}


def observations(rows, seed=0):
    return {"observation": np.random.default_rng(seed).standard_normal((rows, 3)).astype(np.float32)}


def random_state(agent, rows, seed=1):
    """Returns a policy state in the middle of an episode."""
    rng, size = np.random.default_rng(seed), agent.policy.action_size
    state = {name: rng.uniform(-1, 1, (rows, size)).astype(np.float32) for name in agent.policy.trajectory.fields}
    return {**state, "repeats": rng.integers(1, 5, rows).astype(np.int32)}


def tensors(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


def set_advantage(agent, kept_action, advantage):
    """Makes the acting critics prefer every action over the kept one by `advantage`."""

    def q(observation, tau):
        same = (tau[:, : agent.policy.action_size] == kept_action[: len(tau)]).all(axis=1)
        return [np.where(same, 0.0, advantage).astype(np.float32)[:, None, None]]

    agent.policy.forwards["q"] = q


def test_policy_delay_with_one_update_per_call():
    agent, changes_by_call = make_agent(num_updates_between_policy_updates=3), []
    stacked = batches(agent, 6)
    for i in range(6):
        before = weights(agent)
        metrics = last_metrics(agent, tf.nest.map_structure(lambda x, i=i: x[i : i + 1], stacked))
        after = weights(agent)
        changes_by_call.append(changed(before, after))
        assert (metrics["policy/gradient_norm"] > 0) == ("policy" in changes_by_call[-1])
        for target, online, new in zip(before["q_target"], after["q"], after["q_target"], strict=True):
            np.testing.assert_allclose(new, 0.75 * target + 0.25 * online, rtol=1e-5, atol=1e-7)
    critic_variables = {"q", "q_target"}
    assert (
        changes_by_call
        == [
            critic_variables,
            critic_variables,
            critic_variables | {"policy", "proposal_temperature", "choice_temperature"},
        ]
        * 2
    )


@pytest.mark.parametrize(
    ("algorithm", "choice", "proposal"),
    [
        ({"min_prob": 0.2}, 0.500402, 2 * -0.916291),
        ({"min_prob": (0.05, 0.1)}, 0.198515, 2 * -1.609438),
    ],
)
def test_target_entropies_from_min_prob(algorithm, choice, proposal):
    agent = make_agent(**algorithm)
    assert agent.choice_target_entropy == pytest.approx(choice, abs=1e-5)
    assert agent.proposal_target_entropy == pytest.approx(proposal, abs=1e-5)


def test_reward_with_zero_weight_trains_only_critics():
    steps = []
    for shift in (0.0, 5.0):
        agent = make_agent(TWO_REWARDS, reward_weights=(1.0, 0.0))
        for critic in critic_layers(agent.networks["q"]):
            critic[-1].kernel.assign_add([[0.0, shift]] * 8)
        steps.append(compute_gradients(agent, batches(agent, 1)))
    for name in ("policy", "proposal_temperature", "choice_temperature"):
        for ours, theirs in zip(steps[0][name].values, steps[1][name].values, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    bias = steps[0]["q"].values[-1]  # of the output layers
    assert bias.shape == (2, 2) and np.abs(bias).min() > 1e-3


def test_reward_discounts(monkeypatch):
    agent = make_agent(TWO_REWARDS, reward_discounts=(0.9, 0.0))
    seen, stacked, loss = {}, batches(agent, 1), losses.critic_loss
    monkeypatch.setattr(losses, "critic_loss", lambda q, target, huber: seen.update(t=target) or loss(q, target, huber))
    compute_gradients(agent, stacked)
    target = seen["t"].numpy()
    np.testing.assert_allclose(target[..., 1], stacked.reward[0, :-1, :, 1], rtol=1e-6)
    assert np.abs(target[..., 0] - stacked.reward[0, :-1, :, 0]).max() > 0.1
    np.testing.assert_array_equal(make_agent(TWO_REWARDS, discount=0.8).reward_discounts, np.float32([0.8, 0.8]))
    np.testing.assert_array_equal(make_agent(TWO_REWARDS).policy.reward_weights, np.float32([1.0, 1.0]))


ACTING = {
    "quadratic, forward": (SPEC, dict(trajectory="quadratic", inverse_mode=False)),
    "two rewards": (TWO_REWARDS, dict(reward_weights=(1.0, -0.5))),
    "clipped, at most 3": (SPEC, dict(b1_advantage_clipping=(-0.02, 0.03), max_repeat_steps=3)),
    "images": (IMAGES, dict(embedders=CONVOLUTIONS)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "fields"), ACTING.values(), ids=ACTING.keys())
def test_numpy_acting_matches_exported_tensors(spec, fields):
    agent, rows = make_agent(spec, initial_alpha=0.05, **fields), 200
    agent.update(batches(agent, 3))  # acting uses the updated weights
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
        result = agent.policy.act(x, state, mode=mode)
        action, after = agent.policy.act_tensors(tensors(x), noise, previous)
        assert set(after) == set(result.state) and 0 < result.extras["switch"].mean() < 1
        np.testing.assert_array_equal(after["repeats"], result.state["repeats"])
        np.testing.assert_allclose(action, result.action, rtol=1e-4, atol=1e-5)
        for name in agent.policy.trajectory.fields:
            np.testing.assert_allclose(after[name], result.state[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("epsilon", "switch", "sampled"),
    [(0.0, 1.0, 0.0), (0.5, 0.5 + 0.5 / (1 + math.exp(-1)), 0.5), (1.0, 1 / (1 + math.exp(-1)), 1.0)],
)
def test_epsilon_greedy_samples_both_stages_independently(epsilon, switch, sampled):
    agent, rows = make_agent(trajectory="constant", epsilon_greedy=epsilon), 20000
    state = {"tau_a": np.full((rows, 2), 0.123, np.float32), "repeats": np.ones(rows, np.int32)}
    set_advantage(agent, state["tau_a"], 1.0)
    x = {"observation": np.ones((rows, 3), np.float32)}
    mode = np.tanh(agent.policy.forwards["policy"]({**x, "tau_a": state["tau_a"]})[0])
    result = agent.policy.act(x, state, mode="greedy")
    switched, drawn = result.extras["switch"] > 0, (result.action != mode).all(axis=1)
    assert switched.mean() == pytest.approx(switch, abs=0.015)
    assert drawn[switched].mean() == pytest.approx(sampled, abs=0.015)
    for explored in ("sample", "explore"):  # these always sample
        result = agent.policy.act(x, state, mode=explored)
        assert result.extras["switch"].mean() == pytest.approx(1 / (1 + math.exp(-1)), abs=0.015)
        assert (result.action != mode)[result.extras["switch"] > 0].all()


@pytest.mark.parametrize("mode", ["greedy", "sample"])
def test_max_repeat_steps(mode):
    agent, switches = make_agent(trajectory="constant", max_repeat_steps=3, initial_alpha=0.01), []
    state = agent.policy.initial_state(4)
    for step in range(8):
        set_advantage(agent, state["tau_a"], -10.0)  # the critics prefer to keep the action
        previous, result = state, agent.policy.act(observations(4, step), state, mode=mode)
        switches.append(result.extras["switch"].tolist())
        state = result.state
        assert (state["tau_a"] != previous["tau_a"]).all() == bool(switches[-1][0])
    assert switches == [[float(switch)] * 4 for switch in (0, 0, 0, 1, 0, 0, 1, 0)]


@pytest.mark.parametrize(("mode", "random"), [("random", True), ("explore", True), ("sample", False)])
def test_randomize_first_state_tau(mode, random):
    agent, rows = make_agent(randomize_first_state_tau=True), 5000
    state = random_state(agent, rows)
    is_first = np.arange(rows) % 2 == 0
    result = agent.policy.act(observations(rows), state, is_first, mode)
    initial = {name: result.extras[f"state/{name}"] for name in agent.policy.trajectory.fields}
    for name, before in initial.items():
        np.testing.assert_array_equal(before[~is_first], state[name][~is_first])
        assert before[is_first].std() == pytest.approx(3**-0.5 if random else 0.0, abs=0.02)
        assert before[is_first].mean() == pytest.approx(0.0, abs=0.05) and np.abs(before).max() <= 1
    kept_action, keeps = agent.policy.trajectory.step(initial), result.extras["switch"] == 0
    np.testing.assert_array_equal(result.action[keeps], kept_action["tau_a"][keeps])


def test_random_mode_switches_half_of_the_time():
    agent, rows = make_agent(trajectory="constant"), 20000
    state = random_state(agent, rows)
    result = agent.policy.act(observations(rows), state, mode="random")
    switch = result.extras["switch"] > 0
    assert switch.mean() == pytest.approx(0.5, abs=0.015)
    np.testing.assert_array_equal(result.action[~switch], state["tau_a"][~switch])
    new = result.action[switch]
    np.testing.assert_allclose(np.quantile(new, [0.1, 0.5, 0.9], axis=0), [[-0.8] * 2, [0.0] * 2, [0.8] * 2], atol=0.04)


@pytest.mark.parametrize(
    ("spec", "algorithm", "word"),
    [
        (discrete_spec(), {}, "discrete"),
        (SPEC, {"reward_weights": (1.0, 2.0)}, "reward_weights"),
        (SPEC._replace(observation={"tau_a": SPEC.observation["observation"]}), {}, "tau_a"),
    ],
)
def test_unsupported_specs_are_rejected(spec, algorithm, word):
    with pytest.raises(TfsacError, match=word):
        make_agent(spec, **algorithm)
