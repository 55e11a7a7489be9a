"""The functions that made the environment and the networks of a run, as its config records them."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments import name_of_environment
from tfsac.files import differences, read_object
from tfsac.networks import ModelMaker
from tfsac.parameters import (
    BY_ENV_FN,
    EnvironmentParameters,
    ParameterError,
    Preset,
    PresetValidationParameters,
    networks_made_by,
)
from tfsac.training.run_directory import RunDirectory
from tfsac.types import AGENT_STATE, ArraySpec, DiscreteSpec, Spec, same_bounds
from tfsac.user_code import COLOURS, name_of

# What TensorFlow says after the lines of code that it came through, and before Keras tells all arguments.
IN_GRAPH = re.compile(r"\n +(\w+(?:Error|Exception): .*?)(?:Arguments received by|$)", re.DOTALL)
MODELS = "models"  # what the networks of such a preset are made by


def described(preset: Preset, env: gym.Env, env_fn: Callable[[], gym.Env] | None, models: ModelMaker | None) -> Preset:
    """Returns the preset as a run's config records it: with what functions made, which nobody then takes for something
    else.

    Args:
        preset: as it was given.
        env: one environment of the run.
        env_fn: made it, or None for the preset's level. The level's own arguments and preprocessing are left out, and
            so is its acceptance threshold for an environment of another name.
        models: makes the networks, or None for the preset's layers.
    """
    environment, agent, validation = preset.environment, preset.agent, preset.validation
    if env_fn is not None:
        if environment.level.rpartition(":")[-1] != name_of_environment(env):
            validation = PresetValidationParameters()
        environment = dataclasses.replace(
            environment, level=BY_ENV_FN + name_of_environment(env), kwargs={}, atari=None
        )
    if models is not None and not any(network.made_by for network in agent.networks.values()):
        agent = dataclasses.replace(agent, networks=networks_made_by(MODELS, agent.networks))
    return dataclasses.replace(preset, environment=environment, agent=agent, validation=validation)


def about_threshold(given: Preset, described: Preset) -> str | None:
    """Returns a line about an acceptance threshold that belongs to another environment, None where there is none."""
    threshold = given.validation.min_reward_threshold
    if threshold is None or described.validation.min_reward_threshold is not None:
        return None
    return (
        f"The threshold of {threshold:g} belongs to {given.environment.level}, and {described.environment.name} has "
        f"none: set environment.level={described.environment.name} and validation.min_reward_threshold for one."
    )


def recorded(
    env_fn: Callable[[], gym.Env] | None, models: ModelMaker | None, source: RunDirectory | None, spec: Spec
) -> dict[str, Any]:
    """Returns what config.json says beside the preset: the functions' names, the run whose weights this one began
    with, and the spaces that the policy belongs to.
    """
    return {
        "env_fn": env_fn and name_of(env_fn),
        "models": models and name_of(models),
        "initial_weights": source and str(source.path.absolute()),
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

    Raises:
        FileNotFoundError, ParameterError: no run there, or another config.
        ParameterError: a function is missing, or there is one for what the run's parameters describe.
    """
    preset, _ = directory.read()
    config = read_object(directory.config)
    by_models = any(network.made_by for network in preset.agent.networks.values())
    if (played or preset.environment).by_env_fn and env_fn is None:
        raise ParameterError(
            "The environment of this run "
            f"({preset.environment.name}) was made by the Python function {config.get('env_fn')}, which no file holds. "
            "In Python, pass it again as env_fn=... For the command line, register the environment "
            "with Gymnasium and train with --level=module:Id; evaluate and record take that level too. "
            f"Received: no env_fn for {directory.path}"
        )
    if played is None and env_fn is not None and not preset.environment.by_env_fn:
        raise ParameterError(
            f"The environment of this run is the level {preset.environment.level}, which is made without env_fn. "
            f"Received: env_fn={name_of(env_fn)} for {directory.path}"
        )
    if by_models and models is None:
        raise ParameterError(
            f"The networks of this run are custom Keras models, made by the Python function {config.get('models')}, "
            "which no file holds. In Python, pass it again as models=...; "
            "tfsac.test_policy(run_dir) runs the policy that a finished run exported, without it. "
            f"Received: no models for {directory.path}"
        )
    if models is not None and not by_models:
        raise ParameterError(
            f"The networks of this run are those of its parameters, which are made without models. "
            f"Received: models={name_of(models)} for {directory.path}"
        )


@contextlib.contextmanager
def training_models(preset: Preset) -> Iterator[None]:
    """Turns what TensorFlow says about custom networks inside into one line; errors with layers of the preset pass.

    Args:
        preset: as `described` returns it.

    Raises:
        ValueError: custom networks cannot be trained.
    """
    try:
        yield
    except Exception as error:
        if "Received: " in str(error) or not any(network.made_by for network in preset.agent.networks.values()):
            raise
        found = IN_GRAPH.search(COLOURS.sub("", str(error)))
        what = " ".join((found[1] if found else f"{type(error).__name__}: {error}").split())
        raise ValueError(f"models: their models cannot be trained in a graph. Received: {what}") from error


def refuse_other_spaces(directory: RunDirectory, spec: Spec, read: Collection[str] | None = None) -> None:
    """Refuses an environment whose spaces are not those in which a run's policy was trained. A policy that only
    acts needs the observations in `read` and its actions.

    Raises:
        ValueError: names the first difference.
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
            raise ValueError(
                f"The policy of {directory.path} belongs to another environment: its {name} is {theirs}. "
                f"Received: {name}={ours}"
            )


def about_other_bounds(source: RunDirectory, spec: Spec) -> str | None:
    """Returns a line where -1 and 1 stood for other actions in the run whose weights a new one begins with."""
    trained = read_object(source.config).get("spaces")
    if trained is None:  # of a run from before they were recorded
        return None
    for name, theirs, ours in differences(trained["action"], spaces_of(spec)["action"]):
        if name in ("low", "high") and not same_bounds(theirs, ours):
            return (
                f"The actions of {source.path} have the {name} {theirs}, here it is {ours}: its policy begins with "
                "other actions."
            )
    return None


def refuse_other_order(directory: RunDirectory, spec: Spec) -> None:
    """Refuses to train a run's networks further on observations whose keys come in another order: they read the parts
    in this order.

    Raises:
        ValueError: the keys are the run's, in another order.
    """
    order = order_of_observations(directory)
    if order != list(spec.observation) and set(order) == spec.observation.keys():
        raise ValueError(
            f"The networks of {directory.path} read the parts of an observation in the order {order}; make the Dict "
            f"space of the environment in it. Received: {list(spec.observation)}"
        )


def order_of_observations(directory: RunDirectory) -> list[str]:
    """Returns the keys of a run's observations in their order; none where they are not recorded (yet)."""
    spaces = read_object(directory.config).get("spaces") if directory.config.is_file() else None
    return [] if spaces is None else list(spaces["observation"])
