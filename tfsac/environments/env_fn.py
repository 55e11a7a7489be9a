"""Environments that `env_fn`, a function of the user, makes: it is called again for each one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from tfsac.user_code import calling

HOW = (
    "env_fn is a function that returns a new Gymnasium environment at each call, "
    "such as lambda: gymnasium.make('Pendulum-v1')"
)


def name_of_environment(env: gym.Env) -> str:
    """Returns an environment's own name: its id in Gymnasium, or else the name of its class."""
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def check_env_fn(env_fn: object) -> None:
    """Refuses what cannot be called to make environments.

    Raises:
        TypeError: no function; the message says so where it is an environment.
    """
    if isinstance(env_fn, gym.Env):
        raise TypeError(f"{HOW}, not an environment: training and evaluation each need their own. Received: {env_fn}")
    if not callable(env_fn):
        raise TypeError(f"{HOW}. Received: {env_fn!r}")


def making(env_fn: Callable[[], gym.Env], one_at_once: bool = False) -> Callable[[], gym.Env]:
    """Returns a function that makes one environment with the user's function and checks that it is one, and new.

    Args:
        env_fn: returns a new environment at each call.
        one_at_once: whether each is closed before the next is made, so that it may be the same one again.

    Raises:
        TypeError: no function. The returned function raises TypeError for what is no environment, ValueError for the
            same environment a second time, and UserCodeError for what the user's function raises.
    """
    check_env_fn(env_fn)
    return _Making(env_fn, one_at_once)


class _Making:
    """Calls the user's function; a copy in another process knows nothing of the environments made here."""

    def __init__(self, env_fn: Callable[[], gym.Env], one_at_once: bool):
        self.env_fn, self.one_at_once = env_fn, one_at_once
        # By identity: environments may have an equality of their own, as dataclasses have.
        self.made: weakref.WeakValueDictionary[int, gym.Env] = weakref.WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return making, (self.env_fn, self.one_at_once)

    def __call__(self) -> gym.Env:
        with calling("env_fn"):
            env = self.env_fn()
        if not isinstance(env, gym.Env):
            raise TypeError(f"{HOW}. Received: {env!r} from env_fn")
        if self.made.get(id(env.unwrapped)) is env.unwrapped and not self.one_at_once:
            raise ValueError(
                "env_fn makes a new environment at each call: training and evaluation must not step the same one. For "
                'one that exists once, set environment.evaluation to "shared" or "none". '
                f"Received: {env} twice"
            )
        self.made[id(env.unwrapped)] = env.unwrapped
        return env
