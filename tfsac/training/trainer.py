"""The training loop: act, step, store, sample, update, evaluate, save."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence

import gymnasium as gym
import numpy as np

from tfsac.environments import EnvironmentFailure, Environments, action_map
from tfsac.metrics import Row, terminal_or_notebook
from tfsac.networks import ModelMaker
from tfsac.networks.bfloat16 import use_bfloat16
from tfsac.parameters import EnvironmentEpisodes, ParameterError, Preset, RunParameters
from tfsac.training.callbacks import Callback
from tfsac.training.checkpoints import CheckpointError
from tfsac.training.failures import explaining
from tfsac.training.non_finite import NonFiniteError, refuse_non_finite, refuse_non_finite_weights
from tfsac.training.recorder import RECENT, RECENT_EPISODES
from tfsac.training.reporting import opening
from tfsac.training.run_directory import CONFIG
from tfsac.training.run_parts import STOPPED, MakeTerminal, RunParts
from tfsac.training.run_request import requested
from tfsac.training.schedule import Counters
from tfsac.types import OBSERVATION, Batches, BatchesOnDevice, Step, UpdateResult, number_of_updates
from tfsac.user_code import described as description


class Trainer(RunParts):
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
        env_fn: makes one environment, instead of the preset's level and its arguments. A function is not saved: give it
            again to resume.
        models: makes a Keras model for each network, instead of the preset's layers; see docs/own_networks.md. It is
            not saved either.
        terminal: makes what prints the progress, such as a subclass of `TerminalSink`; it gets that class's arguments.
        restore_memory: begin also with the replay memory of the run in `initial_weights`, and without a warm-up.

    Attributes:
        agent, memory, environments, filters, policy, counters, preset, directory: the parts, for callbacks.
        update_metrics: names of the metrics that an update returns.
        lock: on the run's folder, until `run` ends.
        error: what ended the run, if it failed.
        run_files: contents of files in this folder that checkpoints keep, by name, beside those that every run has.
        how_to_resume: the command that continues the run.

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
        terminal: MakeTerminal = terminal_or_notebook,
        restore_memory: bool = False,
    ):
        given = preset, run_dir, run, resume, callbacks, quiet, initial_weights, env_fn, models, restore_memory
        asked = requested(*given)
        super().__init__(asked, terminal, self._computed, self._apply)
        self.stop_reason, self.agreed_to_stop, self.ran, self.ended = "", False, False, False
        self.policy_is_of_earlier_end = False
        self.newest_step: Step | None = None

    @property
    def last_step(self) -> Step | None:
        """The last step of all environments in this process, with actions as they got them; None before the first."""
        step = self.newest_step
        return step and step._replace(action=action_map(self.environments.spec)(step.action))

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Trains until the schedule, a threshold, a callback or a signal ends it, and saves.

        Returns:
            how it ended.

        Raises:
            EnvironmentFailure: an environment raised; the state before that step was saved.
            NonFiniteError: a metric, weight or action is not finite; the last checkpoint is from before, and the batch
                of a metric was saved.
            CheckpointError: a checkpoint could not be written.
            RuntimeError: it ran already.
        """
        if self.ran:
            raise RuntimeError(
                "A trainer runs once and closes its environments. To continue, make a new one with resume=True. "
                f"Received: a second run in {self.directory.path}"
            )
        self.ran = True
        use_bfloat16(self.settings.mixed_precision == "bfloat16")  # another run may have been made meanwhile
        visible = self.preset.environment.visible_entries
        self.print(opening(self.directory, self.agent, visible, self.settings.tensorboard))
        try:
            with self.signals, self.terminal, self._failing():
                with self.writing:
                    self.reporter.start(self.directory)
                self._train()
                with self.writing:
                    self.reporter.close()
        finally:
            self.ended = True
            with contextlib.ExitStack() as closing:
                closing.callback(self.close)
                closing.callback(self.updates.close)
                with contextlib.suppress(OSError):  # on a full disk the error before says so
                    self.reporter.close()
        best = None if np.isinf(self.evaluator.best_return) else self.evaluator.best_return
        reason, best_step = self.stop_reason or "finished", self.evaluator.best_step
        accepted = None if self.preset.validation.min_reward_threshold is None else self.evaluator.accepted
        return Result(reason, self.directory.path, self.counters, best, self.signals.received, accepted, best_step)

    def _train(self) -> None:
        self._call("on_training_begin")
        try:
            if self._evaluation_due():  # the one that failed, in a run that was resumed
                self.evaluate()
            while not (self.schedule.finished() or self._stopping()):
                self.train_one_step()
            if not self.signals.received:
                if self.evaluator.evaluated_at != self.counters.env_steps:
                    self._evaluate_last()
                self._keep_last()
        except EnvironmentFailure:  # a signal may have ended the environments' processes, too
            if self.workers.task.num_workers > 1 or not self.signals.received:
                raise
        if self.signals.received:
            self.stop(signal.Signals(self.signals.received).name)
        self._end(self.save())

    def train_one_step(self) -> None:
        """Acts once in every environment, makes the updates that are pending, evaluates and saves where it is time."""
        self.collect()
        self.update()
        if self._evaluation_due():
            self.evaluate()
        if self.checkpoint_period.passed(self.counters.env_steps):
            self.save()
        self.report()
        self._call("on_step")

    def collect(self) -> None:
        """Acts once in every environment and stores the step.

        Raises:
            EnvironmentFailure: an environment raised; nothing was stored.
            NonFiniteError: an action is not finite; nothing was stored.
        """
        try:
            step = self.newest_step = self.collector.step(self.schedule.random_until(), self.counters.env_steps)
        except KeyboardInterrupt as error:
            raise self._interrupted(error) from error
        ends = step.terminated, step.truncated
        self.memory.add(step.observation, step.action, step.reward, *ends, step.next_observation, step.extras)
        self._count(step)

    def update(self) -> None:
        """Makes the updates that are pending, see `Sampler.pending_batches`; where it is time, a reset before them."""
        if self.resets.pending(self.counters.env_steps):
            self.reset()
        for sample in self.sampler.pending_batches():
            self.updates.finish()  # its priorities count in the next sample
            if (batch := sample()) is not None:
                self.counters.updates += number_of_updates(batch)
                self.updates.start(batch if isinstance(batch, BatchesOnDevice) else self.filters.batch(batch))

    def reset(self) -> None:
        """Has the agent start again with fresh networks; see `Resets`."""
        self.updates.finish()
        number = self.resets.reset(self.counters.env_steps)
        self.collector.hand_over(self.agent.policy)
        self.print(
            f"Reset {number} of {len(self.resets.steps)} at step {self.counters.env_steps}: networks and optimizers "
            "start again, the replay memory stays."
        )

    def evaluate(self) -> Row:
        """Evaluates the policy, writes a row of metrics and keeps the weights if they are the best so far. In an
        environment that is shared with training, the running episode ends and a new one starts.

        Returns:
            the row, NaN where it has no value; nothing at workers other than the chief, which evaluates for all.

        Raises:
            RuntimeError: the run has ended.
            EnvironmentFailure: the environment raised; the evaluation is made again when the run is resumed.
            NonFiniteError: an action, or one of the best weights, is not finite.
            OSError: the row or the weights cannot be written.
        """
        if self.ended:
            raise RuntimeError(
                f"The run has ended: tfsac.evaluate(run_dir) evaluates its policy. Received: {self.directory.path}"
            )
        self.updates.wait()
        speed = self.reporter.steps_per_second()
        try:
            evaluated = self._judged() if self.workers.task.is_chief else {}
        except (KeyboardInterrupt, SystemExit) as error:
            raise self._interrupted(error) from error
        self.evaluator.completed(self.counters)
        row = self.reporter.row(speed) | evaluated
        if not self.workers.task.is_chief:
            return {}
        row |= self.hooks.metrics(self)
        with self.writing:
            value = row.get("evaluation/return_mean", row.get(RECENT))
            row = self.reporter.write(row, self.agent)
            reached = value is not None and self.evaluator.judge(value, self.counters)
        if reached and self.settings.stop_at_threshold:
            self.stop("threshold reached")
        self.hooks.call("on_evaluation", self, row)
        ends = self.ran and (self.schedule.finished() or self._wish_to_stop())  # a resumed run continues the episode
        if self.shared and not ends and isinstance(self.environments, Environments):
            if self.environments.length.any():
                self.state.end_episodes()
                self.checkpoints.rewrite_newest_chunk()
            try:
                self.environments.start_episodes()
            except KeyboardInterrupt as error:
                raise self._interrupted(error) from error
        self.reporter.start_row()
        return row

    def _evaluation_due(self) -> bool:
        """Returns whether an evaluation is due now; in the environment that is trained in, between episodes."""
        return self.evaluator.due(self.counters) and not (self.shared and self.environments.length.any())

    def _judged(self) -> dict[str, float]:
        """Returns what the policy is judged by: an evaluation, or the last training episodes once it learns."""
        if self.preset.environment.evaluation != "none":
            if self.shared and isinstance(self.environments, Environments) and self.environments.groups.here:
                self.evaluator.env = self.environments.groups.here.envs[0]  # it may have been made again
            begins = self.shared and not self.environments.length.any()
            begun = {key: seen[0] for key, seen in self.environments.observation.items()} if begins else None
            return self.evaluator.evaluate(self.counters.env_steps, begun)
        mean, episodes = self.reporter.recorder.recent_return(), self.schedule.since_heatup(EnvironmentEpisodes(1))
        enough = episodes >= RECENT_EPISODES and self.counters.updates
        return {RECENT: mean} if mean is not None and enough else {}

    def _evaluate_last(self) -> None:
        running = self.shared and self.environments.length.any()
        try:
            self.evaluate()
        except EnvironmentFailure as error:
            if not (running and self.evaluator.best_weights) or self.signals.received:
                raise
            self.print(f"The last evaluation is left out, because the running episode cannot be ended: {error}")

    def _keep_last(self) -> None:
        """Keeps the last policy where training episodes were too few to judge one by."""
        none = self.preset.environment.evaluation == "none" and self.workers.task.is_chief
        if none and self.counters.episodes and not self.evaluator.best_weights:
            self.evaluator.keep(-np.inf, self.counters)

    def save(self) -> pathlib.Path:
        """Writes a checkpoint and returns its folder.

        Raises:
            CheckpointError: it could not be written.
            NonFiniteError: a weight is not finite; nothing was written.
        """
        self.updates.wait()
        refuse_non_finite_weights(self.agent.trained, self.counters.env_steps)
        files, config = {**self.run_files, **self.state.files()}, self.directory.config
        if self.workers.task.is_chief and config.is_file():
            files[CONFIG] = config.read_bytes()
        values = {**self.state.values(), STOPPED: "" if self.signals.received else self.stop_reason}
        place = self.checkpoints.save(self.counters.env_steps, values, self.state.arrays(), files)
        if self.policy_is_of_earlier_end:
            # A run with a policy counts as ended, which the newest checkpoint must no longer say.
            shutil.rmtree(self.directory.policy)
            self.policy_is_of_earlier_end = False
        self.hooks.call("on_checkpoint", self)
        return place

    def report(self) -> None:
        """Moves the progress bar; ends the run where nobody reads what it prints any more."""
        with self.writing:
            self.reporter.advance()
        if self.terminal.nobody_reads:
            self.signals.received = self.signals.received or getattr(signal, "SIGPIPE", signal.SIGTERM)

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

    def complete(self) -> None:
        """Has `run` train nothing where a run that is resumed had been stopped, and only its exported policy is
        missing. Where it trains more, its first checkpoint removes the policy of its earlier end.
        """
        exported = self.directory.policy.exists()
        if self.stopped and not exported:
            self.stop_reason, self.agreed_to_stop = self.stopped, True
            self.print(f"It had ended there ({self.stopped}); its curve and policy are made now.")
        elif exported and not self.schedule.finished() and self.workers.task.is_chief:
            self.policy_is_of_earlier_end = True
            self.print(f"{self.directory.policy} is made again at the end.")

    # -- inside a step -------------------------------------------------------------------------------------------------

    def _count(self, step: Step) -> None:
        """Counts a step of every worker, learns statistics from it, and agrees with the other workers on what
        follows.
        """
        normalised = {OBSERVATION + key: step.following[key] for key in self.filters.mean}
        own = {
            "ended": step.ended,
            "length": step.length,
            "reward": step.reward,
            "stop": np.array([self._wish_to_stop()]),
        }
        logged = {f"info/{key}": values for key, values in step.logged.items()}
        seen = self.workers.gather({**own, **logged, **normalised, **self.sampler.offers()})
        self.filters.learn({key: seen[OBSERVATION + key] for key in self.filters.mean})
        self.filters.learn_reward(seen["reward"], seen["ended"])
        self.schedule.count(len(seen["ended"]), int(np.count_nonzero(seen["ended"])))
        with self.writing:
            logged = {key: seen[f"info/{key}"] for key in step.logged}
            self.reporter.add_step(seen["reward"], seen["ended"], seen["length"], logged)
        self.sampler.agree(seen)
        if any(seen["stop"]):
            self.agreed_to_stop, received = True, int(max(seen["stop"]))
            self.stop_reason = self.stop_reason or "another worker stopped"
            self.signals.received = received if received > 0 else None

    def _wish_to_stop(self) -> int:
        """Returns the signal that this worker received, -1 for another reason to stop, or 0."""
        return self.signals.received or (-1 if self.stop_reason else 0)

    def _stopping(self) -> bool:
        # Several workers stop at the same step, which they learn from each other while they act.
        self.signals.keep()
        return self.agreed_to_stop if self.workers.task.num_workers > 1 else bool(self._wish_to_stop())

    def _interrupted(self, error: KeyboardInterrupt | SystemExit) -> EnvironmentFailure:
        """Takes what an environment raised for Ctrl-C; its step or evaluation was not made."""
        if not self.ran:  # it is stepped by hand
            raise error
        self.signals.interrupt()
        return EnvironmentFailure(f"{self.preset.environment.name} was interrupted. Received: Ctrl-C")

    def _computed(self, batch: Batches, result: UpdateResult) -> None:
        before = self.counters.updates - len(result.metrics)
        steps = self.counters.env_steps
        refuse_non_finite(self.update_metrics, result, batch, before, steps, self.directory.path)
        self.reporter.add_updates(result.metrics)
        self.hooks.call("on_updates", self, result.metrics)

    def _apply(self, result: UpdateResult) -> None:
        self.memory.update_priorities(result.priority)
        self.collector.hand_over(self.agent.policy, result.acting)

    def _call(self, hook: str) -> None:
        self.hooks.call(hook, self)
        self.hooks.raise_error()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self, saved: pathlib.Path) -> None:
        if self.signals.received:
            self.print(
                f"Stopped by {signal.Signals(self.signals.received).name} at step {self.counters.env_steps}; "
                f"saved in {self.directory.shown(saved)}. Continue with: {self.how_to_resume.command()}"
            )
        self.hooks.raise_error()
        self.hooks.end(self)
        self.hooks.raise_error()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Saves the state of the run when an environment or a callback fails inside, explains other failures, and
        tells callbacks.
        """
        try:
            with explaining(self.counters, self.how_to_resume, self.workers.task.num_workers):
                yield
        except Exception as error:
            if isinstance(error, EnvironmentFailure):
                self._save_after(error.what)
            elif error is self.hooks.error:
                self._save_after("A callback failed")
            self.error = error
            self.hooks.end(self)
            raise

    def _save_after(self, what: str) -> None:
        if self.workers.task.num_workers > 1:  # the others do not save with this one
            self.print(f"{what} at step {self.counters.env_steps}. {self.how_to_resume.advice()}")
            return
        try:
            place = self.save()
        except (CheckpointError, NonFiniteError, OSError) as error:
            self.print(f"{what}, and its state could not be saved: {description(error)}")
            return
        self.print(
            f"{what}; the state before is saved in {self.directory.shown(place)}. Continue with: "
            f"{self.how_to_resume.command()}"
        )


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
