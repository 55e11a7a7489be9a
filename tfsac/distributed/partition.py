"""Divides a run among its workers, or its environments among its actors. No TensorFlow."""

from __future__ import annotations

import dataclasses

from tfsac.distributed.tf_config import WorkerTask
from tfsac.parameters import (
    EnvironmentParameters,
    EpisodicReplayParameters,
    ParameterError,
    Preset,
    RunParameters,
    override,
)


def refuse_timeout_in_this_process(preset: Preset, run: RunParameters) -> None:
    """Raises ParameterError for a timeout of environments in this process, where nothing could end a step, and where
    there is no single environment for training and evaluation to share.
    """
    environment = preset.environment
    in_this_process = environment.vectorization == "sync" and run.ray_address is None
    if environment.evaluation == "shared" and not (in_this_process and environment.num_envs == 1):
        needs = 'num_envs=1, vectorization="sync" and no ray_address'
        raise ParameterError(f'environment.evaluation="shared" needs one environment in this process: {needs}')
    if environment.step_timeout_seconds is not None and in_this_process:
        raise ParameterError('environment.step_timeout_seconds needs environment.vectorization="subprocess"')


def preset_of_worker(preset: Preset, task: WorkerTask) -> Preset:
    """Returns the preset of one worker: `num_envs`, memory size and batch size of the run by the number of workers.

    The agent is made from the preset of the run, because it averages over the global batch. Raises ParameterError where
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
    """Returns the environment parameters of one actor: `num_envs` of the run, which must divide by `num_actors`."""
    num_envs = preset.environment.num_envs
    if num_envs % run.num_actors:
        raise ParameterError(f"environment.num_envs must be divisible by num_actors={run.num_actors}, got {num_envs}")
    return dataclasses.replace(preset.environment, num_envs=num_envs // run.num_actors)
