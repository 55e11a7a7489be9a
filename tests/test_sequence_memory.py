"""Sequence replay: steps, episode ends, start positions, recurrent states and checkpoints."""

import itertools

import numpy as np
import pytest
import tiny
from toys import restored

from tfsac.errors import TfsacError
from tfsac.memories import SequenceMemory
from tfsac.types import FIRST, LAST, MID, ArraySpec, Spec

OBSERVATION = {"camera": ArraySpec((2, 2, 1), "uint8"), "speed": ArraySpec((2,), "float32")}
TAU = ArraySpec((3,), "float32")
EXTRAS = {"state/tau_a": TAU, "next_state/tau_a": TAU, "switch": ArraySpec((), "float32")}
SPEC = Spec(OBSERVATION, ArraySpec((1,), "float32"), EXTRAS)
# Environment 0 terminates at step 2 and is truncated at 3; environment 1 terminates at 0 and is truncated at 5.
TERMINATED, TRUNCATED = {(2, 0), (0, 1)}, {(3, 0), (5, 1)}
# Sequences of four rows by environment and first step. F, M and L are the step types; L2 follows step 2.
SEQUENCES = {
    (0, 0): "F0 M1 M2 L2",
    (0, 1): "M1 M2 L2 F3",
    (0, 2): "M2 L2 F3 L3",
    (0, 3): "F3 L3 F4 M5",
    (0, 4): "F4 M5 M6 M7",
    (1, 0): "F0 L0 F1 M2",
    (1, 1): "F1 M2 M3 M4",
    (1, 2): "M2 M3 M4 M5",
    (1, 3): "M3 M4 M5 L5",
    (1, 4): "M4 M5 L5 F6",
}


def fields_of(step, env):
    """Returns all fields of a step, with different values."""
    n = 1 + 10 * step + env
    return {
        "camera": np.full((2, 2, 1), n % 256, np.uint8),
        "speed": np.float32([n, -n]),
        "action": np.float32([n / 1000]),
        "reward": np.float32(n / 2),
        "next camera": np.full((2, 2, 1), (n + 100) % 256, np.uint8),
        "next speed": np.float32([n + 0.25, -n - 0.25]),
        "state/tau_a": np.float32([n, 2 * n, 3 * n]),
        "next_state/tau_a": np.float32([n + 0.5, 0.5, -n]),
        "switch": np.float32(n % 2 + 1),
    }


def add(memory, step, extras=None):
    """Adds step `step` of all environments, with episode ends from the tables above."""
    envs = range(memory.num_envs)
    rows = [fields_of(step, env) for env in envs]
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    ends = [np.array([(step, env) in table for env in envs]) for table in (TERMINATED, TRUNCATED)]
    memory.add(
        {key: columns[key] for key in OBSERVATION},
        columns["action"],
        columns["reward"],
        *ends,
        {key: columns[f"next {key}"] for key in OBSERVATION},
        extras or {name: columns[name] for name in SPEC.extras},
    )


def filled(steps=8, capacity=16, length=4, num_envs=2, **fields):
    memory = SequenceMemory(SPEC, capacity, length, num_envs, **fields)
    for step in range(steps):
        add(memory, step)
    return memory


def check_row(batch, position, kind, step, env, ignore_done=False):
    """Checks all fields of one row of a batch."""
    expected = fields_of(step, env)
    last, prefix = kind == "L", "next " if kind == "L" else ""
    assert batch.step_type[position] == {"F": FIRST, "M": MID, "L": LAST}[kind]
    for key in OBSERVATION:
        np.testing.assert_array_equal(batch.observation[key][position], expected[prefix + key], err_msg=key)
    state = expected["next_state/tau_a" if last else "state/tau_a"]
    np.testing.assert_array_equal(batch.extras["state/tau_a"][position], state)
    for name in ("next_state/tau_a", "switch"):
        np.testing.assert_array_equal(batch.extras[name][position], 0 * expected[name] if last else expected[name])
    np.testing.assert_array_equal(batch.action[position], 0 * expected["action"] if last else expected["action"])
    assert batch.reward[position] == (0 if last else expected["reward"])
    ended = (step, env) in TERMINATED and not ignore_done
    assert batch.nonterminal[position] == (0 if last or ended else 1)


def check_sequence(batch, update, column, env, first, ignore_done=False):
    for t, row in enumerate(SEQUENCES[env, first].split()):
        check_row(batch, (update, t, column), row[0], int(row[1]), env, ignore_done)


def starts_of(batch):
    """Returns the first step and environment `[U, B]` of every sequence, from its first observation."""
    index = batch.observation["speed"][:, 0, :, 0].astype(int) - 1
    return index // 10, index % 10


@pytest.mark.parametrize("ignore_done", [False, True])
@pytest.mark.parametrize("env, first", SEQUENCES)
def test_sequences_across_episode_ends(env, first, ignore_done):
    memory = filled(ignore_done=ignore_done)
    batch = memory.sequences_from(np.array([[2 * first + env]]))
    check_sequence(batch, 0, 0, env, first, ignore_done)


