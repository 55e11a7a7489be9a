"""The training loop: act, step, store, sample, update, evaluate, save."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import pathlib
import signal
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfsac.environments import action_map
from tfsac.errors import TfsacError
from tfsac.networks import ModelMaker
from tfsac.networks.bfloat16 import use_bfloat16
from tfsac.parameters import Preset, RunParameters
from tfsac.training.callbacks import Callback
from tfsac.training.loggers import Logger, TerminalLogger
from tfsac.training.non_finite import NonFiniteError, refuse_non_finite_weights
from tfsac.training.reporting import RECENT, opening
from tfsac.training.run import MakeTerminal, Run
from tfsac.training.schedule import Counters
from tfsac.types import OBSERVATION, BatchesOnDevice, Step


@dataclasses.dataclass
class Result:
    """How a run ended.

    Attributes:
        reason: "finished", "threshold reached", the name of a signal, or what `Trainer.stop` was given.
        run_dir: its folder.
        counters: env_steps, episodes, updates.
        best_return: mean return of the best evaluation, or of ten training episodes where there are none; or None.
        signal: the number of the signal that interrupted it, or None.
        accepted: whether an evaluation reached the preset's threshold within its number of training episodes; None for
            a preset without a threshold.
        best_step: environment steps of the run at that evaluation; None without one, or if an earlier version made it.
    """

    reason: str
    run_dir: pathlib.Path
    counters: Counters
    best_return: float | None
    signal: int | None
    accepted: bool | None
    best_step: int | None = None


def _proxy(name: str) -> Any:
    return property(operator.attrgetter(f"parts.{name}"))


class Trainer:
    """One run of a preset in a run directory; nothing is written before everything is built.

    Args:
        preset, run_dir, run, resume, callbacks, quiet, initial_weights, env_fn, models, restore_memory, loggers: as
            `tfsac.train` takes them.
        terminal: makes what prints the progress, such as a subclass of `TerminalLogger`; called with `quiet`.

    Attributes:
        parts: everything that the run is made of; see `Run`.
        agent, memory, environments, filters, policy, counters, schedule, preset, directory: parts, for callbacks.
        update_metrics: names of the metrics that an update returns.
        last_step: the last step of all environments in this process.
        error: what ended the run, if it failed.

    Raises:
        TfsacError: parameters that do not fit the environment, or missing packages.
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
        terminal: MakeTerminal = TerminalLogger,
        restore_memory: bool = False,
        loggers: Sequence[Logger | str] = (),
    ):
        start = initial_weights, env_fn, models, terminal, restore_memory, loggers
        self.parts = Run(preset, run_dir, run, resume, callbacks, quiet, *start)
        self.parts.hooks.trainer = self
        self.error: Exception | None = None
        self._started, self._can_be_saved = False, True  # not in the middle of a step
        self._newest_step: Step | None = None

    # Callbacks use these parts, and must not replace them: it would have no effect, or none that can be resumed.
    agent, memory, environments, filters = _proxy("agent"), _proxy("memory"), _proxy("environments"), _proxy("filters")
    policy, counters, schedule = _proxy("policy"), _proxy("counters"), _proxy("schedule")
    preset, directory, update_metrics = _proxy("preset"), _proxy("directory"), _proxy("agent.metric_names")

    @property
    def last_step(self) -> Step | None:
        """The last step of all environments in this process, with actions as they got them; None before the first."""
        step = self._newest_step
        return step and step._replace(action=action_map(self.parts.environments.spec)(step.action))

    def run(self) -> Result:
        """Trains until the schedule, a threshold, a callback or a signal ends it, and saves; to be called once.

        Raises:
            EnvironmentFailure: an environment raised; the state before that step was saved.
            NonFiniteError: a metric, weight or action is not finite; the last checkpoint is from before, and the batch
                of a metric was saved.
            CheckpointError: a checkpoint could not be written.
        """
        run = self.parts
        self._started = True
        reason = "failed"
        use_bfloat16(run.settings.mixed_precision == "bfloat16")  # another run may have been made meanwhile
        self.print(opening(run.directory, run.agent, run.settings.tensorboard))
        with contextlib.ExitStack() as closing:
            closing.callback(run.close)
            closing.callback(lambda: run.reporter.close(reason))
            try:
                with run.signals:
                    run.reporter.start(run.resumed_at)
                    self._train()
            except Exception as error:
                reason = f"failed: {type(error).__name__}"
                self.error = self._fail(error)
                run.hooks.call("on_training_end")
                if self.error is not error:
                    raise self.error from error
                raise
            run.hooks.call("on_training_end")
            run.hooks.raise_error()
            reason = run.stop_reason or "finished"
        evaluator = run.evaluator
        accepted = None if run.preset.validation.min_reward_threshold is None else evaluator.accepted
        best, received = (evaluator.best, evaluator.best_step), run.signals.received
        return Result(reason, run.directory.path, run.counters, best[0], received, accepted, best[1])

    def _train(self) -> None:
        run, signals = self.parts, self.parts.signals
        run.hooks.call("on_training_begin")
        run.hooks.raise_error()
        try:
            if run.evaluation_due():  # the one that failed, in a run that was resumed
                self.evaluate()
            while not (run.schedule.finished() or run.stops()):
                self.train_one_step()
            if not signals.received and run.last_evaluation_due():
                self.evaluate()
            if not signals.received and run.is_judged_by_nothing():
                run.evaluator.save(-np.inf, run.counters)
        except KeyboardInterrupt:  # of an environment's handler, or the second Ctrl-C
            if not self._can_be_saved:
                raise
            signals.interrupt()
        except Exception:  # a signal may have ended the environments' processes, too
            if not (signals.received and self._can_be_saved) or run.several:
                raise
        if signals.received:
            self.stop(signal.Signals(signals.received).name)
        saved = self.save()
        if signals.received:
            stopped = f"Stopped by {run.stop_reason} at step {run.counters.env_steps}"
            self.print(f"{stopped}; saved in {saved}. Continue with: {run.resume_command}")
        run.hooks.raise_error()

    def _fail(self, error: Exception) -> Exception:
        """Saves the state where no step was interrupted, says how to continue, and returns the error to raise."""
        run = self.parts
        if isinstance(error, tf.errors.OpError) and run.several:
            lost = f"Another worker of this run ended or cannot be reached ({str(error.message).splitlines()[0]})"
            return TfsacError(f"{lost}. Start all workers with {run.resume_command} to continue.")
        if not self._can_be_saved or run.several or isinstance(error, NonFiniteError):  # workers save together
            self.print(f"Failed at step {run.counters.env_steps}. {run.resume_advice()}")
            return error
        try:
            saved = self.save()
            self.print(f"Failed; the state before is saved in {saved}. Continue with: {run.resume_command}")
        except Exception as unsaved:
            self.print(f"Failed, and the state could not be saved: {unsaved}. {run.resume_advice()}")
        return error

    def train_one_step(self) -> None:
        """Acts once in every environment, makes the updates that are pending, evaluates and saves where it is time."""
        run = self.parts
        self.collect()
        self.update()
        if run.evaluation_due():
            self.evaluate()
        if run.checkpoint_period.tick(run.counters.env_steps):
            self.save()
        run.reporter.advance()
        if run.reporter.terminal.console.stdout_closed:  # as in `tfsac train | head`
            run.signals.received = run.signals.received or getattr(signal, "SIGPIPE", signal.SIGTERM)
        run.hooks.call("on_step")
        run.hooks.raise_error()

    def collect(self) -> None:
        """Acts once in every environment, stores the step, and learns running statistics from it. Nothing is stored
        where an environment raises or an action is not finite.
        """
        run = self.parts
        step = self._newest_step = run.collector.step(run.schedule.random_until(), run.counters.env_steps)
        self._can_be_saved = False
        ends = step.terminated, step.truncated
        run.memory.add(step.observation, step.action, step.reward, *ends, step.next_observation, step.extras)
        data = {"reward": step.reward, "ended": step.terminated | step.truncated, "length": step.length}
        normalised = run.filters.observations
        data |= {OBSERVATION + key: step.following[key] for key in normalised}
        data |= {f"info/{key}": values for key, values in step.logged.items()}
        if run.several:
            data = run.gather_step(data)
        if normalised:
            run.filters.learn({key: data[OBSERVATION + key] for key in normalised})
        if run.filters.learns_rewards:
            run.filters.learn_reward(data["reward"], data["ended"])
        run.schedule.count(len(data["ended"]), int(np.count_nonzero(data["ended"])))
        logged = {key: data[f"info/{key}"] for key in step.logged}
        run.reporter.add_step(data["reward"], data["ended"], data["length"], logged)

    def update(self) -> None:
        """Makes the updates that are pending; where it is time, a reset before them."""
        run = self.parts
        if run.resets.steps and run.resets.pending(run.counters.env_steps):
            run.updates.finish()
            number = run.resets.reset(run.counters.env_steps)
            run.collector.sync_from(run.agent.policy)
            self.print(f"Reset {number} of {len(run.resets.steps)} at step {run.counters.env_steps}; the memory stays.")
        for count in run.sampler.pending():
            if run.updates.thread:
                run.updates.finish()  # its priorities count in the next sample
            if (batch := run.sampler.draw(count)) is None:
                continue
            run.counters.updates += count if isinstance(batch, BatchesOnDevice) else len(batch.reward)
            if run.updates.thread:
                run.updates.start(batch)
            else:
                run.updates.take(batch, run.agent.update(batch))
        self._can_be_saved = True

    def evaluate(self) -> dict[str, Any]:
        """Evaluates the policy, logs a row of metrics and keeps the weights if they are the best so far. In an
        environment that is shared with training, the running episode ends and a new one starts.

        Returns:
            the row, NaN where it has no value; nothing at workers other than the chief, which evaluates for all.

        Raises:
            EnvironmentFailure: the environment raised; the evaluation is made again when the run is resumed.
        """
        run = self.parts
        run.updates.wait()
        speed, chief = run.reporter.steps_per_second(), run.workers.task.is_chief
        evaluated = run.evaluate() if chief else {}
        run.evaluator.completed(run.counters)
        row = run.reporter.row(speed) | evaluated
        if not chief:
            return {}
        value = row.get("evaluation/return_mean", row.get(RECENT, np.nan))
        row = run.reporter.write(run.hooks.metrics() | row)
        if not np.isnan(value):
            run.evaluator.save_if_best(value, run.counters)
            if run.evaluator.reached_threshold(value, run.counters) and run.settings.stop_at_threshold:
                self.stop("threshold reached")
        run.hooks.call("on_evaluation", row)
        ends = self._started and (run.schedule.finished() or run.stop_reason or run.signals.received)
        if run.shared and not ends:
            run.start_shared_episode()
        run.reporter.start_row()
        return row

    def save(self) -> pathlib.Path:
        """Writes a checkpoint and returns its folder; nothing is written where a weight is not finite."""
        run = self.parts
        run.updates.wait()
        refuse_non_finite_weights(run.agent.trained, run.counters.env_steps)
        checkpoint = run.save()
        run.hooks.call("on_checkpoint")
        return checkpoint

    def stop(self, reason: str) -> None:
        """Ends the run after the current step; the result has the reason."""
        self.parts.stop_reason = reason or "stopped"

    def print(self, text: str) -> None:
        """Prints a line above the progress bar, unless the run is quiet."""
        self.parts.print(text)

    def close(self) -> None:
        """Closes the environments and unlocks the run's folder; `run` does so at its end."""
        self.parts.close()
