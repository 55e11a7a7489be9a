"""Spinning Up's `sac`: one function from an environment to a trained policy."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.api import finish
from tfsac.environments import make, maker, name_of_environment, spec_of
from tfsac.environments.check import time_limit_of
from tfsac.files import differences, new_run_dir, no_run, read_object
from tfsac.parameters import BY_ENV_FN, EnvironmentParameters, ParameterError, to_json
from tfsac.parameters.base import nearest, python_numbers
from tfsac.spinning_up.actor_critic import ActorCritic, mlp_actor_critic, model_maker
from tfsac.spinning_up.epochs import BarOnly, EpochLog
from tfsac.spinning_up.sac_arguments import SpinningUpArguments
from tfsac.spinning_up.unchanged import leaves_as_made
from tfsac.training import Result, Trainer
from tfsac.types import DiscreteSpec
from tfsac.user_code import name_of

MAY_CHANGE = ("epochs", "num_test_episodes", "save_freq")  # when a run is resumed
LOGGER: dict[str, Any] = {"output_dir": None, "exp_name": "sac", "resume": False}


def sac(
    env_fn: Callable[[], gym.Env],
    actor_critic: ActorCritic = mlp_actor_critic,
    ac_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    steps_per_epoch: int = 4000,
    epochs: int = 100,
    replay_size: int = int(1e6),
    gamma: float = 0.99,
    polyak: float = 0.995,
    lr: float = 1e-3,
    alpha: float = 0.2,
    batch_size: int = 100,
    start_steps: int = 10000,
    update_after: int = 1000,
    update_every: int = 50,
    num_test_episodes: int = 10,
    max_ep_len: int = 1000,
    logger_kwargs: Mapping[str, Any] | None = None,
    save_freq: int = 1,
) -> Result:
    """Trains soft actor-critic with Spinning Up's names, defaults and update rule.

    Every epoch ends with a test of the deterministic policy, a table on the terminal and a row in progress.txt; the run
    directory has everything that `tfsac.train` leaves as well. Nothing is written before everything is built.

    The same call with `logger_kwargs={"output_dir": ..., "resume": True}` resumes an interrupted run exactly from its
    last checkpoint; epochs, save_freq and num_test_episodes may be others. Std, Max and Min of the epoch in which it
    was interrupted are over the updates after it. `tfsac train --resume` also continues runs of the default
    `actor_critic` in an environment that `gymnasium.make` can make, but writes no progress.txt; it refuses the others,
    whose functions it does not have.

    Args:
        env_fn: returns a new environment at each call, with a `Box` of observations (not a `Dict`) and of actions.
        actor_critic: makes the networks, see below; the default's act in NumPy and are faster.
        ac_kwargs: passed to `actor_critic`; for the default, hidden_sizes (256, 256) and activation "relu".
        seed: of weights, noise, sampling and environments.
        steps_per_epoch: environment steps of an epoch.
        epochs: how many.
        replay_size: transitions that the memory holds.
        gamma: discount.
        polyak: share of the old target at each update: target <- polyak * target + (1 - polyak) * online.
        lr: of policy and critics.
        alpha: weight of the entropy; a larger one explores more.
        batch_size: rows of an update.
        start_steps: environment steps with uniformly random actions.
        update_after: environment steps before those that lead to updates; the first updates are made at
            update_after + update_every.
        update_every: environment steps between updates, and how many updates are then made.
        num_test_episodes: of the test of an epoch.
        max_ep_len: steps after which an episode is cut off: it counts as truncated and not as terminated, so the target
            still looks beyond it. A shorter limit of the environment's own stays.
        logger_kwargs: output_dir, a new or empty folder (default runs/<exp_name>/<time>-seed<seed>); exp_name, for
            plots (default "sac"); resume, see above.
        save_freq: epochs between checkpoints; there is one at the end in any case.

    A custom `actor_critic` is called as `actor_critic(observation_space, action_space, **ac_kwargs)` and returns three
    new Keras models, which share no weights:

        policy: observations `[B, ...]` to (mean, log_std), `[B, A]` each, of the Gaussian before tanh.
        q1, q2: [observations `[B, ...]`, actions `[B, A]` in [-1, 1]] to `[B]` or `[B, 1]`.

    Observations are float32, images (three dimensions of uint8) uint8. The function is called once for the networks and
    once for the target networks, each time after `keras.utils.set_random_seed(seed)`. Variables that gradients do not
    train, such as those of BatchNormalization, are refused.

    Returns:
        how it ended: reason, run directory, counters, best test return.

    Raises:
        ValueError: an argument out of range, an environment or models that cannot be used.
        FileExistsError: there is something in output_dir.
        EnvironmentFailure, NonFiniteError, CheckpointError: as `Trainer.run` raises them.

    Example:
        >>> def small(observation_space, action_space, width):
        ...     observation, action = keras.Input(observation_space.shape), keras.Input(action_space.shape)
        ...     x = keras.layers.Dense(width, "silu")(observation)
        ...     policy = keras.Model(observation, [keras.layers.Dense(*action_space.shape)(x) for _ in range(2)])
        ...     def q():
        ...         x = keras.layers.Dense(width, "silu")(keras.layers.Concatenate()([observation, action]))
        ...         return keras.Model([observation, action], keras.layers.Dense(1)(x))
        ...     return policy, q(), q()
        >>> tfsac.sac(lambda: gymnasium.make("Pendulum-v1"), small, {"width": 64}, epochs=5)
    """
    arguments = SpinningUpArguments(
        seed,
        steps_per_epoch,
        epochs,
        replay_size,
        gamma,
        polyak,
        lr,
        alpha,
        batch_size,
        start_steps,
        update_after,
        update_every,
        num_test_episodes,
        max_ep_len,
        save_freq,
    )
    examples = ("lambda: gymnasium.make('Hopper-v5')", "tfsac.mlp_actor_critic")
    for name, function, example in zip(("env_fn", "actor_critic"), (env_fn, actor_critic), examples, strict=True):
        if not callable(function):
            raise ParameterError(f"{name} is a function, such as {example}. Received: {function!r}")
    ac_kwargs, logger = python_numbers(dict(ac_kwargs or {})), dict(LOGGER)
    logger.update({name: value for name, value in (logger_kwargs or {}).items() if value is not None})
    for name in logger.keys() - LOGGER.keys():
        raise ParameterError(
            f"logger_kwargs has the keys {', '.join(LOGGER)}.{nearest(name, LOGGER)} Received: {name!r}"
        )
    if logger["resume"] and logger["output_dir"] is None:
        raise ParameterError(f"To resume, name the run's folder as output_dir (--run_dir). Received: {logger_kwargs}")

    env = maker(EnvironmentParameters(), env_fn)()
    env.close()
    spec = spec_of(env)
    if spec.num_agents is not None:
        raise ParameterError(
            "sac trains one agent; the preset simple_spread_twin_sac shows how a team is trained (tfsac train). "
            f"Received: {spec.num_agents} agents in {env.observation_space}"
        )
    if isinstance(spec.action, DiscreteSpec):
        raise ParameterError(
            "sac has continuous actions; for discrete ones, train the preset cart_pole_discrete_sac (tfsac train). "
            f"Received: {env.action_space}"
        )
    if isinstance(env.observation_space, gym.spaces.Dict):
        raise ParameterError(
            "sac wants observations in one Box; gymnasium.wrappers.FlattenObservation makes one of a Dict. "
            f"Received: {env.observation_space}"
        )
    if logger["resume"]:
        _refuse_changes(pathlib.Path(logger["output_dir"]) / "config.json", to_json(arguments))
    models, networks = None, None
    if actor_critic is mlp_actor_critic:
        networks = arguments.mlp_networks(ac_kwargs)
    else:
        networks = arguments.networks_made_by(
            f"{name_of(getattr(actor_critic, 'func', actor_critic))}({json.dumps(_plain(ac_kwargs), sort_keys=True)})"
        )
        models = model_maker(actor_critic, env.observation_space, env.action_space, ac_kwargs, spec, seed)
    functions = {"env_fn": name_of(env_fn), "actor_critic": name_of(actor_critic), "ac_kwargs": _plain(ac_kwargs)}
    environment = _environment(env, env_fn, max_ep_len)
    trainer = Trainer(
        arguments.preset(environment, networks),
        logger["output_dir"] or new_run_dir(logger["exp_name"], seed),
        arguments.run_parameters(),
        logger["resume"],
        [EpochLog({"exp_name": logger["exp_name"], **functions, **to_json(arguments)})],
        env_fn=env_fn if environment.by_env_fn else None,
        models=models,
        terminal=BarOnly,
    )
    folder = str(trainer.directory.shown())
    trainer.parts.resume_command = f"tfsac.sac(..., logger_kwargs={{'output_dir': {folder!r}, 'resume': True}})"
    return finish(trainer)


def _refuse_changes(config: pathlib.Path, arguments: dict[str, Any]) -> None:
    if not config.is_file():
        raise no_run(config.parent)
    earlier = read_object(config)
    for name, theirs, ours in differences({key: earlier.get(key) for key in arguments}, arguments):
        if name not in MAY_CHANGE:
            raise ParameterError(
                f"A resumed run keeps its arguments but {', '.join(MAY_CHANGE)}; its {name} is {theirs!r}. "
                f"Received: {name}={ours!r}"
            )


def _environment(env: gym.Env, env_fn: Callable[[], gym.Env], max_ep_len: int) -> EnvironmentParameters:
    """Returns the level and the arguments that make the same environment, or a description of one that only env_fn
    makes.
    """
    spec = env.spec
    limit = min(each for each in (max_ep_len, spec and spec.max_episode_steps, time_limit_of(env)) if each)
    own = EnvironmentParameters(BY_ENV_FN + name_of_environment(env), max_episode_steps=limit)
    if spec is None or spec.id not in gym.registry or not _is_plain(spec.kwargs):
        return own
    if not all(
        wrapper.entry_point.startswith("tfsac.") for wrapper in spec.additional_wrappers
    ):  # those of checks are made again
        return own
    by_make = isinstance(env_fn, functools.partial) and env_fn.func is make
    made_of = env_fn.args[0] if isinstance(env_fn, functools.partial) and by_make else spec.id
    level = EnvironmentParameters(made_of, max_episode_steps=limit, kwargs=spec.kwargs)  # MODULE:ID too
    with contextlib.suppress(Exception):  # an environment that fails says so when it is trained in
        as_made = by_make or leaves_as_made(env_fn)
        if as_made and _first_steps(maker(own, env_fn)) == _first_steps(maker(level)):
            return level
    return own


def _first_steps(one: Callable[[], gym.Env], steps: int = 3) -> list[list[float]]:
    """Returns what the first steps of an episode give: a function may change an environment after Gymnasium made it."""
    env = one()
    env.action_space.seed(0)
    try:
        seen = [np.ravel(env.reset(seed=0)[0]).tolist()]
        for _ in range(steps):
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append([*np.ravel(observation).tolist(), float(reward), terminated, truncated])
            if terminated or truncated:
                break
    finally:
        env.close()
    return seen


def _is_plain(kwargs: dict[str, Any]) -> bool:
    try:
        return json.loads(json.dumps(kwargs)) == kwargs
    except TypeError:
        return False


def _plain(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments as JSON values."""
    return json.loads(json.dumps(kwargs, default=repr))
