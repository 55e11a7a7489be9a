"""The training loop: act, step, store, sample, update, evaluate, save."""

from __future__ import annotations

import dataclasses
import pathlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.agents import ModelMaker
from tfsac.environments import EnvironmentFailure, Environments, Filters, maker
from tfsac.metrics import CSVSink, TensorBoardSink, TerminalSink
from tfsac.parameters import OffPolicyAlgorithmParameters, ParameterError, Preset, RunParameters
from tfsac.training.build import build_agent, build_memory, with_absolute_paths
from tfsac.training.callbacks import Callback
from tfsac.training.checkpoint import CheckpointManager
from tfsac.training.devices import make_strategy
from tfsac.training.due import due_batches
from tfsac.training.evaluation import SWITCHING, evaluate_policy
from tfsac.training.identity import identity_of
from tfsac.training.non_finite import refuse_non_finite
from tfsac.training.policy import Policy
from tfsac.training.progress import SUMMARY, Counters, Recorder, Result
from tfsac.training.run_directory import RunDirectory
from tfsac.training.signals import StopSignals
from tfsac.training.weights import load_weights, save_weights
from tfsac.types import SWITCH

SAMPLING, EVALUATING = 2, 3  # streams of random numbers, beside those of the agent
SECONDS_BETWEEN_BAR_UPDATES = 0.2
POLICY_STATE = "policy_state/"  # arrays of a checkpoint beside the observation


