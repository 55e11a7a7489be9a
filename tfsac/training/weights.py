"""Weights of an agent's networks, and of what else acting needs, with the filters' statistics, as one small file to serve from."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.environments import Filters
from tfsac.files import read_npz, written_aside
from tfsac.training.run_directory import RunDirectory


def save_weights(path: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Writes the weights of all networks, the temperatures and the filters' statistics to an npz file, atomically.

    Raises:
        OSError: it cannot be written.
    """
    arrays = {name: variable.numpy() for name, variable in {**_variables(agent), **_temperatures(agent)}.items()}
    with written_aside(path) as file:
        np.savez(file, filters=np.array(json.dumps(filters.state())), **arrays)


def load_weights(path: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Reads what `save_weights` wrote. A temperature that the file does not have, or that the agent does not learn, stays as it is.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is damaged or belongs to other networks.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There are no saved weights yet; they come with the first evaluation. Received: {path}")
    arrays, statistics = read_npz(path, "a file of weights", "filters")
    variables, temperatures = _variables(agent), _temperatures(agent)
    named = {name: array for name, array in arrays.items() if name in variables or not name.partition("/")[0].endswith("temperature")}
    theirs, ours = (list(dict.fromkeys(name.partition("/")[0] for name in names)) for names in (named, variables))
    if sorted(theirs) != sorted(ours):
        raise ValueError(
            f"{path} belongs to another agent: the networks here are {', '.join(ours)}. Received: weights of {', '.join(theirs)}"
        )
    for name in {**variables, **named}:
        expected, found = (str(tuple(some[name].shape)) if name in some else "none" for some in (variables, named))
        if expected != found:
            raise ValueError(
                f"{path} belongs to other networks: the shape of {name} (the weights of a network are numbered) is {expected} here. "
                f"Received: {found}"
            )
    if statistics["mean"].keys() != filters.mean.keys():
        raise ValueError(
            f"The weights of {path} belong to {'normalised' if statistics['mean'] else 'raw'} observations: set "
            f"environment.filters.observation_normalization to {'true' if statistics['mean'] else 'false'}. "
            f"Received: {'true' if filters.mean else 'false'}"
        )
    for name, variable in {**variables, **temperatures}.items():
        if name in arrays:
            variable.assign(arrays[name])
    filters.restore(statistics)
    agent.refresh()


def load_initial_weights(directory: RunDirectory, agent: Agent, filters: Filters) -> None:
    """Begins a new run with the best weights of another one: target networks, temperatures and statistics included.

    Raises:
        FileNotFoundError: no run there, or one without an evaluation.
        ValueError: as `load_weights`.
    """
    directory.read()
    load_weights(directory.best, agent, filters)


def acting_weights(agent: Agent, acting: list[np.ndarray] | None = None) -> list[np.ndarray]:
    """Returns what an agent of the same kind needs to act as this one does.

    Args:
        agent: that was trained.
        acting: what its last update returned, which is enough where acting computes in NumPy.
    """
    if agent.acts_in_graph:
        return [variable.numpy() for variable in _variables(agent).values()]
    return [weights.numpy() for weights in agent.acting_weights()] if acting is None else acting


def take_over(agent: Agent, weights: list[np.ndarray]) -> None:
    """Lets an agent act as the one does that `acting_weights` was called with."""
    if agent.acts_in_graph:
        for variable, value in zip(_variables(agent).values(), weights, strict=True):
            variable.assign(value)
        agent.refresh()
    else:
        agent.refresh(weights)


def _variables(agent: Agent) -> dict[str, Any]:
    named = {name: network.trainable_variables for name, network in agent.networks.items()}
    named |= {name: agent.trained[name] for name in agent.acts_with}
    return {f"{name}/{i}": variable for name, some in named.items() for i, variable in enumerate(some)}


def _temperatures(agent: Agent) -> dict[str, Any]:
    """Returns the learned temperatures that acting does not need, or their logarithms, which have names of their own."""
    others = agent.trained.keys() - agent.networks.keys() - set(agent.acts_with)
    return {f"{name}/{variable.name.partition(':')[0]}": variable for name in sorted(others) for variable in agent.trained[name]}
