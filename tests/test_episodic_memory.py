"""Episodic memory: rollouts, replayed segments, eviction, and restoring."""

import numpy as np
import pytest
import tensorflow as tf
from toys import restored

from tfsac.memories import EpisodicMemory
from tfsac.types import ArraySpec, DiscreteSpec, Segments, Spec

SPEC = Spec(
    {"camera": ArraySpec((2, 2, 1), "uint8"), "speed": ArraySpec((2,), "float32")},
    DiscreteSpec(10_000),
    {"behaviour/logits": ArraySpec((3,), "float32")},
)
LSTM = {"policy": ArraySpec((2,), "float32"), "clock": ArraySpec((), "int32")}


def number(step, env=0):
    """Returns the number from which all fields of a step are computed: 31 is step 3 of environment 0."""
    return 10 * step + env + 1


def observation_of(n):
    return {
        "camera": np.broadcast_to((n % 256).astype(np.uint8)[:, None, None, None], (len(n), 2, 2, 1)),
        "speed": np.stack([n, -n], axis=1).astype(np.float32),
    }


def add(memory, step, terminated=(), truncated=(), **extras):
    """Adds a step; `terminated` and `truncated` list environments. The next observation has the number plus 0.5."""
    envs = np.arange(memory.num_envs)
    n = number(step, envs)
    extras = {"behaviour/logits": np.stack([n, 2 * n, -n], axis=1).astype(np.float32), **extras}
    if memory.initial_state:
        extras |= {"state/policy": np.stack([n, n + 100], axis=1).astype(np.float32), "state/clock": n}
    ends = [np.isin(envs, listed) for listed in (terminated, truncated)]
    memory.add(observation_of(n), n, n / 2, *ends, observation_of(n + 0.5), extras)


def rollout_of(memory, columns):
    """Takes the rollout as one batch, `[T, B, ...]`."""
    return batch_of(memory.batches(0, columns, np.random.default_rng(0)), 0)


def replayed(memory, updates, columns, rng):
    """Returns replayed batches without the rollout, `[U, T, B, ...]`."""
    return memory.batches(updates, columns, rng, online=False)


def play(memory, steps, terminated=(), truncated=()):
    """Adds steps, ending episodes at `(step, env)` in the sets, and returns the completed rollouts."""
    rollouts = []
    for step in steps:
        add(memory, step, *([env for at, env in ends if at == step] for ends in (terminated, truncated)))
        if memory.rollout_complete:
            rollouts.append(rollout_of(memory, memory.num_envs))
    return rollouts


def memory_with_episodes(*lengths, capacity=100, t_max=4):
    """Returns a memory of one environment with finished episodes of these lengths, numbered consecutively."""
    memory = EpisodicMemory(SPEC, capacity, t_max)
    play(memory, range(sum(lengths)), {(int(stop) - 1, 0) for stop in np.cumsum(lengths)})
    return memory


def episodes_of(memory):
    """Returns the records of each finished episode, including its final observation."""
    return [memory.between(start, start + steps + 1) for start, steps in memory.episodes]


