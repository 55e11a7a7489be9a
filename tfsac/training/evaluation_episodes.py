"""Episodes of an evaluation, in an environment of its own, with seeds of their own."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.environments import episode_seed, name_of_environment
from tfsac.environments.check import check_finite, longest_episode, placed
from tfsac.environments.groups import convert
from tfsac.environments.vectorize import EVALUATION, SEEDS_BELOW, number
from tfsac.experiments.estimates import estimate, mean
from tfsac.parameters import EnvironmentEpisodes, StepMethod
from tfsac.training.non_finite import refuse_non_finite_action
from tfsac.training.policy import Policy
from tfsac.training.recorder import summary
from tfsac.user_code import calling

LONGEST_EPISODE = 100_000  # steps of an evaluation episode that does not end
NEVER_ENDS = (
    "An evaluation episode did not end within {} steps and was cut off, because its environment has no time limit, or "
    "a wrapper drops `truncated`; set environment.max_episode_steps, or register the environment with it."
)
SWITCHING = ("switch_rate", "repeats_mean")


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths of whole episodes, `[E]` each.

    Attributes:
        switched: of policies that keep or switch trajectories, which of all steps began a new one, booleans `[steps]`;
            else None.
        info: numbers in the info of each episode's last step by key, `[E]`, NaN where there is none.
    """

    returns: np.ndarray
    lengths: np.ndarray
    switched: np.ndarray | None = None
    info: Mapping[str, np.ndarray] = {}

    def __str__(self) -> str:
        """Returns the mean return, its 95 % bootstrap interval and the number of episodes."""
        return f"{estimate(mean, [self.returns])}, {len(self.returns)} episode{'s' * (len(self.returns) != 1)}"

    def summary(self, prefix: str) -> dict[str, float]:
        """Returns mean, std, min and max of the returns, the mean length and means of `info` as `prefix/name`; and how
        often it switched.
        """
        row = {f"{prefix}/{key}": float(np.nanmean(values)) for key, values in self.info.items()}
        row |= summary(prefix, self.returns, self.lengths)
        if self.switched is not None:
            row |= dict(zip([f"{prefix}/{name}" for name in SWITCHING], self.switching(), strict=True))
        return row

    def switching(self) -> tuple[float, float]:
        """Returns the part of the steps in which the policy switched, and for how many steps a trajectory lasted on
        average.
        """
        assert self.switched is not None
        # Every episode begins a trajectory, also where the first choice is to keep the one of zeros.
        starts = np.cumsum(self.lengths) - self.lengths
        begun = self.switched.copy()
        begun[starts] = True
        return float(self.switched.mean()), len(begun) / float(begun.sum())


def evaluate_policy(
    policy: Policy,
    env: gym.Env,
    amount: StepMethod,
    deterministic: bool = True,
    seed: int = 0,
    where: int = 0,
    each_step: Callable[..., None] | None = None,
    seeds_below: int = SEEDS_BELOW,
    begun: Any = None,
    begin: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Runs whole episodes of a policy, whose state is reset at each episode start.

    Args:
        policy: to be evaluated.
        deterministic: its mode instead of samples.
        env, amount, seed, where, each_step, seeds_below, begun, begin: see `evaluate`.

    Raises:
        EnvironmentFailure: the environment raised.
        NonFiniteError: the policy's action is not finite.
    """
    switched: list[bool] = []

    def act(observation: Any) -> np.ndarray:
        chosen, action = policy.choose(observation, deterministic)
        refuse_non_finite_action(chosen, "in an evaluation")
        if policy.switched is not None:
            switched.append(policy.switched)
        return action

    def begin_episode() -> None:
        policy.reset()
        begin()

    done = evaluate(act, env, amount, seed, where, each_step, begin_episode, seeds_below, begun)
    return done._replace(switched=np.array(switched) if switched else None)


def about_time_limit(env: gym.Env) -> str | None:
    """Returns a line for an environment without a known time limit, None for others."""
    if longest_episode(env):
        return None
    return (
        f"{name_of_environment(env)} has no registered time limit: episodes end where it terminates or truncates them "
        f"itself, and those of an evaluation after {LONGEST_EPISODE} steps at the latest. If it never ends them, stop "
        "now and train with environment.max_episode_steps, which a resumed run cannot change."
    )


def evaluate(
    act: Callable[[Any], np.ndarray],
    env: gym.Env,
    amount: StepMethod,
    seed: int = 0,
    where: int = 0,
    each_step: Callable[..., None] | None = None,
    begin: Callable[[], None] | None = None,
    seeds_below: int = SEEDS_BELOW,
    begun: Any = None,
) -> Evaluation:
    """Runs whole episodes and adds up their rewards. One that does not end is cut off after `LONGEST_EPISODE` steps, or
    after its time limit where that is longer.

    Args:
        act: raw observation of one environment to an action in the environment's bounds.
        env: the environment.
        amount: a number of episodes, or of steps (the last episode is finished).
        seed: of the run.
        where: distinguishes evaluations of one run; the episodes' seeds follow from both.
        each_step: called after every step with (observation, action, reward, terminated, truncated, next_observation).
        begin: called at the begin of every episode.
        seeds_below: what the episodes' seeds are below.
        begun: the observation after a reset that was made already, with which the first episode begins.

    Raises:
        EnvironmentFailure: the environment raised, or returned what it must not.
    """
    returns: list[float] = []
    lengths: list[int] = []
    infos: list[dict[str, float]] = []
    longest = max(LONGEST_EPISODE, longest_episode(env) or 0)
    name = name_of_environment(env)
    made = 0  # episodes, or steps
    while made < amount.num_steps:
        with _failing_in(name, len(returns), 0):
            observation, begun = begun, None
            if observation is None:
                observation, _ = env.reset(seed=episode_seed(seed, EVALUATION, where, len(returns), below=seeds_below))
            check_finite(observation, 0.0)
        total, length, done = 0.0, 0, False
        if begin is not None:
            with calling("begin"):
                begin()
        while not done:
            seen = observation
            if each_step is not None:  # environments may write the next one into the same array, and so may act
                observation = copy.deepcopy(observation)
            with _failing_in(name, len(returns), length, ValueError):  # an observation that the policy refuses
                action = act(seen)
            with _failing_in(name, len(returns), length):
                taken = action if each_step is None else copy.deepcopy(action)  # environments may change theirs
                next_observation, reward, terminated, truncated, info = env.step(taken)
                total, length = total + float(reward), length + 1
                check_finite(next_observation, total)
            if length == longest and not terminated and not truncated:
                truncated = True
                warnings.warn(NEVER_ENDS.format(length), RuntimeWarning, stacklevel=2)
            done = bool(terminated or truncated)
            if each_step is not None:
                each_step(observation, action, reward, terminated, truncated, copy.deepcopy(next_observation))
            observation = next_observation
        returns.append(total)
        lengths.append(length)
        infos.append(convert(info, number))
        made += 1 if isinstance(amount, EnvironmentEpisodes) else length
    keys = dict.fromkeys(key for each in infos for key in each)
    found = {key: np.array([each.get(key, np.nan) for each in infos]) for key in keys}
    return Evaluation(np.array(returns), np.array(lengths), info=found)


@contextlib.contextmanager
def _failing_in(name: str, episode: int, step: int, kind: type[Exception] = Exception) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise placed(error, name, f"evaluation episode {episode}, step {step}") from error
