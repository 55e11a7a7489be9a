"""Weights of an agent's networks, and of what else acting needs, with the filters' statistics, as one small file to serve from."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.environments import Filters
from tfsac.files import read_npz, written_aside


def save_weights(path: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Writes the weights of all networks and the filters' statistics to an npz file, atomically.

    Raises:
        OSError: it cannot be written.
    """
    arrays = {name: variable.numpy() for name, variable in _variables(agent).items()}
    with written_aside(path) as file:
        np.savez(file, filters=np.array(json.dumps(filters.state())), **arrays)


def load_weights(path: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Reads what `save_weights` wrote.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is damaged or belongs to other networks.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There are no saved weights yet; they come with the first evaluation. Received: {path}")
    arrays, statistics = read_npz(path, "a file of weights", "filters")
    variables = _variables(agent)
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    if shapes != expected:
        name = next(name for name in shapes | expected if shapes.get(name) != expected.get(name))
        raise ValueError(f"{path} belongs to other networks: {name} should be {expected.get(name)}. Received: {shapes.get(name)}")
    for name, variable in variables.items():
        variable.assign(arrays[name])
    filters.restore(statistics)
    agent.refresh()


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
