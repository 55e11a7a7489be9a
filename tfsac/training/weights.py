"""Weights of an agent's networks, and of what else acting needs, with the filters' statistics, as one small file to
serve from.
"""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.agents import Agent
from tfsac.environments import Filters
from tfsac.files import Header, neutral, no_weights, parse_object, read_npz, read_object, written_aside
from tfsac.networks import project
from tfsac.policies import BasePolicy
from tfsac.training.checkpoints.manifest import understanding
from tfsac.training.recorded_functions import refuse_other_order
from tfsac.training.run_directory import RunDirectory
from tfsac.types import TARGET

STATISTICS = "filters"  # the entry of their statistics
LOG_ALPHA, ALPHA = "/log_alpha", "/alpha"  # how the name of a temperature ends, by its `log_space`
SMALLEST_ALPHA = 1e-8  # of a temperature whose logarithm is learned further
LARGEST_STATISTICS = 64 * 2**20  # bytes


def save_weights(path: pathlib.Path, agent: Agent, filters: Filters) -> bytes:
    """Writes the weights of all networks, what else the agent trains, such as temperatures, and the filters' statistics
    to an npz file, atomically.

    Returns:
        the content of the file.

    Raises:
        OSError: it cannot be written.
    """
    arrays = {name: variable.numpy() for name, variable in {**_variables(agent), **_other_trained(agent)}.items()}
    arrays[STATISTICS], packed = np.array(json.dumps(filters.state())), io.BytesIO()
    np.savez(packed, **arrays)
    with written_aside(path) as file:
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

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is damaged or belongs to other networks.
    """
    if not path.is_file():
        raise no_weights(path)
    agent = learned if isinstance(learned, Agent) else None
    variables: dict[str, Any] = learned.variables if isinstance(learned, BasePolicy) else _variables(learned)
    others, own = _other_trained(agent) if agent else {}, filters.state()
    converted = {_other_space(name): x for name, x in others.items() if name.endswith((ALPHA, LOG_ALPHA))}
    others |= converted

    def choose(headers: dict[str, Header]) -> list[str]:
        text = headers.pop(STATISTICS)
        if text.shape or text.dtype.kind != "U" or text.dtype.itemsize > LARGEST_STATISTICS:
            raise ValueError(f"{STATISTICS} is not a text")
        named = {name: x for name, x in headers.items() if name in variables or not _is_other_trained(name)}
        theirs, ours = (
            list(dict.fromkeys(name.partition("/")[0] for name in names if "/" in name)) for names in (named, variables)
        )
        if isinstance(learned, BasePolicy):  # it leaves the agent's other networks in the file
            left_out = _other_networks(learned)
            named = {name: x for name, x in named.items() if name.partition("/")[0] not in left_out}
            theirs = [name for name in theirs if name not in left_out]
        if sorted(theirs) != sorted(ours):
            raise ValueError(
                f"{path} belongs to other networks: those here are {', '.join(ours)}. "
                f"Received: weights of {', '.join(theirs)}"
            )
        wanted = {**variables, **{name: x for name, x in others.items() if name in headers}}
        for name in {**wanted, **named}:
            expected, found = (str(tuple(some[name].shape)) if name in some else "None" for some in (wanted, headers))
            if expected != found:
                raise ValueError(f"{path} belongs to other networks: {name} should be {expected}. Received: {found}")
            if headers[name].dtype.kind != "f":
                raise ValueError(f"{name} is of the type {headers[name].dtype}")
        return [*wanted, STATISTICS]

    arrays = read_npz(path, "a file of weights", choose)
    try:
        statistics = parse_object(str(arrays.pop(STATISTICS)))
        if statistics["mean"].keys() != filters.mean.keys():
            raise ValueError(
                f"The weights of {path} belong to {'normalised' if statistics['mean'] else 'raw'} observations: "
                f"set environment.filters.observation_normalization to {'true' if statistics['mean'] else 'false'}. "
                f"Received: {'true' if filters.mean else 'false'}"
            )
        for part in ("mean", "squares"):
            for key, value in own[part].items():
                if np.shape(statistics[part][key]) != np.shape(value):
                    raise ValueError(f"{part} of {key} has another shape")
        filters.restore(statistics)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        filters.restore(own)
        if "Received: " in str(error):
            raise
        said = str(error) or type(error).__name__
        raise ValueError(
            f"{path} belongs to other filters, or is damaged ({said}). Received: {path.stat().st_size} bytes"
        ) from error
    for name, value in arrays.items():
        if name in converted:
            value = np.exp(value) if name.endswith(LOG_ALPHA) else np.log(np.maximum(value, SMALLEST_ALPHA))
        {**variables, **others}[name].assign(value)
    (agent.policy if agent else learned).refresh()


def load_checkpoint(place: pathlib.Path, agent: Agent, filters: Filters) -> None:
    """Reads what an agent and the filters' statistics were at a checkpoint, without the memory.

    Args:
        place: the checkpoint's folder.
        agent: with the parameters and networks of the run.
        filters: whose statistics are read.

    Raises:
        CheckpointError: it is of another version or of other networks.
    """
    with understanding(place):
        with neutral(place) as folder:
            tf.train.Checkpoint(agent=agent).read(str(folder / "agent")).assert_consumed()
        filters.restore(read_object(place / "state.json")["filters"])
    agent.policy.refresh()


def load_initial_weights(directory: RunDirectory, agent: Agent, filters: Filters) -> None:
    """Begins a new run with the best weights of another one: target networks, temperatures and statistics included.
    Networks of unit weights are projected, for the other run's need not have been.

    Raises:
        FileNotFoundError: no run there, or one without an evaluation.
        ValueError: as `load_weights`; its observations have their keys in another order.
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
