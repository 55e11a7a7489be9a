"""Replay memory: the ring, uniform sampling, n-step returns, reading and writing rows."""

import numpy as np
import pytest
import tiny

from tfsac.errors import TfsacError
from tfsac.memories import TransitionMemory
from tfsac.types import ArraySpec, Spec

SCALAR = ArraySpec((), "float32")
SPEC = Spec({"observation": ArraySpec((2,), "float32")}, ArraySpec((1,), "float32"))


def add(memory, step, terminated=False, truncated=False):
    """Adds step `step` of all environments; the values of environment i follow from `step + i / 10`."""
    value = step + np.arange(memory.num_envs, dtype=np.float32) / 10
    observation = {"observation": np.stack([value, -value], axis=1)}
    next_observation = {"observation": observation["observation"] + 100}
    ends = [np.broadcast_to(np.asarray(end), memory.num_envs) for end in (terminated, truncated)]
    memory.add(observation, value[:, None] / 1000, value, *ends, next_observation)


def filled(steps, capacity=8, num_envs=2, **fields):
    memory = TransitionMemory(SPEC, capacity, num_envs, **fields)
    for step in range(steps):
        add(memory, step)
    return memory


def steps_in(rows):
    """Returns the step numbers of environment 0 in rows `[R, N]`."""
    return rows["reward"][:, 0].tolist()


@pytest.mark.parametrize(
    "steps, capacity, num_envs, expected_steps",
    [
        (1, 8, 2, [0]),
        (11, 8, 2, [7, 8, 9, 10]),
        (9, 7, 3, [7, 8]),  # capacity is rounded down to a multiple of num_envs
    ],
)
def test_ring_keeps_newest_rows_in_order(steps, capacity, num_envs, expected_steps):
    memory = filled(steps, capacity, num_envs)
    assert (len(memory), memory.total_rows) == (num_envs * len(expected_steps), steps)
    assert steps_in(tiny.newest(memory, len(expected_steps))) == expected_steps


@pytest.mark.parametrize("steps, size", [(3, 6), (13, 8)], ids=["partly filled", "wrapped"])
def test_sampling_is_uniform(steps, size):
    memory, draws = filled(steps), 40_000
    rewards = memory.sample(10, draws // 10, np.random.default_rng(1)).reward
    values, counts = np.unique(rewards, return_counts=True)
    np.testing.assert_array_equal(values, np.sort(tiny.newest(memory, size // 2)["reward"].ravel()))
    expected = draws / size
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 24.3  # the 0.1 % point of 7 degrees of freedom


def clipped(reward):
    return np.clip(reward, 0, 1)


# One environment; step s has reward s and next observation s + 100; gamma is 0.5 and n_step 3.
# Memory arguments, number of steps, {step: how it ended}, slot -> reward, discount, next observation.
N_STEP = {
    "full window": ({}, 5, {}, 1, 1 + 2 / 2 + 3 / 4, 1 / 8, 103),
    "terminated in the window": ({}, 5, {2: "terminated"}, 1, 1 + 2 / 2, 0, 102),
    "truncated in the window": ({}, 5, {2: "truncated"}, 1, 1 + 2 / 2, 1 / 4, 102),
    "ignore_done": ({"ignore_done": True}, 5, {2: "terminated"}, 1, 1 + 2 / 2, 1 / 4, 102),
    "across the wrap": ({"capacity": 4}, 6, {}, 3, 3 + 4 / 2 + 5 / 4, 1 / 8, 105),
    "n_step exceeds capacity": ({"capacity": 4, "n_step": 9}, 6, {}, 2, 2 + 3 / 2 + 4 / 4 + 5 / 8, 1 / 16, 105),
    "each reward clipped": ({"reward_filter": clipped}, 5, {}, 1, 1 + 1 / 2 + 1 / 4, 1 / 8, 103),
}


@pytest.mark.parametrize(
    "fields, steps, ends, slot, reward, discount, expected_next", N_STEP.values(), ids=N_STEP.keys()
)
def test_n_step_returns(fields, steps, ends, slot, reward, discount, expected_next):
    memory = TransitionMemory(SPEC, **{"capacity": 8, "discount": 0.5, "n_step": 3, **fields})
    for step in range(steps):
        add(memory, step, **{ends[step]: True} if step in ends else {})
    first, ring = memory.ring[slot, 0].copy(), memory.ring.copy()
    batch = memory.gather(np.array([[slot]]))
    np.testing.assert_array_equal(batch.reward, [[np.float32(reward)]])
    np.testing.assert_array_equal(batch.discount, [[np.float32(discount)]])
    assert batch.reward.dtype == batch.discount.dtype == np.float32
    assert batch.next_observation["observation"][0, 0, 0] == expected_next
    np.testing.assert_array_equal(batch.observation["observation"][0, 0], first["observation/observation"])
    np.testing.assert_array_equal(batch.action[0, 0], first["action"])
    np.testing.assert_array_equal(memory.ring, ring)


def test_between_returns_copies_across_the_wrap():
    memory = filled(6, capacity=8, num_envs=2)
    rows = memory.between(3, 6)
    assert steps_in(rows) == [3, 4, 5] and rows.shape == (3, 2) and len(memory.between(4, 4)) == 0
    rows["reward"] = -1
    assert steps_in(tiny.newest(memory, 3)) == [3, 4, 5]


@pytest.mark.parametrize(
    "steps, count, expected",
    [(2, 3, None), (6, 4, [2, 3, 4, 5]), (6, 5, None)],
)
def test_newest_steps(steps, count, expected):
    newest = filled(steps, capacity=4, num_envs=1).newest_steps(count)
    assert (newest if newest is None else (1000 * newest[0][:, 0]).round().tolist()) == expected
    assert newest is None or newest[1]["observation"].shape[0] == count
    assert filled(steps).newest_steps(count) is None  # more than one environment


@pytest.mark.parametrize("terminated, expected", [(False, True), (True, False)])
def test_end_episodes_truncates_running_episodes(terminated, expected):
    memory = filled(2)
    add(memory, 2, terminated=[terminated, False])
    memory.end_episodes()
    rows = tiny.newest(memory, 3)
    np.testing.assert_array_equal(rows["truncated"], [[False, False], [False, False], [expected, True]])
    np.testing.assert_array_equal(rows["terminated"][2], [terminated, False])


def test_put_rejects_rows_with_other_fields():
    with pytest.raises(TfsacError, match="fields"):
        filled(2).put(0, TransitionMemory(SPEC._replace(extras={"switch": SCALAR}), 4, 2).ring[:1])
