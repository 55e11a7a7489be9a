"""The replay ring: order, layout, sampling, rows in and out."""

import numpy as np
import pytest
import tiny

from tfsac.errors import TfsacError
from tfsac.memories import TransitionMemory
from tfsac.types import ArraySpec, Spec

NUMBER = ArraySpec((), "float32")
SPEC = Spec({"observation": ArraySpec((2,), "float32")}, ArraySpec((1,), "float32"))


def add(memory, step, terminated=False, truncated=False):
    """Adds step number `step` of every environment; environment i gets `step + i / 10` everywhere."""
    number = step + np.arange(memory.num_envs, dtype=np.float32) / 10
    observation = {"observation": np.stack([number, -number], axis=1)}
    following = {"observation": observation["observation"] + 100}
    ends = [np.broadcast_to(np.asarray(end), memory.num_envs) for end in (terminated, truncated)]
    memory.add(observation, number[:, None] / 1000, number, *ends, following)


def filled(steps, capacity=8, num_envs=2, **fields):
    memory = TransitionMemory(SPEC, capacity, num_envs, **fields)
    for step in range(steps):
        add(memory, step)
    return memory


def steps_in(rows):
    """Step numbers of rows `[R, N]`, as environment 0 saw them."""
    return rows["reward"][:, 0].tolist()


# -- the ring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps, capacity, num_envs, kept",
    [
        (1, 8, 2, [0]),
        (11, 8, 2, [7, 8, 9, 10]),
        (9, 7, 3, [7, 8]),  # a capacity that the environments do not divide is rounded down
    ],
)
def test_the_ring_keeps_the_newest_rows_in_order(steps, capacity, num_envs, kept):
    memory = filled(steps, capacity, num_envs)
    assert (len(memory), memory.total_rows) == (num_envs * len(kept), steps)
    assert steps_in(tiny.newest(memory, len(kept))) == kept


# -- sampling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps, kept", [(3, 6), (13, 8)], ids=["partly filled", "wrapped"])
def test_every_kept_transition_is_sampled_equally_often(steps, kept):
    memory, draws = filled(steps), 40_000
    rewards = memory.sample(10, draws // 10, np.random.default_rng(1)).reward
    values, counts = np.unique(rewards, return_counts=True)
    np.testing.assert_array_equal(values, np.sort(tiny.newest(memory, kept // 2)["reward"].ravel()))
    expected = draws / kept
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 24.3  # the 0.1 % point of 7 degrees of freedom


# -- several rewards in one transition ---------------------------------------------------------------------------------


def clipped(reward):
    return np.clip(reward, 0, 1)


# Step s of the one environment has reward s and ends in observation s + 100; gamma is 0.5 and n_step 3.
# Fields of the memory, steps added, {step: how it ended}, slot -> reward, discount, next observation.
N_STEP = {
    "three rewards": ({}, 5, {}, 1, 1 + 2 / 2 + 3 / 4, 1 / 8, 103),
    "terminated in the middle": ({}, 5, {2: "terminated"}, 1, 1 + 2 / 2, 0, 102),
    "truncated in the middle": ({}, 5, {2: "truncated"}, 1, 1 + 2 / 2, 1 / 4, 102),
    "ignored end": ({"ignore_done": True}, 5, {2: "terminated"}, 1, 1 + 2 / 2, 1 / 4, 102),
    "over the wrap": ({"capacity": 4}, 6, {}, 3, 3 + 4 / 2 + 5 / 4, 1 / 8, 105),
    "more than there are": ({"capacity": 4, "n_step": 9}, 6, {}, 2, 2 + 3 / 2 + 4 / 4 + 5 / 8, 1 / 16, 105),
    "rewards clipped one by one": ({"reward_filter": clipped}, 5, {}, 1, 1 + 1 / 2 + 1 / 4, 1 / 8, 103),
}


@pytest.mark.parametrize("fields, steps, ends, slot, reward, discount, following", N_STEP.values(), ids=N_STEP.keys())
def test_rewards_are_summed_up_to_the_end_of_the_episode_or_of_the_ring(
    fields, steps, ends, slot, reward, discount, following
):
    memory = TransitionMemory(SPEC, **{"capacity": 8, "discount": 0.5, "n_step": 3, **fields})
    for step in range(steps):
        add(memory, step, **{ends[step]: True} if step in ends else {})
    first, ring = memory.ring[slot, 0].copy(), memory.ring.copy()
    batch = memory.gather(np.array([[slot]]))
    np.testing.assert_array_equal(batch.reward, [[np.float32(reward)]])
    np.testing.assert_array_equal(batch.discount, [[np.float32(discount)]])
    assert batch.reward.dtype == batch.discount.dtype == np.float32
    assert batch.next_observation["observation"][0, 0, 0] == following
    np.testing.assert_array_equal(batch.observation["observation"][0, 0], first["observation/observation"])
    np.testing.assert_array_equal(batch.action[0, 0], first["action"])
    np.testing.assert_array_equal(memory.ring, ring)


# -- rows in and out ---------------------------------------------------------------------------------------------------


def test_rows_between_two_absolute_indices_come_back_over_the_wrap_as_copies():
    memory = filled(6, capacity=8, num_envs=2)
    rows = memory.between(3, 6)
    assert steps_in(rows) == [3, 4, 5] and rows.shape == (3, 2) and len(memory.between(4, 4)) == 0
    rows["reward"] = -1
    assert steps_in(tiny.newest(memory, 3)) == [3, 4, 5]


@pytest.mark.parametrize(
    "steps, wanted, expected",
    [
        (2, 3, None),
        (6, 4, [2, 3, 4, 5]),
        (6, 5, None),
    ],
)
def test_newest_actions_are_the_last_ones_or_nothing(steps, wanted, expected):
    actions = filled(steps, capacity=4, num_envs=1).newest_actions(wanted)
    assert (actions if actions is None else (1000 * actions[:, 0]).round().tolist()) == expected
    assert filled(steps).newest_actions(wanted) is None  # of several environments


@pytest.mark.parametrize("terminated, expected", [(False, True), (True, False)])
def test_marking_the_end_of_episodes_truncates_what_was_not_terminated(terminated, expected):
    memory = filled(2)
    add(memory, 2, terminated=[terminated, False])
    memory.end_episodes()
    rows = tiny.newest(memory, 3)
    np.testing.assert_array_equal(rows["truncated"], [[False, False], [False, False], [expected, True]])
    np.testing.assert_array_equal(rows["terminated"][2], [terminated, False])


# -- errors ------------------------------------------------------------------------------------------------------------


def test_rows_of_another_layout_are_refused():
    with pytest.raises(TfsacError, match="fields"):
        filled(2).put(0, TransitionMemory(SPEC._replace(extras={"switch": NUMBER}), 4, 2).ring[:1])
