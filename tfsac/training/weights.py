"""Weights of an agent's networks, and of what else acting needs, with the filters' statistics, as one small file to
serve from.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.networks import project
from tfsac.policies import BasePolicy
from tfsac.training.checkpoints import wrap_checkpoint_errors
from tfsac.training.checkpoints.stacking import read_agent, stack_critics
from tfsac.training.recorded_functions import refuse_other_order
from tfsac.training.run_directory import RunDirectory
from tfsac.types import TARGET
from tfsac.utils.files import Header, atomic_write, no_weights, parse_object, read_npz, read_object

STATISTICS = "filters"  # the entry of their statistics
LOG_ALPHA, ALPHA = "/log_alpha", "/alpha"  # how the name of a temperature ends, by its `log_space`
SMALLEST_ALPHA = 1e-8  # of a temperature whose logarithm is learned further


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
    where the file does not have it, and stays in the file where the agent does not train it. A temperature that was
    learned as its logarithm, or is now, becomes the same alpha.

    Args:
        path: of the file.
        learned: an agent of the same networks, or the policy of one, which takes its own networks out of the file.
        filters: whose statistics are read.
    """
    if not path.is_file():
        raise no_weights(path)
    agent = learned if isinstance(learned, Agent) else None
    variables: dict[str, Any] = learned.variables if isinstance(learned, BasePolicy) else _variables(learned)
    left_out = _other_networks(learned) if isinstance(learned, BasePolicy) else set()
    others = _other_trained(agent) if agent else {}
    converted = {_other_space(name): x for name, x in others.items() if name.endswith((ALPHA, LOG_ALPHA))}
    others |= converted

    def choose(headers: dict[str, Header]) -> list[str]:
        of_networks = [
            name
            for name in headers
            if name != STATISTICS
            and (name in variables or not _is_other_trained(name))
            and name.partition("/")[0] not in left_out
        ]
        return [*of_networks, *(name for name in others if name in headers), STATISTICS]

    arrays = read_npz(path, "a file of weights", choose)
    needed = {name: tuple(variable.shape) for name, variable in variables.items()}
    statistics_text = str(arrays.pop(STATISTICS))
    arrays = _with_stacked_critics(arrays, needed)
    needed |= {name: tuple(others[name].shape) for name in others if name in arrays}
    found = {name: array.shape for name, array in arrays.items()}
    if name := next((name for name in {**needed, **found} if needed.get(name) != found.get(name)), None):
        raise TfsacError(
            f"{path} belongs to other networks: {name} has shape {found.get(name)}, the agent needs {needed.get(name)}"
        )
    statistics, own = parse_object(statistics_text), filters.state()
    if {key: np.shape(mean) for key, mean in statistics["mean"].items()} != {
        key: np.shape(mean) for key, mean in own["mean"].items()
    }:
        raise TfsacError(
            f"{path} belongs to other filters: it normalises {sorted(statistics['mean'])}, this agent "
            f"{sorted(own['mean'])} (environment.filters.observation_normalization)"
        )
    filters.restore(statistics)
    for name, value in arrays.items():
        if name in converted:
            value = np.exp(value) if name.endswith(LOG_ALPHA) else np.log(np.maximum(value, SMALLEST_ALPHA))
        {**variables, **others}[name].assign(value)
    (agent.policy if agent else learned).refresh()


def _with_stacked_critics(arrays: dict[str, np.ndarray], needed: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Returns weights by name with the critics of earlier versions stacked, for the shapes that are needed."""
    converted = dict(arrays)
    for network in {name.partition("/")[0] for name in needed}:
        given, names = ([name for name in of if re.fullmatch(rf"{network}/\d+", name)] for of in (arrays, needed))
        if [arrays[name].shape for name in given] == [needed[name] for name in names]:
            continue
        with contextlib.suppress(ValueError):  # of other networks, as the caller says
            stacked = stack_critics([arrays[name] for name in given], [needed[name] for name in names])
            converted = {name: array for name, array in converted.items() if name not in given}
            converted |= zip(names, stacked, strict=True)
    return converted


def load_checkpoint(place: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Reads what agent and filters were at the checkpoint in the folder `place`, without the memory."""
    with wrap_checkpoint_errors(place):
        read_agent(agent, place)
        filters.restore(read_object(place / "state.json")["filters"])
    agent.policy.refresh()


def load_initial_weights(directory: RunDirectory, agent: Agent, filters: Filters) -> None:
    """Begins a new run with the best weights of another one: target networks, temperatures and statistics included.
    Networks of unit weights are projected, for the other run's need not have been.
    """
    directory.read()
    refuse_other_order(directory, agent.spec)
    load_weights(directory.best, agent, filters)
    filters.end_episodes()
    for name, given in agent.network_parameters.items():
        if given.unit_weights != "none":
            project(agent.networks[name], given.unit_weights)
    agent.policy.refresh()


def _variables(agent: Agent) -> dict[str, Any]:
    named = {name: network.variables for name, network in agent.networks.items()}
    return {
        **{f"{name}/{i}": variable for name, some in named.items() for i, variable in enumerate(some)},
        **agent.policy.variables,
    }


def _other_networks(policy: BasePolicy) -> set[str]:
    """Returns the names of the agent's networks that the policy does not have."""
    return {name + end for name in policy.parameters.networks for end in ("", TARGET)} - policy.networks.keys()


def _other_space(name: str) -> str:
    """Returns what a temperature is called with the other `log_space`."""
    stem, _, space = name.rpartition("/")
    return f"{stem}{ALPHA if f'/{space}' == LOG_ALPHA else LOG_ALPHA}"


def _other_trained(agent: Agent) -> dict[str, Any]:
    """Returns what the agent trains besides its networks: learned temperatures, or their logarithms, which have names
    of their own, and what an agent of the user's has.
    """
    found = dict[str, Any]()
    for name in sorted(agent.trained.keys() - agent.networks.keys()):
        names = [variable.name.partition(":")[0] for variable in agent.trained[name]]
        if len(names) > 1:
            names = [f"{i}_{one}" for i, one in enumerate(names)]
        found |= {f"{name}/{one}": variable for one, variable in zip(names, agent.trained[name], strict=True)}
    return found


def _is_other_trained(name: str) -> bool:
    """Returns whether an array of the file is of `_other_trained`; those of networks are numbered."""
    return "/" in name and not name.rpartition("/")[2].isdecimal()
