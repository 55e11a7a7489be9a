"""The training loop: act, step, store, sample, update, evaluate, save."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import pathlib
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfsac.distributed.workers import worker_lost_error
from tfsac.environments import EnvironmentFailure, Environments, action_map
from tfsac.errors import TfsacError
from tfsac.networks import ModelMaker
from tfsac.networks.bfloat16 import use_bfloat16
from tfsac.parameters import EnvironmentEpisodes, Preset, RunParameters
from tfsac.training.callbacks import Callback
from tfsac.training.checkpoints import CheckpointError
from tfsac.training.loggers import Logger, terminal_or_notebook
from tfsac.training.loggers.recorder import RECENT, RECENT_EPISODES
from tfsac.training.non_finite import NonFiniteError, refuse_non_finite, refuse_non_finite_weights
from tfsac.training.reporting import opening
from tfsac.training.run import MakeTerminal, build_run
from tfsac.training.schedule import Counters
from tfsac.types import OBSERVATION, Batches, BatchesOnDevice, Step, UpdateResult
from tfsac.utils.machine import option


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


class Interrupted(Exception):
    """Ctrl-C inside an environment, whose step or evaluation was not made."""


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
        stop_reason: why the run ends after this step; "" where it does not.
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
        terminal: MakeTerminal = terminal_or_notebook,
        restore_memory: bool = False,
        loggers: Sequence[Logger | str] = (),
    ):
        start = initial_weights, env_fn, models, terminal, restore_memory, loggers
        self.parts = build_run(preset, run_dir, run, resume, callbacks, quiet, *start)
        self.parts.updates.on_result = self._on_result
        self.stop_reason, self._environment_failure = "", ""
        self.error: Exception | None = None
        self._started, self._stop_agreed, self._policy_is_outdated = False, False, False
        self._newest_step: Step | None = None

    # Callbacks use these parts, and must not replace them: it would have no effect, or none that can be resumed.
    agent, memory, environments, filters = _proxy("agent"), _proxy("memory"), _proxy("environments"), _proxy("filters")
    policy, counters, schedule = _proxy("policy"), _proxy("counters"), _proxy("schedule")
    preset, directory, update_metrics = _proxy("preset"), _proxy("directory"), _proxy("update_metrics")

    @property
    def last_step(self) -> Step | None:
        """The last step of all environments in this process, with actions as they got them; None before the first."""
        step = self._newest_step
        return step and step._replace(action=action_map(self.parts.environments.spec)(step.action))

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Trains until the schedule, a threshold, a callback or a signal ends it, and saves.

        Raises:
            EnvironmentFailure: an environment raised; the state before that step was saved.
            NonFiniteError: a metric, weight or action is not finite; the last checkpoint is from before, and the batch
                of a metric was saved.
            CheckpointError: a checkpoint could not be written.
        """
        run = self.parts
        if self._started:
            raise TfsacError("a Trainer runs once: to continue, make a new one with resume=True")
        self._started = True
        reason = "failed"
        use_bfloat16(run.settings.mixed_precision == "bfloat16")  # another run may have been made meanwhile
        visible = run.preset.environment.visible_entries
        self.print(opening(run.directory, run.agent, visible, run.settings.tensorboard))
        with contextlib.ExitStack() as closing:
            closing.callback(run.close)
            closing.callback(lambda: run.reporter.close(reason))
            try:
                with run.signals:
                    run.reporter.start(run.resumed_at)
                    self._train()
            except Exception as error:
                reason = f"failed: {type(error).__name__}"
                if (explained := self._fail(error)) is not error:
                    raise explained from error
                raise
            reason = self.stop_reason or "finished"
        evaluator = run.evaluator
        best = None if np.isinf(evaluator.best_return) else evaluator.best_return
        accepted = None if run.preset.validation.min_reward_threshold is None else evaluator.accepted
        received = run.signals.received
        return Result(reason, run.directory.path, run.counters, best, received, accepted, evaluator.best_step)

    def _train(self) -> None:
        run = self.parts
        run.hooks.call("on_training_begin", self)
        run.hooks.raise_error()
        several = run.workers.task.num_workers > 1
        try:
            if self._evaluation_due():  # the one that failed, in a run that was resumed
                self.evaluate()
            while not run.schedule.finished():
                run.signals.keep()
                if self._stop_agreed if several else (run.signals.received or self.stop_reason):
                    break
                self.train_one_step()
            if not run.signals.received:
                self._evaluate_last()
        except Interrupted:
            pass
        except Exception:  # a signal may have ended the environments' processes, too
            if not (self._environment_failure and run.signals.received) or several:
                raise
        if run.signals.received:
            self.stop(signal.Signals(run.signals.received).name)
        saved = self.save()
        if run.signals.received:
            self.print(f"Saved in {saved}. Continue with: {run.resume_command}")
        run.hooks.raise_error()
        run.hooks.end(self)
        run.hooks.raise_error()

    def train_one_step(self) -> None:
        """Acts once in every environment, makes the updates that are pending, evaluates and saves where it is time."""
        run = self.parts
        self.collect()
        self.update()
        if self._evaluation_due():
            self.evaluate()
        if run.checkpoint_period.tick(run.counters.env_steps):
            self.save()
        run.reporter.advance()
        if run.reporter.terminal.stdout_closed:  # as in `tfsac train | head`
            run.signals.received = run.signals.received or getattr(signal, "SIGPIPE", signal.SIGTERM)
        run.hooks.call("on_step", self)
        run.hooks.raise_error()

    def collect(self) -> None:
        """Acts once in every environment, stores the step, and learns running statistics from it. Nothing is stored
        where an environment raises or an action is not finite.
        """
        run = self.parts
        try:
            step = self._newest_step = run.collector.step(run.schedule.random_until(), run.counters.env_steps)
        except BaseException as error:
            self._note_environment_error(error)
            raise
        ends = step.terminated, step.truncated
        run.memory.add(step.observation, step.action, step.reward, *ends, step.next_observation, step.extras)
        data = {"reward": step.reward, "ended": step.terminated | step.truncated, "length": step.length}
        normalised = run.filters.observations
        data |= {OBSERVATION + key: step.following[key] for key in normalised}
        data |= {f"info/{key}": values for key, values in step.logged.items()}
        if run.workers.task.num_workers > 1:
            data = self._gather_steps(data)
        if normalised:
            run.filters.learn({key: data[OBSERVATION + key] for key in normalised})
        if run.filters.learns_rewards:
            run.filters.learn_reward(data["reward"], data["ended"])
        run.schedule.count(len(data["ended"]), int(np.count_nonzero(data["ended"])))
        logged = {key: data[f"info/{key}"] for key in step.logged}
        for episode in run.reporter.recorder.add_step(data["reward"], data["ended"], data["length"], logged):
            run.reporter.write_episode(*episode)

    def update(self) -> None:
        """Makes the updates that are pending; where it is time, a reset before them."""
        run = self.parts
        if run.resets.steps and run.resets.pending(run.counters.env_steps):
            self._reset()
        for count in run.sampler.pending():
            if run.updates.is_asynchronous:
                run.updates.finish()  # its priorities count in the next sample
            batch = run.sampler.draw(count)
            if batch is None:
                continue
            run.schedule.counters.updates += count if isinstance(batch, BatchesOnDevice) else len(batch.reward)
            if run.updates.is_asynchronous:
                run.updates.start(batch)
            else:
                run.updates.take(batch, run.agent.update(batch))

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
        with self._environment_errors():
            evaluated = self._evaluated() if chief else {}
        run.evaluator.completed(run.counters)
        row = run.reporter.row(speed) | evaluated
        if not chief:
            return {}
        value = row.get("evaluation/return_mean", row.get(RECENT))
        row = run.reporter.write(row | run.hooks.metrics(self))
        if value is not None:
            run.evaluator.save_if_best(value, run.counters)
            if run.evaluator.reached_threshold(value, run.counters) and run.settings.stop_at_threshold:
                self.stop("threshold reached")
        run.hooks.call("on_evaluation", self, row)
        ends = self._started and (run.schedule.finished() or self.stop_reason or run.signals.received)
        if run.is_shared and not ends and isinstance(run.environments, Environments):
            if run.environments.length.any():
                run.end_episodes()
                run.checkpoints.rewrite_newest_chunk()
            with self._environment_errors():
                run.environments.start_episodes()
        run.reporter.start_row()
        return row

    def save(self) -> pathlib.Path:
        """Writes a checkpoint and returns its folder; nothing is written where a weight is not finite."""
        run = self.parts
        run.updates.wait()
        refuse_non_finite_weights(run.agent.trained, run.counters.env_steps)
        checkpoint = run.save("" if run.signals.received else self.stop_reason)
        if self._policy_is_outdated:  # a run with a policy counts as ended, which the newest checkpoint no longer says
            shutil.rmtree(run.directory.policy)
            self._policy_is_outdated = False
        run.hooks.call("on_checkpoint", self)
        return checkpoint

    def stop(self, reason: str) -> None:
        """Ends the run after the current step; the result has the reason."""
        if not reason:
            raise TfsacError("stop() needs a reason, e.g. 'no improvement'")
        self.stop_reason = reason

    def print(self, text: str) -> None:
        """Prints a line above the progress bar, unless the run is quiet."""
        self.parts.print(text)

    def close(self) -> None:
        """Closes the environments and unlocks the run's folder; `run` does so at its end."""
        self.parts.close()

    def complete(self) -> None:
        """Has `run` train nothing where only the exported policy of a stopped run is missing. Where it trains more, its
        first checkpoint removes the policy of its earlier end.
        """
        run = self.parts
        exported = run.directory.policy.exists()
        if run.stopped and not exported:
            self.stop_reason, self._stop_agreed = run.stopped, True
            self.print(f"It had ended there ({run.stopped}); its curve and policy are made now.")
        elif exported and not run.schedule.finished() and run.workers.task.is_chief:
            self._policy_is_outdated = True
            self.print(f"{run.directory.policy} is made again at the end.")

    # -- inside a step -------------------------------------------------------------------------------------------------

    def _gather_steps(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns a step of all workers, which agree here on when they update and stop."""
        run = self.parts
        stop = run.signals.received or (-1 if self.stop_reason else 0)
        data = run.workers.gather({**data, **run.sampler.local_status(), "stop": np.array([stop])})
        run.sampler.merge_status(data)
        if any(data["stop"]):
            self._stop_agreed, received = True, int(max(data["stop"]))
            self.stop_reason = self.stop_reason or "another worker stopped"
            run.signals.received = received if received > 0 else None
        return data

    def _on_result(self, batch: Batches, result: UpdateResult) -> None:
        run = self.parts
        before = run.counters.updates - len(result.metrics)
        refuse_non_finite(run.update_metrics, result, batch, before, run.counters.env_steps, run.directory.path)
        run.reporter.add_updates(result.metrics)
        run.hooks.call("on_updates", self, result.metrics)

    def _reset(self) -> None:
        run = self.parts
        run.updates.finish()
        number = run.resets.reset(run.counters.env_steps)
        run.collector.sync_from(run.agent.policy)
        self.print(f"Reset {number} of {len(run.resets.steps)} at step {run.counters.env_steps}; the memory stays.")

    def _evaluation_due(self) -> bool:
        """Returns whether an evaluation is due now; in the environment that is trained in, between episodes."""
        run = self.parts
        return run.evaluator.due(run.counters) and not (run.is_shared and run.environments.length.any())

    def _evaluated(self) -> dict[str, float]:
        """Returns what the policy is judged by: an evaluation, or the last training episodes once it learns."""
        run = self.parts
        if run.preset.environment.evaluation != "none":
            first_observation = None
            if run.is_shared and isinstance(run.environments, Environments):
                if run.environments.local_group:
                    run.evaluator.env = run.environments.local_group.envs[0]  # it may have been made again
                if not run.environments.length.any():
                    first_observation = {key: seen[0] for key, seen in run.environments.observation.items()}
            return run.evaluator.evaluate(run.counters.env_steps, first_observation)
        mean, episodes = run.reporter.recorder.recent_return(), run.schedule.since_heatup(EnvironmentEpisodes(1))
        enough = episodes >= RECENT_EPISODES and run.counters.updates
        return {RECENT: mean} if mean is not None and enough else {}

    def _evaluate_last(self) -> None:
        """Evaluates the last policy, and keeps it where training episodes were too few to judge one by."""
        run = self.parts
        if run.evaluator.evaluated_at != run.counters.env_steps:
            running = run.is_shared and run.environments.length.any()
            try:
                self.evaluate()
            except EnvironmentFailure as error:
                if not (running and run.evaluator.best_weights) or run.signals.received:
                    raise
                self.print(f"The last evaluation is left out, because the running episode cannot be ended: {error}")
        without = run.preset.environment.evaluation == "none" and run.workers.task.is_chief
        if without and run.counters.episodes and not run.evaluator.best_weights:
            run.evaluator.save(-np.inf, run.counters)

    # -- failures ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _environment_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._note_environment_error(error)
            raise

    def _note_environment_error(self, error: BaseException) -> None:
        """Notes that an environment failed, after which the state can be saved; Ctrl-C in one ends the run."""
        if isinstance(error, KeyboardInterrupt | SystemExit) and self._started:
            self.parts.signals.interrupt()
            raise Interrupted from error
        if isinstance(error, Exception) and not isinstance(error, NonFiniteError):
            self._environment_failure = getattr(error, "what", "An environment failed")

    def _fail(self, error: Exception) -> Exception:
        """Saves the state of a run that an environment or a callback ended, says how to continue, tells callbacks, and
        returns the error to raise.
        """
        run = self.parts
        several = run.workers.task.num_workers > 1
        failed = "A callback failed" if error is run.hooks.error else self._environment_failure
        explained, step = error, run.counters.env_steps
        if isinstance(error, MemoryError | tf.errors.ResourceExhaustedError):
            on_disk = option("--memory_on_disk", "RunParameters(memory_on_disk=True)")
            explained = TfsacError(
                f"out of memory at environment step {step}: set {on_disk}, a smaller agent.memory.max_size or "
                f"batch_size, or fewer environments. {run.resume_advice()}"
            )
        elif isinstance(error, tf.errors.OpError) and several:
            explained = worker_lost_error(error, f"Start all workers with {run.resume_command} to continue.")
        elif failed and not several:  # the other workers do not save with this one
            try:
                saved = self.save()
                self.print(f"{failed}; the state before is saved in {saved}. Continue with: {run.resume_command}")
            except (CheckpointError, NonFiniteError, OSError) as unsaved:
                self.print(f"{failed}, and the state could not be saved: {unsaved}")
        else:
            self.print(f"Failed at step {step}. {run.resume_advice()}")
        self.error = explained
        run.hooks.end(self)
        return explained
