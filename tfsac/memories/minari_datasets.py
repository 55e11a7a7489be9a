"""Minari datasets of this machine, read as demonstrations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tfsac.errors import TfsacError
from tfsac.memories.transitions import NEXT
from tfsac.types import ACTION_MASK, OBSERVATION


def read_minari(dataset_id: str, num_episodes: int | None = None) -> tuple[dict[str, np.ndarray], str, np.ndarray]:
    """Reads a dataset that `minari download` fetched, or that was recorded here.

    Args:
        dataset_id: such as "mujoco/halfcheetah/expert-v0".
        num_episodes: how many to read at most, the first ones; None for all.

    Returns:
        fields `[K, ...]` by their names in `TransitionMemory.ring`, with raw actions of the environment; its id, ""
        where the dataset names none; the undiscounted return of each episode, `[E]`. Episodes that were left off are
        truncated.

    Raises:
        FileNotFoundError: no such dataset on this machine.
        TfsacError: it is empty, or Minari is not installed.
    """
    try:
        import minari
    except ImportError as error:
        raise TfsacError("Minari datasets need: pip install 'tfsac[minari]'") from error
    local = minari.list_local_datasets()
    if dataset_id not in local:
        raise FileNotFoundError(f"Minari datasets on this machine are {', '.join(local) or 'none'}, got {dataset_id}")
    dataset = minari.load_dataset(dataset_id)
    episodes = [_steps(episode) for episode in itertools.islice(dataset.iterate_episodes(), num_episodes)]
    if not episodes:
        raise TfsacError(f"The Minari dataset {dataset_id} has no episodes")
    fields = {name: np.concatenate([steps[name] for steps in episodes]) for name in episodes[0]}
    level = dataset.env_spec.id if dataset.env_spec else ""
    return fields, level, np.array([steps["reward"].sum() for steps in episodes])


def _steps(episode: Any) -> dict[str, np.ndarray]:
    seen, terminated, truncated = episode.observations, episode.terminations, np.array(episode.truncations)
    truncated[-1:] |= ~terminated[-1:]
    steps = {"action": episode.actions, "reward": episode.rewards, "terminated": terminated, "truncated": truncated}
    for key, array in (seen if isinstance(seen, dict) else {"observation": seen}).items():
        if key == ACTION_MASK:  # a MultiBinary space keeps integers
            array = np.asarray(array) != 0
        steps |= {OBSERVATION + key: array[:-1], NEXT + key: array[1:]}
    return steps
