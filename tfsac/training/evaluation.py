"""Evaluation: whole episodes with separate seeds, and a run's evaluations with its best weights and threshold."""

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

SUCCESS = "is_success"  # key of the info of many environments
LONGEST_EPISODE = 100_000  # steps of an evaluation episode that does not end
SAVED = ("evaluated_at", "best_step", "best_updates", "accepted")  # attributes of an evaluator


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
        """Returns the mean return, its 95 % bootstrap interval, the success rate if there is one, and the number of
        episodes.
        """
        success = f", success rate {np.nanmean(self.info[SUCCESS]):.2f}" if SUCCESS in self.info else ""
        episodes = f"{len(self.returns)} episode{'s' * (len(self.returns) != 1)}"
        return f"{estimate(mean, [self.returns])}{success}, {episodes}"

    def logging(self, keys: Iterable[str]) -> Evaluation:
        """Returns it with these keys of `info` alone."""
        return self._replace(info={key: self.info[key] for key in keys if key in self.info})

    def summary(self, prefix: str) -> dict[str, float]:
        """Returns statistics of returns, lengths, `info` and how often it switched, as `prefix/name`."""
        row = {f"{prefix}/{key}": float(np.nanmean(values)) for key, values in self.info.items()}
        row |= summary(prefix, self.returns, self.lengths)
        if self.switched is not None:
            row[f"{prefix}/switch_rate"], row[f"{prefix}/repeats_mean"] = self.switching()
        return row

    def switching(self) -> tuple[float, float]:
        """Returns the part of the steps in which the policy switched, and the mean length of a trajectory."""
        assert self.switched is not None
        # Every episode begins a trajectory, also where the first choice is to keep the one of zeros.
        starts = np.cumsum(self.lengths) - self.lengths
        begun = self.switched.copy()
        begun[starts] = True
        return float(self.switched.mean()), len(begun) / float(begun.sum())


def evaluate_policy(
    policy: Policy, env: gym.Env, duration: StepMethod, deterministic: bool = True, *arguments: Any, **keywords: Any
) -> Evaluation:
    """Runs whole episodes of a policy, its mode or samples, whose state is reset at each episode start.

    The other arguments are those of `evaluate`, from `seed` on.
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
    """Runs whole episodes and adds up their rewards. One that does not end is cut off after `LONGEST_EPISODE` steps, or
    after its time limit where that is longer.

    Args:
        act: raw observation of one environment to an action in the environment's bounds.
        env: the environment.
        duration: a number of episodes, or of steps (the last episode is finished).
        seed: of the run.
        evaluation_index: distinguishes evaluations of one run; the episodes' seeds follow from both.
        each_step: called after every step with (observation, action, reward, terminated, truncated, next_observation).
        begin: called at the begin of every episode.
        first_observation: of the first episode, where its reset was made already.
        observe: called with the reward of every step, such as a policy's `observe`.

    Raises:
        EnvironmentFailure: the environment raised, or returned what it must not.
    """
    returns, lengths, infos = list[float](), list[int](), list[dict[str, float]]()
    longest = max(LONGEST_EPISODE, time_limit_of(env) or 0)
    name = name_of_environment(env)

    def call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            raise placed(error, name, f"evaluation episode {len(returns)}, step {length}") from error

    while (len(returns) if isinstance(duration, EnvironmentEpisodes) else sum(lengths)) < duration.num_steps:
        total, length, done = 0.0, 0, False
        observation, first_observation = first_observation, None
        if observation is None:
            observation, _ = call(env.reset, seed=episode_seed(seed, EVALUATION, evaluation_index, len(returns)))
        if begin is not None:
            begin()
        while not done:
            before = copy.deepcopy(observation)  # environments may write the next one into the same array
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
    """Evaluates the policy of a run and keeps its weights when they are the best so far.

    Attributes:
        best_return: mean return of the best evaluation; minus infinity before the first.
        best_step, best_updates: environment steps and updates of the run at that evaluation; None before the first.
        best_weights: content of their file.
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
        """Returns whether a period between evaluations has passed since the last evaluation that was completed."""
        return self.period.due(counters.of(self.preset.schedule.steps_between_evaluation_periods))

    def completed(self, counters: Counters) -> None:
        """Notes that the run was evaluated at these counters."""
        self.period.start(counters.of(self.preset.schedule.steps_between_evaluation_periods))
        self.evaluated_at = counters.env_steps

    def evaluate(self, env_steps: int, first_observation: dict[str, np.ndarray] | None = None) -> dict[str, float]:
        """Returns the summary of an evaluation, and of one with sampled actions where the run asks for it.

        The episodes' seeds follow from `env_steps`; `first_observation` is that after a reset that was made already.
        """
        kinds = {"evaluation": self.preset.agent.algorithm.use_deterministic_for_evaluation}
        if self.settings.stochastic_evaluation:
            kinds["stochastic_evaluation"] = False
        policy, duration, seed = self.policy.acting, self.preset.schedule.evaluation_steps, self.settings.seed
        row: dict[str, float] = {}
        training_rng = policy.rng  # samples drawn here must not shift it
        try:
            for kind, deterministic in kinds.items():
                policy.rng = np.random.default_rng([seed, Stream.EVALUATING, env_steps])
                arguments = self.policy, self.env, duration, deterministic, seed, env_steps
                evaluation = evaluate_policy(*arguments, first_observation=first_observation)
                row |= evaluation.logging(self.preset.environment.logged_keys).summary(kind)
                first_observation = None
        finally:
            policy.rng = training_rng
        return row

    def save_if_best(self, value: float, counters: Counters) -> None:
        """Saves the weights if the mean return `value` is the best so far; from the first update on, earlier ones no
        longer count.
        """
        if value > self.best_return or (self.best_updates == 0 and counters.updates):
            self.save(value, counters)

    def reached_threshold(self, value: float, counters: Counters) -> bool:
        """Returns whether the mean return of an evaluation is at least the preset's threshold, after an update."""
        validation = self.preset.validation
        threshold, within = validation.min_reward_threshold, validation.max_episodes_to_achieve_reward
        if threshold is None or value < threshold or not counters.updates:  # the warm-up's policy learned nothing
            return False
        self.accepted = self.accepted or within is None or counters.episodes <= within
        return True

    def save(self, value: float, counters: Counters) -> None:
        """Saves the weights as the best so far; see `save_if_best`."""
        refuse_non_finite_weights(self.agent.trained)
        self.best_return, self.best_step, self.best_updates = value, counters.env_steps, counters.updates
        self.best_weights = save_weights(self.path, self.agent, self.policy.filters)

    def state(self, counters: Counters) -> dict[str, Any]:
        """Returns what a checkpoint keeps of a run at `counters`, as JSON values."""
        saved = {name: getattr(self, name) for name in SAVED}
        return {**saved, "due": self.due(counters), "best_return": self.best}

    def files(self) -> dict[str, bytes]:
        """Returns the content of the file of the best weights by its name, once there is one."""
        return {BEST: self.best_weights} if self.best_weights else {}

    def restore(self, state: dict[str, Any], counters: Counters, files: Mapping[str, bytes]) -> None:
        """Takes what `state` and `files` returned when the run was at `counters`."""
        self.completed(counters)
        self.period.completed -= state["due"]  # an evaluation that its environment ended, which is made again
        for name in SAVED:
            setattr(self, name, state[name])
        self.best_return = -np.inf if state["best_return"] is None else state["best_return"]
        self.best_weights = files.get(BEST, b"")
