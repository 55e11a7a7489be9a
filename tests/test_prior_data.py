"""Prior data and SQIL: the share of demonstrations in a batch, rewards, discounts and checkpoints."""

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


def make_demonstrations(steps=6, ends=None, reward=lambda step: 1000.0 + step):
    """Returns demonstrations in which step s has number 1000 + s; `ends` is {step: how the episode ended}."""
    ends = {steps - 1: "terminated"} if ends is None else ends
    memory = TransitionMemory(SPEC, steps)
    for step in range(steps):
        add(memory, 1000 + step, reward(step), ends.get(step))
    return Demonstrations(memory.ring[:, 0], "Pendulum-v1", np.zeros(len(ends)))


def add(memory, step, reward, end=None):
    """Adds the same step to all environments; step s has the next observation s + 0.5."""
    many = np.full(memory.num_envs, step)
    memory.add(
        {"observation": many[:, None]},
        many[:, None] / 10_000,
        np.full(memory.num_envs, reward),
        np.full(memory.num_envs, end == "terminated"),
        np.full(memory.num_envs, end == "truncated"),
        {"observation": many[:, None] + 0.5},
    )


def step_numbers(batch):
    """Returns the step numbers of a batch's transitions."""
    return batch.observation["observation"][..., 0]


def filled(replay_steps=5, demonstrations=None, share=0.5, capacity=8, **fields):
    """Returns a memory with replay steps 0, 1, ...; each reward is its step number."""
    memory = PriorDataMemory(SPEC, capacity, demonstrations or make_demonstrations(), share=share, **fields)
    for step in range(replay_steps):
        add(memory, step, step)
    return memory


def filled_sqil(replay_steps=5, demonstrations=None, rewards=(1e30, -1e30), **fields):
    """Returns a SQIL memory whose stored rewards must be ignored."""
    memory = SQILMemory(MARKED, 8, demonstrations or make_demonstrations(reward=lambda step: 1e30), **fields)
    for step in range(replay_steps):
        add(memory, step, rewards[step % len(rewards)])
    return memory


@pytest.mark.parametrize(("share", "batch_size"), [(0.5, 8), (0.3, 7), (0.49, 101)])
@pytest.mark.parametrize("replay_steps", [1, 30])
def test_batch_has_exact_share_of_data(share, batch_size, replay_steps):
    batch = filled(replay_steps, share=share).sample(4, batch_size, np.random.default_rng(0))
    steps = step_numbers(batch)
    assert steps.shape == (4, batch_size) and batch.weight == () and not batch.extras
    is_data = steps >= 1000
    assert (is_data.sum(axis=1) == round(share * batch_size)).all()
    assert ((steps < replay_steps) & (steps >= max(replay_steps - 8, 0)))[~is_data].all()
    np.testing.assert_allclose(batch.action[..., 0], steps / 10_000, rtol=1e-6)
    np.testing.assert_array_equal(batch.next_observation["observation"][..., 0], steps + 0.5)
    np.testing.assert_array_equal(batch.reward, steps)  # of replay and data
    assert {batch.action.dtype, batch.reward.dtype, batch.discount.dtype} == {np.dtype("float32")}


