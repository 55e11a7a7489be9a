"""Watching an exported policy, as Spinning Up's `test_policy` does."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac import argument_checks
from tfsac.api import AFTER_TRAINING
from tfsac.environments import as_arrays, maker, spec_of
from tfsac.exporting.exported import load_exported
from tfsac.parameters import EnvironmentEpisodes
from tfsac.training import Evaluation, RunDirectory, evaluate
from tfsac.training.recorded_functions import refuse_other_spaces
from tfsac.types import input_name


def test_policy(
    run_dir: str | pathlib.Path,
    env_fn: Callable[[], gym.Env] | None = None,
    episodes: int = 100,
    deterministic: bool = True,
    max_ep_len: int | None = None,
    render: bool = False,
) -> Evaluation:
    """Runs the exported policy of a run and prints return and length of each episode and their means.

    It needs the run's `policy` folder and `config.json`, and nothing that made the networks, so a custom `actor_critic`
    is fine in a new process. The episodes begin alike at every call.

    Args:
        run_dir: of a run that ended.
        env_fn: makes the environment, as in `tfsac.sac`; None makes the run's level.
        episodes: how many.
        deterministic: the policy's mode instead of samples.
        max_ep_len: steps after which an episode is cut off; None for the run's own limit.
        render: open a window; an `env_fn` must then make its environment with `render_mode="human"`.

    Returns:
        returns and lengths of the episodes, `[E]` each.

    Raises:
        FileNotFoundError: no run there, or one without an exported policy.
        ValueError: fewer than one episode, an environment that cannot be made, is not the policy's or has no window.

    Example:
        >>> tfsac.test_policy("runs/sac/20250101-120000-seed0", lambda: gymnasium.make("Pendulum-v1"), episodes=3)
    """
    episodes = argument_checks.whole("episodes", episodes, 1)
    for name, value in (("deterministic", deterministic), ("render", render)):
        argument_checks.flag(name, value)
    directory = RunDirectory(argument_checks.path("run_dir", run_dir))
    parameters = directory.read()[0].environment
    if max_ep_len is not None:
        parameters = dataclasses.replace(parameters, max_episode_steps=max_ep_len)
    if render:
        parameters = dataclasses.replace(parameters, kwargs={**parameters.kwargs, "render_mode": "human"})
    exported = load_exported(directory.policy)
    env = maker(parameters, env_fn)()
    try:
        spec = spec_of(env)
        _check(env, {key: list(shape) for key, (shape, _) in exported.reads.items()}, render)
        refuse_other_spaces(directory, spec)
        done = evaluate(
            lambda observation: exported(as_arrays(observation, spec), deterministic),
            env,
            EnvironmentEpisodes(episodes),
            evaluation_index=AFTER_TRAINING,
            each_step=_Printer(),
            begin=exported.reset,
        )
    finally:
        env.close()
    print(f"mean       return {done.returns.mean():10.2f}  length {done.lengths.mean():7.1f}")
    return done


test_policy.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test where it is imported


def _check(env: gym.Env, reads: dict[str, list[int | None]], render: bool) -> None:
    """Refuses an environment without what the policy reads; a size of None, a number of agents, may be any."""
    shapes = {input_name(key): list(array.shape) for key, array in spec_of(env).observation.items()}
    for key, expected in reads.items():
        shape = shapes.get(key, [None])
        if len(shape) != len(expected) or any(size not in (None, n) for size, n in zip(expected, shape, strict=True)):
            raise ValueError(f"The policy acts on observations of the shapes {reads}. Received: {shapes} of {env}")
    if render and env.render_mode != "human":
        raise ValueError(f"To render, make the environment with render_mode='human'. Received: {env.render_mode!r}")


class _Printer:
    """Prints a line at the end of each episode."""

    def __init__(self) -> None:
        self.episode, self.total, self.length = 0, 0.0, 0

    def __call__(
        self, observation: Any, action: np.ndarray, reward: float, terminated: bool, truncated: bool, *_: Any
    ) -> None:
        self.total, self.length = self.total + float(reward), self.length + 1
        if terminated or truncated:
            print(f"episode {self.episode:<3}return {self.total:10.2f}  length {self.length:5}", flush=True)
            self.episode, self.total, self.length = self.episode + 1, 0.0, 0
