"""Prioritised replay: sum tree, golden probabilities and weights, priority updates, checkpoints."""

import json
import pathlib

import numpy as np
import pytest
from toys import restored

from tfsac.errors import TfsacError
from tfsac.memories import PrioritizedMemory
from tfsac.memories.prioritized import SumTree
from tfsac.types import ArraySpec, Spec

SPEC = Spec({"observation": ArraySpec((2,), "float32")}, ArraySpec((1,), "float32"))
GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "prioritized.npz")
META = json.loads(str(GOLDEN["meta"]))
VECTOR = np.array([0.05, 2.0, 1.0, 0.5, 4.0, 0.1, 3.0, 0.2])


def add(memory, steps=1):
    """Adds steps; the reward of environment i is `step + i / 10`."""
    for step in range(memory.total_rows, memory.total_rows + steps):
        number = step + np.arange(memory.num_envs) / 10
        observation = {"observation": np.stack([number, -number], axis=1)}
        not_done = np.zeros(memory.num_envs, bool)
        memory.add(observation, number[:, None], number, not_done, not_done, observation)


def prioritized(priorities=None, steps=8, capacity=8, **fields):
    """Returns a memory of `steps` steps, with the given priorities, one per slot."""
    memory = PrioritizedMemory(SPEC, capacity, **fields)
    add(memory, steps)
    if priorities is not None:
        sample_each_slot_once(memory)
        memory.update_priorities(np.asarray(priorities)[None] - memory.epsilon)
        memory.restore({**memory.state(), "batches": np.array(0)})
    return memory


def sample_each_slot_once(memory):
    """Samples every slot once, in order, from a memory with equal priorities."""
    index, _ = memory.draw(np.full((1, len(memory)), 0.5))
    np.testing.assert_array_equal(index[0], np.arange(len(memory)))


def leaves(memory):
    return memory.state()["leaves"]


@pytest.mark.parametrize("capacity", [1, 2, 5, 64, 100])
def test_sum_tree_matches_plain_arrays(capacity):
    rng, tree, plain = np.random.default_rng(capacity), SumTree(capacity), np.zeros(capacity)
    assert tree.total == 0 and tree.minimum == np.inf
    for step in range(200):
        filled = min(step + 1, capacity)  # slots are filled in order; filled ones change at random
        index = np.append(rng.integers(filled, size=rng.integers(9)), filled - 1)
        values = rng.exponential(size=len(index)) * 10.0 ** rng.integers(-6, 6)
        tree.set(index, values)
        for i, value in zip(index, values, strict=True):
            plain[i] = value
        np.testing.assert_array_equal(tree.values(np.arange(capacity)), plain)
        assert tree.minimum == plain[:filled].min()
        np.testing.assert_allclose(tree.total, plain.sum(), rtol=1e-12)
        mass = rng.random((3, 50)) * tree.total
        np.testing.assert_array_equal(tree.find(mass), np.searchsorted(plain.cumsum(), mass, side="right"))
        assert tree.find(np.array([1.1 * tree.total])) == filled - 1  # a mass above the total, from rounding


