"""The evaluations of a run: when they are due, the best weights, the preset's threshold."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.agents import Agent
from tfsac.environments.vectorize import SEEDS_BELOW
from tfsac.parameters import Preset, RunParameters
from tfsac.random_streams import Stream
from tfsac.training.evaluation_episodes import SWITCHING, evaluate_policy
from tfsac.training.non_finite import refuse_non_finite_weights
from tfsac.training.policy import Policy
from tfsac.training.recorder import RECENT, SUMMARY
from tfsac.training.run_directory import BEST
from tfsac.training.schedule import Counters
from tfsac.training.weights import save_weights
from tfsac.types import SWITCH


class Evaluator:
    """Evaluates the policy of a run and keeps its weights when they are the best so far.

    Args:
        preset: the experiment, with its schedule and threshold.
        settings: with the seed and `stochastic_evaluation`.
        policy: to evaluate.
        agent: whose weights are kept.
        env: in which.
        best: file of the best weights.

    Attributes:
        best_return: mean return of the best evaluation; minus infinity before the first.
        best_step, best_updates: environment steps and updates of the run at that evaluation; None before the first.
        best_weights: content of their file.
        accepted: whether an evaluation reached the threshold within the preset's number of training episodes.
        periods, evaluated_at: evaluation periods, and environment steps, at the last evaluation.
        seeds_below: what the episodes' seeds are below.
    """

    def __init__(
        self, preset: Preset, settings: RunParameters, policy: Policy, agent: Agent, env: gym.Env, best: pathlib.Path
    ):
        self.preset, self.settings, self.policy, self.agent, self.env, self.best = (
            preset,
            settings,
            policy,
            agent,
            env,
            best,
        )
        self.best_return, self.accepted = -np.inf, False
        self.best_step: int | None = None
        self.best_updates: int | None = None
        self.best_weights = b""
        self.periods, self.evaluated_at = 0, 0
        self.seeds_below = SEEDS_BELOW
        self.begin_episode: Callable[[], None] = lambda: None

    def columns(self) -> list[str]:
        """Returns the names of what `evaluate` returns."""
        if self.preset.environment.evaluation == "none":
            return [RECENT]
        names = (*SUMMARY, *SWITCHING) if SWITCH in self.policy.acting.spec.extras else SUMMARY
        kinds = ["evaluation", "stochastic_evaluation"] if self.settings.stochastic_evaluation else ["evaluation"]
        return [f"{kind}/{name}" for kind in kinds for name in names]

    def due(self, counters: Counters) -> bool:
        """Returns whether a period between evaluations has passed since the last evaluation that was completed."""
        return self._periods(counters) > self.periods

    def completed(self, counters: Counters) -> None:
        """Notes that the run was evaluated at these counters."""
        self.periods, self.evaluated_at = self._periods(counters), counters.env_steps

    def _periods(self, counters: Counters) -> int:
        period = self.preset.schedule.steps_between_evaluation_periods
        return counters.of(period) // period.num_steps

    def evaluate(self, env_steps: int, begun: dict[str, np.ndarray] | None = None) -> dict[str, float]:
        """Returns the summary of an evaluation, and of one with sampled actions where the run asks for it.

        Args:
            env_steps: of the run so far, from which the episodes' seeds follow.
            begun: the observation after a reset that was made already.

        Raises:
            EnvironmentFailure: the environment raised.
        """
        deterministic = self.preset.agent.algorithm.use_deterministic_for_evaluation
        row = self._evaluate("evaluation", deterministic, env_steps, begun)
        if self.settings.stochastic_evaluation:
            row |= self._evaluate("stochastic_evaluation", False, env_steps)
        return row

    def _evaluate(self, prefix: str, deterministic: bool, env_steps: int, begun: Any = None) -> dict[str, float]:
        # Samples drawn here must not shift the stream of training.
        acting, seed = self.policy.acting, self.settings.seed
        training, acting.rng = acting.rng, np.random.default_rng([seed, Stream.EVALUATING, env_steps])
        try:
            amount = self.preset.schedule.evaluation_steps
            given = self.policy, self.env, amount, deterministic, seed, env_steps
            more = {"begun": begun, "begin": self.begin_episode}
            return evaluate_policy(*given, seeds_below=self.seeds_below, **more).summary(prefix)
        finally:
            acting.rng = training

    def judge(self, value: float, counters: Counters) -> bool:
        """Saves the weights if they are the best so far; from the first update on, earlier ones no longer count.

        Args:
            value: mean return of the evaluation.
            counters: of the run when it was made.

        Returns:
            whether the return is at least the preset's threshold, after an update.

        Raises:
            NonFiniteError: they are the best and one is not finite.
            OSError: the weights cannot be written.
        """
        if value > self.best_return or (self.best_updates == 0 and counters.updates):
            self.keep(value, counters)
        threshold, within = dataclasses.astuple(self.preset.validation)
        if threshold is None or value < threshold or not counters.updates:  # the warm-up's policy learned nothing
            return False
        self.accepted = self.accepted or within is None or counters.episodes <= within
        return True

    def keep(self, value: float, counters: Counters) -> None:
        """Saves the weights as the best so far; see `judge`."""
        refuse_non_finite_weights(self.agent.trained, counters.env_steps)
        self.best_return, self.best_step, self.best_updates = value, counters.env_steps, counters.updates
        self.best_weights = save_weights(self.best, self.agent, self.policy.filters)

    def state(self, counters: Counters) -> dict[str, Any]:
        """Returns what a checkpoint keeps of a run at `counters`, as JSON values."""
        best = None if np.isinf(self.best_return) else self.best_return
        return {
            "evaluated_at": self.evaluated_at,
            "due": self.due(counters),
            "best_return": best,
            "best_step": self.best_step,
            "best_updates": self.best_updates,
            "accepted": self.accepted,
        }

    def files(self) -> dict[str, bytes]:
        """Returns the content of the file of the best weights by its name, once there is one."""
        return {BEST: self.best_weights} if self.best_weights else {}

    def restore(self, state: dict[str, Any], counters: Counters, files: Mapping[str, bytes]) -> None:
        """Takes what `state` and `files` returned when the run was at `counters`."""
        self.best_weights = files.get(BEST, b"")
        failed = state["due"]  # an evaluation that its environment ended, which is made again
        self.periods, self.evaluated_at = self._periods(counters) - failed, state["evaluated_at"]
        self.best_return = -np.inf if state["best_return"] is None else state["best_return"]
        self.best_step, self.best_updates = state["best_step"], state["best_updates"]
        self.accepted = state["accepted"]
