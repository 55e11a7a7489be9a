"""A ring of transitions, sampled uniformly."""

from __future__ import annotations

import numpy as np

from tfsac.types import Spec, Transition

OBSERVATION, NEXT, EXTRA = "observation/", "next_observation/", "extra/"


class TransitionMemory:
    """The newest `capacity` transitions of N environments, in a ring `[capacity // N, N]` of records.

    A record keeps all fields of a transition side by side, so that sampling any number of batches is one gather of
    whole records. Rewards and observations are raw; actions are in [-1, 1].

    Args:
        spec: fields and their shapes.
        capacity: number of transitions, over all environments.
        num_envs: number of environments that fill it.
        discount: gamma; the discount of a sampled transition is gamma * (1 - terminated).

    Attributes:
        total_rows: rows (one step of all environments) ever added.

    Raises:
        ValueError: a capacity below one row.
    """

    def __init__(self, spec: Spec, capacity: int, num_envs: int = 1, discount: float = 0.99):
        self.rows = capacity // num_envs
        if self.rows < 1:
            raise ValueError(f"The capacity must hold a step of every environment. Received: {capacity} for {num_envs}")
        self.discount, self.num_envs, self.total_rows = discount, num_envs, 0
        fields = [(OBSERVATION + key, array.dtype, array.shape) for key, array in spec.observation.items()]
        fields += [("action", "float32", spec.action.shape), ("reward", "float32", ())]
        fields += [("terminated", "bool", ()), ("truncated", "bool", ())]
        fields += [(NEXT + key, array.dtype, array.shape) for key, array in spec.observation.items()]
        fields += [(EXTRA + key, array.dtype, array.shape) for key, array in spec.extras.items()]
        # Zeroed memory is taken from the operating system page by page as it fills.
        self.ring = np.zeros((self.rows, num_envs), np.dtype(fields))

    def __len__(self) -> int:
        return min(self.total_rows, self.rows) * self.num_envs

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
        """Stores one step of all environments; arrays `[N, ...]`.

        Args:
            next_observation: at the end of an episode its last observation, not the first of the next.
        """
        row = self.ring[self.total_rows % self.rows]
        for key, value in observation.items():
            row[OBSERVATION + key] = value
            row[NEXT + key] = next_observation[key]
        row["action"], row["reward"] = action, reward
        row["terminated"], row["truncated"] = terminated, truncated
        for key, value in (extras or {}).items():
            row[EXTRA + key] = value
        self.total_rows += 1

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition:
        """Returns `num_updates` batches `[U, B, ...]`, uniform with replacement.

        Raises:
            ValueError: the memory is empty.
        """
        if not len(self):
            raise ValueError(f"Sampling needs at least one transition. Received: {len(self)} in memory")
        records = self.ring.reshape(-1).take(rng.integers(len(self), size=(num_updates, batch_size)))
        return self.transitions(records)

    def transitions(self, records: np.ndarray) -> Transition:
        """Returns records of the ring as a Transition of views, with the discount made from `terminated`."""
        names = records.dtype.names or ()
        part = {
            prefix: {name.removeprefix(prefix): records[name] for name in names if name.startswith(prefix)}
            for prefix in (OBSERVATION, NEXT, EXTRA)
        }
        return Transition(
            observation=part[OBSERVATION],
            action=records["action"],
            reward=records["reward"],
            discount=np.float32(self.discount) * ~records["terminated"],
            next_observation=part[NEXT],
            extras=part[EXTRA],
        )

    def newest(self, num_rows: int) -> np.ndarray | None:
        """Returns copies of the last rows `[num_rows, N]`, oldest first, or None where they are not all kept."""
        if num_rows > min(self.total_rows, self.rows):
            return None
        return self.between(self.total_rows - num_rows, self.total_rows)

    def between(self, start: int, stop: int) -> np.ndarray:
        """Returns copies of the rows with absolute indices start to stop - 1.

        Raises:
            ValueError: some of them are not kept any more, or not there yet.
        """
        oldest = max(self.total_rows - self.rows, 0)
        if not oldest <= start <= stop <= self.total_rows:
            raise ValueError(f"Rows {oldest} to {self.total_rows} are kept. Received: {start} to {stop}")
        return self.ring.take(np.arange(start, stop) % self.rows, axis=0)

    def end_episodes(self) -> None:
        """Marks the newest row as the end of its episodes: what follows does not continue them."""
        if self.total_rows:
            row = self.ring[(self.total_rows - 1) % self.rows]
            row["truncated"] |= ~row["terminated"]

    def put(self, start: int, rows: np.ndarray) -> None:
        """Writes rows back at their absolute indices, as a checkpoint does.

        Raises:
            ValueError: rows of another layout.
        """
        if rows.dtype != self.ring.dtype or rows.shape[1:] != self.ring.shape[1:]:
            raise ValueError(f"Rows of a memory have the layout {self.ring.dtype} x {self.num_envs}. Received: {rows.dtype} x {rows.shape[1:]}")
        self.ring[np.arange(start, start + len(rows)) % self.rows] = rows
