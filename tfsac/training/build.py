"""Build the agent, policy and memory of a preset."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfsac.agents import Agent
from tfsac.device_memory import DeviceMemory
from tfsac.environments import EnvFn, Filters, GoalFunctions, action_map, name_of_environment
from tfsac.environments.spaces import spaces_by_key
from tfsac.errors import TfsacError
from tfsac.memories import MINARI, Allocate, EpisodicMemory, MemoryContext, TransitionMemory
from tfsac.networks import ModelMaker
from tfsac.parameters import (
    BY_ENV_FN,
    DemonstratedReplayParameters,
    EpisodicReplayParameters,
    HindsightExperienceReplayParameters,
    ParameterError,
    Preset,
    PresetValidationParameters,
    RunParameters,
    SequenceReplayParameters,
    class_of,
    networks_made_by,
    override,
)
from tfsac.parameters.networks import FEATURES, OBSERVATION_KEY
from tfsac.policies import BasePolicy
from tfsac.types import ACHIEVED_GOAL, ACTION_MASK, DESIRED_GOAL, ArraySpec, Spec


def build_agent(preset: Preset, run: RunParameters, spec: Spec, models: ModelMaker | None = None) -> Agent:
    """Returns the agent of a preset, with fresh weights.

    `models` creates Keras models that replace the preset's layers. ACER does not support it.
    """
    refuse_missing_models(preset, models)
    rates = preset.agent.learning_rates.items()
    decaying = [path for path, rate in rates if rate.learning_rate_decay_steps == "run"]
    counted = {f"agent.{path}.learning_rate_decay_steps": preset.updates for path in decaying}
    parameters = override(preset, counted).agent
    agent = class_of(parameters, Agent)(parameters, spec, run.seed, run.eager, models, run.jit_compile)
    agent.compiled.updates_between_diagnostics = run.updates_between_diagnostics
    return agent


def build_policy(
    preset: Preset, run: RunParameters, spec: Spec, models: ModelMaker | None = None, collecting: bool = False
) -> BasePolicy:
    """Returns the policy of the agent from `build_agent`, without the critics. Set `collecting` if the policy collects
    experience.
    """
    refuse_missing_models(preset, models)
    return class_of(preset.agent, Agent).policy_class.build(preset.agent, spec, run.seed, models, collecting)


def refuse_missing_models(preset: Preset, models: ModelMaker | None) -> None:
    """Raises ParameterError if the preset's networks need a function that creates them and it is missing."""
    made_by = next((network.made_by for network in preset.agent.networks.values() if network.made_by), None)
    if models is None and made_by:
        raise ParameterError(
            f"the networks were made by {made_by}, a Python function that is not saved: pass models=... again, or use "
            "the exported policy (tfsac.test_policy)"
        )


def build_memory(
    preset: Preset,
    spec: Spec,
    filters: Filters,
    recurrent: Mapping[str, ArraySpec] | None = None,
    allocate: Allocate = np.zeros,
    older_policies: bool = False,
    autoreset: bool = False,
    goals: GoalFunctions | None = None,
) -> TransitionMemory | EpisodicMemory:
    """Returns the memory of a preset, which filters the rewards that it samples. The other arguments are those of
    `MemoryContext`.
    """
    memory = preset.agent.memory
    if autoreset and isinstance(memory, EpisodicReplayParameters | SequenceReplayParameters):
        instead = "AutoresetMode.SAME_STEP or DISABLED"
        raise ParameterError(
            f"agent.memory of kind {memory.kind!r} needs a VectorEnv with {instead} in metadata['autoreset_mode'], or "
            'environment.vectorization="sync", got AutoresetMode.NEXT_STEP'
        )
    base: Any = EpisodicMemory if isinstance(memory, EpisodicReplayParameters) else TransitionMemory
    inverse = action_map(spec).inverse
    context = MemoryContext(spec, filters.reward, inverse, recurrent, allocate, older_policies, autoreset, goals)
    try:
        return class_of(memory, base).build(preset, context)
    except MemoryError as error:
        raise ParameterError(
            f"agent.memory.max_size={memory.max_size} does not fit into RAM ({error}): "
            "set a smaller one or memory_on_disk"
        ) from error


def build_device_memory(
    memory: TransitionMemory | EpisodicMemory, preset: Preset, filters: Filters, agent: Agent, seed: int
) -> DeviceMemory | None:
    """Returns the memory copy on the accelerator if `agent.memory.device` selects it, and makes it the agent's source
    of batches; None if batches are drawn in RAM. The agent must not be traced yet.
    """
    choice = getattr(preset.agent.memory, "device", "cpu")
    if choice == "cpu" or (choice == "auto" and not tf.config.get_visible_devices("GPU")):
        return None
    try:
        if agent.replicas > 1:
            raise TfsacError('agent.memory.device="accelerator" works on one device, not with a strategy of several')
        device_memory = DeviceMemory(memory, filters, agent.spec, agent.batch_size, agent.updates, seed)
    except TfsacError:
        if choice == "auto":
            return None
        raise
    agent.compiled.source = device_memory
    return device_memory


def resolve_preset(preset: Preset, env: gym.Env, env_fn: EnvFn | None, models: ModelMaker | None) -> Preset:
    """Returns the preset as recorded in a run's config, with absolute paths and the names of user functions.

    For an environment from `env_fn`, this drops the level's own arguments and preprocessing, and the threshold if the
    environment's name differs.
    """
    environment, agent, validation = preset.environment, preset.agent, preset.validation
    if env_fn is not None:
        name = name_of_environment(env)
        if environment.level.rpartition(":")[-1] != name:
            validation = PresetValidationParameters()
        environment = dataclasses.replace(environment, level=BY_ENV_FN + name, kwargs={}, atari=None)
    if models is not None and not any(network.made_by for network in agent.networks.values()):
        agent = dataclasses.replace(agent, networks=networks_made_by("models", agent.networks))
    resolved = dataclasses.replace(preset, environment=environment, agent=agent, validation=validation)
    memory = agent.memory
    if isinstance(memory, HindsightExperienceReplayParameters):
        resolved = _with_goals(resolved, [*spaces_by_key(env.observation_space)])
    if isinstance(memory, DemonstratedReplayParameters) and not memory.demonstrations.startswith(MINARI):
        path = pathlib.Path(memory.demonstrations).expanduser().absolute()
        resolved = override(resolved, {"agent.memory.demonstrations": str(path)})
    return resolved


def _with_goals(preset: Preset, keys: Sequence[str]) -> Preset:
    """Returns a preset in which networks that read only "observation" read all keys except the achieved goal."""
    changes, read = dict[str, Any](), [key for key in keys if key not in (ACHIEVED_GOAL, ACTION_MASK)]
    for name, network in preset.agent.networks.items():
        given = network.observation_keys or network.input_embedders_parameters
        if [*given] == [OBSERVATION_KEY] and network.observation_keys is None:
            changes[f"agent.networks.{name}.observation_keys"] = read
        elif not network.made_by and DESIRED_GOAL not in given and FEATURES not in given:
            raise ParameterError(
                f"hindsight replay needs networks that read {DESIRED_GOAL!r}, {name!r} reads {[*given]}"
            )
    return override(preset, changes)