def stored_steps(memory):
    """Checks the stored fields, and returns first and last step of each finished episode."""
    steps_of_episodes = []
    for episode in episodes_of(memory):
        steps, after = episode[:-1], episode[-1]
        n = steps["action"]
        np.testing.assert_array_equal(n, np.arange(n[0], n[-1] + 1, 10))
        np.testing.assert_array_equal(steps["observation/speed"], np.stack([n, -n], axis=1))
        np.testing.assert_array_equal(steps["extra/behaviour/logits"], np.stack([n, 2 * n, -n], axis=1))
        np.testing.assert_array_equal(after["observation/speed"], [n[-1] + 0.5, -n[-1] - 0.5])
        assert not any(after[name].any() for name in after.dtype.names if not name.startswith("observation/"))
        steps_of_episodes.append((int(n[0]) // 10, int(n[-1]) // 10))
    return steps_of_episodes


def batch_of(stacked, update):
    """Returns one batch `[T, B, ...]` of a stack."""
    return Segments(*tf.nest.map_structure(lambda array: array[update], tuple(stacked)))


def check_column(batch, column, numbers, after):
    """Asserts that a column has the numbers of these steps and of the next observation, padded with zeros."""
    n = np.zeros(len(batch.reward))
    n[: len(numbers)] = numbers
    all_numbers = np.append(n, after)
    np.testing.assert_array_equal(batch.observation["speed"][:, column], np.stack([all_numbers, -all_numbers], axis=1))
    np.testing.assert_array_equal(batch.observation["camera"][:, column, 0, 1, 0], all_numbers.astype(int) % 256)
    np.testing.assert_array_equal(batch.action[:, column], n)
    np.testing.assert_array_equal(batch.reward[:, column], n / 2)
    np.testing.assert_array_equal(batch.extras["behaviour/logits"][:, column], np.stack([n, 2 * n, -n], axis=1))
    for array in (batch.length, batch.is_first, batch.nonterminal, batch.on_policy):
        assert not array[len(numbers) :, column].any()
    assert batch.length[: len(numbers), column].all()


def check_equal(batch, other):
    tf.nest.map_structure(np.testing.assert_array_equal, tuple(batch), tuple(other))


def test_rollout_continues_after_terminations():
    memory = EpisodicMemory(SPEC, 20, 5, num_envs=2)
    first, second = play(memory, range(10), terminated={(1, 0), (2, 0), (4, 1), (8, 0)})
    check_column(first, 0, [1, 11, 21, 31, 41], after=41.5)
    check_column(first, 1, [2, 12, 22, 32, 42], after=42.5)
    np.testing.assert_array_equal(first.is_first, [[1, 1], [0, 0], [1, 0], [1, 0], [0, 0]])
    np.testing.assert_array_equal(first.length, [[2, 5], [2, 5], [1, 5], [2, 5], [2, 5]])
    np.testing.assert_array_equal(first.nonterminal, [[1, 1], [0, 1], [0, 1], [1, 1], [1, 0]])
    check_column(second, 0, [51, 61, 71, 81, 91], after=91.5)
    np.testing.assert_array_equal(second.is_first, [[0, 1], [0, 0], [0, 0], [0, 0], [1, 0]])
    np.testing.assert_array_equal(second.length, [[4, 5], [4, 5], [4, 5], [4, 5], [1, 5]])
    np.testing.assert_array_equal(second.nonterminal, [[1, 1], [1, 1], [1, 1], [0, 1], [1, 1]])


def test_terminated_and_truncated_step_does_not_end_rollout():
    memory = EpisodicMemory(SPEC, 20, 3)
    add(memory, 0, terminated=[0], truncated=[0])
    assert not memory.rollout_complete
    add(memory, 1)
    np.testing.assert_array_equal(rollout_of(memory, 1).nonterminal[:, 0], [0, 1, 0])


def test_initial_state_precedes_first_step_of_rollout():
    memory = EpisodicMemory(SPEC, 20, 3, num_envs=2, initial_state=LSTM)
    play(memory, range(3))
    for step in (3, 4, 5):
        add(memory, step, terminated=[1] if step == 4 else [])
    stack = memory.batches(2, 3, np.random.default_rng(0))
    check_column(batch_of(stack, 0), 2, [], after=0)  # an empty column
    state = stack.initial_state
    np.testing.assert_array_equal(state["policy"][0], [[31, 131], [32, 132], [0, 0]])
    np.testing.assert_array_equal(state["clock"][0], [31, 32, 0])
    assert state["policy"].shape == (3, 3, 2) and state["clock"].dtype == np.int32
    assert not state["policy"][1:].any() and not state["clock"][1:].any()


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((4, 3, 3), [(0, 3), (4, 6), (7, 9)]),  # exactly the capacity of 10 steps
        ((4, 3, 3, 1), [(4, 6), (7, 9), (10, 10)]),
        ((4, 3, 3, 8), [(10, 17)]),
        ((10, 1), [(10, 10)]),
    ],
)
def test_oldest_episodes_are_dropped_as_a_whole(lengths, expected):
    memory = memory_with_episodes(*lengths, capacity=10)
    assert stored_steps(memory) == expected
    assert len(memory) == sum(last - first + 1 for first, last in expected)
    assert memory.total_rows == sum(lengths) + len(lengths)
    assert memory.oldest_row == memory.total_rows - len(memory) - len(expected)


