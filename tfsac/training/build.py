"""From a preset to its agent and its memory."""

from __future__ import annotations

from typing import Any

from tfsac.agents import Agent, ModelMaker, SoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.environments import Filters
from tfsac.memories import PrioritizedMemory, TransitionMemory
from tfsac.parameters import (
    ParameterError,
    Preset,
    PrioritizedExperienceReplayParameters,
    RunParameters,
    TwinSoftActorCriticAgentParameters,
)
from tfsac.types import Spec


def build_agent(preset: Preset, run: RunParameters, spec: Spec, models: ModelMaker | None = None) -> Agent:
    """Returns the agent that a preset describes, with fresh weights.

    Args:
        preset: the experiment.
        run: its seed, and whether to compile.
        spec: what the agent sees and does.
        models: makes Keras models that take the place of the preset's layers; twin-target agents only.

    Raises:
        ValueError: parameters that do not fit the spec.
    """
    if isinstance(preset.agent, TwinSoftActorCriticAgentParameters):
        return TwinSoftActorCriticAgent(preset.agent, spec, run.seed, run.eager, models)
    if models is not None:
        raise ParameterError(f"Models of one's own need a twin-target agent. Received: {preset.agent.kind!r}")
    return SoftActorCriticAgent(preset.agent, spec, run.seed, run.eager)


def build_memory(preset: Preset, spec: Spec, filters: Filters) -> TransitionMemory:
    """Returns the empty memory that a preset describes; rewards that it samples have gone through the filters."""
    memory, algorithm = preset.agent.memory, preset.agent.algorithm
    shared: dict[str, Any] = {
        "spec": spec,
        "capacity": memory.max_size,
        "num_envs": preset.environment.num_envs,
        "discount": algorithm.discount,
        "n_step": algorithm.n_step,
        "ignore_done": algorithm.ignore_done,
        "reward_filter": filters.reward,
    }
    if isinstance(memory, PrioritizedExperienceReplayParameters):
        return PrioritizedMemory(
            **shared,
            alpha=memory.alpha,
            beta=memory.beta,
            beta_anneal_updates=memory.beta_anneal_updates,
            epsilon=memory.epsilon,
        )
    return TransitionMemory(**shared)
