"""Watching an exported policy, as Spinning Up's `test_policy` does."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

import gymnasium as gym

from tfsac.cards.card import Card
from tfsac.exporting.exported import load_exported
from tfsac.training import Evaluation, RunDirectory


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
        episodes, deterministic: as in `tfsac.evaluate`.
        max_ep_len: steps after which an episode is cut off; None for the run's own limit.
        render: open a window; an `env_fn` must then make its environment with `render_mode="human"`.

    Example:
        >>> tfsac.test_policy("runs/sac/20250101-120000-seed0", lambda: gymnasium.make("Pendulum-v1"), episodes=3)
    """
    directory = RunDirectory(run_dir)
    environment = directory.read()[0].environment
    limit = max_ep_len or environment.max_episode_steps
    make_env = env_fn
    if env_fn is not None and limit:
        make_env = lambda: gym.wrappers.TimeLimit(env_fn(), limit)  # noqa: E731
    environment = dataclasses.replace(environment, max_episode_steps=limit)
    card = Card(directory.path, load_exported(directory.policy), environment, {})
    evaluation = card.evaluate(episodes, deterministic, render="human" if render else "", env_fn=make_env)
    for i, (total, length) in enumerate(zip(evaluation.returns, evaluation.lengths, strict=True)):
        print(f"episode {i:<3}return {total:10.2f}  length {length:5}")
    print(f"mean       return {evaluation.returns.mean():10.2f}  length {evaluation.lengths.mean():7.1f}")
    return evaluation


test_policy.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test where it is imported
