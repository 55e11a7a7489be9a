"""The training loop: act, step, store, sample, update, evaluate, save."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.agents import Agent, ModelMaker
from tfsac.distributed.ray_environments import RayEnvironments
from tfsac.distributed.tf_config import place_of, refuse_timeout_in_this_process, share_of
from tfsac.distributed.workers import Workers
from tfsac.environments import Apart, Environments, Filters, maker
from tfsac.memories import in_ram, on_disk
from tfsac.parameters import (
    OffPolicyAlgorithmParameters,
    ParameterError,
    Preset,
    RunParameters,
    to_json,
)
from tfsac.training.build import build_agent, build_memory, with_absolute_paths
from tfsac.training.callbacks import Callback
from tfsac.training.checkpoint import CheckpointManager
from tfsac.training.collection import Collector
from tfsac.training.devices import configure_once, make_strategy, set_numerics
from tfsac.training.due import due_samples
from tfsac.training.evaluator import Evaluator
from tfsac.training.failures import saving, writing
from tfsac.training.functions import described, recorded, refuse_other_spaces, refuse_others, training_models
from tfsac.training.hooks import Hooks
from tfsac.training.identity import identity_of
from tfsac.training.non_finite import refuse_non_finite
from tfsac.training.opening import opening
from tfsac.training.policy import Policy
from tfsac.training.progress import Counters, Result
from tfsac.training.ray_collector import RayCollector, RolloutActor
from tfsac.training.reporting import Reporter
from tfsac.training.run_directory import METRICS, RunDirectory
from tfsac.training.run_lock import RunLock
from tfsac.training.signals import StopSignals
from tfsac.training.state import restore, state_of
from tfsac.training.stepping import play
from tfsac.training.trainer_arguments import check_trainer, preset_of
from tfsac.training.updates import Updates
from tfsac.training.weights import load_initial_weights
from tfsac.types import Batch, UpdateResult

ACTING, SAMPLING = 1, 2  # streams of random numbers; the first one is the agent's


class Trainer:
    """One run of a preset in a run directory.

    Nothing is written before everything is built, so bad parameters leave no folder behind.

    Args:
        preset: the experiment, the name of one, or the path of a .py file or of a run's config.json.
        run_dir: its folder: new or empty, or with a checkpoint to resume.
        run: seed, strategy, checkpoints and so on; None for the defaults, or those of the run that is resumed.
        resume: continue from the newest whole checkpoint in `run_dir`.
        callbacks: hooks.
        quiet: print nothing.
        initial_weights: run directory whose best weights to begin with.
        env_fn: makes one environment, instead of the preset's level and its arguments. A function is not saved: give it again to resume.
        models: makes a Keras model for each network, instead of the preset's layers; see docs/own_networks.md. It is not saved either.

    Attributes:
        agent, memory, environments, filters, policy, counters: the parts, for callbacks.
        lock: on the run's folder, until `run` ends.
        error: what ended the run, if it failed.
        run_files: contents of files in this folder that checkpoints keep, by name, beside those that every run has.
        evaluator, reporter: what is evaluated, and where its rows of metrics go.

    Raises:
        TypeError: arguments of other types.
        ValueError, ImportError: parameters that do not fit the environment, or missing packages.
        UserCodeError: env_fn or models raised.
        FileExistsError, OSError: the run directory; BlockingIOError: another process trains in it.
        CheckpointError: nothing to resume from.
    """

    def __init__(
        self,
        preset: Preset | str | pathlib.Path,
        run_dir: str | pathlib.Path,
        run: RunParameters | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        quiet: bool = False,
        initial_weights: str | pathlib.Path | None = None,
        env_fn: Callable[[], gym.Env] | None = None,
        models: ModelMaker | None = None,
    ):
        preset = with_absolute_paths(preset_of(preset))
        self.hooks = Hooks(check_trainer(run_dir, run, resume, callbacks, quiet, initial_weights, env_fn, models))
        self.directory = RunDirectory.fixed(pathlib.Path(run_dir))
        self.settings = run or (self.directory.read()[1] if resume and self.directory.config.is_file() else RunParameters())
        place = place_of(self.settings)
        self.lock, self.run_files = RunLock(), dict[str, bytes]()
        self.error: Exception | None = None
        share_of(preset, place)
        refuse_timeout_in_this_process(preset, self.settings)
        if self.settings.stop_at_threshold and preset.validation.min_reward_threshold is None:
            raise ParameterError(
                f"stop_at_threshold needs validation.min_reward_threshold. Received: None for {preset.environment.level}"
            )
        if self.settings.skip_damaged_rows and not resume:
            raise ParameterError("skip_damaged_rows is for runs that are resumed. Received: skip_damaged_rows=True without resume")
        if not resume:
            self.directory.refuse_existing()
        if resume and self.directory.config.is_file():
            refuse_others(self.directory, env_fn, models)
        late = configure_once()
        set_numerics(self.settings)
        self.workers = Workers(make_strategy(self.settings, place), place)
        given = {"env_fn": env_fn is not None, "models": models is not None, "initial_weights": initial_weights is not None}
        self.workers.agree({"preset": to_json(preset), "run": to_json(self.settings), "resume": resume, **given})
        one = maker(preset.environment, env_fn)
        self.evaluation_env = one()
        self.preset = preset = described(preset, self.evaluation_env, env_fn, models)
        if (timeout := preset.environment.step_timeout_seconds) is not None:
            self.evaluation_env = Apart(self.evaluation_env, one, timeout)
        self.share = share_of(preset, place)
        self.schedule, self.algorithm, first = preset.schedule, preset.agent.algorithm, place.worker * self.share.environment.num_envs
        self.environments: Environments | RayEnvironments
        if self.settings.ray_address is None:
            self.environments = Environments(self.share.environment, self.settings.seed, one, first)
        else:
            tell: Callable[[str], None] = lambda line: self.reporter.terminal.print(line)  # noqa: E731
            arguments = preset, self.settings, env_fn, models
            self.environments = RayEnvironments(preset, self.settings, RolloutActor, arguments, tell)
        try:
            if resume and env_fn is not None:
                refuse_other_spaces(self.directory, self.environments.spec)
            self.functions = recorded(env_fn, models, self.environments.spec)
            with self.workers.strategy.scope():
                self.agent = build_agent(preset, self.settings, self.environments.spec, models)
            actor = self.agent
            if self.settings.asynchronous_collection:
                actor = build_agent(preset, self.settings, self.environments.spec, models)
            self._build(actor, resume, quiet, initial_weights)
            for line in (*self.agent.notes, *([late] if late else [])):
                self.reporter.terminal.print(line)
            if resume and self.finished():
                self.reporter.terminal.print(
                    f"The schedule ends before step {self.counters.env_steps}, which this run has reached, so there is nothing to train. "
                    "For more steps, lengthen schedule.improve_steps (--set=schedule.improve_steps=...)."
                )
        except BaseException:
            self._close_environments()
            raise

    def _build(self, actor: Agent, resume: bool, quiet: bool, initial_weights: str | pathlib.Path | None) -> None:
        preset, level, place = self.preset, self.preset.environment, self.workers.place
        self.filters = Filters(level.filters, self.agent.spec)
        allocate = on_disk(self.directory.disk) if self.settings.memory_on_disk else in_ram
        beside = self.settings.asynchronous_collection or self.settings.ray_address is not None
        self.memory = build_memory(self.share, self.agent.spec, self.filters, self.agent.recurrent, allocate, older_policies=beside)
        self.collector: Collector | RayCollector = (
            RayCollector(actor, self.filters, self.environments, self.settings.actor_steps)
            if isinstance(self.environments, RayEnvironments)
            else Collector(actor, self.filters, self.environments)
        )
        self.updates = Updates(self.agent, self._computed, self._apply, self.settings.asynchronous_collection)
        self.filters.learn(self.workers.gather(self.environments.observation))
        if initial_weights is not None:
            load_initial_weights(RunDirectory(pathlib.Path(initial_weights)), self.agent, self.filters)
        self.policy = Policy(self.agent, self.filters)
        self.counters, self.heatup_end = Counters(), Counters()
        self.rng = np.random.default_rng([self.settings.seed, SAMPLING])
        if place.workers > 1:
            self.seed_anew()
        self.heating_up = self.schedule.heatup_steps.num_steps > 0
        self.returns = np.zeros(self.environments.num_envs)  # of the running episodes
        self.ready, self.rollout_complete = False, False  # of all workers' memories
        self.signals, self.stop_reason, self.stopped, self.ran = StopSignals(), "", False, False
        self.ended = False
        one_by_one = isinstance(self.algorithm, OffPolicyAlgorithmParameters) and (
            level.num_envs * self.algorithm.num_consecutive_training_steps == 1
        )
        with training_models(preset):
            names = self.agent.trace(single=one_by_one)
        self.evaluator = Evaluator(preset, self.settings, self.policy, self.evaluation_env, self.directory.best)
        self.reporter = Reporter(preset, self.settings, names, quiet or not place.chief, self.hooks.metric_names())
        identity = identity_of(preset, self.settings.seed, self.agent.spec)
        self.checkpoints = CheckpointManager(
            self.directory.checkpoints, self.agent, self.memory, identity, self.settings.num_checkpoints_to_keep, self.workers
        )
        columns = self.reporter.columns(self.evaluator.columns())
        self.collector.hand_over(self.agent)
        if resume:
            restore(self)
        elif place.chief and (note := self.directory.create(preset, self.settings, self.functions, self.lock)):
            self.reporter.terminal.print(note)
        if place.chief:
            with writing(self):
                self.reporter.open(self.directory, columns, self.run_files.get(METRICS, b""))
            if resume:
                for note in self.directory.note_resume(preset, self.settings, self.counters.env_steps, self.run_files):
                    self.reporter.terminal.print(note)
        self.saved_periods = self.counters.env_steps // self.settings.checkpoint_save_steps

    def _close_environments(self) -> None:
        self.environments.close()
        self.evaluation_env.close()
        self.lock.release()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Trains until the schedule, a threshold, a callback or a signal ends it, and saves.

        Returns:
            how it ended.

        Raises:
            EnvironmentFailure: an environment raised; the state before that step was saved.
            NonFiniteError: a metric is not finite; the batch was saved, the last checkpoint is from before.
            CheckpointError: a checkpoint could not be written.
            RuntimeError: it ran already.
        """
        if self.ran:
            raise RuntimeError(
                "A trainer runs once and closes its environments. To continue, make a new one with resume=True. "
                f"Received: a second run in {self.directory.path}"
            )
        self.ran = True
        terminal = self.reporter.terminal
        terminal.print(opening(self.directory, self.agent, self.settings.tensorboard))
        try:
            with self.signals, terminal, saving(self):
                with writing(self):
                    self.reporter.start(self.directory, self.counters)
                self._train()
        finally:
            self.ended = True
            self.updates.close()
            self.reporter.close()
            self._close_environments()
            set_numerics(RunParameters())  # what comes after the run in this process computes in float32
        best = None if np.isinf(self.evaluator.best_return) else self.evaluator.best_return
        reason = self.stop_reason or "finished"
        accepted = None if self.preset.validation.min_reward_threshold is None else self.evaluator.accepted
        return Result(reason, self.directory.path, self.counters, best, self.signals.received, accepted)

    def _train(self) -> None:
        self.hooks.call("on_training_begin", self)
        self.hooks.raise_error()
        if self.evaluator.due(self.counters):  # the one that failed, in a run that was resumed
            self.evaluate()
        while not (self.finished() or self._stopping()):
            self.play()
            self.learn()
            self.evaluate_and_save_if_due()
            self.hooks.call("on_step", self)
            self.hooks.raise_error()
            if self.reporter.terminal.nobody_reads:
                self.signals.received = self.signals.received or signal.SIGPIPE
        if self.signals.received:
            self.stop(signal.Signals(self.signals.received).name)
        self._end(self.signals.received)
        self.hooks.raise_error()

    def stop(self, reason: str) -> None:
        """Ends the run after the current step.

        Args:
            reason: why; the result has it.

        Raises:
            ParameterError: no text.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ParameterError(f'stop is told why the run ends, such as "no improvement". Received: {reason!r}')
        self.stop_reason = reason

    def finished(self) -> bool:
        """Returns whether the schedule is complete."""
        improve = self.schedule.improve_steps
        improved = self.counters.of(improve) - self.heatup_end.of(improve)
        return not self.heating_up and improved >= improve.num_steps

    def _stopping(self) -> bool:
        # Several workers stop at the same step, which they learn from each other while they play.
        return self.stopped if self.workers.place.workers > 1 else bool(self.stop_reason or self.signals.received)

    def play(self) -> None:
        """Acts in every environment and stores what was played."""
        play(self)

    def learn(self) -> None:
        """Makes the updates that are due: see `due_samples`."""
        if self.heating_up:
            return
        for sample in due_samples(
            self.share, self.memory, self.counters, self.heatup_end, self.rng, self.ready, self.rollout_complete
        ):
            self.updates.finish()
            if (stacked := sample()) is not None:
                self.counters.updates += len(stacked.reward)
                self.updates.start(self.filters.batch(stacked))

    def _computed(self, batch: Batch, result: UpdateResult) -> None:
        before = self.counters.updates - len(result.metrics)
        refuse_non_finite(self.reporter.recorder.names, result.metrics, batch, before, self.counters.env_steps, self.directory.path)
        self.reporter.add_updates(result.metrics)
        self.hooks.call("on_updates", self, result.metrics)

    def _apply(self, result: UpdateResult) -> None:
        self.memory.update_priorities(result.priority)
        self.collector.hand_over(self.agent, result.acting)

    def evaluate_and_save_if_due(self) -> None:
        """Evaluates, saves and moves the progress bar when it is time."""
        if self.evaluator.due(self.counters):
            self.evaluate()
        saves = self.counters.env_steps // self.settings.checkpoint_save_steps
        if saves > self.saved_periods:
            self.saved_periods = saves
            self.save()
        with writing(self):
            self.reporter.advance(self.counters)

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, Any]:
        """Evaluates the policy, writes a row of metrics and keeps the weights if they are the best so far.

        Raises:
            RuntimeError: the run has ended.
        """
        if self.ended:
            raise RuntimeError(f"The run has ended: tfsac.evaluate(run_dir) evaluates its policy. Received: {self.directory.path}")
        self.updates.wait()
        evaluated = {} if self.reporter.csv is None else self.evaluator.evaluate(self.counters.env_steps)
        self.evaluator.completed(self.counters)
        row = self.reporter.row(self.counters) | evaluated
        if self.reporter.csv is None:  # the chief evaluates for all
            return {}
        row |= self.hooks.metrics(self)
        with writing(self):
            self.reporter.write(row, self.agent)
            reached = self.evaluator.judge(row["evaluation/return_mean"], self.counters)
        if reached and self.settings.stop_at_threshold:
            self.stop("threshold reached")
        self.hooks.call("on_evaluation", self, row)
        self.reporter.begin_row(self.counters)
        return row

    # -- saving ------------------------------------------------------------------------------------------

    def save(self) -> pathlib.Path:
        """Writes a checkpoint and returns its folder."""
        self.updates.wait()
        return self.checkpoints.save(self.counters.env_steps, *state_of(self))

    def seed_anew(self) -> None:
        """Gives this worker streams of random numbers that no other one has, and that it did not have before this step."""
        where = [self.workers.place.worker, self.workers.place.workers, self.counters.env_steps]
        self.rng = np.random.default_rng([self.settings.seed, SAMPLING, *where])
        self.collector.agent.rng = np.random.default_rng([self.settings.seed, ACTING, *where])

    def resume_command(self) -> str:
        """Returns the command that continues the run, or the call in Python where it needs functions."""
        given = [f"{name}={function.rpartition('.')[2]}" for name in ("env_fn", "models") if (function := self.functions[name])]
        if given:  # which no command line has
            return f"tfsac.train({str(self.directory.shown(self.directory.config))!r}, {str(self.directory.shown())!r}, resume=True, {', '.join(given)})"
        return f"tfsac train --run_dir={self.directory.shown()} --resume"

    def _end(self, signal_number: int | None) -> None:
        if signal_number is None and self.evaluator.evaluated_at != self.counters.env_steps:
            self.evaluate()
        place = self.save()
        if signal_number is not None:
            self.reporter.terminal.print(
                f"Stopped by {self.stop_reason} at step {self.counters.env_steps}; saved in {self.directory.shown(place)}. "
                f"Continue with: {self.resume_command()}"
            )
        self.hooks.raise_error()
        self.hooks.end(self)
