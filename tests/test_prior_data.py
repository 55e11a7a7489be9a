"""Batches that have a share of rows of a fixed data set: which rows, which rewards, and that they stay so."""

import numpy as np
import pytest
from demonstration_tools import SPEC, add, first_steps, restored, shown

from tfsac.environments import Filters
from tfsac.memories import PriorDataMemory, SQILMemory, save_demonstrations
from tfsac.parameters import (
    EnvironmentParameters,
    FilterParameters,
    Preset,
    PriorDataReplayParameters,
    ReturnScalingParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
)
from tfsac.training.build import build_memory
from tfsac.types import ArraySpec

MARKED = SPEC._replace(extras={"expert": ArraySpec((), "float32")})  # of SQIL


def data(steps=6, ends=None, reward=lambda step: 1000.0 + step):
    return shown(steps, ends, reward)


def filled(own=5, demonstrations=None, share=0.5, capacity=8, **fields):
    """A memory with own steps 0, 1, ..., and their numbers as rewards."""
    memory = PriorDataMemory(SPEC, capacity, demonstrations or data(), share=share, **fields)
    for step in range(own):
        add(memory, step, step)
    return memory


# -- shares ------------------------------------------------------------------------------------------------------------

SHARES = [(0.5, 8), (0.25, 8), (0.75, 8), (0.1, 16), (0.3, 7), (0.9, 30), (1 / 3, 12), (0.49, 101)]


@pytest.mark.parametrize(("share", "batch_size"), SHARES)
@pytest.mark.parametrize("own", [1, 30])
def test_every_batch_has_exactly_its_share_of_the_data(share, batch_size, own):
    batch = filled(own, share=share).sample(4, batch_size, np.random.default_rng(0))
    steps = first_steps(batch)
    assert steps.shape == (4, batch_size) and batch.weight == () and not batch.extras
    of_data = steps >= 1000
    assert (of_data.sum(axis=1) == round(share * batch_size)).all()
    assert ((steps < own) & (steps >= max(own - 8, 0)))[~of_data].all()


