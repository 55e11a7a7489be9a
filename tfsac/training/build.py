"""From a preset to its agent and its memory."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.environments import Filters, action_map
from tfsac.memories import (
    MINARI,
    Allocate,
    EpisodicMemory,
    PrioritizedMemory,
    SequenceMemory,
    SQILMemory,
    TransitionMemory,
    load_demonstrations,
)
from tfsac.networks import ModelMaker
from tfsac.parameters import (
    DiscreteACERAgentParameters,
    GaussianACERAgentParameters,
    ParameterError,
    Preset,
    PrioritizedExperienceReplayParameters,
    RunParameters,
    SequenceReplayParameters,
    SQILExperienceReplayParameters,
    override,
)
from tfsac.policies import BasePolicy
from tfsac.types import ArraySpec, Spec
from tfsac.user_code import load


def build_agent(preset: Preset, run: RunParameters, spec: Spec, models: ModelMaker | None = None) -> Agent:
    """Returns the agent that a preset describes, with fresh weights.

    Args:
        preset: the experiment.
        run: its seed, and whether and how to compile.
        spec: what the agent observes and does.
        models: makes Keras models that take the place of the preset's layers; not for actor-critic with experience
            replay.

    Raises:
        ValueError: parameters that do not fit the spec, or networks that only a function can make.
        TypeError: models that are no Keras models.
    """
    refuse_missing_models(preset, models)
    return agent_class(preset)(preset.agent, spec, run.seed, run.eager, models, run.jit_compile)


def build_policy(
    preset: Preset, run: RunParameters, spec: Spec, models: ModelMaker | None = None, collecting: bool = False
) -> BasePolicy:
    """Returns the policy of the agent that a preset describes, with fresh weights and without the critics.

    Args:
        preset, run, spec, models: see `build_agent`.
        collecting: whether experience is collected with it.

    Raises:
        ValueError, TypeError: see `build_agent`.
    """
    refuse_missing_models(preset, models)
    return agent_class(preset).policy_class.build(preset.agent, spec, run.seed, models, collecting)


def agent_class(preset: Preset) -> type[Agent]:
    """Returns the class that a preset's agent parameters name, the package's or the user's.

    Raises:
        ImportError: there is no such module, or nothing of this name in it.
        ParameterError: what is there is no class of agents.
        UserCodeError: its module raised.
    """
    path = preset.agent.path
    found = load(path)
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise ParameterError(
            f"The path of {type(preset.agent).__name__} names a class below tfsac.agents.Agent, such as "
            f"'my_agent:MyAgent'. Received: {path!r}"
        )
    return found


def refuse_missing_models(preset: Preset, models: ModelMaker | None) -> None:
    """Refuses a preset whose networks only a function can make, without the function.

    Raises:
        ParameterError: it is one.
    """
    made_by = next((network.made_by for network in preset.agent.networks.values() if network.made_by), None)
    if models is None and made_by:
        raise ParameterError(
            "The networks of this run are custom Keras models, made by a Python function, which no file holds. In "
            "Python, pass the function again as models=...; tfsac.test_policy(run_dir) runs the policy that a finished "
            f"run exported, without it. Received: networks made by {made_by}, and no models"
        )


def build_memory(
    preset: Preset,
    spec: Spec,
    filters: Filters,
    recurrent: Mapping[str, ArraySpec] | None = None,
    allocate: Allocate = np.zeros,
    older_policies: bool = False,
) -> TransitionMemory | EpisodicMemory:
    """Returns the memory that a preset describes, with none of the agent's own transitions.

    The rewards that it samples have gone through the filters; those of a SQIL memory are its own.

    Args:
        preset: the experiment.
        spec: of the agent.
        filters: of the run.
        recurrent: specs of the states of the agent's LSTMs by field.
        allocate: makes the arrays of its records.
        older_policies: whether what is collected may come from a policy before the last updates.

    Raises:
        ParameterError: the records do not fit into RAM.
        ValueError, OSError, ImportError: demonstrations that cannot be read, or do not fit the environment.
        OSError: there is no room for the records.
    """
    try:
        return _build_memory(preset, spec, filters, recurrent, allocate, older_policies)
    except MemoryError as error:
        raise ParameterError(
            f"The replay memory does not fit into RAM: {error}. Set a smaller agent.memory.max_size, or keep it on the "
            f"disk with memory_on_disk=True (--memory_on_disk). Received: "
            f"agent.memory.max_size={preset.agent.memory.max_size}"
        ) from error


def _build_memory(
    preset: Preset,
    spec: Spec,
    filters: Filters,
    recurrent: Mapping[str, ArraySpec] | None,
    allocate: Allocate,
    older_policies: bool,
) -> TransitionMemory | EpisodicMemory:
    memory, num_envs = preset.agent.memory, preset.environment.num_envs
    if isinstance(preset.agent, DiscreteACERAgentParameters | GaussianACERAgentParameters):
        episodes = preset.agent.memory
        # Statistics that move between an action and the update change the policy too.
        stale = older_policies or preset.environment.filters.observation_normalization
        return EpisodicMemory(
            spec,
            episodes.max_size,
            preset.agent.algorithm.t_max,
            num_envs,
            episodes.replay_start_size,
            filters.reward,
            recurrent,
            allocate,
            stale,
        )
    algorithm = preset.agent.algorithm
    if isinstance(memory, SequenceReplayParameters):
        return SequenceMemory(
            spec, memory.max_size, memory.sequence_length, num_envs, algorithm.ignore_done, filters.reward, allocate
        )
    shared: dict[str, Any] = {
        "spec": spec,
        "capacity": memory.max_size,
        "num_envs": num_envs,
        "discount": algorithm.discount,
        "n_step": algorithm.n_step,
        "ignore_done": algorithm.ignore_done,
        "allocate": allocate,
    }
    if isinstance(memory, SQILExperienceReplayParameters):
        demonstrations = load_demonstrations(
            memory.demonstrations, spec, preset.environment.level, memory.num_episodes, action_map(spec).inverse
        )
        return SQILMemory(**shared, demonstrations=demonstrations)
    if isinstance(memory, PrioritizedExperienceReplayParameters):
        return PrioritizedMemory(
            **shared,
            reward_filter=filters.reward,
            alpha=memory.alpha,
            beta=memory.beta,
            beta_anneal_updates=memory.beta_anneal_updates,
            epsilon=memory.epsilon,
        )
    return TransitionMemory(**shared, reward_filter=filters.reward)


def with_absolute_paths(preset: Preset) -> Preset:
    """Returns the preset with a path of demonstrations that means the same in every folder."""
    memory = preset.agent.memory
    if not isinstance(memory, SQILExperienceReplayParameters) or memory.demonstrations.startswith(MINARI):
        return preset
    return override(
        preset, {"agent.memory.demonstrations": str(pathlib.Path(memory.demonstrations).expanduser().absolute())}
    )
