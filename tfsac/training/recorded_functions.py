"""What a run's config records beside the parameters: the user's functions, and the spaces of the environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments import name_of_environment
from tfsac.errors import TfsacError
from tfsac.networks import ModelMaker
from tfsac.parameters import (
    BY_ENV_FN,
    EnvironmentParameters,
    Preset,
    PresetValidationParameters,
    networks_made_by,
)
from tfsac.training.run_directory import RunDirectory
from tfsac.types import AGENT_STATE, ArraySpec, DiscreteSpec, Spec, same_bounds
from tfsac.utils.files import differences, read_object
from tfsac.utils.imports import name_of

MODELS = "models"  # what the networks of a preset are made by, where a function makes them


def resolve_preset(
    preset: Preset, env: gym.Env, env_fn: Callable[[], gym.Env] | None, models: ModelMaker | None
) -> Preset:
    """Returns the preset as a run's config records it, with what functions made.

    Of an environment that `env_fn` made, the level's own arguments and preprocessing are left out, and so is the
    threshold where it has another name.
    """
    environment, agent, validation = preset.environment, preset.agent, preset.validation
    if env_fn is not None:
        name = name_of_environment(env)
        if environment.level.rpartition(":")[-1] != name:
            validation = PresetValidationParameters()
        environment = dataclasses.replace(environment, level=BY_ENV_FN + name, kwargs={}, atari=None)
    if models is not None and not any(network.made_by for network in agent.networks.values()):
        agent = dataclasses.replace(agent, networks=networks_made_by(MODELS, agent.networks))
    return dataclasses.replace(preset, environment=environment, agent=agent, validation=validation)


def recorded(
    env_fn: Callable[[], gym.Env] | None,
    models: ModelMaker | None,
    source: RunDirectory | None,
    restore_memory: bool,
    spec: Spec,
) -> dict[str, Any]:
    """Returns what config.json says beside the parameters: names of functions, where weights came from, the spaces."""
    return {
        "env_fn": env_fn and name_of(env_fn),
        "models": models and name_of(models),
        "initial_weights": source and str(source.path.absolute()),
        "restore_memory": restore_memory,
        "spaces": spaces_of(spec),
    }


def spaces_of(spec: Spec) -> dict[str, Any]:
    """Returns shapes and dtypes of observations, and shape and bounds (or number) of actions, as JSON values."""
    action = spec.action
    if isinstance(action, DiscreteSpec):
        acts: dict[str, Any] = {"shape": list(action.shape), "num_actions": action.num_actions, "start": action.start}
        acts["dtype"] = action.native_dtype
    else:
        low, high = (None if bound is None else bound.tolist() for bound in (action.low, action.high))
        acts = {"shape": list(action.shape), "low": low, "high": high}
    seen = {key: {"shape": list(array.shape), "dtype": array.dtype} for key, array in spec.observation.items()}
    return {"observation": seen, "action": acts, "num_rewards": spec.num_rewards}


def spec_in(spaces: Mapping[str, Any]) -> Spec:
    """Returns the spec whose spaces `spaces_of` returned."""
    seen, acts = spaces["observation"], spaces["action"]
    if "num_actions" in acts:
        native = acts.get("dtype", "int64")  # not in configs of before
        action: Any = DiscreteSpec(acts["num_actions"], tuple(acts["shape"]), acts["start"], native_dtype=native)
    else:
        low, high = (None if acts[name] is None else np.array(acts[name], np.float32) for name in ("low", "high"))
        action = ArraySpec(tuple(acts["shape"]), "float32", low, high)
    return Spec(
        {key: ArraySpec(tuple(array["shape"]), array["dtype"]) for key, array in seen.items()},
        action,
        num_agents=seen[AGENT_STATE]["shape"][0] if AGENT_STATE in seen else None,
        num_rewards=spaces.get("num_rewards"),
    )


def refuse_others(
    directory: RunDirectory,
    env_fn: Callable[[], gym.Env] | None,
    models: ModelMaker | None,
    played: EnvironmentParameters | None = None,
) -> None:
    """Refuses to use a run without the functions that made its environment and networks, or with functions that it had
    not. The environment in which its policy is only `played` may be another.
    """
    preset, _ = directory.read()
    config = read_object(directory.config)
    made = {
        "env_fn": ((played or preset.environment).by_env_fn, env_fn),
        "models": (any(network.made_by for network in preset.agent.networks.values()), models),
    }
    for name, (needed, given) in made.items():
        if needed and given is None:
            raise TfsacError(
                f"{directory.path} was trained with {name}={config.get(name)}, a Python function that no file holds: "
                f"pass it again as {name}=... (from the command line, register the environment instead)"
            )
        if given is not None and not needed and (name == "models" or played is None):
            raise TfsacError(f"{directory.path} was trained without {name}: leave it out, got {name_of(given)}")


def refuse_other_spaces(directory: RunDirectory, spec: Spec, read: Collection[str] | None = None) -> None:
    """Refuses an environment whose spaces are not those in which a run's policy was trained. A policy that only
    acts needs the observations in `read` and its actions.
    """
    trained, found = read_object(directory.config).get("spaces"), spaces_of(spec)
    if trained is None:  # of a run from before they were recorded
        return
    if read is not None:
        trained, found = (
            {"action": x["action"], "observation": {key: x["observation"].get(key) for key in read}}
            for x in (trained, found)
        )
    for name, theirs, ours in differences(trained, found):
        if name != "action.dtype" and not (name in ("action.low", "action.high") and same_bounds(theirs, ours)):
            raise TfsacError(
                f"the policy of {directory.path} belongs to another environment: its {name} is {theirs}, got {ours}"
            )


def other_bounds_warning(source: RunDirectory, spec: Spec) -> str | None:
    """Returns a line where -1 and 1 stood for other actions in the run whose weights a new one begins with."""
    trained = read_object(source.config).get("spaces") or spaces_of(spec)
    for name, theirs, ours in differences(trained["action"], spaces_of(spec)["action"]):
        if name in ("low", "high") and not same_bounds(theirs, ours):
            return f"The policy of {source.path} has actions with {name} {theirs}, here {ours}: it acts differently."
    return None


def refuse_other_order(directory: RunDirectory, spec: Spec) -> None:
    """Refuses to train a run's networks further on observations whose keys come in another order, in which the
    networks read them.
    """
    order = order_of_observations(directory)
    if order != list(spec.observation) and set(order) == spec.observation.keys():
        raise TfsacError(
            f"the networks of {directory.path} read observations in the order {order}: make the Dict space of the "
            f"environment in this order, got {list(spec.observation)}"
        )


def order_of_observations(directory: RunDirectory) -> list[str]:
    """Returns the keys of a run's observations in their order; none where they are not recorded (yet)."""
    spaces = read_object(directory.config).get("spaces") if directory.config.is_file() else None
    return [] if spaces is None else list(spaces["observation"])
