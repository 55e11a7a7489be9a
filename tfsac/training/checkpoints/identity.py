"""What makes two runs the same: a checkpoint belongs to runs that agree with it."""

from __future__ import annotations

import json
from typing import Any

from tfsac.parameters import AgentParameters, EnvironmentParameters, Preset, from_json, to_json
from tfsac.types import Spec

WHERE_STEPPED = ("vectorization", "step_timeout_seconds")  # the same steps come of it
DEMONSTRATIONS = "demonstrations"  # their file may be moved; the memory knows them by their content


def identity_of(preset: Preset, seed: int, spec: Spec) -> dict[str, Any]:
    """Returns environment, agent, seed and shapes of a run as JSON values; its schedule may be extended, and its
    environments may be stepped elsewhere.
    """
    arrays = {**spec.observation, "action": spec.action}
    return {
        "environment": _of_the_task(to_json(preset.environment)),
        "agent": _without_files(to_json(preset.agent)),
        "seed": seed,
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
    }


def with_defaults(identity: dict[str, Any]) -> dict[str, Any]:
    """Returns the identity of a checkpoint with the defaults of parameters that came later."""
    agent = json.loads(json.dumps(identity["agent"]))
    if agent["memory"]["kind"] in ("sqil", "prior_data"):
        agent["memory"][DEMONSTRATIONS] = DEMONSTRATIONS
    agents: Any = AgentParameters  # a union of classes
    environment = to_json(from_json(EnvironmentParameters, json.dumps(identity["environment"])))
    found = from_json(agents, json.dumps(agent))
    return {
        **identity,
        "environment": _of_the_task(environment),
        "agent": _without_files(to_json(found)),
    }


def _of_the_task(environment: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in environment.items() if name not in WHERE_STEPPED}


def _without_files(agent: dict[str, Any]) -> dict[str, Any]:
    agent["memory"].pop(DEMONSTRATIONS, None)
    return agent
