"""Divides a run among the workers in TF_CONFIG, or among actors.

It loads no TensorFlow, so that mistakes are found earlier.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping

from tfsac.errors import TfsacError
from tfsac.parameters import (
    EnvironmentParameters,
    EpisodicReplayParameters,
    ParameterError,
    Preset,
    RunParameters,
    override,
)

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'


@dataclasses.dataclass(frozen=True)
class WorkerTask:
    """This process among the workers of a run. The first worker is the chief, the only one that writes files.

    Attributes:
        index: index of this worker, from 0.
        num_workers: number of workers of the run.
        addresses: HOST:PORT of every worker; empty for a single worker.
    """

    index: int = 0
    num_workers: int = 1
    addresses: tuple[str, ...] = ()

    @property
    def is_chief(self) -> bool:
        """Whether this is the first worker."""
        return self.index == 0


def worker_task(run: RunParameters, environ: Mapping[str, str] = os.environ) -> WorkerTask:
    """Returns the task of this process: that of the only worker, unless the strategy is "multi_worker". Raises
    TfsacError if that strategy's TF_CONFIG is missing or malformed.
    """
    if run.strategy != "multi_worker":
        return WorkerTask()
    try:
        config = json.loads(environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        names = [(kind, index) for kind in ("chief", "worker") for index in range(len(cluster.get(kind, ())))]
        addresses = tuple(str(address) for kind in ("chief", "worker") for address in cluster.get(kind, ()))
        index = names.index((task["type"], task["index"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = environ.get("TF_CONFIG", "")
        raise TfsacError(f"TF_CONFIG must name this worker and all workers, such as {EXAMPLE}, got {text!r}") from error
    return WorkerTask(index, len(names), addresses)


def check_vectorization(preset: Preset, run: RunParameters) -> None:
    """Raises ParameterError for a step timeout without subprocesses (only their steps can be interrupted); for
    evaluations in the training environment unless this process has a single one; and for a `VectorEnv` that several
    processes would have to share.
    """
    environment = preset.environment
    if environment.vectorization == "vector" and (run.ray_address is not None or run.strategy == "multi_worker"):
        raise ParameterError("a VectorEnv steps in one process, without ray_address and strategy='multi_worker'")
    single = environment.num_envs == 1 and environment.vectorization == "sync" and run.ray_address is None
    if environment.evaluation == "shared" and not single:
        needs = 'num_envs=1, vectorization="sync" and no ray_address'
        raise ParameterError(f'environment.evaluation="shared" needs one environment in this process: {needs}')
    if environment.step_timeout_seconds is not None and environment.vectorization != "subprocess":
        raise ParameterError('environment.step_timeout_seconds needs environment.vectorization="subprocess"')


def preset_of_worker(preset: Preset, task: WorkerTask) -> Preset:
    """Returns the preset of one worker: the run's `num_envs`, memory size and batch size, divided among the workers.

    The agent is built from the preset of the run, because it averages over the global batch. Raises ParameterError if
    `num_envs` or the batch size is not divisible by the number of workers.
    """
    if task.num_workers == 1:
        return preset
    num_envs, batch_size, max_size = preset.environment.num_envs, preset.agent.batch_size, preset.agent.memory.max_size
    for name, value in (("environment.num_envs", num_envs), ("batch_size", batch_size)):
        if value % task.num_workers:
            raise ParameterError(f"{name} must be divisible by the {task.num_workers} workers, got {value}")
    changes = {
        "environment.num_envs": num_envs // task.num_workers,
        "agent.memory.max_size": max_size // task.num_workers,
        "agent.networks.*.batch_size": batch_size // task.num_workers,
    }
    if isinstance(preset.agent.memory, EpisodicReplayParameters):
        changes["agent.memory.replay_start_size"] = preset.agent.memory.replay_start_size // task.num_workers
    return override(preset, changes)


def environment_of_actor(preset: Preset, run: RunParameters) -> EnvironmentParameters:
    """Returns the environment parameters of one actor: the run's `num_envs`, divided exactly by `num_actors`."""
    num_envs = preset.environment.num_envs
    if num_envs % run.num_actors:
        raise ParameterError(f"environment.num_envs must be divisible by num_actors={run.num_actors}, got {num_envs}")
    return dataclasses.replace(preset.environment, num_envs=num_envs // run.num_actors)