@pytest.mark.parametrize("vector", range(META["vectors"]))
def test_probabilities_and_weights_match_golden_vectors(vector):
    names = ("priority", "probability", "beta", "weight", "uniform", "index")
    golden = {name: GOLDEN[f"{vector}/{name}"] for name in names}
    fields = dict(alpha=META["alpha"], beta=META["beta"], beta_anneal_updates=META["anneal_step"])
    size = META["size"]
    memory = prioritized(golden["priority"], steps=size, capacity=META["capacity"], **fields)
    np.testing.assert_allclose(leaves(memory) / memory.tree.total, golden["probability"], rtol=0, atol=1e-12)
    for beta, weight in zip(golden["beta"], golden["weight"], strict=True):
        np.testing.assert_allclose(memory.weights(np.arange(size), beta), weight, rtol=0, atol=1e-12)
    saved = memory.state()
    expected = np.take_along_axis(golden["weight"], golden["index"].astype(int), axis=1)
    for calls in ([7], [1] * 7, [2, 5]):  # each batch has its own beta, in one call or several
        memory.restore(saved)
        parts = [memory.draw(part) for part in np.split(golden["uniform"], np.cumsum(calls)[:-1])]
        index, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
        np.testing.assert_array_equal(index, golden["index"])
        np.testing.assert_allclose(weight, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_sampling_is_proportional_to_priorities(alpha):
    memory, draws = prioritized(VECTOR, alpha=alpha), 32_000
    batch = memory.sample(1000, 32, np.random.default_rng(0))
    assert batch.weight.shape == batch.reward.shape and batch.weight.dtype == np.float32
    np.testing.assert_array_equal(batch.observation["observation"], np.stack([batch.reward, -batch.reward], axis=-1))
    counts = np.bincount(batch.reward.astype(int).ravel(), minlength=8)
    expected = VECTOR**alpha / (VECTOR**alpha).sum()
    assert (np.abs(counts / draws - expected) < 4 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_max_weight_ignores_overwritten_transitions():
    memory = prioritized(VECTOR)
    add(memory)
    memory.draw(np.full((1, 4), 0.5))
    assert memory.weights(np.array([5]), 1.0) == 1.0  # smallest priority once slot 0 is overwritten


@pytest.mark.parametrize("num_envs", [1, 2])
def test_priorities_of_overwritten_transitions_are_ignored(num_envs):
    memory = prioritized(steps=11, capacity=4 * num_envs, num_envs=num_envs, alpha=1.0)  # the newest row is in slot 2
    sample_each_slot_once(memory)
    add(memory, 2)  # into slots 3 and 0
    memory.update_priorities(np.repeat([[9.0, 2.0, 0.5, 9.0]], num_envs, axis=1))
    expected = np.repeat([1.0, 2.0 + 1e-5, 0.5 + 1e-5, 1.0], num_envs)
    np.testing.assert_allclose(leaves(memory), expected, rtol=1e-12)
    assert memory.largest == 2.0 + 1e-5
    memory.draw(np.full((1, 4 * num_envs), 0.5))
    add(memory, 4)
    before = leaves(memory)
    memory.update_priorities(np.full((1, 4 * num_envs), 9.0))
    np.testing.assert_array_equal(leaves(memory), before)


@pytest.mark.parametrize("num_envs, capacity", [(1, 7), (3, 21), (1, 1)])
def test_tree_follows_a_wrapping_ring(num_envs, capacity):
    memory, rng = PrioritizedMemory(SPEC, capacity, num_envs, alpha=0.5), np.random.default_rng(0)
    by_step, largest = {}, 1.0
    for steps in (3, 1, 0, 5, 9, 2, 30, 1):
        by_step |= {(memory.total_rows + i, env): largest for i in range(steps) for env in range(num_envs)}
        add(memory, steps)
        sampled = memory.sample(2, 4, rng).reward
        priority = rng.exponential(size=(2, 4))
        memory.update_priorities(priority)
        for reward, value in zip(sampled.ravel(), priority.ravel(), strict=True):
            by_step[int(reward), round(reward % 1 * 10)] = value + 1e-5
        largest = max(largest, priority.max() + 1e-5)
        rewards = memory.ring["reward"].ravel()[: len(memory)]
        expected = [by_step[int(reward), round(reward % 1 * 10)] for reward in rewards]
        np.testing.assert_allclose(leaves(memory), np.sqrt(expected), rtol=1e-12)


@pytest.mark.parametrize("invalid", [-0.5, np.nan, np.inf])
def test_invalid_priorities_are_rejected(invalid):
    memory = prioritized(VECTOR)
    memory.draw(np.full((1, 4), 0.5))
    before = memory.state()
    with pytest.raises(TfsacError, match="finite"):
        memory.update_priorities(np.array([[1.0, invalid, 1.0, 1.0]]))
    for name, array in memory.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("steps", [3, 11, 0], ids=["partly filled", "wrapped", "empty"])
def test_restored_memory_samples_identically(steps):
    fields = dict(capacity=16, num_envs=2, beta_anneal_updates=10)
    old, rng = prioritized(steps=0, **fields), np.random.default_rng(0)
    for _ in range(steps):
        add(old)
        old.sample(2, 4, rng)
        old.update_priorities(3 * rng.random((2, 4)))
    add(old, min(steps, 1))  # a row that is not in the tree yet
    new = restored(old, prioritized(steps=0, **fields))
    for memory in (old, new):
        add(memory)
    for _ in range(3):
        one, two = (memory.sample(3, 8, np.random.default_rng(7)) for memory in (old, new))
        np.testing.assert_array_equal(one.reward, two.reward)
        np.testing.assert_array_equal(one.weight, two.weight)
        for memory in (old, new):
            memory.update_priorities(one.reward)
            add(memory)
    np.testing.assert_array_equal(old.tree.sums, new.tree.sums)
    assert old.largest == new.largest and old.batches == new.batches
