"""The workers of a run, as TF_CONFIG lists them, and its actors. No TensorFlow, so that mistakes are found before it loads.

    TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from tfsac.parameters import (
    EnvironmentParameters,
    EpisodicReplayParameters,
    ParameterError,
    Preset,
    RunParameters,
    override,
)

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'


class Place(NamedTuple):
    """Which of how many workers this process is, and where all of them listen; the first one, the chief, alone writes."""

    worker: int = 0
    workers: int = 1
    addresses: tuple[str, ...] = ()

    @property
    def chief(self) -> bool:
        """Whether this is the first worker."""
        return self.worker == 0


def place_of(run: RunParameters, environ: Mapping[str, str] = os.environ) -> Place:
    """Returns this process's place among the workers: the only one, unless the strategy is of several.

    Raises:
        ParameterError: TF_CONFIG is missing, malformed, or names no place for this process.
    """
    if run.strategy != "multi_worker":
        return Place()
    text = environ.get("TF_CONFIG", "")
    if not text:
        raise ParameterError(f"Every worker needs TF_CONFIG, such as {EXAMPLE}. Received: no TF_CONFIG")
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        names = [(kind, index) for kind in ("chief", "worker") for index in range(len(cluster.get(kind, ())))]
        addresses = [address for kind in ("chief", "worker") for address in cluster.get(kind, ())]
        place = (task["type"], int(task["index"]))
        if isinstance(task["index"], float):
            raise ValueError("index is a whole number")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParameterError(f"TF_CONFIG is JSON like {EXAMPLE} ({type(error).__name__}: {error}). Received: {text!r}") from error
    for kind in cluster.keys() - {"chief", "worker"}:
        raise ParameterError(f"The cluster of TF_CONFIG has workers, and a chief if one is named. Received: {kind!r}")
    wrong = [address for address in addresses if not _is_address(address)]
    if wrong or len(set(addresses)) < len(addresses) or not addresses:
        raise ParameterError(f"Each worker of TF_CONFIG has an address HOST:PORT of its own. Received: {addresses}")
    if place not in names:
        raise ParameterError(f"The task of TF_CONFIG is one of its cluster's {len(names)} workers. Received: {task}")
    return Place(names.index(place), len(names), tuple(addresses))


def _is_address(address: object) -> bool:
    host, _, port = str(address).rpartition(":")
    return isinstance(address, str) and bool(host) and port.isdigit() and 0 < int(port) < 2**16


def refuse_timeout_in_this_process(preset: Preset, run: RunParameters) -> None:
    """Refuses a timeout of environments that this process steps itself.

    Raises:
        ParameterError: nothing could end a step that takes too long.
    """
    environment = preset.environment
    if environment.step_timeout_seconds is not None and environment.vectorization == "sync" and run.ray_address is None:
        raise ParameterError(
            "environment.step_timeout_seconds needs environments in other processes, which can be ended: set environment.vectorization "
            f'to "subprocess". Received: {environment.step_timeout_seconds:g} with vectorization "sync"'
        )


def share_of(preset: Preset, place: Place) -> Preset:
    """Returns a worker's share of an experiment: its part of the environments, of the memory and of each batch.

    The agent is made from the whole experiment, and divides the batch itself.

    Raises:
        ParameterError: the environments, or the batch, cannot be divided among the workers.
    """
    if place.workers == 1:
        return preset
    num_envs, batch_size, max_size = preset.environment.num_envs, preset.agent.batch_size, preset.agent.memory.max_size
    for name, value, advice in (
        ("environment.num_envs", num_envs, "--num_envs"),
        ("batch_size", batch_size, "--set=agent.networks.*.batch_size"),
    ):
        if value % place.workers:
            raise ParameterError(
                f"{name} must divide by the number of workers, {place.workers}, among which the run is shared; see {advice}. "
                f"Received: {value}"
            )
    shares = {
        "environment.num_envs": num_envs // place.workers,
        "agent.memory.max_size": max_size // place.workers,
        "agent.networks.*.batch_size": batch_size // place.workers,
    }
    if isinstance(preset.agent.memory, EpisodicReplayParameters):
        shares["agent.memory.replay_start_size"] = preset.agent.memory.replay_start_size // place.workers
    return override(preset, shares)


def share_of_actor(preset: Preset, run: RunParameters) -> EnvironmentParameters:
    """Returns the part of a run's environments that each of its actors has.

    Raises:
        ParameterError: they cannot be divided among the actors.
    """
    num_envs = preset.environment.num_envs
    if num_envs % run.num_actors:
        raise ParameterError(
            f"environment.num_envs must divide by the number of actors, {run.num_actors}; see --num_envs. Received: {num_envs}"
        )
    return dataclasses.replace(preset.environment, num_envs=num_envs // run.num_actors)
