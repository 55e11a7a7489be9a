"""Spinning Up's `sac`: one function from an environment to a trained policy."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from tfsac.api import finish
from tfsac.environments import make, maker, spec_of
from tfsac.environments.check import time_limit_of
from tfsac.errors import TfsacError
from tfsac.parameters import EnvironmentParameters, networks_made_by, to_json
from tfsac.spinning_up.actor_critic import ActorCritic, mlp_actor_critic, model_maker
from tfsac.spinning_up.epochs import BarOnly, EpochLog
from tfsac.spinning_up.sac_arguments import SpinningUpArguments
from tfsac.training import Result, Trainer
from tfsac.utils.files import new_run_dir
from tfsac.utils.imports import name_of


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
    last checkpoint, also for more epochs. Std, Max and Min of the epoch in which it was interrupted are over the
    updates after it.

    Args:
        env_fn: returns a new environment at each call, with a `Box` of observations (not a `Dict`) and of actions. Of
            `functools.partial(gymnasium.make, "Hopper-v5")` the config has the level; other functions no file holds.
        actor_critic: makes the networks, see below; the default's act in NumPy and are faster.
        ac_kwargs: passed to `actor_critic`; for the default, hidden_sizes (256, 256) and activation "relu".
        max_ep_len: steps after which an episode is cut off: it counts as truncated and not as terminated, so the target
            still looks beyond it. A shorter limit of the environment's own stays.
        logger_kwargs: output_dir, a new or empty folder (default runs/<exp_name>/<time>-seed<seed>); exp_name, for
            plots (default "sac"); resume, see above.
        seed, steps_per_epoch, epochs, replay_size, gamma, polyak, lr: see `SpinningUpArguments`.
        alpha, batch_size, start_steps, update_after, update_every, num_test_episodes, save_freq: see there.

    A custom `actor_critic` is called as `actor_critic(observation_space, action_space, **ac_kwargs)` and returns three
    new Keras models:

        policy: observations `[B, ...]` to (mean, log_std), `[B, A]` each, of the Gaussian before tanh.
        q1, q2: [observations `[B, ...]`, actions `[B, A]` in [-1, 1]] to `[B]` or `[B, 1]`.

    Observations are float32, images (three dimensions of uint8) uint8. The function is called once for the networks and
    once for the target networks, each time after `keras.utils.set_random_seed(seed)`. Variables that gradients do not
    train, such as those of BatchNormalization, are refused.

    Returns:
        how it ended: reason, run directory, counters, best test return.

    Raises:
        TfsacError, OSError: as `tfsac.train`; or an argument is out of range.
        TypeError: an unknown key in `logger_kwargs`.

    Example:
        >>> tfsac.sac(lambda: gymnasium.make("Pendulum-v1"), ac_kwargs={"hidden_sizes": (64,)}, epochs=5)
    """
    call_arguments = locals()
    names = [field.name for field in dataclasses.fields(SpinningUpArguments)]
    arguments = SpinningUpArguments(**{name: call_arguments[name] for name in names})
    output_dir, exp_name, resume = _logger_arguments(**(logger_kwargs or {}))
    run_dir = pathlib.Path(output_dir or new_run_dir(exp_name, seed))
    (env := maker(EnvironmentParameters(), env_fn)()).close()
    if not all(isinstance(space, gym.spaces.Box) for space in (env.observation_space, env.action_space)):
        raise TfsacError(
            "sac needs Boxes of observations (gymnasium.wrappers.FlattenObservation makes one of a Dict) and actions; "
            f"tfsac.train has agents for others, got {env.observation_space} and {env.action_space}"
        )
    spec, ac_kwargs, models = spec_of(env), dict(ac_kwargs or {}), None
    limits = (max_ep_len, env.spec and env.spec.max_episode_steps, time_limit_of(env))
    level, limit = _level_of(env_fn), min(limit for limit in limits if limit)
    environment = EnvironmentParameters(level or EnvironmentParameters.level, max_episode_steps=limit)
    if actor_critic is mlp_actor_critic:
        preset = arguments.preset(environment, **ac_kwargs)
    else:
        preset, kwargs = arguments.preset(environment), json.dumps(_plain(ac_kwargs), sort_keys=True)
        call = f"{name_of(getattr(actor_critic, 'func', actor_critic))}({kwargs})"
        agent = dataclasses.replace(preset.agent, networks=networks_made_by(call, preset.agent.networks))
        preset = dataclasses.replace(preset, agent=agent)
        models = model_maker(actor_critic, env.observation_space, env.action_space, ac_kwargs, spec, seed)
    functions = {"env_fn": name_of(env_fn), "actor_critic": name_of(actor_critic), "ac_kwargs": _plain(ac_kwargs)}
    trainer = Trainer(
        preset,
        run_dir,
        arguments.run_parameters(),
        resume,
        [EpochLog({"exp_name": exp_name, **functions, **to_json(arguments)})],
        env_fn=env_fn if level is None else None,
        models=models,
        terminal=BarOnly,
    )
    folder = str(trainer.directory.path)
    trainer.resume_command = f"the same call of sac (or tfsac spinup) with resume=True (--resume), in {folder}"
    return finish(trainer)


def _logger_arguments(
    output_dir: str | pathlib.Path | None = None, exp_name: str = "sac", resume: bool = False
) -> tuple[str | pathlib.Path | None, str, bool]:
    return output_dir, exp_name, resume


def _level_of(env_fn: Callable[[], gym.Env]) -> str | None:
    """Returns the level that a partial of `gymnasium.make` or tfsac's own makes, None for other functions."""
    if isinstance(env_fn, functools.partial) and env_fn.func in (make, gym.make) and not env_fn.keywords:
        return str(env_fn.args[0])
    return None


def _plain(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments as JSON values."""
    return json.loads(json.dumps(kwargs, default=lambda x: x.tolist() if hasattr(x, "tolist") else repr(x)))
