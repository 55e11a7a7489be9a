"""Frame stacks: memories that store each frame once return bit-identical samples to memories of full stacks."""

import contextlib

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfsac.environments import EnvironmentFailure, Environments, FrameStack, make, spec_of
from tfsac.memories import (
    Demonstrations,
    EpisodicMemory,
    PriorDataMemory,
    PrioritizedMemory,
    SequenceMemory,
    TransitionMemory,
    in_ram,
    on_disk,
)
from tfsac.memories.reshard import reshard
from tfsac.parameters import AtariPreprocessingParameters, EnvironmentParameters
from tfsac.training.checkpoints import CheckpointManager
from tfsac.training.checkpoints import checkpoint as checkpoint_module
from tfsac.types import ArraySpec, DiscreteSpec, Spec

NUM_DEMONSTRATED = 6  # transitions


def spec_of_stacks(k=4, **fields):
    """Returns a spec with a stack of k frames and a vector."""
    camera = ArraySpec((5, 6, k), "uint8", stacked=True)
    return Spec({"camera": camera, "speed": ArraySpec((2,), "float32")}, DiscreteSpec(3), **fields)


class Game:
    """Generates steps with random frames and episode ends."""

    def __init__(self, num_envs, k=4, ends=0.15, seed=0):
        self.rng, self.num_envs, self.k, self.ends = np.random.default_rng(seed), num_envs, k, ends
        self.stack, self.first = np.zeros((num_envs, 5, 6, k), np.uint8), np.ones(num_envs, bool)

    def step(self):
        """Returns the arguments of `add` for one step."""
        rng, n = self.rng, self.num_envs
        stack = np.where(self.first[:, None, None, None], rng.integers(0, 256, (n, 5, 6, 1), np.uint8), self.stack)
        following = np.concatenate((stack[..., 1:], rng.integers(0, 256, (n, 5, 6, 1), np.uint8)), axis=-1)
        terminated, truncated = rng.random((2, n)) < self.ends
        self.stack, self.first = following, terminated | truncated
        speeds = rng.random((2, n, 2), np.float32)
        before, after = (
            {"camera": camera, "speed": speed} for camera, speed in zip((stack, following), speeds, strict=True)
        )
        return before, rng.integers(0, 3, n), rng.random(n, np.float32), terminated, truncated, after

    def restart(self):
        """Starts new episodes, like the environments of a resumed run."""
        self.first[:] = True


def play(game, steps, *memories):
    for _ in range(steps):
        step = game.step()
        for memory in memories:
            memory.add(*step)


