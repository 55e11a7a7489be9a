"""Evaluation: episodes in an environment of its own, with seeds of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.environments import EnvironmentFailure, episode_seed
from tfsac.environments.vectorize import EVALUATION
from tfsac.parameters import EnvironmentEpisodes, StepMethod
from tfsac.training.progress import summary


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths of whole episodes, `[E]` each."""

    returns: np.ndarray
    lengths: np.ndarray

    def summary(self, prefix: str) -> dict[str, float]:
        """Returns mean, std, min and max of the returns, and the mean length, as `prefix/name`."""
        return summary(prefix, self.returns, self.lengths)


def evaluate(
    act: Callable[[Any], np.ndarray],
    env: gym.Env,
    amount: StepMethod,
    seed: int = 0,
    where: int = 0,
    each_step: Callable[..., None] | None = None,
) -> Evaluation:
    """Runs whole episodes and adds up their rewards.

    Args:
        act: raw observation of one environment to an action in the environment's bounds.
        env: not the one that is trained in.
        amount: a number of episodes, or of steps (the last episode is finished).
        seed: of the run.
        where: distinguishes evaluations of one run; the episodes' seeds follow from both.
        each_step: called after every step with (observation, action, reward, terminated, truncated, next_observation).

    Raises:
        EnvironmentFailure: the environment raised.
    """
    returns: list[float] = []
    lengths: list[int] = []
    while (len(returns) if isinstance(amount, EnvironmentEpisodes) else sum(lengths)) < amount.num_steps:
        try:
            observation, _ = env.reset(seed=episode_seed(seed, EVALUATION, where, len(returns)))
            total, length, done = 0.0, 0, False
            while not done:
                action = act(observation)
                if each_step is not None:
                    observation = copy.deepcopy(observation)  # environments may write the next one into the same array
                next_observation, reward, terminated, truncated, _ = env.step(action)
                total, length, done = total + float(reward), length + 1, bool(terminated or truncated)
                if each_step is not None:
                    each_step(observation, action, reward, terminated, truncated, copy.deepcopy(next_observation))
                observation = next_observation
        except Exception as error:
            raise EnvironmentFailure(
                f"The evaluation environment raised in episode {len(returns)}. Received: {type(error).__name__}: {error}"
            ) from error
        returns.append(total)
        lengths.append(length)
    return Evaluation(np.array(returns), np.array(lengths))
