"""Evaluation in whole episodes with separate seeds, and a run's evaluations, best weights and threshold."""

from __future__ import annotations

import copy
import pathlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.agents import Agent
from tfsac.environments import name_of_environment
from tfsac.environments.checked_env import placed, time_limit_of
from tfsac.environments.subprocesses import convert
from tfsac.environments.vectorize import number
from tfsac.experiments.bootstrap import estimate, mean
from tfsac.parameters import EnvironmentEpisodes, Preset, RunParameters, StepMethod
from tfsac.random_streams import EVALUATION, Stream, episode_seed
from tfsac.training.non_finite import refuse_non_finite_weights
from tfsac.training.policy_weights import save_weights
from tfsac.training.reporting import summary
from tfsac.training.run_directory import BEST
from tfsac.training.schedule import Counters, Period
from tfsac.training.trained_policy import Policy

SUCCESS = "is_success"  # info key in many environments
LONGEST_EPISODE = 100_000  # steps after which an evaluation episode is cut off
SAVED = ("evaluated_at", "best_step", "best_updates", "accepted")  # attributes of an evaluator


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths of whole episodes, `[E]` each.

    Attributes:
        switched: booleans `[steps]`, whether each step started a new trajectory, for policies with temporal
            abstraction; else None.
        info: numbers from the info of each episode's last step by key, `[E]`, NaN if missing.
    """

    returns: np.ndarray
    lengths: np.ndarray
    switched: np.ndarray | None = None
    info: Mapping[str, np.ndarray] = {}

    def __str__(self) -> str:
        """Returns the mean return, its 95 % bootstrap interval, the success rate if any, and the number of episodes."""
        success = f", success rate {np.nanmean(self.info[SUCCESS]):.2f}" if SUCCESS in self.info else ""
        episodes = f"{len(self.returns)} episode{'s' * (len(self.returns) != 1)}"
        return f"{estimate(mean, [self.returns])}{success}, {episodes}"

    def logging(self, keys: Iterable[str]) -> Evaluation:
        """Returns a copy with only these keys of `info`."""
        return self._replace(info={key: self.info[key] for key in keys if key in self.info})

    def summary(self, prefix: str) -> dict[str, float]:
        """Returns statistics of returns, lengths, `info` and switching, as `prefix/name`."""
        row = {f"{prefix}/{key}": float(np.nanmean(values)) for key, values in self.info.items()}
        row |= summary(prefix, self.returns, self.lengths)
        if self.switched is not None:
            row[f"{prefix}/switch_rate"], row[f"{prefix}/repeats_mean"] = self.switching()
        return row

    def switching(self) -> tuple[float, float]:
        """Returns the fraction of steps in which the policy switched, and the mean length of a trajectory."""
        assert self.switched is not None
        # Every episode starts a trajectory, even if the policy keeps the initial trajectory of zeros.
        starts = np.cumsum(self.lengths) - self.lengths
        begun = self.switched.copy()
        begun[starts] = True
        return float(self.switched.mean()), len(begun) / float(begun.sum())


def evaluate_policy(
    policy: Policy, env: gym.Env, duration: StepMethod, deterministic: bool = True, *arguments: Any, **keywords: Any
) -> Evaluation:
    """Runs whole episodes with a policy's mode or samples; resets the policy's state at each episode start.

    The remaining arguments are those of `evaluate`, from `seed` on.
    """
    switched: list[bool] = []

    def act(observation: Any) -> np.ndarray:
        action = policy.act(observation, deterministic)
        if policy.switched is not None:
            switched.append(policy.switched)
        return action

    hooks = {"begin": policy.reset, "observe": policy.observe}
    evaluation = evaluate(act, env, duration, *arguments, **{**hooks, **keywords})
    return evaluation._replace(switched=np.array(switched) if switched else None)


def evaluate(
    act: Callable[[Any], np.ndarray],
    env: gym.Env,
    duration: StepMethod,
    seed: int = 0,
    evaluation_index: int = 0,
    each_step: Callable[..., None] = lambda *step: None,
    begin: Callable[[], None] | None = None,
    first_observation: Any = None,
    observe: Callable[[float], None] | None = None,
) -> Evaluation:
    """Runs whole episodes and sums their rewards. Cuts an episode off after `LONGEST_EPISODE` steps, or after its time
    limit if that is longer.

    Args:
        act: maps a raw observation of one environment to an action in the environment's bounds.
        env: the environment.
        duration: a number of episodes, or of steps (the last episode is finished).
        seed: seed of the run.
        evaluation_index: distinguishes evaluations of one run; both determine the episodes' seeds.
        each_step: called after every step with (observation, action, reward, terminated, truncated, next_observation).
        begin: called at the start of every episode.
        first_observation: first observation of the first episode, if the environment was already reset.
        observe: called with the reward of every step, such as a policy's `observe`.

    Raises:
        EnvironmentFailure: the environment raised, or returned invalid values.
    """
    returns, lengths, infos = list[float](), list[int](), list[dict[str, float]]()
    longest = max(LONGEST_EPISODE, time_limit_of(env) or 0)
    name = name_of_environment(env)

    def call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise placed(error, name, f"evaluation episode {len(returns)}, step {length}") from error

    while (len(returns) if isinstance(duration, EnvironmentEpisodes) else sum(lengths)) < duration.num_steps:
        total, length, done = 0.0, 0, False
        observation, first_observation = first_observation, None
        if observation is None:
            observation, _ = call(env.reset, seed=episode_seed(seed, EVALUATION, evaluation_index, len(returns)))
        if begin is not None:
            begin()
        while not done:
            before = copy.deepcopy(observation)  # the environment may write the next observation into the same array
            action = act(observation)
            observation, reward, terminated, truncated, info = call(env.step, copy.deepcopy(action))
            total, length = total + float(reward), length + 1
            if observe is not None:
                observe(float(reward))
            if length == longest and not terminated and not truncated:
                truncated = True
                warnings.warn(
                    f"an evaluation episode was cut off after {length} steps: set environment.max_episode_steps",
                    RuntimeWarning,
                    stacklevel=2,
                )
            done = bool(terminated or truncated)
            each_step(before, action, reward, terminated, truncated, copy.deepcopy(observation))
        returns.append(total)
        lengths.append(length)
        infos.append(convert(info, number))
    keys = dict.fromkeys(key for values in infos for key in values)
    info_values = {key: np.array([values.get(key, np.nan) for values in infos]) for key in keys}
    return Evaluation(np.array(returns), np.array(lengths), info=info_values)


class Evaluator:
    """Evaluates the policy of a run and saves its weights when they are the best so far.

    Attributes:
        best_return: mean return of the best evaluation; minus infinity before the first.
        best_step, best_updates: environment steps and updates at that evaluation; None before the first.
        best_weights: content of the file with the best weights.
        accepted: whether an evaluation reached the threshold within the preset's number of training episodes.
        evaluated_at: environment steps of the last evaluation.
    """

    def __init__(
        self, preset: Preset, settings: RunParameters, policy: Policy, agent: Agent, env: gym.Env, best: pathlib.Path
    ):
        self.preset, self.settings, self.policy, self.agent = preset, settings, policy, agent
        self.env, self.path = env, best
        self.best_return, self.accepted = -np.inf, False
        self.best_step: int | None = None
        self.best_updates: int | None = None
        self.best_weights = b""
        self.period, self.evaluated_at = Period(preset.schedule.steps_between_evaluation_periods.num_steps), 0

    @property
    def best(self) -> float | None:
        """The mean return of the best evaluation, None before the first."""
        return None if np.isinf(self.best_return) else self.best_return

    def due(self, counters: Counters) -> bool:
        """Returns whether the evaluation period has passed since the last completed evaluation."""
        return self.period.due(counters.of(self.preset.schedule.steps_between_evaluation_periods))

    def completed(self, counters: Counters) -> None:
        """Records that an evaluation was completed at these counters."""
        self.period.start(counters.of(self.preset.schedule.steps_between_evaluation_periods))
        self.evaluated_at = counters.env_steps

    def evaluate(self, env_steps: int, first_observation: dict[str, np.ndarray] | None = None) -> dict[str, float]:
        """Returns the summary of an evaluation, and of one with sampled actions if the run's settings include it.

        `env_steps` determines the episodes' seeds; pass `first_observation` if the environment was already reset.
        """
        kinds = {"evaluation": self.preset.agent.algorithm.use_deterministic_for_evaluation}
        if self.settings.stochastic_evaluation:
            kinds["stochastic_evaluation"] = False
        policy, duration, seed = self.policy.acting, self.preset.schedule.evaluation_steps, self.settings.seed
        row: dict[str, float] = {}
        training_rng = policy.rng  # sampling here must not advance it
        try:
            for kind, deterministic in kinds.items():
                policy.rng = np.random.default_rng([seed, Stream.EVALUATING, env_steps])
                arguments = self.policy, self.env, duration, deterministic, seed, env_steps
                with self.agent.averaged_policy():
                    evaluation = evaluate_policy(*arguments, first_observation=first_observation)
                row |= evaluation.logging(self.preset.environment.logged_keys).summary(kind)
                first_observation = None
        finally:
            policy.rng = training_rng
        return row

    def save_if_best(self, value: float, counters: Counters) -> None:
        """Saves the weights if the mean return `value` is the best so far. Once there are updates, evaluations from
        before the first update no longer count.
        """
        if value > self.best_return or (self.best_updates == 0 and counters.updates):
            self.save(value, counters)

    def reached_threshold(self, value: float, counters: Counters) -> bool:
        """Returns whether an evaluation's mean return reaches the preset's threshold; False before the first update."""
        validation = self.preset.validation
        threshold, within = validation.min_reward_threshold, validation.max_episodes_to_achieve_reward
        if threshold is None or value < threshold or not counters.updates:  # the policy is untrained in the warm-up
            return False
        self.accepted = self.accepted or within is None or counters.episodes <= within
        return True

    def save(self, value: float, counters: Counters) -> None:
        """Saves the weights as the best so far; see `save_if_best`."""
        refuse_non_finite_weights(self.agent.trained)
        with self.agent.averaged_policy():
            self.best_weights = save_weights(self.path, self.agent, self.policy.filters)
        self.best_return, self.best_step, self.best_updates = value, counters.env_steps, counters.updates

    def state(self, counters: Counters) -> dict[str, Any]:
        """Returns the state for a checkpoint at `counters`, as JSON values."""
        saved = {name: getattr(self, name) for name in SAVED}
        return {**saved, "due": self.due(counters), "best_return": self.best}

    def files(self) -> dict[str, bytes]:
        """Returns the file of the best weights as {name: content}; empty before the first evaluation."""
        return {BEST: self.best_weights} if self.best_weights else {}

    def restore(self, state: dict[str, Any], counters: Counters, files: Mapping[str, bytes]) -> None:
        """Restores the results of `state` and `files` from when the run was at `counters`."""
        self.completed(counters)
        self.period.completed -= state["due"]  # repeat an evaluation that failed in the environment
        for name in SAVED:
            setattr(self, name, state[name])
        self.best_return = -np.inf if state["best_return"] is None else state["best_return"]
        self.best_weights = files.get(BEST, b"")
