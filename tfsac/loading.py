"""Loading what a run has learned."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from tfsac import argument_checks
from tfsac.environments import Filters, maker, refuse_unregistered, spec_of
from tfsac.networks import ModelMaker
from tfsac.parameters.keywords import explains_keywords
from tfsac.training import Policy, RunDirectory
from tfsac.training.build import build_agent, build_policy
from tfsac.training.devices import configure_once
from tfsac.training.recorded_functions import in_trained_order, recorded_spec, refuse_other_spaces, refuse_others
from tfsac.training.run_request import check_functions
from tfsac.training.weights import load_checkpoint, load_weights
from tfsac.types import Spec

EnvFn = Callable[[], gym.Env]


@explains_keywords
def load_policy(
    run_dir: str | pathlib.Path,
    env_fn: EnvFn | None = None,
    models: ModelMaker | None = None,
    critics: bool = False,
    step: int | None = None,
    last: bool = False,
) -> Policy:
    """Loads a run's policy: that of the best evaluation, or the last one.

    Args:
        run_dir: of the run.
        env_fn, models: the functions that it was trained with, if it was.
        critics: whether its agent is built too, with the critics that `Policy.values` and
            `tfsac.export(..., values=True)` need.
        step: of a checkpoint, for the best policy until then.
        last: take the policy as it was at the newest checkpoint, or that of `step`, whatever its evaluations.

    Raises:
        FileNotFoundError: no run there, or one without an evaluation yet and not `last`.
        TypeError: arguments of other types.
        ValueError, ImportError: the run's files are damaged, its environment or networks cannot be made, or are not
            those of the run; no checkpoint of this step.
        CheckpointError: `last`, and no checkpoint that is whole.
    """
    argument_checks.flag("critics", critics)
    directory = RunDirectory(argument_checks.path("run_dir", run_dir))
    if directory.read()[0].environment.evaluation != "separate":  # its only environment may be in use
        check_functions(env_fn, models)
        refuse_others(directory, env_fn, models)
        return policy_in(recorded_spec(directory), run_dir, models, critics, step, last)
    env = environment_of(run_dir, env_fn, models)
    env.close()
    return policy_in(env, run_dir, models, critics, step, last)


def policy_in(
    env: gym.Env | Spec,
    run_dir: str | pathlib.Path,
    models: ModelMaker | None,
    critics: bool = False,
    step: int | None = None,
    last: bool = False,
) -> Policy:
    """Returns a run's policy for one of its environments, or for the spec of one; see `load_policy`."""
    argument_checks.flag("last", last)
    configure_once()
    directory, spec = RunDirectory(pathlib.Path(run_dir)), env if isinstance(env, Spec) else spec_of(env)
    preset, run = directory.read()
    refuse_other_spaces(directory, spec)
    spec = in_trained_order(directory, spec)
    filters = Filters(preset.environment.filters, spec)
    if not (critics or last):
        acting = build_policy(preset, run, spec, models)
        load_weights(directory.weights(step), acting, filters)
        return Policy(acting, filters)
    agent = build_agent(preset, run, spec, models)
    if last:
        load_checkpoint(directory.checkpoint(step), agent, filters)
    else:
        load_weights(directory.weights(step), agent, filters)
    return Policy(agent.policy, filters, agent if critics else None)


def environment_of(
    run_dir: str | pathlib.Path, env_fn: EnvFn | None = None, models: ModelMaker | None = None, **kwargs: Any
) -> gym.Env:
    """Makes the environment of a run.

    Args:
        run_dir: of the run.
        env_fn, models: see `load_policy`.
        **kwargs: for `gymnasium.make`, or the PettingZoo environment; not for what env_fn makes.
    """
    check_functions(env_fn, models)
    directory = RunDirectory(argument_checks.path("run_dir", run_dir))
    refuse_others(directory, env_fn, models)
    parameters = directory.read()[0].environment
    if env_fn is None:
        refuse_unregistered(parameters.level, directory.path)
    return maker(dataclasses.replace(parameters, kwargs={**parameters.kwargs, **kwargs}), env_fn)()
