"""Weights of an agent's networks, and of what else acting needs, with the filters' statistics, as one small file to
serve from.
"""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Collection
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.policies import BasePolicy
from tfsac.training.checkpoints import read_agent
from tfsac.training.run_directory import RunDirectory
from tfsac.types import TARGET
from tfsac.utils.files import atomic_write, differences, read_arrays, read_object

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


def load_weights(
    path: pathlib.Path, learned: Agent | BasePolicy, filters: Filters, fresh: Collection[str] = ()
) -> None:
    """Reads what `save_weights` wrote, into an agent of the same networks or the policy of one. What is trained besides
    the networks, such as a temperature, stays as it is where file or agent do not have it; so do `fresh` networks.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there, the first evaluation saves it; evaluate and export with --last take a checkpoint"
        )
    arrays = read_arrays(path, "a file of weights")
    statistics = json.loads(str(arrays.pop(STATISTICS, '{"mean": {}}')))
    if isinstance(learned, Agent):
        variables, policy, trained = _variables(learned), learned.policy, _other_trained(learned)
        variables |= {name: variable for name, variable in trained.items() if name in arrays}
    else:
        variables, policy = dict(learned.variables), learned
    networks = {name.partition("/")[0] for name in variables}
    networks -= {*fresh, *(name + TARGET for name in fresh)}
    variables = {name: variable for name, variable in variables.items() if name.partition("/")[0] in networks}
    read = {key for name in networks & learned.networks.keys() for key in learned.networks[name].embedders}
    saved = {name: array.shape for name, array in arrays.items() if name.partition("/")[0] in networks}
    saved |= _normalized(statistics, read)
    needed = {name: tuple(variable.shape) for name, variable in variables.items()}
    needed |= _normalized(filters.state(), read)
    for name, shape, expected in differences(saved, needed):
        raise TfsacError(
            f"{path} is of other networks or filters, or of another version: {name} has shape {shape}, not {expected}"
        )
    filters.restore(statistics)
    for name, variable in variables.items():
        variable.assign(arrays[name])
    policy.refresh()


def load_checkpoint(checkpoint: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Reads what agent and filters were at the checkpoint in a folder, without the memory."""
    read_agent(agent, checkpoint)
    filters.restore(read_object(checkpoint / "state.json")["filters"])
    agent.policy.refresh()


def load_initial_weights(directory: RunDirectory, agent: Agent, filters: Filters) -> list[str]:
    """Begins a new run with the best weights of another one: target networks, temperatures and statistics included.

    Returns:
        names of critics that have fresh weights, because they have other `observation_keys` than in the other run.
    """
    networks = directory.read()[0].agent.networks
    changed = [
        name
        for name, network in agent.network_parameters.items()
        if name in networks and network.observation_keys != networks[name].observation_keys
    ]
    if acting := [name for name in changed if name in agent.policy.acts_through]:
        read, reads = (x[acting[0]].observation_keys or "null" for x in (networks, agent.network_parameters))
        raise TfsacError(f"{directory.path} has observation_keys={read} in network {acting[0]!r}, this run {reads}")
    directory.check_spaces(agent.spec, only=("order", "sizes"))
    load_weights(directory.best, agent, filters, fresh=changed)
    filters.end_episodes()
    return changed


def _normalized(statistics: dict[str, Any], keys: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the observations of these keys that are normalised."""
    means = statistics["mean"].items()
    return {f"observation_normalization/{key}": np.shape(mean) for key, mean in means if key in keys}


def _variables(agent: Agent) -> dict[str, Any]:
    networks = agent.networks.items()
    named = {f"{name}/{i}": variable for name, x in networks for i, variable in enumerate(x.variables)}
    return named | dict(agent.policy.variables)


def _other_trained(agent: Agent) -> dict[str, Any]:
    """Returns what the agent trains besides its networks: learned temperatures, or their logarithms, which have names,
    and what an agent of the user's has.
    """
    return {
        f"{name}/{f'{i}_' * (len(variables) > 1)}{variable.name.partition(':')[0]}": variable
        for name, variables in sorted(agent.trained.items())
        if name not in agent.networks
        for i, variable in enumerate(variables)
    }
