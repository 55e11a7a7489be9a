"""Batches that have a share of a fixed data set, prior data or demonstrations: which steps, which rewards, and that
they stay so.
"""

import numpy as np
import pytest
from toys import restored, vector_spec

from tfsac import parameters as p
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.memories import Demonstrations, PriorDataMemory, SQILMemory, TransitionMemory, save_demonstrations
from tfsac.training.build import build_memory
from tfsac.types import ArraySpec, DiscreteSpec, Spec

SPEC = vector_spec(observation=1, action=1)
EXPERT = {"expert": ArraySpec((), "float32")}
MARKED = SPEC._replace(extras=EXPERT)


def shown(steps=6, ends=None, reward=lambda step: 1000.0 + step):
    """Demonstrations of `steps` steps; step s has 1000 + s everywhere. `ends` is {step: how its episode ended}."""
    ends = {steps - 1: "terminated"} if ends is None else ends
    memory = TransitionMemory(SPEC, steps)
    for step in range(steps):
        add(memory, 1000 + step, reward(step), ends.get(step))
    return Demonstrations(memory.ring[:, 0], "Pendulum-v1", np.zeros(len(ends)))


def add(memory, step, reward, end=None):
    """Adds a step of the first environment, as of all others; step s ends in the observation s + 0.5."""
    many = np.full(memory.num_envs, step)
    memory.add(
        {"observation": many[:, None]},
        many[:, None] / 10_000,
        np.full(memory.num_envs, reward),
        np.full(memory.num_envs, end == "terminated"),
        np.full(memory.num_envs, end == "truncated"),
        {"observation": many[:, None] + 0.5},
    )


def first_steps(batch):
    """Numbers of the steps with which the transitions begin."""
    return batch.observation["observation"][..., 0]


def filled(own=5, demonstrations=None, share=0.5, capacity=8, **fields):
    """A memory with own steps 0, 1, ..., and their numbers as rewards."""
    memory = PriorDataMemory(SPEC, capacity, demonstrations or shown(), share=share, **fields)
    for step in range(own):
        add(memory, step, step)
    return memory


def imitating(own=5, demonstrations=None, rewards=(1e30, -1e30), **fields):
    """The same of SQIL, with rewards that should not be seen."""
    memory = SQILMemory(MARKED, 8, demonstrations or shown(reward=lambda step: 1e30), **fields)
    for step in range(own):
        add(memory, step, rewards[step % len(rewards)])
    return memory


# -- shares ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "batch_size"), [(0.5, 8), (0.3, 7), (0.49, 101)])
@pytest.mark.parametrize("own", [1, 30])
def test_every_batch_has_exactly_its_share_of_the_data(share, batch_size, own):
    batch = filled(own, share=share).sample(4, batch_size, np.random.default_rng(0))
    steps = first_steps(batch)
    assert steps.shape == (4, batch_size) and batch.weight == () and not batch.extras
    of_data = steps >= 1000
    assert (of_data.sum(axis=1) == round(share * batch_size)).all()
    assert ((steps < own) & (steps >= max(own - 8, 0)))[~of_data].all()
    np.testing.assert_allclose(batch.action[..., 0], steps / 10_000, rtol=1e-6)
    np.testing.assert_array_equal(batch.next_observation["observation"][..., 0], steps + 0.5)
    np.testing.assert_array_equal(batch.reward, steps)  # own ones, and those of the data
    assert {batch.action.dtype, batch.reward.dtype, batch.discount.dtype} == {np.dtype("float32")}


