"""Batches that are half demonstrated: which rows, which rewards, and that they stay so."""

import numpy as np
import pytest
import tiny
from demonstration_tools import SPEC as UNMARKED
from demonstration_tools import add, first_steps, shown

from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.memories import Demonstrations, SQILMemory, TransitionMemory, save_demonstrations
from tfsac.parameters import (
    EnvironmentParameters,
    FilterParameters,
    Preset,
    SQILExperienceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
)
from tfsac.training.build import build_memory
from tfsac.types import ArraySpec, DiscreteSpec, Spec

EXPERT = {"expert": ArraySpec((), "float32")}
SPEC = UNMARKED._replace(extras=EXPERT)
DISCRETE = Spec(
    {"camera": ArraySpec((2, 2, 1), "uint8"), "action_mask": ArraySpec((5,), "bool")}, DiscreteSpec(5), EXPERT
)


def filled(own=5, demonstrations=None, capacity=8, num_envs=1, **fields):
    """A memory with own steps 0, 1, ..., whose rewards are far from any that should be seen."""
    memory = SQILMemory(SPEC, capacity, demonstrations or shown(), num_envs, **fields)
    for step in range(own):
        add(memory, step, -1e30 if step % 2 else 1e30)
    return memory


# -- halves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [1, 5, 30])
@pytest.mark.parametrize("updates, batch_size", [(1, 2), (3, 10)])
def test_rows_of_every_batch_alternate_and_own_ones_come_first(own, updates, batch_size):
    batch = filled(own).sample(updates, batch_size, np.random.default_rng(0))
    steps = first_steps(batch)
    assert steps.shape == (updates, batch_size)
    assert (steps[:, 0::2] < own).all() and (steps[:, 0::2] >= max(own - 8, 0)).all()
    assert (steps[:, 1::2] >= 1000).all()
    np.testing.assert_array_equal(batch.extras["expert"], np.tile([0.0, 1.0], (updates, batch_size // 2)))
    assert batch.extras["expert"].dtype == np.float32


def test_every_transition_of_a_half_is_sampled_equally_often():
    batch = filled(8, shown(6)).sample(10, 4_800, np.random.default_rng(2))
    for half, kept in ((first_steps(batch)[:, 0::2], 8), (first_steps(batch)[:, 1::2], 6)):
        values, counts = np.unique(half, return_counts=True)
        assert len(values) == kept
        expected = half.size / kept
        assert ((counts - expected) ** 2 / expected).sum() < 24.3  # the 0.1 % point of 7 degrees of freedom


def test_images_masks_and_numbers_of_actions_keep_their_dtypes():
    records = np.zeros(3, TransitionMemory(DISCRETE._replace(extras={}), 1).ring.dtype)
    records["observation/camera"], records["action"], records["terminated"] = 200, 4, True
    records["observation/action_mask"][:, 4] = True
    memory = SQILMemory(DISCRETE, 4, Demonstrations(records, "", np.zeros(3)))
    mask = np.array([[True, False, True, False, False]])
    seen = {"camera": np.full((1, 2, 2, 1), 7), "action_mask": mask}
    memory.add(seen, np.array([2]), np.zeros(1), np.zeros(1, bool), np.zeros(1, bool), seen)
    batch = memory.sample(1, 4, np.random.default_rng(0))
    assert batch.action.dtype == np.int32 and batch.action.tolist() == [[2, 4, 2, 4]]
    assert batch.observation["camera"].dtype == np.uint8
    assert batch.observation["camera"][0, :, 1, 1, 0].tolist() == [7, 200, 7, 200]
    assert batch.observation["action_mask"].dtype == bool
    np.testing.assert_array_equal(batch.observation["action_mask"][0, 0], mask[0])
    np.testing.assert_array_equal(batch.observation["action_mask"][0, 1], [False, False, False, False, True])


# -- rewards and discounts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [1e30, -1e30, -3.0, np.nan, 0.0])
def test_own_rewards_are_0_and_demonstrated_ones_1_whatever_is_stored(garbage):
    memory = filled(0, shown(reward=lambda step: garbage), discount=0.5)
    for step in range(3):
        add(memory, step, garbage)
    batch = memory.sample(3, 8, np.random.default_rng(0))
    np.testing.assert_array_equal(batch.reward, np.tile([0.0, 1.0], (3, 4)))
    np.testing.assert_array_equal(
        tiny.newest(memory, 3)["reward"], np.full((3, 1), garbage, np.float32)
    )  # kept as it is


@pytest.mark.parametrize("ignore_done, terminal", [(False, 0.0), (True, 0.5)])
def test_the_discount_is_zero_only_where_the_task_ended_in_both_halves(ignore_done, terminal):
    memory = filled(0, shown(3, {1: "terminated", 2: "truncated"}), discount=0.5, ignore_done=ignore_done)
    for step, end in enumerate([None, "terminated", "truncated"]):
        add(memory, step, 7.0, end)
    batch = memory.sample(1, 200, np.random.default_rng(0))
    expected = np.float32([0.5, terminal, 0.5])
    steps = first_steps(batch)[0].astype(int) % 1000
    assert set(steps[0::2]) == set(steps[1::2]) == {0, 1, 2}
    np.testing.assert_array_equal(batch.discount[0], expected[steps])


def test_sums_of_own_rewards_are_0_while_their_discounts_count_the_steps():
    memory = filled(0, discount=0.5, n_step=3)
    for step, end in enumerate([None, None, None, "terminated", None]):
        add(memory, step, 1e30, end)
    batch = memory.sample(1, 400, np.random.default_rng(0))
    first = first_steps(batch)[0, 0::2].astype(int)
    assert set(first) == {0, 1, 2, 3, 4}
    assert not batch.reward[0, 0::2].any()
    np.testing.assert_array_equal(batch.discount[0, 0::2], np.float32([1 / 8, 0, 0, 0, 1 / 2])[first])


# -- from a preset -----------------------------------------------------------------------------------------------------


def from_preset(path, level="Pendulum-v1", **fields):
    """Builds the memory of a preset, with filters that make all rewards 100 times as large."""
    agent = TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(discount=0.5, n_step=2),
        memory=SQILExperienceReplayParameters(str(path), max_size=1_000, **fields),
    )
    filters = FilterParameters(reward_rescale_factor=100.0)
    preset = Preset(agent=agent, environment=EnvironmentParameters(level, num_envs=2))
    return build_memory(preset, SPEC, Filters(filters, SPEC))


def test_a_preset_makes_the_memory_that_it_describes(tmp_path):
    path = tmp_path / "expert.npz"
    save_demonstrations(path, shown(6, {1: "truncated", 5: "truncated"}))
    memory = from_preset(path, num_episodes=1)
    assert isinstance(memory, SQILMemory) and memory.ring.shape == (500, 2) and len(memory) == 0
    for step in range(3):
        add(memory, step, 1.0)
    batch = memory.sample(1, 100, np.random.default_rng(0))
    assert set(first_steps(batch)[0, 1::2]) == {1000, 1001}
    assert set(batch.reward[0, 0::2]) == {0} and set(batch.reward[0, 1::2]) == {1, 1.5}  # 100 times as much is nowhere
    assert set(batch.discount[0, 1::2]) == {0.5, 0.25}


def test_a_preset_whose_demonstrations_do_not_fit_is_refused(tmp_path):
    path = tmp_path / "expert.npz"
    with pytest.raises(FileNotFoundError, match="expert"):
        from_preset(path)
    save_demonstrations(path, shown())
    with pytest.raises(TfsacError, match="Pendulum-v1"):
        from_preset(path, "Hopper-v5")
    with pytest.raises(TfsacError, match="num_episodes"):
        from_preset(path, num_episodes=2)
