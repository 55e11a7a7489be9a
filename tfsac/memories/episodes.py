"""Complete episodes, replayed as segments, and the newest steps of all environments as a rollout."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from tfsac.errors import TfsacError
from tfsac.memories.frames import EpisodeFrames, observation_fields, recorded_observations, without_frames
from tfsac.memories.storage import Allocate, Ring
from tfsac.memories.transitions import EXTRA, MemoryContext
from tfsac.parameters import Preset
from tfsac.types import OBSERVATION, STATE, ArraySpec, Segments, Spec


class EpisodicMemory(Ring):
    """The newest finished episodes of E environments, the running ones, and the current rollout.

    A finished episode of L steps is L + 1 records of a ring, the last of which has only the observation after the last
    step. Running episodes and the rollout lie in one growing buffer, the tape `[n, E]`; its row after the newest step
    holds the observations after it. Stored rewards and observations are raw.

    Args:
        spec: fields and their shapes; one reward per step.
        capacity: number of steps of all finished episodes. The oldest are evicted. An episode with more steps keeps
            its newest ones, of which the first k - 1 only complete stacks of k frames. The ring has extra room for the
            last observations of 1000 episodes, or for one every 8 steps; with shorter episodes it holds fewer steps.
        t_max: T, maximum number of steps of a rollout and of a replayed segment.
        num_envs: E.
        replay_start_size: number of steps of finished episodes needed for sampling.
        reward_filter: maps raw rewards, any shape, to those that the agent learns from.
        initial_state: specs of the recurrent networks' state, by field; `add` gets the state before each step.
        allocate: makes the ring, in RAM or with `on_disk`; the tape is always in RAM.
        stale_rollouts: whether the policy that learns from a rollout may differ from the one that collected it.
            Rollouts are then not marked as on-policy, so that importance weights come from the stored distributions.

    Attributes:
        total_rows: records of finished episodes ever stored; the absolute index of the next one.

    Raises:
        TfsacError: a capacity below `t_max`, `num_envs` or k.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        t_max: int,
        num_envs: int = 1,
        replay_start_size: int = 0,
        reward_filter: Callable[[np.ndarray], np.ndarray] | None = None,
        initial_state: Mapping[str, ArraySpec] | None = None,
        allocate: Allocate = np.zeros,
        stale_rollouts: bool = False,
    ):
        self.frames = {key: EpisodeFrames(key, array) for key, array in spec.observation.items() if array.stacked}
        self.num_earlier = max([frames.num_earlier for frames in self.frames.values()], default=0)
        if capacity < (minimum := max(t_max, num_envs, self.num_earlier + 1)):
            raise TfsacError(
                f"agent.memory.max_size must be at least {minimum}, for a segment of t_max={t_max} steps, a step of "
                f"each of {num_envs} environments and a stack of frames, got {capacity}"
            )
        self.capacity, self.t_max, self.num_envs, self.replay_start_size = capacity, t_max, num_envs, replay_start_size
        self.reward_filter, self.stale_rollouts = reward_filter or np.asarray, stale_rollouts
        self.extras = list(spec.extras)
        actions = [(name, array.dtype, array.shape) for name, array in spec.action_fields.items()]
        fields = [*observation_fields(spec), *actions]
        fields += [("reward", "float32", ()), ("terminated", "bool", ())]
        self.dtype = np.dtype(fields + [(EXTRA + key, array.dtype, array.shape) for key, array in spec.extras.items()])
        fields_of_state = (initial_state or {}).items()
        self.initial_state = {name: np.zeros((num_envs, *x.shape), x.dtype) for name, x in fields_of_state}
        self.ring = allocate((capacity + min(capacity, max(capacity // 8, 1000)),), self.dtype)  # by absolute index
        self.episodes: deque[tuple[int, int]] = deque()  # absolute index of the first record, and L; oldest first
        self.num_steps, self.total_rows = 0, 0  # steps of these episodes, records ever stored
        self.cut = False  # whether the only stored episode lacks its first steps
        self.size = 0  # steps on the tape per environment
        self.tape = np.zeros((t_max + 2, num_envs), self.dtype)
        self.begin = np.zeros(num_envs, np.int64)  # where each running episode started; below zero if dropped
        self.rollout_begin, self.rollout_first = 0, np.ones(num_envs, bool)  # where, and whether episodes started there

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`."""
        agent: Any = preset.agent
        memory, num_envs = agent.memory, preset.environment.num_envs
        sizes = memory.max_size, agent.algorithm.t_max, num_envs, memory.replay_start_size
        # Statistics that move between an action and the update change the policy too.
        stale = context.older_policies or preset.environment.filters.observation_normalization
        options = context.reward_filter, context.recurrent_state, context.allocate, stale
        return cls(context.spec, *sizes, *options, **more)

    def __len__(self) -> int:
        return self.num_steps

    @property
    def ready(self) -> bool:
        """Whether finished episodes may be sampled: once `replay_start_size` steps were stored, even if evicted."""
        return self.num_steps >= max(self.replay_start_size, 1) or self.oldest_row > 0

    @property
    def rollout_complete(self) -> bool:
        """Whether the rollout is complete: it has `t_max` steps, or its newest one was truncated."""
        steps, newest = self.size - self.rollout_begin, self.tape[self.size - 1]
        # A batch entry has room for one observation to bootstrap from.
        return steps == self.t_max or bool(steps and ((self.begin == self.size) & ~newest["terminated"]).any())

    # -- storing -------------------------------------------------------------------------------------------------------

    def add(
        self,
        observation: dict[str, np.ndarray],
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_observation: dict[str, np.ndarray],
        extras: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Stores one step of all environments; arrays `[E, ...]`.

        Args:
            next_observation: at the end of an episode its last observation, not the first of the next.
            extras: those of the spec, and "state/<field>" for each field of `initial_state`: the state before the step.
        """
        extras = extras or {}
        if self.size + 2 > len(self.tape):
            self._make_room()
        if self.size == self.rollout_begin:
            self.rollout_first = self.begin == self.size
            self.initial_state = {
                name: np.array(extras[STATE + name], array.dtype) for name, array in self.initial_state.items()
            }
        row, after = self.tape[self.size], self.tape[self.size + 1]
        for key, value in observation.items():
            if key in self.frames:
                self.frames[key].store(row, after, value, next_observation[key], self.size - self.begin)
            else:
                row[OBSERVATION + key], after[OBSERVATION + key] = value, next_observation[key]
        row["action"], row["reward"], row["terminated"] = action, reward, terminated
        for name in self.extras:
            row[EXTRA + name] = extras[name]
        self.size += 1
        for env in np.flatnonzero(terminated | truncated).tolist():
            self._finish(env)

    def _first_needed(self) -> int:
        """Returns the first row of the tape that the rollout or the stored part of a running episode needs."""
        first = min(self.rollout_begin, max(int(self.begin.min()), self.size - self.capacity))
        return max(first - self.num_earlier, 0)

    def _make_room(self) -> None:
        """Makes a new tape twice as long as its needed rows, so that each row is copied about once."""
        first = self._first_needed()
        needed = self.tape[first : self.size]
        self.tape = np.zeros((2 * len(needed) + self.t_max + 2, self.num_envs), self.dtype)
        self.tape[: len(needed)] = needed
        self.size, self.rollout_begin = len(needed), self.rollout_begin - first
        self.begin -= first

    def _finish(self, env: int) -> None:
        """Moves the running episode of an environment to the finished ones, of which the oldest are evicted."""
        start = max(self.begin[env], self.size - self.capacity)
        episode = self.tape[start : self.size + 1, env]
        self.cut = bool(start > self.begin[env])
        self.begin[env] = self.size
        self.append(episode)

    def append(self, episode: np.ndarray) -> None:
        """Stores the L + 1 records of a finished episode, whose L steps fit the capacity."""
        self.put(self.total_rows, episode)
        self.episodes.append((self.total_rows, len(episode) - 1))
        self.total_rows += len(episode)
        self.num_steps += len(episode) - 1
        self._forget()

    def _forget(self) -> None:
        """Evicts the oldest episodes that exceed the capacity, or are partly overwritten."""
        while self.num_steps > self.capacity or self.total_rows - self.oldest_row > len(self.ring):
            self.num_steps -= self.episodes.popleft()[1]

    def end_episodes(self) -> None:
        """Finishes the running episodes, as if truncated after their newest steps, and drops the rollout."""
        for env in np.flatnonzero(self.begin < self.size).tolist():
            self._finish(env)
        self.rollout_begin = self.size

    def newest_steps(self, num_rows: int) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
        """Returns the running episode's last steps, oldest first: actions `[num_rows, ...]`, observations by key.

        None if they are not all stored, or with several environments, whose running episodes differ in length.
        """
        if self.num_envs > 1 or num_rows > min(self.size - self.begin[0], self.capacity):
            return None
        steps = self.tape[self.size - num_rows : self.size, 0].copy()
        return steps["action"], recorded_observations(steps)

    # -- segments ------------------------------------------------------------------------------------------------------

    def batches(self, replays: int, batch_size: int, rng: np.random.Generator, online: bool = True) -> Segments | None:
        """Returns the batches `[U, T, B, ...]` to learn from after a rollout, and ends it; the next step starts
        another.

        Each replayed one is a segment of a finished episode, chosen uniformly with replacement, whatever its length: T
        consecutive steps from a uniform start, or the whole episode if it is shorter.

        Args:
            replays, rng: number of replayed batches, made once the memory is ready, and the generator that draws them.
            batch_size: B, at least E: the first E of the rollout are the environments, the others are empty.
            online: whether the rollout is the first batch.

        Returns:
            None if there is nothing to learn from.
        """
        online = online and self.size > self.rollout_begin
        replayed_segments = self._draw(replays * batch_size, rng) if replays and self.ready else []
        segments = self._stack(online, replayed_segments, batch_size) if online or replayed_segments else None
        self.rollout_begin = self.size
        return segments

    def _draw(self, count: int, rng: np.random.Generator) -> list[tuple[int, int, bool]]:
        """Returns segments of episodes: absolute index of the first record, number of steps, whether the episode
        starts there.
        """
        lead = self.num_earlier * self.cut  # the first steps of such an episode only give their frames to the next ones
        chosen = (self.episodes[i] for i in rng.integers(len(self.episodes), size=count))
        episodes = [(start + lead, steps - lead) for start, steps in chosen]
        skipped = rng.integers([max(steps - self.t_max, 0) + 1 for _, steps in episodes]).tolist()
        segments = zip(episodes, skipped, strict=True)
        return [(start + n, min(self.t_max, steps), n == 0 and not self.cut) for (start, steps), n in segments]

    def _stack(self, online: bool, replayed_segments: list[tuple[int, int, bool]], batch_size: int) -> Segments:
        """Returns a batch of the rollout if `online`, and batches of the given segments."""
        envs, initial = np.arange(batch_size), self.initial_state.items()
        segments = np.array(replayed_segments, np.int64).reshape(-1, batch_size, 3)
        start, steps, starts_episode = segments.transpose(2, 0, 1)
        if online:
            steps = np.concatenate((np.where(envs < self.num_envs, self.size - self.rollout_begin, 0)[None], steps))
        row = np.arange(self.t_max + 1)[:, None]
        step = np.minimum(row, steps[:, None])  # the observation after the last step is in row T
        exists = (row < steps[:, None]) | (row == self.t_max) & (steps[:, None] > 0)
        sources = [(self.ring, start[:, None] + step[online:], 1)]  # see `EpisodeFrames.segments`
        is_step = exists[:, :-1]
        length = np.where(is_step, steps[:, None], 0).astype(np.float32)
        begins = np.zeros_like(length)
        begins[online:, 0] = starts_episode
        state = {name: np.zeros((len(steps), batch_size, *array.shape[1:]), array.dtype) for name, array in initial}
        if online:
            rollout_part = slice(0, self.size - self.rollout_begin), slice(0, self.num_envs)
            first = np.append(self.rollout_first[None], self.tape["terminated"][self.rollout_begin : self.size - 1], 0)
            begins[0][rollout_part], length[0][rollout_part] = first, _lengths(first)
            index_on_tape = (self.rollout_begin + step[:1]) * self.num_envs + envs % self.num_envs
            sources.insert(0, (self.tape.reshape(-1), index_on_tape, self.num_envs))
            for name, array in initial:
                state[name][0, : self.num_envs] = array
        names = without_frames(self.dtype)
        records = np.concatenate([source[names][index % len(source)] for source, index, _ in sources])
        records[~exists] = 0
        rows, on_policy = records[:, :-1], is_step.astype(np.float32)
        on_policy[online and not self.stale_rollouts :] = 0
        observation = {name.removeprefix(OBSERVATION): records[name] for name in names if name.startswith(OBSERVATION)}
        observation |= {key: frames.segments(exists, sources) for key, frames in self.frames.items()}
        return Segments(
            observation=observation,
            action=rows["action"],
            reward=np.where(is_step, self.reward_filter(rows["reward"]), 0).astype(np.float32),
            nonterminal=(is_step & ~rows["terminated"]).astype(np.float32),
            is_first=begins,
            length=length,
            on_policy=on_policy,
            initial_state=state,
            extras={name: rows[EXTRA + name] for name in self.extras},
        )

    # -- records in and out --------------------------------------------------------------------------------------------

    @property
    def oldest_row(self) -> int:
        """Absolute index of the oldest stored record."""
        return self.total_rows - self.num_steps - len(self.episodes)

    def state(self) -> dict[str, np.ndarray]:
        """Returns what a checkpoint stores besides the records and `total_rows`; views, which must be written before
        the next step.

        Returns:
            `lengths` int64, steps of each finished episode, and `cut`; the needed rows of the `tape`, where on it each
            episode (`begin` `[E]`) and the rollout (`rollout_begin`) started, and whether episodes started with the
            rollout (`rollout_first` `[E]`); "state/<field>" `[E, ...]` of the rollout's initial state.
        """
        first = self._first_needed()
        return {
            "lengths": np.array([steps for _, steps in self.episodes], np.int64),
            "cut": np.array(self.cut),
            "tape": self.tape[first : self.size + 1],
            "begin": self.begin - first,
            "rollout_begin": np.array(self.rollout_begin - first),
            "rollout_first": self.rollout_first,
            **{STATE + name: value for name, value in self.initial_state.items()},
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores a result of `state`, after the records were restored and `total_rows` was set."""
        lengths = arrays["lengths"]
        oldest = self.total_rows - int((lengths + 1).sum())
        starts = oldest + np.cumsum(lengths + 1) - (lengths + 1)
        self.episodes = deque(zip(starts.tolist(), lengths.tolist(), strict=True))
        self.num_steps, self.cut = int(lengths.sum()), bool(arrays["cut"])
        self._forget()
        self.tape, self.size = arrays["tape"].copy(), len(arrays["tape"]) - 1
        self.begin, self.rollout_begin = arrays["begin"].copy(), int(arrays["rollout_begin"])
        self.rollout_first = arrays["rollout_first"]
        self.initial_state = {name: arrays[STATE + name] for name in self.initial_state}


def _lengths(first: np.ndarray) -> np.ndarray:
    """Returns the number of steps of each step's segment, given `[T, B]` in which True starts a new segment."""
    first = first.T.copy()
    first[:, 0] = True
    segment = np.cumsum(first)  # one after another, column by column
    return np.bincount(segment)[segment].reshape(first.shape).T