class Trainer:
    """One run of a preset in a run directory.

    Nothing is written before everything is built, so bad parameters leave no folder behind.

    Args:
        preset: the experiment.
        run_dir: its folder: new or empty, or with a checkpoint to resume.
        run: seed, strategy, checkpoints and so on.
        resume: continue from the newest whole checkpoint in `run_dir`.
        callbacks: hooks.
        quiet: print nothing.
        initial_weights: run directory whose best weights to begin with.
        env_fn: makes one environment, instead of the preset's level.
        models: makes Keras models, instead of the preset's networks.

    Attributes:
        agent, memory, environments, filters, policy, counters: the parts, for callbacks.

    Raises:
        ValueError, ImportError: parameters that do not fit the environment, or missing packages.
        FileExistsError, OSError: the run directory.
        CheckpointError: nothing to resume from.
    """

    def __init__(
        self,
        preset: Preset,
        run_dir: str | pathlib.Path,
        run: RunParameters | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        quiet: bool = False,
        initial_weights: str | pathlib.Path | None = None,
        env_fn: Callable[[], gym.Env] | None = None,
        models: ModelMaker | None = None,
    ):
        preset = with_absolute_paths(preset)
        self.preset, self.settings, self.callbacks = preset, run or RunParameters(), list(callbacks)
        self.schedule, self.algorithm, level = preset.schedule, preset.agent.algorithm, preset.environment
        self.directory = RunDirectory(pathlib.Path(run_dir))
        if self.settings.stop_at_threshold and preset.validation.min_reward_threshold is None:
            raise ParameterError(f"stop_at_threshold needs validation.min_reward_threshold. Received: None for {level.level}")
        if not resume:
            self.directory.refuse_existing()
        strategy = make_strategy(self.settings.strategy)
        one = maker(level, env_fn)
        self.environments = Environments(level, self.settings.seed, one)
        self.evaluation_env = one()
        try:
            with strategy.scope():
                self.agent = build_agent(preset, self.settings, self.environments.spec, models)
            self._build(resume, quiet, initial_weights)
        except BaseException:
            self._close_environments()
            raise

    def _build(self, resume: bool, quiet: bool, initial_weights: str | pathlib.Path | None) -> None:
        preset, level = self.preset, self.preset.environment
        self.filters = Filters(level.filters, self.agent.spec)
        self.memory = build_memory(preset, self.agent.spec, self.filters, self.agent.recurrent)
        self.filters.learn(self.environments.observation)
        if initial_weights is not None:
            load_weights(RunDirectory(pathlib.Path(initial_weights)).best, self.agent, self.filters)
        self.policy = Policy(self.agent, self.filters)
        self.rng = np.random.default_rng([self.settings.seed, SAMPLING])
        self.counters, self.heatup_end = Counters(), Counters()
        self.heating_up = self.schedule.heatup_steps.num_steps > 0
        self.policy_state: Mapping[str, np.ndarray] = {}
        self.returns = np.zeros(level.num_envs)  # of the running episodes
        self.evaluated_periods, self.evaluated_at = 0, 0  # periods, and environment steps at the last evaluation
        self.best_return, self.accepted = -np.inf, False
        self.wall_seconds, self.started, self.bar_moved, self.row_started = 0.0, 0.0, 0.0, (0.0, 0)
        self.stop_reason = ""
        one_by_one = isinstance(self.algorithm, OffPolicyAlgorithmParameters) and (
            level.num_envs * self.algorithm.num_consecutive_training_steps == 1
        )
        self.recorder = Recorder(self.agent.trace(single=one_by_one))
        identity = identity_of(preset, self.settings.seed, self.agent.spec)
        self.checkpoints = CheckpointManager(
            self.directory.checkpoints, self.agent, self.memory, identity, self.settings.num_checkpoints_to_keep
        )
        improve, heatup = self.schedule.improve_steps, self.schedule.heatup_steps
        total = improve.num_steps + (heatup.num_steps if type(heatup) is type(improve) else 0)
        self.terminal = TerminalSink(total, type(improve).__name__, quiet)
        rows = self._restore() if resume else self.directory.create(preset, self.settings)
        self.csv = CSVSink(self.directory.metrics, self._columns(), rows)
        if resume:
            self.directory.note_resume(preset, self.settings, self.counters.env_steps)
        self.tensorboard = TensorBoardSink(self.directory.events) if self.settings.tensorboard else None
        self.saved_periods = self.counters.env_steps // self.settings.checkpoint_save_steps

    def _close_environments(self) -> None:
        self.environments.close()
        self.evaluation_env.close()

    def _columns(self) -> list[str]:
        names = ["env_steps", "updates", "episodes", "wall_seconds", "steps_per_second"]
        names += [*(f"training/{name}" for name in SUMMARY), *self.recorder.names]
        evaluated = (*SUMMARY, *SWITCHING) if SWITCH in self.agent.spec.extras else SUMMARY
        names += [f"evaluation/{name}" for name in evaluated]
        return names + [f"stochastic_evaluation/{name}" for name in evaluated if self.settings.stochastic_evaluation]

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Trains until the schedule, a threshold, a callback or a signal ends it, and saves.

        Returns:
            how it ended.

        Raises:
            EnvironmentFailure: an environment raised; the state before that step was saved.
            NonFiniteError: a metric is not finite; the batch was saved, the last checkpoint is from before.
            CheckpointError: a checkpoint could not be written.
        """
        self._start_clock()
        with StopSignals() as signals, self.terminal:
            try:
                for callback in self.callbacks:
                    callback.on_training_begin(self)
                while not (self.finished() or self.stop_reason or signals.received):
                    self.play()
                    self.learn()
                    self.evaluate_and_save_if_due()
                    for callback in self.callbacks:
                        callback.on_step(self)
                if signals.received:
                    self.stop(signal.Signals(signals.received).name)
                self._end(signals.received)
            except EnvironmentFailure:
                self.terminal.print(f"An environment failed; the state before is saved in {self.save()}.")
                raise
            finally:
                self._close_environments()
        best = None if np.isinf(self.best_return) else self.best_return
        reason = self.stop_reason or "finished"
        accepted = None if self.preset.validation.min_reward_threshold is None else self.accepted
        return Result(reason, self.directory.path, self.counters, best, signals.received, accepted)

    def stop(self, reason: str) -> None:
        """Ends the run after the current step."""
        self.stop_reason = reason

    def finished(self) -> bool:
        """Returns whether the schedule is complete."""
        improve = self.schedule.improve_steps
        improved = self.counters.of(improve) - self.heatup_end.of(improve)
        return not self.heating_up and improved >= improve.num_steps

    def play(self) -> None:
        """Acts once in every environment and stores the step."""
        observation = self.environments.observation
        action, policy_state, extras = self.agent.act(
            self.filters.observation(observation),
            self.policy_state,
            self.environments.is_first,
            "random" if self.acts_at_random() else "explore",
            self.counters.env_steps,
        )
        step = self.environments.step(action)
        self.memory.add(
            observation, action, step.reward, step.terminated, step.truncated, step.next_observation, dict(extras)
        )
        self.policy_state = policy_state
        self.filters.learn(step.observation)
        self.filters.learn_reward(step.reward)
        self.returns += step.reward if step.reward.ndim == 1 else step.reward.sum(axis=1)
        self.counters.env_steps += self.environments.num_envs
        for i in np.flatnonzero(step.terminated | step.truncated):
            self.recorder.add_episode(float(self.returns[i]), int(step.length[i]))
            self.counters.episodes += 1
            self.returns[i] = 0.0
        heatup = self.schedule.heatup_steps
        if self.heating_up and self.counters.of(heatup) >= heatup.num_steps:
            self.heating_up, self.heatup_end = False, dataclasses.replace(self.counters)

    def acts_at_random(self) -> bool:
        """Returns whether the next action is random: during the heat-up, or for as long as the schedule says."""
        steps = self.schedule.random_action_steps
        return self.heating_up if steps is None else self.counters.env_steps < steps

    def learn(self) -> None:
        """Makes the updates that are due: see `due_batches`."""
        if self.heating_up:
            return
        for stacked in due_batches(self.preset, self.memory, self.counters, self.heatup_end, self.rng):
            batch = self.filters.batch(stacked)
            result = self.agent.update(batch)
            refuse_non_finite(self.recorder.names, result.metrics, batch, self.counters, self.directory.path)
            self.memory.update_priorities(result.priority)
            self.recorder.add_updates(result.metrics)
            self.counters.updates += len(result.metrics)
            for callback in self.callbacks:
                callback.on_updates(self, result.metrics)

    def evaluate_and_save_if_due(self) -> None:
        """Evaluates, saves and moves the progress bar when it is time."""
        period = self.schedule.steps_between_evaluation_periods
        periods = self.counters.of(period) // period.num_steps
        if periods > self.evaluated_periods:
            self.evaluated_periods = periods
            self.evaluate()
        saves = self.counters.env_steps // self.settings.checkpoint_save_steps
        if saves > self.saved_periods:
            self.saved_periods = saves
            self.save()
        now = time.perf_counter()
        if now - self.bar_moved > SECONDS_BETWEEN_BAR_UPDATES:
            self.bar_moved = now
            done = self.counters.of(self.schedule.improve_steps)
            self.terminal.advance(done, self._steps_per_second(), self.recorder.recent_return())

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, Any]:
        """Evaluates the policy, writes a row of metrics and keeps the weights if they are the best so far."""
        self.evaluated_at = self.counters.env_steps
        row: dict[str, Any] = {**dataclasses.asdict(self.counters), "wall_seconds": round(self._clock(), 3)}
        row |= {"steps_per_second": round(self._steps_per_second(), 1), **self.recorder.take()}
        row |= self._evaluation("evaluation", self.algorithm.use_deterministic_for_evaluation)
        if self.settings.stochastic_evaluation:
            row |= self._evaluation("stochastic_evaluation", deterministic=False)
        self.csv.write(row)
        self.terminal.write(row)
        if self.tensorboard:
            self.tensorboard.write(row, self._histograms() if self.settings.histograms else None)
        value = row["evaluation/return_mean"]
        if value > self.best_return:
            self.best_return = value
            save_weights(self.directory.best, self.agent, self.filters)
        threshold, within = dataclasses.astuple(self.preset.validation)
        if threshold is not None and value >= threshold:
            self.accepted = self.accepted or within is None or self.counters.episodes <= within
            if self.settings.stop_at_threshold:
                self.stop("threshold reached")
        for callback in self.callbacks:
            callback.on_evaluation(self, row)
        self.row_started = (time.perf_counter(), self.counters.env_steps)
        return row

    def _evaluation(self, prefix: str, deterministic: bool) -> dict[str, float]:
        # Samples drawn here must not shift the stream of training.
        training, step = self.agent.rng, self.counters.env_steps
        self.agent.rng = np.random.default_rng([self.settings.seed, EVALUATING, step])
        try:
            amount, seed = self.schedule.evaluation_steps, self.settings.seed
            done = evaluate_policy(self.policy, self.evaluation_env, amount, deterministic, seed, step)
        finally:
            self.agent.rng = training
        return done.summary(prefix)

    def _histograms(self) -> dict[str, Any]:
        return {
            f"{name}/{variable.path}": variable.numpy()
            for name, network in self.agent.networks.items()
            for variable in network.trainable_variables
        }

    # -- saving and restoring ------------------------------------------------------------------------------------------

    def save(self) -> pathlib.Path:
        """Writes a checkpoint and returns its folder."""
        state = {
            "counters": dataclasses.asdict(self.counters),
            "heatup_end": dataclasses.asdict(self.heatup_end),
            "heating_up": self.heating_up,
            "returns": self.returns.tolist(),
            "evaluated_at": self.evaluated_at,
            "best_return": None if np.isinf(self.best_return) else self.best_return,
            "accepted": self.accepted,
            "wall_seconds": self._clock(),
            "rows": self.csv.rows,
            "recorder": self.recorder.state(),
            "filters": self.filters.state(),
            "environments": self.environments.state(),
            "sampling": self.rng.bit_generator.state,
            "acting": self.agent.rng.bit_generator.state,
        }
        arrays = {POLICY_STATE + name: value for name, value in self.policy_state.items()}
        return self.checkpoints.save(self.counters.env_steps, state, {**self.environments.observation, **arrays})

    def _restore(self) -> int:
        state, arrays, refused = self.checkpoints.restore()
        for line in refused:
            self.terminal.print(line)
        self.agent.refresh()
        self.counters, self.heatup_end = Counters(**state["counters"]), Counters(**state["heatup_end"])
        self.heating_up = state["heating_up"]
        self.evaluated_at = state["evaluated_at"]
        period = self.schedule.steps_between_evaluation_periods
        self.evaluated_periods = self.counters.of(period) // period.num_steps
        self.returns = np.array(state["returns"])
        self.best_return = -np.inf if state["best_return"] is None else state["best_return"]
        self.accepted, self.wall_seconds = state["accepted"], state["wall_seconds"]
        self.recorder.restore(state["recorder"])
        self.filters.restore(state["filters"])
        self.rng.bit_generator.state = state["sampling"]
        self.agent.rng.bit_generator.state = state["acting"]
        observation = {name: value for name, value in arrays.items() if not name.startswith(POLICY_STATE)}
        self.policy_state = {
            name.removeprefix(POLICY_STATE): value for name, value in arrays.items() if name.startswith(POLICY_STATE)
        }
        played = self.memory.newest(state["environments"]["length"][0])
        actions = None if played is None else played["action"][:, 0]
        if not self.environments.restore(state["environments"], actions, observation):
            self.memory.end_episodes()
            self.checkpoints.rewrite_newest_chunk()
            self.returns[:] = 0.0
            self.terminal.print("The running episodes cannot be continued exactly; new ones begin.")
        self.terminal.print(f"Continuing {self.directory.path} from step {self.counters.env_steps}.")
        return state["rows"]

    def _end(self, signal_number: int | None) -> None:
        if signal_number is None and self.evaluated_at != self.counters.env_steps:
            self.evaluate()
        place = self.save()
        if signal_number is not None:
            self.terminal.print(
                f"Stopped by {self.stop_reason} at step {self.counters.env_steps}; saved in {place}. "
                f"Continue with: tfsac train --run_dir={self.directory.path} --resume"
            )
        for callback in self.callbacks:
            callback.on_training_end(self)

    # -- clocks --------------------------------------------------------------------------------------------------------

    def _start_clock(self) -> None:
        self.started = time.perf_counter() - self.wall_seconds
        self.bar_moved = 0.0
        self.row_started = (time.perf_counter(), self.counters.env_steps)

    def _clock(self) -> float:
        return time.perf_counter() - self.started

    def _steps_per_second(self) -> float:
        since, steps = self.row_started
        return (self.counters.env_steps - steps) / max(time.perf_counter() - since, 1e-9)