@pytest.mark.parametrize(("share", "batch_size", "replicas"), [(0.25, 24, 3), (0.3, 20, 2)])
def test_every_replica_has_an_equal_share_of_data(share, batch_size, replicas):
    p.PriorDataReplayParameters("x.npz", share=share).check_batch(batch_size, replicas)
    is_data = step_numbers(filled(share=share).sample(3, batch_size, np.random.default_rng(0))) >= 1000
    parts = is_data.reshape(3, replicas, batch_size // replicas).sum(axis=2)
    assert (parts == round(share * batch_size) // replicas).all()


def test_sampling_is_uniform_within_both_parts():
    steps = step_numbers(filled(8, share=0.25).sample(10, 6_400, np.random.default_rng(2)))
    for sampled, num_steps in ((steps[steps < 1000], 8), (steps[steps >= 1000], 6)):
        values, counts = np.unique(sampled, return_counts=True)
        assert len(values) == num_steps
        expected = sampled.size / num_steps
        assert ((counts - expected) ** 2 / expected).sum() < 24.3  # the 0.1 % point of 7 degrees of freedom


@pytest.mark.parametrize("replay_steps", [1, 5, 30])
def test_sqil_alternates_replay_and_demonstrations(replay_steps):
    batch = filled_sqil(replay_steps).sample(3, 10, np.random.default_rng(4))
    steps = step_numbers(batch)
    assert (steps[:, 0::2] < replay_steps).all() and (steps[:, 1::2] >= 1000).all()
    np.testing.assert_array_equal(batch.extras["expert"], np.tile([0.0, 1.0], (3, 5)))
    assert batch.extras["expert"].dtype == np.float32
    prior_data = filled(replay_steps).sample(3, 10, np.random.default_rng(4))
    np.testing.assert_array_equal(step_numbers(prior_data), steps)
    np.testing.assert_array_equal(prior_data.discount, batch.discount)


def test_images_masks_and_discrete_actions_keep_their_dtypes():
    observation = {"camera": ArraySpec((2, 2, 1), "uint8"), "action_mask": ArraySpec((5,), "bool")}
    spec = Spec(observation, DiscreteSpec(5), EXPERT)
    records = np.zeros(3, TransitionMemory(spec._replace(extras={}), 1).ring.dtype)
    records["observation/camera"], records["action"], records["terminated"] = 200, 4, True
    records["observation/action_mask"][:, 4] = True
    memory = SQILMemory(spec, 4, Demonstrations(records, "", np.zeros(3)))
    mask = np.array([[True, False, True, False, False]])
    observations = {"camera": np.full((1, 2, 2, 1), 7), "action_mask": mask}
    memory.add(observations, np.array([2]), np.zeros(1), np.zeros(1, bool), np.zeros(1, bool), observations)
    batch = memory.sample(1, 4, np.random.default_rng(0))
    assert batch.action.dtype == np.int32 and batch.action.tolist() == [[2, 4, 2, 4]]
    assert batch.observation["camera"].dtype == np.uint8
    assert batch.observation["camera"][0, :, 1, 1, 0].tolist() == [7, 200, 7, 200]
    assert batch.observation["action_mask"].dtype == bool
    np.testing.assert_array_equal(batch.observation["action_mask"][0, :2], [mask[0], [0, 0, 0, 0, 1]])


def test_rewards_are_filtered_before_n_step_sums():
    filters = Filters(p.FilterParameters(reward_clipping_range=(0.0, 3.0)), SPEC)
    prior = make_demonstrations(
        5, {1: "terminated", 4: "truncated"}, reward=lambda step: [1.0, 9.0, 2.0, 9.0, -9.0][step]
    )
    memory = filled(0, prior, discount=0.5, n_step=3, reward_filter=filters.reward)
    for step, reward in enumerate([2.0, 50.0, 1.0]):
        add(memory, step, reward)
    batch = memory.sample(1, 600, np.random.default_rng(0))
    expected = {0: 2 + 1.5 + 0.25, 1: 3 + 0.5, 2: 1.0}
    expected |= {1000: 1 + 1.5, 1001: 3.0, 1002: 2 + 1.5 + 0.0, 1003: 3.0, 1004: 0.0}
    discounts = {0: 1 / 8, 1: 1 / 4, 2: 1 / 2, 1000: 0.0, 1001: 0.0, 1002: 1 / 8, 1003: 1 / 4, 1004: 1 / 2}
    steps = step_numbers(batch)[0].astype(int)
    assert set(steps) == set(expected)
    np.testing.assert_allclose(batch.reward[0], [expected[step] for step in steps])
    np.testing.assert_array_equal(batch.discount[0], np.float32([discounts[step] for step in steps]))


@pytest.mark.parametrize("stored", [1e30, np.nan])
def test_sqil_rewards_ignore_stored_rewards(stored):
    memory = filled_sqil(3, make_demonstrations(reward=lambda step: stored), [stored], discount=0.5)
    batch = memory.sample(3, 8, np.random.default_rng(0))
    np.testing.assert_array_equal(batch.reward, np.tile([0.0, 1.0], (3, 4)))
    np.testing.assert_array_equal(memory.between(0, 3)["reward"], np.full((3, 1), stored, np.float32))


@pytest.mark.parametrize("ignore_done, terminal", [(False, 0.0), (True, 0.5)])
def test_sqil_discount_at_terminated_and_truncated_steps(ignore_done, terminal):
    memory = filled_sqil(
        0, make_demonstrations(3, {1: "terminated", 2: "truncated"}), discount=0.5, ignore_done=ignore_done
    )
    for step, end in enumerate([None, "terminated", "truncated"]):
        add(memory, step, 7.0, end)
    batch = memory.sample(1, 200, np.random.default_rng(0))
    steps = step_numbers(batch)[0].astype(int) % 1000
    assert set(steps[0::2]) == set(steps[1::2]) == {0, 1, 2}
    np.testing.assert_array_equal(batch.discount[0], np.float32([0.5, terminal, 0.5])[steps])


def test_restored_memory_samples_identically():
    old = filled(5, share=0.25)
    new = restored(old, filled(0, share=0.25))
    one, two = (memory.sample(3, 20, np.random.default_rng(3)) for memory in (old, new))
    for name in ("action", "reward", "discount"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def from_preset(memory, spec, level="Pendulum-v1"):
    """Builds the memory of a preset, with rewards multiplied by 10."""
    algorithm = p.TwinSoftActorCriticAlgorithmParameters(discount=0.5, n_step=2)
    agent = p.TwinSoftActorCriticAgentParameters(algorithm=algorithm, memory=memory)
    preset = p.Preset(agent=agent, environment=p.EnvironmentParameters(level, num_envs=2))
    return build_memory(preset, spec, Filters(p.FilterParameters(10.0), SPEC))


@pytest.mark.parametrize("kind", [PriorDataMemory, SQILMemory])
def test_memory_is_built_from_preset(kind, tmp_path):
    path = tmp_path / "data.npz"
    save_demonstrations(path, make_demonstrations(6, {1: "truncated", 5: "truncated"}, reward=float))
    if kind is SQILMemory:
        memory = from_preset(p.SQILExperienceReplayParameters(str(path), max_size=1_000, num_episodes=1), MARKED)
        share, is_data, replay_steps = 50, {1.0, 1.5}, {0.0}  # SQIL rewards, not rescaled
    else:
        parameters = p.PriorDataReplayParameters(str(path), max_size=1_000, num_episodes=1, share=0.25)
        memory, share, is_data, replay_steps = from_preset(parameters, SPEC), 25, {5.0, 10.0}, {10.0, 15.0}
    assert isinstance(memory, kind) and memory.ring.shape == (500, 2) and len(memory) == 0
    for step in range(3):
        add(memory, step, 1.0)
    batch = memory.sample(1, 100, np.random.default_rng(0))
    demonstrated = step_numbers(batch)[0] >= 1000
    assert demonstrated.sum() == share and set(step_numbers(batch)[0, demonstrated]) == {1000, 1001}
    assert set(batch.reward[0, demonstrated]) == is_data and set(batch.reward[0, ~demonstrated]) == replay_steps
    assert set(batch.discount[0]) == {0.5, 0.25}


def test_demonstrations_of_another_level_are_rejected(tmp_path):
    save_demonstrations(tmp_path / "expert.npz", make_demonstrations())
    with pytest.raises(TfsacError, match="Pendulum-v1"):
        from_preset(p.SQILExperienceReplayParameters(str(tmp_path / "expert.npz")), MARKED, "Hopper-v5")