@pytest.mark.parametrize("capacity, kept_from", [(16, 0), (15, 1), (12, 2), (10, 3), (8, 4)])
def test_samples_cover_all_stored_sequences(capacity, kept_from):
    batch = filled(8, capacity).sample(3, 40, np.random.default_rng(0))
    steps, envs = starts_of(batch)
    for (u, b), step in np.ndenumerate(steps):
        check_sequence(batch, u, b, envs[u, b], step)
    assert {*zip(envs.flat, steps.flat, strict=True)} == set(itertools.product((0, 1), range(kept_from, 5)))


def test_vector_rewards():
    memory = SequenceMemory(
        SPEC._replace(num_rewards=2), 8, 2, reward_filter=lambda reward: reward * np.float32([1, 10]) + 7
    )
    observation = {key: np.zeros((1, *array.shape)) for key, array in OBSERVATION.items()}
    for step in range(3):
        end = np.array([step == 1])
        memory.add(observation, np.zeros((1, 1)), np.array([[step + 1, -1]]), end, ~end & False, observation)
    batch = memory.sequences_from(np.array([[0, 1]]))
    assert batch.reward.shape == (1, 2, 2, 2)
    np.testing.assert_array_equal(batch.reward[0, :, 0], [[8, -3], [9, -3]])
    np.testing.assert_array_equal(batch.reward[0, :, 1], [[9, -3], [0, 0]])  # no reward after the last step


@pytest.mark.parametrize("steps", [7, 13], ids=["partly filled", "wrapped"])
def test_sampling_is_uniform(steps):
    batch = filled(steps, capacity=14).sample(10, 4000, np.random.default_rng(1))  # 7 rows, 4 sequence starts
    first_steps, envs = starts_of(batch)
    counts = np.zeros((4, 2), int)
    np.add.at(counts, (first_steps - (steps - 7), envs), 1)
    assert counts.sum() == 40_000
    assert ((counts - 5000) ** 2 / 5000).sum() < 24.3  # the 0.1 % point of 7 degrees of freedom


def test_too_small_capacity_is_rejected():
    with pytest.raises(TfsacError, match="max_size"):
        SequenceMemory(SPEC, 9, 5, 2)
    assert not filled(3).ready and filled(4).ready


def test_previous_actions_rewards_and_initial_states():
    previous = {"previous_action": ArraySpec((1,), "float32"), "previous_reward": ArraySpec((), "float32")}
    spec = SPEC._replace(extras={f"state/{name}": array for name, array in previous.items()})
    state = {"hidden": ArraySpec((2,), "float32")}
    memory = SequenceMemory(spec, 16, 5, 2, recurrent_state=state, reward_filter=lambda reward: 100 * reward)
    action, reward = np.zeros((2, 1)), np.zeros(2)
    for step in range(8):
        hidden = np.float32([[step, 0.5], [-step, 0.5]])
        add(memory, step, {"state/previous_action": action, "state/previous_reward": reward, "state/hidden": hidden})
        (row,) = tiny.newest(memory, 1)
        continues = ~(row["terminated"] | row["truncated"])
        action, reward = row["action"] * continues[:, None], row["reward"] * continues
    batch = memory.sequences_from(np.array([[2, 9]]))  # environment 0 from step 1, environment 1 from step 4
    assert set(batch.extras) == {"state/previous_action", "state/previous_reward"}
    np.testing.assert_array_equal(batch.initial_state["hidden"], [[[1, 0.5], [-4, 0.5]]])
    for column, env, rows in ((0, 0, "M1 M2 L2 F3 L3"), (1, 1, "M4 M5 L5 F6 M7")):
        for t, row in enumerate(rows.split()):
            kind, step = row[0], int(row[1])
            assert batch.step_type[0, t, column] == {"F": FIRST, "M": MID, "L": LAST}[kind]
            source = {"F": None, "M": step - 1, "L": step}[kind]
            action, reward = (batch.extras[f"state/previous_{name}"][0, t, column] for name in ("action", "reward"))
            expected = fields_of(source, env) if source is not None else {"action": [0], "reward": 0}
            np.testing.assert_array_equal(action, expected["action"])
            assert reward == expected["reward"]
            assert batch.reward[0, t, column] == (0 if kind == "L" else 100 * fields_of(step, env)["reward"])


def test_restored_memory_starts_new_episodes():
    memory = restored(filled(7), filled(0))
    memory.end_episodes()
    add(memory, 7)
    assert tiny.newest(memory, 2)["first"].tolist() == [[False, True], [True, True]]
    batch = memory.sequences_from(np.array([[8, 9]]))  # from step 4 on
    for env, rows in enumerate(("F4 M5 M6 L6", "M4 M5 L5 F6")):
        for t, row in enumerate(rows.split()):
            check_row(batch, (0, t, env), row[0], int(row[1]), env)