def check_equal(expected, actual, error=0.0):
    tf.nest.assert_same_structure(expected, actual)
    for ours, theirs in zip(tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(theirs, ours, rtol=error, atol=error)


def all_transitions(memory):
    """Returns all stored transitions."""
    return memory.gather(np.arange(len(memory))[None])


def demonstrations(spec):
    return Demonstrations(TransitionMemory(spec.unstacked(), NUM_DEMONSTRATED).ring[:, 0], "", np.zeros(1))


RINGS = {
    "uniform": TransitionMemory,
    "n steps": lambda *args, **fields: TransitionMemory(*args, n_step=3, **fields),
    "prioritised": lambda *args, **fields: PrioritizedMemory(*args, n_step=2, **fields),
    "prior data": lambda spec, capacity, n, **fields: PriorDataMemory(
        spec, capacity, demonstrations(spec), n, share=0.25, **fields
    ),
    "sequences": lambda spec, capacity, n, **fields: SequenceMemory(spec, capacity, 3, n, **fields),
}


@pytest.mark.parametrize("num_envs, k", [(1, 4), (3, 2), (3, 1)])
@pytest.mark.parametrize("kind", RINGS)
def test_batches_match_memory_of_full_stacks(kind, k, num_envs):
    spec, draws = spec_of_stacks(k), [np.random.default_rng(1), np.random.default_rng(1)]
    for rows in (3, 4, 17) if kind == "sequences" else (1, 3, 4, 17):
        memories = [RINGS[kind](each, rows * num_envs + num_envs - 1, num_envs) for each in (spec, spec.unstacked())]
        game = Game(num_envs, k)
        for step in range(60):
            play(game, 1, *memories)
            if step == 40:
                game.restart()
                for memory in memories:
                    memory.end_episodes()
            if memories[0].ready:
                check_equal(*(memory.sample(2, 8, rng) for memory, rng in zip(memories, draws, strict=True)))
                for memory in memories if kind == "prioritised" else ():
                    memory.update_priorities(np.arange(16.0).reshape(2, 8))
            if kind != "sequences":
                check_equal(*map(all_transitions, memories))


def test_extra_frames_are_dropped_with_their_steps():
    memory, game = TransitionMemory(spec_of_stacks(), 20, 2), Game(2, ends=0.3)
    for _ in range(200):
        play(game, 1, memory)
        rows = memory.between(memory.oldest_row, memory.total_rows)
        num_ended = (rows["terminated"] | rows["truncated"])[:-1].sum()
        assert len(memory.frames["camera"].extra_frames) == num_ended + 2 + 2 * min(memory.oldest_row, 3)


def play_episodes(game, steps, memory, other, columns=4):
    """Adds steps to two memories and compares rollouts and segments; returns the number of segments of cut episodes."""
    rng, cut = np.random.default_rng(2), 0
    for _ in range(steps):
        play(game, 1, memory, other)
        if memory.rollout_complete:
            segments = memory._draw(3 * columns, rng) if memory.ready else []
            cut += len(segments) * memory.cut
            check_equal(*(each._stack(True, segments, columns) for each in (memory, other)))
            for each in (memory, other):
                each.rollout_begin = each.size
    return cut


@pytest.mark.parametrize("t_max, num_envs, k", [(1, 1, 4), (5, 3, 4), (5, 1, 2), (1, 3, 1)])
def test_segments_and_rollouts_match_memory_of_full_stacks(t_max, k, num_envs):
    spec = spec_of_stacks(k)
    for capacity in (9, 40):
        memories = [EpisodicMemory(each, capacity, t_max, num_envs) for each in (spec, spec.unstacked())]
        cut = play_episodes(Game(num_envs, k, ends=0.04), 300, *memories)
        assert memories[0].total_rows > len(memories[0].ring)
        assert cut > 0 or capacity == 40


def test_cut_episode_is_sampled_from_its_first_full_stack():
    memory = EpisodicMemory(spec_of_stacks(), 9, 5)
    play_episodes(Game(1, ends=0), 30, memory, EpisodicMemory(spec_of_stacks().unstacked(), 9, 5))
    memory.end_episodes()
    assert memory.cut and len(memory) == 9
    segments = memory._draw(200, np.random.default_rng(0))
    assert {(start, steps, first) for start, steps, first in segments} == {(3, 5, False), (4, 5, False)}


KINDS = {**RINGS, "episodes": lambda spec, capacity, n, **fields: EpisodicMemory(spec, capacity, 4, n, **fields)}


def advance(game, steps, *memories):
    """Adds steps and discards complete rollouts."""
    for _ in range(steps):
        play(game, 1, *memories)
        for memory in memories:
            if getattr(memory, "rollout_complete", False):
                memory.batches(0, memory.num_envs, np.random.default_rng(0))


def sampled(memory, seed):
    rng = np.random.default_rng(seed)
    return memory.batches(3, 4, rng) if isinstance(memory, EpisodicMemory) else memory.sample(3, 32, rng)


@pytest.mark.parametrize("disk", [False, True], ids=["RAM", "disk"])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_restored_and_continues_exactly(tmp_path, monkeypatch, kind, disk):
    monkeypatch.setattr(checkpoint_module, "CHUNK_BYTES", 500)  # several chunks, with steps older than the ring buffer
    allocate = on_disk(tmp_path) if disk else in_ram
    memory, again = (KINDS[kind](spec_of_stacks(), 40, 2, allocate=allocate) for _ in range(2))
    full_stacks, game = KINDS[kind](spec_of_stacks().unstacked(), 40, 2), Game(2)
    manager = CheckpointManager(tmp_path / "checkpoints", tf.Module(), memory, {})
    for step in (7, 19, 50):
        advance(game, step, memory, full_stacks)
        manager.save(memory.total_rows, {})
    assert max(path.stat().st_size for path in manager.chunks.iterdir()) < 1500
    CheckpointManager(tmp_path / "checkpoints", tf.Module(), again, {}).restore()
    for steps in (0, 1, 2, 3, 40):
        advance(game, steps, memory, full_stacks, again)
        expected = sampled(full_stacks, steps)
        check_equal(expected, sampled(memory, steps))
        check_equal(expected, sampled(again, steps))


def newest(memory):
    return memory.between(memory.oldest_row, memory.total_rows)


@pytest.mark.parametrize("before, after", [(2, 1), (2, 4)])
@pytest.mark.parametrize("kind", ["n steps", "prioritised", "sequences", "episodes"])
def test_resharding_keeps_frames(kind, before, after):
    new = []
    for spec in (spec_of_stacks(), spec_of_stacks().unstacked()):
        old = [KINDS[kind](spec, 40 // before, 4 // before) for _ in range(before)]
        for i, memory in enumerate(old):
            advance(Game(4 // before, seed=i), 33, memory)
        new.append([KINDS[kind](spec, 40 // after, 4 // after) for _ in range(after)])
        for i, memory in enumerate(new[-1]):
            # A chunk may start with steps that are no longer in the ring buffer.
            rows = []
            for j, each in enumerate(old):
                lost = 0 if kind == "episodes" else j
                stored = np.concatenate((np.zeros_like(each.ring[:lost]), newest(each)))
                rows.append([(each.oldest_row - lost, stored)])
            reshard(memory, i, rows, [each.state() for each in old], [each.total_rows for each in old], after)
            memory.end_episodes()
    for ours, theirs in zip(*new, strict=True):
        game = Game(4 // after, seed=9)
        for steps in (0, 1, 3, 20):
            advance(game, steps, ours, theirs)
            check_equal(sampled(ours, steps), sampled(theirs, steps))


def test_frame_stack_space_marks_stacked_observations():
    env = make("ALE/Pong-v5", atari=AtariPreprocessingParameters(num_stacked_frames=3))
    assert env.observation_space == FrameStack(84, 84, 3)
    darker = gym.spaces.Box(0, 127, (84, 84, 3), np.uint8)
    wrapped = gym.wrappers.TransformObservation(env, lambda stack: stack // 2, darker)
    assert not spec_of(wrapped).observation["observation"].stacked
    env.close()


@pytest.mark.parametrize(
    "stacks, fits",
    [
        ([(7, 7, 7), (7, 7, 8), (7, 8, 9)], True),
        ([(6, 7, 7)], False),  # the first stack has different frames
        ([(7, 7, 7), (8, 9, 9)], False),  # shifts by two frames
        ([(7, 7, 7), (8, 7, 7)], False),  # newest frame first
    ],
)
def test_stack_that_does_not_shift_by_one_frame_is_rejected(stacks, fits):
    env, observations = gym.Env(), iter([np.broadcast_to(np.uint8(stack), (4, 4, 3)) for stack in stacks])
    env.observation_space, env.action_space = FrameStack(4, 4, 3), gym.spaces.Box(-1, 1, (1,), np.float32)
    env.reset = lambda **_: (next(observations), {})
    env.step = lambda _: (next(observations), 0.0, False, False, {})
    with contextlib.nullcontext() if fits else pytest.raises(EnvironmentFailure, match="FrameStack"):
        environments = Environments(EnvironmentParameters(), 0, lambda: env)
        for _ in stacks[1:]:
            environments.step(np.zeros((1, 1), np.float32))
