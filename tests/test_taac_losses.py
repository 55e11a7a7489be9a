"""Losses of temporally abstract actor-critic: hand numbers, an exact enumeration of the operator, gradients, wrong
shapes.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from tfsac.losses import temporally_abstract_actor_critic as losses
from tfsac.policies.distributions import SquashedGaussian
from tfsac.policies.temporally_abstract import choice, make_trajectory, pessimistic


def double(x):
    return tf.constant(x, tf.float64)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-np.asarray(x)))


# -- the choice --------------------------------------------------------------------------------------------------------


def test_the_choice_is_a_softmax_of_both_values():
    found = choice(double([1.0, 3.0]), double([2.0, 3.0]), double(0.5))
    first = math.exp(4.0) / (math.exp(2.0) + math.exp(4.0))
    np.testing.assert_allclose(found.switch_B, [first, 0.5], rtol=1e-12)
    np.testing.assert_allclose(found.keep_B, [1.0 - first, 0.5], rtol=1e-12)
    entropy = -first * math.log(first) - (1.0 - first) * math.log(1.0 - first)
    np.testing.assert_allclose(found.entropy_B, [entropy, math.log(2.0)], rtol=1e-12)
    np.testing.assert_array_equal(found.advantage_B, [1.0, 0.0])


@pytest.mark.parametrize(
    ("clipping", "clipped"),
    [
        (None, [-3.0, -1.0, 1.0, 3.0]),
        ((None, None), [-3.0, -1.0, 1.0, 3.0]),
        ((0.0, None), [0.0, 0.0, 1.0, 3.0]),
        ((None, 0.0), [-3.0, -1.0, 0.0, 0.0]),
        ((-2.0, 1.5), [-2.0, -1.0, 1.0, 1.5]),
    ],
)
def test_the_advantage_is_clipped_for_the_probabilities_alone(clipping, clipped):
    advantage = [-3.0, -1.0, 1.0, 3.0]
    found = choice(double([10.0] * 4), double([7.0, 9.0, 11.0, 13.0]), double(2.0), clipping)
    np.testing.assert_allclose(found.switch_B, sigmoid(np.array(clipped) / 2.0), rtol=1e-12)
    np.testing.assert_array_equal(found.advantage_B, advantage)
    np.testing.assert_array_equal(found.better_B, np.array(clipped) > 0)


@pytest.mark.parametrize("alpha", [0.0, 1e-12, 1e-10])
def test_the_choice_is_certain_and_finite_at_the_least_temperature(alpha):
    found = choice(tf.constant([0.0, 5e4, 1.0]), tf.constant([5e4, 0.0, 1.0]), tf.constant(alpha))
    np.testing.assert_array_equal(found.switch_B, [1.0, 0.0, 0.5])
    np.testing.assert_array_equal(found.keep_B, [0.0, 1.0, 0.5])
    np.testing.assert_allclose(found.entropy_B, [0.0, 0.0, math.log(2.0)], rtol=1e-6)
    small = choice(double([0.0]), double([1e-10]), double(alpha))  # a difference of the least temperature counts as one
    np.testing.assert_allclose(small.switch_B, [sigmoid(1.0)], rtol=1e-9)


def test_the_choice_has_no_gradient():
    inputs = [tf.constant([1.0, 2.0]), tf.constant([2.0, 1.5]), tf.constant(0.5)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        found = choice(*inputs)
        totals = [tf.reduce_sum(value) for value in found[:4]]
    for total in totals:
        assert tape.gradient(total, inputs) == [None] * 3


# -- critics -----------------------------------------------------------------------------------------------------------


def test_the_smallest_critic_is_the_largest_where_a_reward_counts_against():
    q = tf.constant([[[1.0, 1.0, 5.0], [2.0, 2.0, 4.0], [3.0, -7.0, 6.0]]])
    np.testing.assert_array_equal(pessimistic(q, np.float32([1.0, -0.5, 0.0])), [[1.0, 2.0, 4.0]])
    np.testing.assert_array_equal(pessimistic(q[:, :1], np.float32([-1.0, 1.0, -1.0])), q[:, 0])


def hand_returns(last, switched, would_switch, discount=(1.0, 1.0, 1.0, 1.0)):
    """Four rows of one stretch with gamma 0.5; V is 10, 20, 30, 40 and a quarter from what is kept."""
    value = np.array([10.0, 20.0, 30.0, 40.0])
    keep_q, switch_q = value + 6.0, value - 2.0

    def column(x):
        return tf.constant(np.reshape(x, (4, 1)))

    return losses.compare_through_returns(
        double(np.reshape([1.0, 2.0, 3.0, 4.0], (4, 1, 1))),
        double(np.reshape(discount, (4, 1))),
        double([0.5]),
        double(keep_q[:, None, None]),
        double(switch_q[:, None, None]),
        double(np.full((4, 1), 0.25)),
        column(np.array(last, bool)),
        column(np.array(switched, bool)),
        None if would_switch is None else column(np.array(would_switch, bool)),
    ).numpy()[:, 0, 0]


NONE = (0, 0, 0, 0)
RETURNS = {
    # G2 = 3 + 20 always; G1 = 2 + acc2 / 2; G0 = 1 + acc1 / 2.
    "nothing stops": (NONE, NONE, NONE, [1 + 13.5 / 2, 2 + 23 / 2, 23]),
    "it had switched": (NONE, (0, 1, 0, 0), NONE, [1 + 20 / 2, 2 + 23 / 2, 23]),
    "it would switch": (NONE, NONE, (0, 0, 1, 0), [1 + 17 / 2, 2 + 30 / 2, 23]),
    "both": (NONE, (0, 1, 0, 0), (0, 1, 1, 0), [1 + 20 / 2, 2 + 30 / 2, 23]),
    "cut off": ((0, 0, 1, 0), NONE, NONE, [1 + 17 / 2, 2 + 30 / 2, 23]),
    "first and last rows do not matter": ((0, 0, 0, 1), (1, 0, 0, 1), (1, 0, 0, 1), [1 + 13.5 / 2, 2 + 23 / 2, 23]),
    # acc2 = 28 * 3/4 + 23 / 4 = 26.75, G1 = 15.375, acc1 = 18 * 3/4 + 15.375 / 4 = 17.34375
    "on average": (NONE, NONE, None, [1 + 17.34375 / 2, 2 + 26.75 / 2, 23]),
    "on average, it had switched": (NONE, (0, 1, 0, 0), None, [1 + 20 / 2, 2 + 26.75 / 2, 23]),
    # acc1 = 18 * 3/4 + 17 / 4
    "on average, cut off": ((0, 0, 1, 0), NONE, None, [1 + 17.75 / 2, 2 + 30 / 2, 23]),
}


@pytest.mark.parametrize(("last", "switched", "would_switch", "expected"), RETURNS.values(), ids=RETURNS.keys())
def test_returns_by_hand(last, switched, would_switch, expected):
    np.testing.assert_allclose(hand_returns(last, switched, would_switch), expected, rtol=1e-12)


def test_a_terminal_step_has_nothing_after_it():
    np.testing.assert_allclose(
        hand_returns((0, 0, 1, 0), NONE, NONE, discount=(1, 0, 1, 1)), [1 + 2 / 2, 2, 23], rtol=1e-12
    )


def test_each_reward_has_its_own_return_and_discount():
    reward = double([[[1.0, 10.0]], [[2.0, 20.0]], [[0.0, 0.0]]])
    keep_q, switch_q = (
        double([[[0.0, 0.0]], [[0.0, 0.0]], [[4.0, 8.0]]]),
        double([[[9.0, 9.0]], [[9.0, 9.0]], [[8.0, 0.0]]]),
    )
    no = tf.zeros((3, 1), tf.bool)
    keep = double([[1.0], [1.0], [0.25]])
    returns = losses.compare_through_returns(
        reward, tf.ones((3, 1), tf.float64), double([0.5, 0.0]), keep_q, switch_q, keep, no, no, no
    )
    # V of the last row is (4 + 3 * 8) / 4 = 7 and (8 + 0) / 4 = 2.
    np.testing.assert_allclose(returns[:, 0], [[1 + 0.5 * (2 + 3.5), 10.0], [5.5, 20.0]], rtol=1e-12)


def test_critics_regress_on_one_return_and_the_last_row_has_none():
    q = tf.constant([[[[1.0, 2.0], [3.0, 4.0]]], [[[50.0, 50.0], [60.0, 60.0]]]])
    loss = losses.critic_loss(q, tf.constant([[[2.0, 5.0]]]))
    np.testing.assert_allclose(loss, [[[(1 + 9) / 2, (1 + 1) / 2]], [[0.0, 0.0]]])


def test_nothing_of_the_last_row_and_nothing_of_the_return_has_a_gradient():
    q, returns = tf.ones((3, 2, 2, 1)), tf.zeros((2, 2, 1))
    with tf.GradientTape() as tape:
        tape.watch(q)
        total = tf.reduce_sum(losses.critic_loss(q, returns))
    gradient = tape.gradient(total, q)
    np.testing.assert_array_equal(gradient[:2], tf.fill((2, 2, 2, 1), 2.0))
    np.testing.assert_array_equal(gradient[2], tf.zeros((2, 2, 1)))


@pytest.mark.parametrize("sampled", [True, False])
def test_returns_have_no_gradient(sampled):
    inputs = [
        tf.ones((3, 2, 1)),
        tf.ones((3, 2)),
        tf.ones(1),
        tf.ones((3, 2, 1)),
        tf.ones((3, 2, 1)),
        tf.fill((3, 2), 0.5),
    ]
    no = tf.zeros((3, 2), tf.bool)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.reduce_sum(losses.compare_through_returns(*inputs, no, no, no if sampled else None))
    assert tape.gradient(total, inputs) == [None] * 6


# -- the operator, exactly ---------------------------------------------------------------------------------------------

# States 0 and 1, constant trajectories 0 and 1. A step leads to state 0, to state 1, to the end of the task, or is cut
# off in state 1. All tables differ from each other, and the behaviour from the policy.
GAMMA, ALPHA = 0.9, 0.7
REWARD = np.array([[1.0, -0.5], [0.3, 2.0]])  # by state and trajectory
NEXT = np.array([[[0.5, 0.3, 0.1, 0.1], [0.2, 0.6, 0.05, 0.15]], [[0.1, 0.5, 0.25, 0.15], [0.4, 0.4, 0.1, 0.1]]])
PROPOSE = np.array(
    [[[0.8, 0.2], [0.4, 0.6]], [[0.1, 0.9], [0.7, 0.3]]]
)  # of the policy, by state and trajectory before
BEHAVIOUR = np.array([[[0.6, 0.1, 0.3], [0.3, 0.5, 0.2]], [[0.7, 0.2, 0.1], [0.5, 0.2, 0.3]]])  # keep, new 0, new 1
Q = np.array([[1.5, -1.0], [0.5, 2.0]])
STATES, LASTS, DISCOUNTS = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1], bool), np.array([1.0, 1.0, 0.0, 1.0])


def keep_prob(state, before, proposal):
    """beta0 of keeping the trajectory before."""
    return sigmoid((Q[state, before] - Q[state, proposal]) / ALPHA)


def own_value(state, before, proposal):
    """V."""
    keep = keep_prob(state, before, proposal)
    return keep * Q[state, before] + (1.0 - keep) * Q[state, proposal]


def enumerated(steps, state, trajectory):
    """Sums over all stretches that begin with one step; returns E[G[0]] of `compare_through_returns`."""
    ways = (4, 3, 2) * (steps - 1)  # of each row after: next state, behaviour, proposal
    columns = np.indices(ways).reshape(steps - 1, 3, -1)
    count = columns.shape[-1]
    probability, states, before = np.ones(count), np.full(count, state), np.full(count, trajectory)
    rows = {name: [] for name in ("reward", "discount", "keep_q", "switch_q", "keep", "last", "switched")}

    def add(**row):
        for name, value in row.items():
            rows[name].append(np.broadcast_to(value, count))

    add(keep_q=0.0, switch_q=0.0, keep=0.5, last=False, switched=True)  # row 0 has but a step
    for following, behaviour, proposal in columns:
        probability = probability * NEXT[states, before, following]
        add(reward=REWARD[states, before], discount=DISCOUNTS[following])
        states, last = STATES[following], LASTS[following]
        keep = keep_prob(states, before, proposal)
        probability = probability * BEHAVIOUR[states, before, behaviour] * PROPOSE[states, before, proposal]
        values = {"keep_q": Q[states, before], "switch_q": Q[states, proposal], "keep": keep}
        add(**values, last=last, switched=behaviour > 0)
        before = np.where(behaviour > 0, behaviour - 1, before)
    add(reward=0.0, discount=0.0)
    z = {name: tf.constant(np.stack(value)) for name, value in rows.items()}
    returns = losses.compare_through_returns(
        z["reward"][..., None],
        z["discount"],
        double([GAMMA]),
        z["keep_q"][..., None],
        z["switch_q"][..., None],
        z["keep"],
        z["last"],
        z["switched"],
        None,
    )
    assert probability.sum() == pytest.approx(1.0, abs=1e-12)
    return float(probability @ returns[0, :, 0].numpy())


def expected(steps, state, trajectory):
    """The expectation of G[0] by recursion over its definition, without sampling.

    After a step that was not cut off the policy of now proposes, and
        acc = beta1 * Q(tau1) + beta0 * (G where the behaviour keeps, else Q(tau0)).
    """

    def accumulated(rows_left, state, before):
        keeps = BEHAVIOUR[state, before, 0] if rows_left > 1 else 0.0
        later = after_step(rows_left - 1, state, before) if rows_left > 1 else 0.0
        total = 0.0
        for proposal, prob in enumerate(PROPOSE[state, before]):
            keep = keep_prob(state, before, proposal)
            kept = keeps * later + (1.0 - keeps) * Q[state, before]
            total += prob * ((1.0 - keep) * Q[state, proposal] + keep * kept)
        return total

    def after_step(rows_left, state, trajectory):
        ways = NEXT[state, trajectory]
        cut = sum(prob * own_value(1, trajectory, proposal) for proposal, prob in enumerate(PROPOSE[1, trajectory]))
        going_on = (ways[following] * accumulated(rows_left, following, trajectory) for following in (0, 1))
        return REWARD[state, trajectory] + GAMMA * (sum(going_on) + ways[3] * cut)

    return after_step(steps - 1, state, trajectory)


PAIRS = [(state, trajectory) for state in (0, 1) for trajectory in (0, 1)]


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_the_unbiased_return_is_exactly_that_of_the_policy_of_now(steps):
    for pair in PAIRS:
        assert enumerated(steps, *pair) == pytest.approx(expected(steps, *pair), abs=1e-12)


# -- the policy --------------------------------------------------------------------------------------------------------


def test_the_policy_loss_and_its_gradients():
    inputs = [double([1.0, -2.0]), double([0.25, 0.75]), double([4.0, -8.0])]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = losses.policy_loss(*inputs, double(0.5))
    np.testing.assert_allclose(loss, [0.5 - 1.0, -1.0 + 6.0])
    log_prob, switch, q = tape.gradient(loss, inputs)
    np.testing.assert_array_equal(log_prob, [0.5, 0.5])
    assert switch is None
    np.testing.assert_array_equal(q, [-0.25, -0.75])


@pytest.mark.parametrize(
    ("kind", "inverse"),
    [("constant", True), ("linear", True), ("linear", False), ("quadratic", True), ("quadratic", False)],
)
def test_the_policy_gradient_through_the_trajectory_equals_finite_differences(kind, inverse):
    rng, rows, size = np.random.default_rng(1), 12, 2
    trajectory = make_trajectory(kind, inverse)
    previous = {name: double(rng.uniform(-1, 1, (rows, size))) for name in trajectory.fields}
    noise, weight = double(rng.standard_normal((rows, size))), rng.uniform(-1, 1, (len(trajectory.fields), size))
    loc, log_scale = rng.normal(0, 0.7, (rows, size)), rng.normal(-1, 0.3, (rows, size))

    def q_of(tau):
        parts = [
            tf.reduce_sum(w * tf.sin(2.0 * tau[name]), axis=-1)
            for name, w in zip(trajectory.fields, weight, strict=True)
        ]
        return tf.add_n(parts) + tf.reduce_prod(
            tau[trajectory.fields[0]] - tau[trajectory.fields[-1]] / 3.0 - 2.0, axis=-1
        )

    def loss(loc, log_scale, switch=None):
        action, log_prob = SquashedGaussian(loc, log_scale).sample_and_log_prob(noise)
        planned, kept = trajectory.plan(action, previous), trajectory.step(previous)
        q = q_of(planned)
        switch = choice(q_of(kept), q, double(0.4)).switch_B if switch is None else switch
        return losses.policy_loss(log_prob, switch, q, double(0.3)), switch, planned

    inputs = [double(loc), double(log_scale)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        rows_loss, switch, planned = loss(*inputs)
    gradients = tape.gradient(rows_loss, inputs)
    if not inverse:
        bounded = np.abs(planned[trajectory.fields[0]]) == 1.0
        assert bounded.any() and not bounded.all()
    for place, gradient in enumerate(gradients):
        for column in range(size):
            moved = [np.array(x) for x in (loc, log_scale)]
            moved[place][:, column] += 1e-6
            above = loss(*map(double, moved), switch)[0]
            moved[place][:, column] -= 2e-6
            below = loss(*map(double, moved), switch)[0]  # the probability of switching has no gradient, so it stays
            np.testing.assert_allclose(gradient[:, column], (above - below) / 2e-6, rtol=1e-5, atol=1e-8)
    assert np.abs(gradients[0]).min() > 1e-6


# -- target entropies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("min_prob", "choice", "action"),
    [(0.05, 0.198515, -2.302585), (0.1, 0.325083, -1.609438), (0.2, 0.500402, -0.916291)],
)
def test_target_entropies_of_a_least_probability(min_prob, choice, action):
    assert losses.discrete_target_entropy(min_prob, 2) == pytest.approx(choice, abs=1e-6)
    assert losses.continuous_target_entropy(min_prob, 1) == pytest.approx(action, abs=1e-6)
    assert losses.continuous_target_entropy(min_prob, 3) == pytest.approx(3 * action, abs=3e-6)
