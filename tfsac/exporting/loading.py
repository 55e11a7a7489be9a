"""Loads the policy of a run."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments import EnvFn, Filters, maker, spec_of
from tfsac.networks import ModelMaker
from tfsac.parameters import EnvironmentParameters, ParameterError, override, to_json
from tfsac.policies.base_policy import read_by
from tfsac.training import Policy, RunDirectory
from tfsac.training.build import build_agent, build_policy
from tfsac.training.devices import configure_once
from tfsac.training.policy_weights import load_checkpoint, load_weights
from tfsac.types import DiscreteSpec, HybridSpec, Spec
from tfsac.utils.files import differences, read_object
from tfsac.utils.imports import name_of


def load_policy(
    run_dir: str | pathlib.Path,
    env_fn: EnvFn | None = None,
    models: ModelMaker | None = None,
    critics: bool = False,
    step: int | None = None,
    last: bool = False,
    seed: int | Sequence[int] | None = None,
    spec: Spec | None = None,
) -> Policy:
    """Loads a run's policy, from the best evaluation or the last checkpoint.

    Args:
        run_dir: the run's folder.
        env_fn, models: the functions that it was trained with, if any. Another env_fn may make any environment with the
            same actions and the observations that the policy reads.
        critics: whether to build the agent too, with the critics that `Policy.values` and
            `tfsac.export(..., values=True)` need.
        step: step of a checkpoint, to load the best policy until then.
        last: load the policy of the newest checkpoint, or of that at `step`, regardless of evaluations.
        seed: seed of the samples of `act(observation, deterministic=False)`; None for a new one at every load.
        spec: spec of the environment to act in; None makes the environment to find out.

    Raises:
        OSError: no run in this folder, or a run without an evaluation yet, unless `last`.
        TfsacError: the run's files are damaged, the environment or networks do not match it, or there is no such
            checkpoint.

    Example:
        >>> policy = tfsac.load_policy("runs/pendulum")
        >>> action = policy.act(observation)
    """
    directory = RunDirectory(run_dir)
    preset, run = directory.read()
    trained = directory.spec()  # None for old runs
    if spec is None and preset.environment.evaluation != "separate":  # its only environment may be in use
        spec = trained
    if spec is None:
        with contextlib.closing(environment_of(run_dir, env_fn)) as env:
            spec = spec_of(env)
    configure_once()
    if models is not None and not any(network.made_by for network in preset.agent.networks.values()):
        raise ParameterError(f"{directory.path} was trained without models: leave models out")
    trained = trained or spec
    if isinstance(trained.action, HybridSpec) and isinstance(spec.action, HybridSpec):
        directory.check_spaces(spec, ())
        trained = trained._replace(action=spec.action)  # the same spaces except for the dtype
    if isinstance(trained.action, DiscreteSpec) and isinstance(spec.action, DiscreteSpec):
        trained = trained._replace(action=trained.action._replace(native_dtype=spec.action.native_dtype))
    agent = build_agent(preset, run, trained, models) if critics or last else None
    actor = build_policy(preset, run, trained, models) if agent is None else agent.policy
    acting = read_by(actor.acts_through, actor.networks, trained)
    filters = Filters(preset.environment.filters, trained if critics else acting)
    policy = Policy(actor, filters, agent if critics else None)
    policy.acting.rng = np.random.default_rng(seed)
    directory.check_spaces(spec, policy.reads.observation)
    if agent is not None and last:
        load_checkpoint(directory.checkpoint(step), agent, filters)
    else:
        load_weights(directory.weights(step), agent or actor, filters)
    return policy


def environment_of(run_dir: str | pathlib.Path, env_fn: EnvFn | None = None) -> gym.Env:
    """Makes the environment of a run."""
    return maker(playing_environment(run_dir, env_fn), env_fn, to_play=True)()


def playing_environment(
    run_dir: str | pathlib.Path, env_fn: EnvFn | None, changes: Mapping[str, Any] | None = None, quiet: bool = True
) -> EnvironmentParameters:
    """Returns the parameters of the environment that a run's policy acts in, with the changes of `tfsac.evaluate`.
    Unless `quiet`, prints a line if it differs from the training environment.
    """
    directory, changes = RunDirectory(run_dir), changes or {}
    preset, _ = directory.read()
    playing, trained = override(preset, changes).environment, preset.environment
    if playing.filters != trained.filters or any(not path.startswith("environment.") for path in changes):
        can = "for a trained policy only the environment can change, such as environment.kwargs, but no filters"
        raise ParameterError(f"{can}, got {', '.join(changes)}")
    different = differences(to_json(trained), to_json(playing))
    env_fn_of_training = read_object(directory.config).get("env_fn")
    if env_fn is not None and name_of(env_fn) != env_fn_of_training:
        different.append(("env_fn", env_fn_of_training, name_of(env_fn)))
    if different and not quiet:
        listed = ", ".join(f"{name}={value} (in training {trained_value})" for name, trained_value, value in different)
        print(f"This is not the environment of training: {listed}")
    return playing
