"""Weights of an agent's networks, and of what else acting needs, with the filters' statistics, as one small file to
serve from.
"""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.networks.unit_weights import project
from tfsac.policies import BasePolicy
from tfsac.training.checkpoints import read_agent, wrap_checkpoint_errors
from tfsac.training.recorded_spaces import check_order, spaces_of
from tfsac.training.run_directory import RunDirectory
from tfsac.types import same_bounds
from tfsac.utils.files import atomic_write, read_arrays, read_object

STATISTICS = "filters"  # the entry of their statistics


def save_weights(path: pathlib.Path, agent: Agent, filters: Filters) -> bytes:
    """Writes the weights of all networks, what else the agent trains, such as temperatures, and the filters' statistics
    to an npz file, atomically, and returns its content.
    """
    arrays = {name: variable.numpy() for name, variable in {**_variables(agent), **_other_trained(agent)}.items()}
    arrays[STATISTICS], packed = np.array(json.dumps(filters.state())), io.BytesIO()
    np.savez(packed, **arrays)
    with atomic_write(path) as file:
        file.write(packed.getvalue())
    return packed.getvalue()


def load_weights(path: pathlib.Path, learned: Agent | BasePolicy, filters: Filters) -> None:
    """Reads what `save_weights` wrote. What is trained besides the networks, such as a temperature, stays as it is
    where the file does not have it, and is left out where the agent does not train it.

    Args:
        path: of the file.
        learned: an agent of the same networks, or the policy of one, which takes its own networks out of the file.
        filters: whose statistics are read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: the first weights are saved with the first evaluation")
    arrays = read_arrays(path, "a file of weights")
    statistics, own = json.loads(str(arrays.pop(STATISTICS, "{}"))), filters.state()
    if isinstance(learned, Agent):
        variables, policy, trained = _variables(learned), learned.policy, _other_trained(learned)
        variables |= {name: variable for name, variable in trained.items() if name in arrays}
    else:
        variables, policy = dict(learned.variables), learned
    needed = {name: tuple(variable.shape) for name, variable in variables.items()}
    networks = {name.partition("/")[0] for name in needed}
    saved = {name: array.shape for name, array in arrays.items() if name.partition("/")[0] in networks}
    if name := next((name for name in {**needed, **saved} if needed.get(name) != saved.get(name)), None):
        raise TfsacError(
            f"{path} is of other networks or of another version: {name} has shape {saved.get(name)} and must have "
            f"{needed.get(name)}"
        )
    if {key: np.shape(mean) for key, mean in statistics["mean"].items()} != {
        key: np.shape(mean) for key, mean in own["mean"].items()
    }:
        raise TfsacError(
            f"{path} belongs to other filters: it normalises {sorted(statistics['mean'])}, this agent "
            f"{sorted(own['mean'])} (environment.filters.observation_normalization)"
        )
    filters.restore(statistics)
    for name, variable in variables.items():
        variable.assign(arrays[name])
    policy.refresh()


def load_checkpoint(checkpoint: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Reads what agent and filters were at the checkpoint in a folder, without the memory."""
    with wrap_checkpoint_errors(checkpoint):
        read_agent(agent, checkpoint)
        filters.restore(read_object(checkpoint / "state.json")["filters"])
    agent.policy.refresh()


def load_initial_weights(directory: RunDirectory, agent: Agent, filters: Filters) -> str | None:
    """Begins a new run with the best weights of another one: target networks, temperatures and statistics included.
    Networks of unit weights are projected, for the other run's need not have been.

    Returns:
        a line where -1 and 1 stood for other actions in the other run.
    """
    directory.read()
    check_order(directory, agent.spec)
    load_weights(directory.best, agent, filters)
    filters.end_episodes()
    for name, parameters in agent.network_parameters.items():
        if parameters.unit_weights != "none":
            project(agent.networks[name], parameters.unit_weights)
    agent.policy.refresh()
    current = spaces_of(agent.spec)["action"]
    trained = (read_object(directory.config).get("spaces") or {"action": current})["action"]
    for name in ("low", "high"):
        before, now = trained.get(name), current.get(name)
        if before != now and not same_bounds(before, now):
            return f"The policy of {directory.path} had actions with {name} {before}, now {now}: it acts differently."
    return None


def _variables(agent: Agent) -> dict[str, Any]:
    named = {name: network.variables for name, network in agent.networks.items()}
    return {
        **{f"{name}/{i}": variable for name, some in named.items() for i, variable in enumerate(some)},
        **agent.policy.variables,
    }


def _other_trained(agent: Agent) -> dict[str, Any]:
    """Returns what the agent trains besides its networks: learned temperatures, or their logarithms, which have names,
    and what an agent of the user's has.
    """
    trained = dict[str, Any]()
    for name in sorted(agent.trained.keys() - agent.networks.keys()):
        names = [variable.name.partition(":")[0] for variable in agent.trained[name]]
        if len(names) > 1:
            names = [f"{i}_{variable_name}" for i, variable_name in enumerate(names)]
        trained |= zip([f"{name}/{variable_name}" for variable_name in names], agent.trained[name], strict=True)
    return trained