def test_episode_longer_than_capacity_keeps_newest_steps():
    memory = memory_with_episodes(3, 25, capacity=10)
    for each in (memory, restored(memory, EpisodicMemory(SPEC, 10, 4))):
        assert stored_steps(each) == [(18, 27)] and len(each) == 10 and each.total_rows == 4 + 11
        assert not replayed(each, 5, 50, np.random.default_rng(0)).is_first.any()
    play(memory, [28], terminated={(28, 0)})
    assert stored_steps(memory) == [(28, 28)]
    assert replayed(memory, 1, 1, np.random.default_rng(0)).is_first[0, 0, 0] == 1


def test_short_episodes_are_dropped_for_final_observations():
    memory = EpisodicMemory(SPEC._replace(extras={}), 2000, 1, 100)  # 3000 records, two for each of these episodes
    envs = np.arange(100)
    observation, ends = observation_of(envs), np.ones(100, bool)
    for step in range(16):
        memory.add(observation, 100 * step + envs, envs, ends, ~ends, observation, {})
        memory.batches(0, 100, np.random.default_rng(0))
    assert (len(memory), memory.oldest_row, memory.total_rows) == (1500, 200, 3200)
    actions = [int(episode["action"][0]) for episode in episodes_of(memory)]
    assert actions == list(range(100, 1600))


def test_replayed_columns_are_segments_of_finished_episodes():
    memory = EpisodicMemory(SPEC, 30, 4, num_envs=2)
    play(memory, range(12), terminated={(1, 0), (9, 1)}, truncated={(7, 0)})
    ends = {0: [(0, 1), (2, 7)], 1: [(0, 9)]}  # by environment; running episodes are not replayed
    stack = replayed(memory, 3, 40, np.random.default_rng(0))
    starts = set()
    for update in range(3):
        batch = batch_of(stack, update)
        for column in range(40):
            start, env = int(batch.action[0, column]) // 10, int(batch.action[0, column]) % 10 - 1
            first, last = next((first, last) for first, last in ends[env] if first <= start <= last)
            stop = min(start + 4, last + 1)
            assert stop - start == min(4, last - first + 1)
            after = number(stop, env) if stop <= last else number(last, env) + 0.5
            check_column(batch, column, number(np.arange(start, stop), env), after)
            count = stop - start
            assert batch.is_first[:, column].tolist() == [start == first, 0, 0, 0]
            assert batch.length[:, column].tolist() == [count] * count + [0] * (4 - count)
            terminates = (env, stop - 1) in {(0, 1), (1, 9)}
            goes_on = [1] * (count - 1) + [0 if terminates else 1] + [0] * (4 - count)
            assert batch.nonterminal[:, column].tolist() == goes_on
            starts.add((env, start))
    assert not stack.on_policy.any()
    assert starts == {(0, 0), *((0, step) for step in (2, 3, 4)), *((1, step) for step in range(7))}


def test_episodes_and_their_segments_are_sampled_uniformly():
    memory = memory_with_episodes(1, 10, 4, 6)
    starts = replayed(memory, 10, 4000, np.random.default_rng(1)).action[:, 0] // 10
    counts = np.bincount(starts.ravel(), minlength=21)
    # Episodes start at steps 0, 1, 11 and 15, and have 1, 7, 1 and 3 segments of at most 4 steps.
    expected = np.zeros(21)
    expected[0], expected[1:8], expected[11], expected[15:18] = 1, 1 / 7, 1, 1 / 3
    assert (counts[expected == 0] == 0).all()
    np.testing.assert_allclose(counts, 10_000 * expected, rtol=0.1)  # the standard deviation is at most 2.7 %


@pytest.mark.parametrize(("start_size", "ready_after"), [(0, 3), (3, 3), (4, 5), (5, 5)])
def test_replay_starts_with_enough_finished_steps(start_size, ready_after):
    memory = EpisodicMemory(SPEC, 20, 20, replay_start_size=start_size)
    for step in range(6):
        assert memory.ready == (step >= ready_after)
        add(memory, step, terminated=[0] if step in (2, 4) else [])