@pytest.mark.parametrize(("share", "batch_size", "replicas"), [(0.25, 24, 3), (0.3, 20, 2)])
def test_every_replica_has_as_many_steps_of_the_data_as_the_others(share, batch_size, replicas):
    p.PriorDataReplayParameters("x.npz", share=share).check_batch(batch_size, replicas)
    of_data = first_steps(filled(share=share).sample(3, batch_size, np.random.default_rng(0))) >= 1000
    parts = of_data.reshape(3, replicas, batch_size // replicas).sum(axis=2)
    assert (parts == round(share * batch_size) // replicas).all()


def test_steps_of_the_data_and_own_ones_are_sampled_equally_often():
    steps = first_steps(filled(8, share=0.25).sample(10, 6_400, np.random.default_rng(2)))
    for some, kept in ((steps[steps < 1000], 8), (steps[steps >= 1000], 6)):
        values, counts = np.unique(some, return_counts=True)
        assert len(values) == kept
        expected = some.size / kept
        assert ((counts - expected) ** 2 / expected).sum() < 24.3  # the 0.1 % point of 7 degrees of freedom


@pytest.mark.parametrize("own", [1, 5, 30])
def test_sqil_samples_half_of_the_data_alternating_and_own_steps_come_first(own):
    batch = imitating(own).sample(3, 10, np.random.default_rng(4))
    steps = first_steps(batch)
    assert (steps[:, 0::2] < own).all() and (steps[:, 1::2] >= 1000).all()
    np.testing.assert_array_equal(batch.extras["expert"], np.tile([0.0, 1.0], (3, 5)))
    assert batch.extras["expert"].dtype == np.float32
    same = filled(own).sample(3, 10, np.random.default_rng(4))
    np.testing.assert_array_equal(first_steps(same), steps)
    np.testing.assert_array_equal(same.discount, batch.discount)


def test_images_masks_and_numbers_of_actions_keep_their_dtypes():
    observation = {"camera": ArraySpec((2, 2, 1), "uint8"), "action_mask": ArraySpec((5,), "bool")}
    spec = Spec(observation, DiscreteSpec(5), EXPERT)
    records = np.zeros(3, TransitionMemory(spec._replace(extras={}), 1).ring.dtype)
    records["observation/camera"], records["action"], records["terminated"] = 200, 4, True
    records["observation/action_mask"][:, 4] = True
    memory = SQILMemory(spec, 4, Demonstrations(records, "", np.zeros(3)))
    mask = np.array([[True, False, True, False, False]])
    seen = {"camera": np.full((1, 2, 2, 1), 7), "action_mask": mask}
    memory.add(seen, np.array([2]), np.zeros(1), np.zeros(1, bool), np.zeros(1, bool), seen)
    batch = memory.sample(1, 4, np.random.default_rng(0))
    assert batch.action.dtype == np.int32 and batch.action.tolist() == [[2, 4, 2, 4]]
    assert batch.observation["camera"].dtype == np.uint8
    assert batch.observation["camera"][0, :, 1, 1, 0].tolist() == [7, 200, 7, 200]
    assert batch.observation["action_mask"].dtype == bool
    np.testing.assert_array_equal(batch.observation["action_mask"][0, :2], [mask[0], [0, 0, 0, 0, 1]])


# -- rewards -----------------------------------------------------------------------------------------------------------


def test_rewards_of_both_are_filtered_one_by_one_before_they_are_summed():
    filters = Filters(p.FilterParameters(reward_clipping_range=(0.0, 3.0)), SPEC)
    prior = shown(5, {1: "terminated", 4: "truncated"}, reward=lambda step: [1.0, 9.0, 2.0, 9.0, -9.0][step])
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


@pytest.mark.parametrize("garbage", [1e30, np.nan])
def test_own_rewards_of_sqil_are_0_and_demonstrated_ones_1_whatever_is_stored(garbage):
    memory = imitating(3, shown(reward=lambda step: garbage), [garbage], discount=0.5)
    batch = memory.sample(3, 8, np.random.default_rng(0))
    np.testing.assert_array_equal(batch.reward, np.tile([0.0, 1.0], (3, 4)))
    np.testing.assert_array_equal(memory.between(0, 3)["reward"], np.full((3, 1), garbage, np.float32))


@pytest.mark.parametrize("ignore_done, terminal", [(False, 0.0), (True, 0.5)])
def test_the_discount_of_sqil_is_zero_only_where_the_task_ended_in_both_halves(ignore_done, terminal):
    memory = imitating(0, shown(3, {1: "terminated", 2: "truncated"}), discount=0.5, ignore_done=ignore_done)
    for step, end in enumerate([None, "terminated", "truncated"]):
        add(memory, step, 7.0, end)
    batch = memory.sample(1, 200, np.random.default_rng(0))
    steps = first_steps(batch)[0].astype(int) % 1000
    assert set(steps[0::2]) == set(steps[1::2]) == {0, 1, 2}
    np.testing.assert_array_equal(batch.discount[0], np.float32([0.5, terminal, 0.5])[steps])


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_restored_memory_samples_the_same():
    old = filled(5, share=0.25)
    new = restored(old, filled(0, share=0.25))
    one, two = (memory.sample(3, 20, np.random.default_rng(3)) for memory in (old, new))
    for name in ("action", "reward", "discount"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


# -- from a preset -----------------------------------------------------------------------------------------------------


def from_preset(memory, spec, level="Pendulum-v1"):
    """Builds the memory of a preset, with filters that make all rewards 10 times as large."""
    algorithm = p.TwinSoftActorCriticAlgorithmParameters(discount=0.5, n_step=2)
    agent = p.TwinSoftActorCriticAgentParameters(algorithm=algorithm, memory=memory)
    preset = p.Preset(agent=agent, environment=p.EnvironmentParameters(level, num_envs=2))
    return build_memory(preset, spec, Filters(p.FilterParameters(10.0), SPEC))


@pytest.mark.parametrize("kind", [PriorDataMemory, SQILMemory])
def test_a_preset_makes_the_memory_that_it_describes(kind, tmp_path):
    path = tmp_path / "data.npz"
    save_demonstrations(path, shown(6, {1: "truncated", 5: "truncated"}, reward=float))
    if kind is SQILMemory:
        memory = from_preset(p.SQILExperienceReplayParameters(str(path), max_size=1_000, num_episodes=1), MARKED)
        share, of_data, own = 50, {1.0, 1.5}, {0.0}  # no reward of the environment, 10 times as large
    else:
        parameters = p.PriorDataReplayParameters(str(path), max_size=1_000, num_episodes=1, share=0.25)
        memory, share, of_data, own = from_preset(parameters, SPEC), 25, {5.0, 10.0}, {10.0, 15.0}
    assert isinstance(memory, kind) and memory.ring.shape == (500, 2) and len(memory) == 0
    for step in range(3):
        add(memory, step, 1.0)
    batch = memory.sample(1, 100, np.random.default_rng(0))
    demonstrated = first_steps(batch)[0] >= 1000
    assert demonstrated.sum() == share and set(first_steps(batch)[0, demonstrated]) == {1000, 1001}
    assert set(batch.reward[0, demonstrated]) == of_data and set(batch.reward[0, ~demonstrated]) == own
    assert set(batch.discount[0]) == {0.5, 0.25}


def test_a_preset_whose_demonstrations_are_of_another_level_is_refused(tmp_path):
    save_demonstrations(tmp_path / "expert.npz", shown())
    with pytest.raises(TfsacError, match="Pendulum-v1"):
        from_preset(p.SQILExperienceReplayParameters(str(tmp_path / "expert.npz")), MARKED, "Hopper-v5")
