"""Save and load a small file with an agent's weights and everything else that acting needs, such as the filters'
statistics.
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
from tfsac.parameters import EnvironmentParameters
from tfsac.policies import BasePolicy
from tfsac.training.checkpoints import read_agent
from tfsac.training.run_directory import RunDirectory
from tfsac.types import TARGET
from tfsac.utils.files import atomic_write, differences, read_arrays, read_object

STATISTICS = "filters"  # entry with the filters' statistics


def save_weights(path: pathlib.Path, agent: Agent, filters: Filters) -> bytes:
    """Writes the weights of all networks, other trained variables such as temperatures, and the filters' statistics
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
    """Loads a file from `save_weights` into an agent with the same networks, or into its policy. Other trained
    variables, such as temperatures, keep their values if the file or the agent lacks them; so do `fresh` networks.
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
    """Restores agent and filters, but not the memory, from a checkpoint's folder, with the averaged policy if any."""
    read_agent(agent, checkpoint)
    if agent.policy_average:
        agent.policy_average.load()
    filters.restore(read_object(checkpoint / "state.json")["filters"])
    agent.policy.refresh()


def load_initial_weights(
    directory: RunDirectory, environment: EnvironmentParameters, agent: Agent, filters: Filters
) -> list[str]:
    """Starts a new run with the best weights of another run, including target networks, temperatures and statistics.

    Returns:
        Names of critics that keep fresh weights, because their `observation_keys` differ from the other run's.
    """
    other = directory.read()[0]
    networks, theirs, ours = other.agent.networks, other.environment.visible_entries, environment.visible_entries
    if other.environment.level == environment.level and theirs != ours:
        raise TfsacError(f"{directory.path} has environment.visible_entries={theirs}, this run {ours}")
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
    """Returns the shapes of the normalised observations among these keys."""
    means = statistics["mean"].items()
    return {f"observation_normalization/{key}": np.shape(mean) for key, mean in means if key in keys}


def _variables(agent: Agent) -> dict[str, Any]:
    networks = agent.networks.items()
    named = {f"{name}/{i}": variable for name, x in networks for i, variable in enumerate(x.variables)}
    return named | dict(agent.policy.variables)


def _other_trained(agent: Agent) -> dict[str, Any]:
    """Returns trained variables outside the networks by name: learned temperatures or their logarithms, and the
    variables of a user's agent.
    """
    return {
        f"{name}/{f'{i}_' * (len(variables) > 1)}{variable.name.partition(':')[0]}": variable
        for name, variables in sorted(agent.trained.items())
        if name not in agent.networks
        for i, variable in enumerate(variables)
    }