def test_replay_starts_even_if_memory_cannot_be_filled():
    memory = EpisodicMemory(SPEC, 10, 5, replay_start_size=10)  # only one episode of 6 steps fits
    ready = []
    for step in range(18):
        add(memory, step, terminated=[0] if step % 6 == 5 else [])
        ready.append(memory.ready)
        memory.batches(0, 1, np.random.default_rng(0))
    assert ready == [False] * 11 + [True] * 7 and len(memory) == 6


def test_rewards_are_filtered_when_sampled_and_stored_raw():
    memory = EpisodicMemory(SPEC, 20, 4, reward_filter=lambda reward: 3.0 * reward + 7.0)
    play(memory, range(2), terminated={(1, 0)})
    stack = memory.batches(1, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(stack.reward[0, :, 0], [8.5, 23.5, 0, 0])
    np.testing.assert_array_equal(stack.reward[0, :, 1], 0)
    np.testing.assert_array_equal(stack.reward[1], [[8.5, 8.5], [23.5, 23.5], [0, 0], [0, 0]])
    assert episodes_of(memory)[0]["reward"].tolist() == [0.5, 5.5, 0]


def test_rollout_precedes_replayed_batches():
    memory, other = (memory_with_episodes(5, 2, t_max=3) for _ in range(2))
    for each in (memory, other):
        add(each, 7)
    stack = memory.batches(2, 4, np.random.default_rng(5))
    check_equal(batch_of(stack, 0), rollout_of(other, 4))
    replays = replayed(other, 2, 4, np.random.default_rng(5))
    for update in (0, 1):
        check_equal(batch_of(stack, update + 1), batch_of(replays, update))
    assert stack.on_policy.sum(axis=(1, 2)).tolist() == [2, 0, 0]  # the rollout has the steps 6 and 7
    assert memory.batches(0, 4, np.random.default_rng(5)) is None  # already taken


def test_offline_batches_end_the_rollout():
    memory = EpisodicMemory(SPEC, 20, 2, num_envs=2)
    play(memory, range(2), terminated={(1, 1)})
    for replays, size in ((2, 2), (0, None), (None, None)):
        play(memory, [2])
        stack = memory.batches(replays, 1, np.random.default_rng(0), online=False)
        assert stack is None if size is None else len(stack.reward) == size
        if stack is not None:
            assert not stack.on_policy.any()
            np.testing.assert_array_equal(stack.action[:, :, 0], [[2, 12]] * 2)
    add(memory, 3)
    check_column(rollout_of(memory, 2), 0, [31], after=31.5)


def test_newest_steps_are_from_running_episode_or_none():
    memory = memory_with_episodes(3, t_max=2)
    assert memory.newest_steps(0)[0].shape == (0,)
    play(memory, (3, 4, 5))
    actions, seen = memory.newest_steps(2)
    assert actions.tolist() == [41, 51]
    np.testing.assert_array_equal(seen["speed"], observation_of(np.array([41, 51]))["speed"])
    assert memory.newest_steps(3)[0].tolist() == [31, 41, 51]
    assert memory.newest_steps(4) is None


def test_end_episodes_truncates_running_episodes():
    memory = EpisodicMemory(SPEC, 20, 5, num_envs=3)
    play(memory, range(3), terminated={(0, 1), (2, 2)})
    assert len(memory) == 1 + 3
    memory.end_episodes()
    assert stored_steps(memory) == [(0, 0), (0, 2), (0, 2), (1, 2)]  # two that terminated, then environments 0 and 1
    assert [episode["terminated"].any() for episode in episodes_of(memory)] == [True, True, False, False]
    assert memory.batches(0, 3, np.random.default_rng(0)) is None and not memory.rollout_complete
    add(memory, 3)
    rollout = rollout_of(memory, 3)
    assert rollout.is_first[0].tolist() == [1, 1, 1] and rollout.length[0].tolist() == [1, 1, 1]


def test_restored_long_running_episode_lacks_its_first_step():
    old, new = EpisodicMemory(SPEC, 10, 2), EpisodicMemory(SPEC, 10, 2)
    play(old, range(25))
    new.restore(old.state())
    assert len(new.tape) == 11  # the needed steps and the next observation
    assert new.newest_steps(10)[0][0] == number(15) and new.newest_steps(11) is None
    add(new, 25, terminated=[0])
    assert stored_steps(new) == [(16, 25)] and new.cut