@pytest.mark.parametrize(("share", "batch_size", "replicas"), [(0.5, 8, 4), (0.25, 24, 3), (0.75, 16, 4), (0.3, 20, 2)])
def test_every_replica_has_as_many_rows_of_the_data_as_the_others(share, batch_size, replicas):
    PriorDataReplayParameters("x.npz", share=share).check_batch(batch_size, replicas)
    of_data = first_steps(filled(share=share).sample(3, batch_size, np.random.default_rng(0))) >= 1000
    parts = of_data.reshape(3, replicas, batch_size // replicas).sum(axis=2)
    assert (parts == round(share * batch_size) // replicas).all()


def test_rows_of_the_data_and_own_ones_are_sampled_equally_often():
    steps = first_steps(filled(8, share=0.25).sample(10, 6_400, np.random.default_rng(2)))
    for rows, kept in ((steps[steps < 1000], 8), (steps[steps >= 1000], 6)):
        values, counts = np.unique(rows, return_counts=True)
        assert len(values) == kept
        expected = rows.size / kept
        assert ((counts - expected) ** 2 / expected).sum() < 24.3  # the 0.1 % point of 7 degrees of freedom


def test_half_of_the_data_is_sampled_as_sqil_samples_them():
    ours, theirs = filled(), SQILMemory(MARKED, 8, shown())
    for step in range(5):
        add(theirs, step, 0.0)
    one, two = (memory.sample(3, 10, np.random.default_rng(4)) for memory in (ours, theirs))
    np.testing.assert_array_equal(first_steps(one), first_steps(two))
    np.testing.assert_array_equal(one.discount, two.discount)


def test_the_fields_of_a_row_belong_together():
    batch = filled(8, share=0.25, num_envs=2).sample(4, 20, np.random.default_rng(1))
    steps = first_steps(batch)
    np.testing.assert_allclose(batch.action[..., 0], steps / 10_000, rtol=1e-6)
    np.testing.assert_array_equal(batch.next_observation["observation"][..., 0], steps + 0.5)
    np.testing.assert_array_equal(batch.reward, steps)  # own ones, and those of the data
    assert {batch.action.dtype, batch.reward.dtype, batch.discount.dtype} == {np.dtype("float32")}


def test_the_ring_overwrites_own_transitions_and_never_the_data():
    steps = first_steps(filled(100, capacity=4).sample(10, 100, np.random.default_rng(0)))
    assert set(np.unique(steps)) == {96, 97, 98, 99, 1000, 1001, 1002, 1003, 1004, 1005}


# -- rewards -----------------------------------------------------------------------------------------------------------


def test_rewards_of_both_are_filtered_one_by_one_before_they_are_summed():
    filters = Filters(FilterParameters(reward_clipping_range=(0.0, 3.0)), SPEC)
    prior = data(5, {1: "terminated", 4: "truncated"}, reward=lambda step: [1.0, 9.0, 2.0, 9.0, -9.0][step])
    memory = filled(0, prior, discount=0.5, n_step=3, reward_filter=filters.reward)
    for step, reward in enumerate([2.0, 50.0, 1.0]):
        add(memory, step, reward)
    batch = memory.sample(1, 600, np.random.default_rng(0))
    expected = {0: 2 + 1.5 + 0.25, 1: 3 + 0.5, 2: 1.0}
    expected |= {1000: 1 + 1.5, 1001: 3.0, 1002: 2 + 1.5 + 0.0, 1003: 3.0, 1004: 0.0}
    discounts = {0: 1 / 8, 1: 1 / 4, 2: 1 / 2, 1000: 0.0, 1001: 0.0, 1002: 1 / 8, 1003: 1 / 4, 1004: 1 / 2}
    steps = first_steps(batch)[0].astype(int)
    assert set(steps) == set(expected)
    np.testing.assert_allclose(batch.reward[0], [expected[step] for step in steps])
    np.testing.assert_array_equal(batch.discount[0], np.float32([discounts[step] for step in steps]))


def test_return_scaling_divides_rewards_of_the_data_by_what_the_agents_own_returns_vary_by():
    filters = Filters(FilterParameters(return_scaling=ReturnScalingParameters(5.0)), SPEC, discount=0.5)
    memory = filled(reward_filter=filters.reward)
    for step in range(4):
        filters.learn_reward(np.float32([30.0 * step]), np.array([False]))
        batch = memory.sample(1, 40, np.random.default_rng(0))
        np.testing.assert_allclose(batch.reward, first_steps(batch) / filters.returns.divisor(), rtol=1e-6)
    assert filters.returns.divisor() > 20 and filters.returns.count == 4


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_restored_memory_samples_the_same():
    old = filled(5, share=0.25)
    new = restored(old, filled(0, share=0.25))
    one, two = (memory.sample(3, 20, np.random.default_rng(3)) for memory in (old, new))
    for name in ("action", "reward", "discount"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_other_data_than_those_of_the_checkpoint_are_refused():
    old, new = filled(5), filled(0, data(reward=lambda step: 0.0))
    with pytest.raises(ValueError, match="changed"):
        restored(old, new)


# -- from a preset -----------------------------------------------------------------------------------------------------


def preset_of(path, level="Pendulum-v1", **fields):
    agent = TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(discount=0.5, n_step=2),
        memory=PriorDataReplayParameters(str(path), max_size=1_000, **fields),
    )
    return Preset(agent=agent, environment=EnvironmentParameters(level, num_envs=2))


def from_preset(path, level="Pendulum-v1", spec=SPEC, **fields):
    return build_memory(preset_of(path, level, **fields), spec, Filters(FilterParameters(10.0), SPEC))


def test_a_preset_makes_the_memory_that_it_describes(tmp_path):
    path = tmp_path / "data.npz"
    save_demonstrations(path, data(6, {1: "truncated", 5: "truncated"}, reward=float))
    memory = from_preset(path, num_episodes=1, share=0.25)
    assert isinstance(memory, PriorDataMemory) and memory.ring.shape == (500, 2) and len(memory) == 0
    for step in range(3):
        add(memory, step, 1.0)
    batch = memory.sample(1, 100, np.random.default_rng(0))
    of_data = first_steps(batch)[0] >= 1000
    assert of_data.sum() == 25 and set(first_steps(batch)[0, of_data]) == {1000, 1001}
    assert set(batch.reward[0, of_data]) == {0.0 + 5.0, 10.0} and set(batch.reward[0, ~of_data]) == {10.0, 15.0}
    assert set(batch.discount[0]) == {0.5, 0.25}
