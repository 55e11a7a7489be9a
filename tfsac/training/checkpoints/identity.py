"""What makes two runs the same: a checkpoint belongs to runs that agree with it."""

from __future__ import annotations

import json
from typing import Any

from tfsac.parameters import AgentParameters, EnvironmentParameters, Preset, from_json, to_json
from tfsac.types import Spec

DEMONSTRATIONS = "demonstrations"  # their file may be moved; the memory knows them by their content


def identity_of(preset: Preset, seed: int, spec: Spec) -> dict[str, Any]:
    """Returns environment, agent, seed and shapes of a run as JSON values; its schedule may be extended."""
    arrays = {**spec.observation, "action": spec.action}
    return {
        **_identity(preset.environment, preset.agent),
        "seed": seed,
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
    }


def with_defaults(identity: dict[str, Any]) -> dict[str, Any]:
    """Returns the identity of a checkpoint with the defaults of parameters that came later."""
    agent, memory = identity["agent"], dict(identity["agent"]["memory"])
    if memory["kind"] in ("sqil", "prior_data"):
        memory[DEMONSTRATIONS] = DEMONSTRATIONS
    agent_class: Any = AgentParameters  # a union of classes
    environment = from_json(EnvironmentParameters, json.dumps(identity["environment"]))
    return {**identity, **_identity(environment, from_json(agent_class, json.dumps({**agent, "memory": memory})))}


def _identity(environment_parameters: EnvironmentParameters, agent_parameters: AgentParameters) -> dict[str, Any]:
    environment, agent = to_json(environment_parameters), to_json(agent_parameters)
    agent["memory"].pop(DEMONSTRATIONS, None)
    for name in ("vectorization", "step_timeout_seconds"):  # the same steps come of it
        del environment[name]
    return {"environment": environment, "agent": agent}
