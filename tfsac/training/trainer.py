"""A run: its parts, their state in a checkpoint, and the loop: act, store, update, evaluate."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shlex
import signal
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfsac.agents import Agent
from tfsac.distributed.partition import check_vectorization, preset_of_worker, worker_task
from tfsac.distributed.workers import Workers
from tfsac.environments import EnvFn, Environments, Filters, GoalFunctions, VectorEnvironments, action_map, maker
from tfsac.environments.checked_env import close
from tfsac.environments.subprocesses import IsolatedEnvironment
from tfsac.environments.vector_env import FirstEnvironment
from tfsac.errors import TfsacError
from tfsac.memories import in_ram, on_disk
from tfsac.networks import ModelMaker
from tfsac.networks.bfloat16 import use_bfloat16, uses_bfloat16
from tfsac.parameters import (
    BY_ENV_FN,
    EnvironmentEpisodes,
    HindsightExperienceReplayParameters,
    OffPolicyAlgorithmParameters,
    Preset,
    RunParameters,
    override,
    to_json,
)
from tfsac.preset_lookup import load_preset
from tfsac.random_streams import Stream
from tfsac.training.build import (
    build_agent,
    build_device_memory,
    build_memory,
    build_policy,
    resolve_preset,
)
from tfsac.training.callbacks import Callback, Hooks
from tfsac.training.checkpoints import CheckpointManager, identity_of
from tfsac.training.collection import Collector
from tfsac.training.devices import configure_once, make_strategy, set_numerics
from tfsac.training.evaluation import Evaluator
from tfsac.training.loggers import Logger, TerminalLogger, make_loggers
from tfsac.training.non_finite import NonFiniteError, refuse_non_finite, refuse_non_finite_weights
from tfsac.training.policy_weights import load_initial_weights
from tfsac.training.ray_collector import RayCollector, RayEnvironments
from tfsac.training.reporting import RECENT, RECENT_EPISODES, Reporter, opening
from tfsac.training.run_directory import CONFIG, RunDirectory, spaces_of
from tfsac.training.schedule import Counters, Period, Sampler, Schedule
from tfsac.training.signals import StopSignals
from tfsac.training.trained_policy import Policy
from tfsac.training.updates import Resets, Updates
from tfsac.types import ACHIEVED_GOAL, DESIRED_GOAL, OBSERVATION, Batches, BatchesOnDevice, Step, UpdateResult
from tfsac.utils.files import read_object
from tfsac.utils.imports import name_of

NO_WARM_UP = {"schedule.heatup_steps": EnvironmentEpisodes(0), "schedule.random_action_steps": None}
PER_ENVIRONMENT = ("episode", "length")  # entries of the environments' state with one number per environment
THRESHOLD_REACHED = "threshold reached"


@dataclasses.dataclass
class Result:
    """Result of a run.

    Attributes:
        reason: "finished", "threshold reached", the name of a signal, or the argument of `Trainer.stop`.
        run_dir: folder of the run.
        counters: env_steps, episodes, updates.
        best_return: mean return of the best evaluation, or of ten training episodes without evaluations; or None.
        signal: the number of the signal that interrupted the run, or None.
        accepted: whether an evaluation reached the preset's threshold within its number of training episodes; None if
            the preset has no threshold.
        best_step: environment steps at the best evaluation; None without one, or if it is from an earlier version.
    """

    reason: str
    run_dir: pathlib.Path
    counters: Counters
    best_return: float | None
    signal: int | None
    accepted: bool | None
    best_step: int | None = None


class Trainer:
    """One run of a preset in a run directory: a new run, or one resumed from its newest checkpoint.

    Everything is built before anything is written, so invalid parameters leave no folder behind.

    Args:
        preset, run_dir, run, resume, callbacks, quiet, initial_weights, env_fn, models, restore_memory, loggers: see
            `tfsac.train`.
        terminal: creates the progress logger, such as a subclass of `TerminalLogger`; called with `quiet`.

    Attributes:
        agent, memory, environments, filters, policy, counters, schedule, directory: parts of the run, for callbacks;
            like all attributes, they must not be replaced.
        preset, settings: the experiment as in config.json, and its run parameters.
        update_metrics: names of the metrics that an update returns.
        last_step: the last step of all environments in this process.
        error: the exception that ended the run, if it failed.
        run_files: additional files of the run's folder to keep in checkpoints, contents by name.
        resume_command: command that resumes the run.

    Raises:
        TfsacError: parameters that do not fit the environment, or missing packages.
        FileExistsError, OSError: unusable run directory; BlockingIOError: another process trains in it.
        CheckpointError: no checkpoint to resume from.
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
        env_fn: EnvFn | None = None,
        models: ModelMaker | None = None,
        terminal: Callable[[bool], TerminalLogger] = TerminalLogger,
        restore_memory: bool = False,
        loggers: Sequence[Logger | str] = (),
    ):
        self.directory = directory = RunDirectory(run_dir)
        # A resumed run takes its weights from its checkpoint.
        source = None if initial_weights is None or resume else RunDirectory(initial_weights)
        earlier = read_object(directory.config) if resume and directory.config.is_file() else {}
        if env_fn is None and earlier and earlier["preset"]["environment"]["level"].startswith(BY_ENV_FN):
            raise TfsacError(f"the environment of {directory.path} is from a function: pass it again as env_fn=...")
        restore_memory = restore_memory and not resume
        if restore_memory and not source:
            raise TfsacError("restore_memory needs initial_weights (--checkpoint_restore_dir) of a new run")
        preset = preset if isinstance(preset, Preset) else load_preset(preset)
        if restore_memory or earlier.get("restore_memory"):
            preset = override(preset, NO_WARM_UP)
        if run is None:
            run = directory.read()[1] if resume and directory.config.is_file() else RunParameters()
        self.settings, task = run, worker_task(run)
        preset_of_worker(preset, task)  # raises
        check_vectorization(preset, run)
        if not resume:
            directory.refuse_existing()
        self._terminal, all_loggers = terminal(quiet or not task.is_chief), make_loggers(loggers)
        self._signals, self._hooks = StopSignals(), Hooks(callbacks, self)
        self.error: BaseException | None = None
        self.run_files: dict[str, bytes] = {}
        self._stop_reason, self._workers_stop = "", False
        self._started, self._can_be_saved = False, True  # the second is False during a step
        self._newest_step: Step | None = None
        notes = [configure_once()]
        self._workers, self._several = Workers(make_strategy(run, task), task), task.num_workers > 1
        arguments = {"resume": resume, "restore_memory": restore_memory, "initial_weights": source is not None}
        arguments |= {"env_fn": env_fn is not None, "models": models is not None}
        self._workers.check_shared({"preset": to_json(preset), "run": to_json(run), **arguments})
        with contextlib.ExitStack() as closing:
            closing.callback(use_bfloat16, uses_bfloat16())  # restore the setting, e.g. of an enclosing run
            closing.callback(directory.lock.release)
            evaluation_env = self._make_environments(preset, env_fn, models, resume, closing)
            preset, spec = self.preset, self.environments.spec
            worker_preset = preset_of_worker(preset, task)
            if run.stop_at_threshold and preset.validation.min_reward_threshold is None:
                name = preset.environment.name
                raise TfsacError(f"stop_at_threshold needs validation.min_reward_threshold for {name}")
            notes.append(set_numerics(run))
            if env_fn is not None and (visible := preset.environment.visible_entries) is not None:
                notes.append(
                    f"The agent sees the entries {visible} of env_fn's observation: environment.visible_entries."
                )

            def make_agent(seed: int) -> Agent:
                return build_agent(preset, dataclasses.replace(run, seed=seed), spec, models)

            with self._workers.strategy.scope():
                self.agent = agent = make_agent(run.seed)
            algorithm: Any = preset.agent.algorithm
            goal_keys = (ACHIEVED_GOAL, DESIRED_GOAL) if self._goals else ()
            self.filters = filters = Filters(preset.environment.filters, agent.spec, algorithm.discount, goal_keys)
            existing = next(path for path in (directory.path, *directory.path.parents) if path.is_dir())
            self.memory = memory = build_memory(
                worker_preset,
                agent.spec,
                filters,
                agent.policy.recurrent_state,
                on_disk(existing) if run.memory_on_disk else in_ram,
                older_policies=run.asynchronous_collection or run.ray_address is not None,
                autoreset=isinstance(self.environments, VectorEnvironments) and self.environments.next_step,
                goals=self._goals,
            )
            actor = agent.policy
            if run.asynchronous_collection:
                actor = build_policy(preset, run, spec, models, collecting=True)
            self._collector: Collector
            if isinstance(self.environments, RayEnvironments):
                self._collector = RayCollector(actor, filters, self.environments, run.actor_steps)
            else:
                self._collector = Collector(actor, filters, self.environments)
            if not resume:
                filters.learn(self._workers.gather(self.environments.observation))
            if source:
                for name in load_initial_weights(source, preset.environment, agent, filters):
                    notes.append(
                        f"Network {name!r} reads other observations than in {source.path}: it has fresh weights."
                    )
            device_memory = build_device_memory(memory, worker_preset, filters, agent, run.seed)
            one_by_one = isinstance(algorithm, OffPolicyAlgorithmParameters) and (
                preset.environment.num_envs * algorithm.num_consecutive_training_steps == 1
            )
            agent.trace(single=one_by_one)
            self.update_metrics = agent.metric_names
            self._collector.sync_from(agent.policy)
            self.schedule = schedule = Schedule(preset.schedule)
            self.counters = schedule.counters
            self._sampler = Sampler(worker_preset, memory, filters, schedule, run.seed, device_memory)
            self._updates = Updates(agent, memory, self._collector, self._on_result, run.asynchronous_collection)
            closing.callback(self._updates.close)
            self._resets = Resets(agent, getattr(algorithm, "reset_steps", ()), make_agent, run.seed)
            self.policy = Policy(agent.policy, filters, agent)
            self._evaluator = Evaluator(preset, run, self.policy, agent, evaluation_env, directory.best)
            extra = [name for callback in callbacks for name in callback.metric_names]
            self._reporter = Reporter(
                preset, run, directory.path, schedule, agent, extra, self._terminal, all_loggers, task.is_chief
            )
            identity, keep = identity_of(preset, run.seed, agent.spec), run.num_checkpoints_to_keep
            self._checkpoints = CheckpointManager(directory.checkpoints, agent, memory, identity, keep, self._workers)
            steps_between_checkpoints = schedule.steps_between_checkpoints(preset.environment.num_envs)
            self._checkpoint_period = Period(run.checkpoint_save_steps or steps_between_checkpoints)
            recorded = {
                "env_fn": env_fn and name_of(env_fn),
                "models": models and name_of(models),
                "initial_weights": source and str(source.path),
                "restore_memory": restore_memory,
                "spaces": spaces_of(spec),
            }
            by_shell = f"tfsac train {shlex.quote(f'--run_dir={directory.path}')} --resume"
            functions = env_fn is not None or models is not None or callbacks
            self.resume_command = "the same call with resume=True" if functions else by_shell
            if self._several:
                self._reseed()
            self._open(source if restore_memory else None, resume, recorded)
            self._closing = closing.pop_all()
        for line in (*agent.notes, *filter(None, notes), *(self._goals.notes if self._goals else [])):
            self.print(line)

    def _make_environments(
        self,
        preset: Preset,
        env_fn: EnvFn | None,
        models: ModelMaker | None,
        resume: bool,
        closing: contextlib.ExitStack,
    ) -> gym.Env:
        """Creates the training environments and the resolved preset; returns the evaluation environment."""
        run, task, make_env = self.settings, self._workers.task, maker(preset.environment, env_fn)
        vector_env = make_env.vector_env()
        if vector_env is not None:
            closing.callback(close, vector_env)
            changes = {"environment.vectorization": "vector", "environment.num_envs": vector_env.num_envs}
            preset = override(preset, changes)
            check_vectorization(preset, run)
        separate = preset.environment.evaluation == "separate"
        env = make_env() if separate or vector_env is None else FirstEnvironment(vector_env)
        self.preset = preset = resolve_preset(preset, env, env_fn, models)
        environment = preset.environment
        in_place = vector_env is not None or (environment.vectorization == "sync" and run.ray_address is None)
        self._goals: GoalFunctions | None = None
        if isinstance(preset.agent.memory, HindsightExperienceReplayParameters):
            goal_env = env
            if separate or not in_place:
                closing.callback((goal_env := make_env()).close)
            self._goals = GoalFunctions(goal_env)
        if separate:
            if environment.step_timeout_seconds is not None:
                env = IsolatedEnvironment(env, make_env, environment.step_timeout_seconds)
            closing.callback(env.close)
        elif not in_place:  # another process creates it
            env.close()
        elif vector_env is None:
            make_env.prepared.append(env)  # reuse it: some environments allow only one instance at a time
        self.environments: Environments | VectorEnvironments | RayEnvironments
        self._shared: Environments | None = None  # the training environments, if they are also used for evaluation
        if vector_env is not None:
            self.environments = VectorEnvironments(vector_env, run.seed, environment.logged_keys, begin=not resume)
        elif run.ray_address is None:
            local, begin = preset_of_worker(preset, task).environment, not resume  # a resume restores the episodes
            self.environments = Environments(local, run.seed, make_env, task.index * local.num_envs, begin)
            self._shared = self.environments if environment.evaluation == "shared" else None
        else:
            self.environments = RayEnvironments(preset, run, make_env, models, self.print)
        closing.callback(self.environments.close)
        return env

    def _open(self, source: RunDirectory | None, resume: bool, recorded: dict[str, Any]) -> None:
        """Creates the run's folder, or restores the parts from the newest checkpoint. `source` is the run whose memory
        to start with; `recorded` are additional entries of the config.
        """
        chief, directory, counters = self._workers.task.is_chief, self.directory, self.counters
        self._resumed_at: int | None = None
        if source:
            source.check_spaces(self.environments.spec)
            self._checkpoints.take_memory(source.checkpoints)
            self.print(f"Using {len(self.memory)} steps from the memory of {source.path}; skipping the warm-up.")
        if chief and (not resume or directory.checkpoints.is_dir()):
            directory.acquire_lock()
        if resume:
            self._restore()
            self._resumed_at = counters.env_steps
        if chief and resume:
            directory.note_resume(self.preset, self.settings, counters.env_steps, self.run_files)
        elif chief:
            directory.create(self.preset, self.settings, recorded)
        if chief:
            self._reporter.csv.start(self._reporter.info, self._resumed_at)
        self._checkpoint_period.start(counters.env_steps)
        best, stops = self._evaluator, self.settings.stop_at_threshold and self._evaluator.best_updates
        was_ending = resume and stops and not directory.policy.exists()  # killed while stopping at the threshold
        if was_ending and best.reached_threshold(best.best_return, counters):
            self._stop_reason, self._workers_stop = THRESHOLD_REACHED, True
        if resume and self.schedule.finished():
            self.print("This run has completed its schedule: increase schedule.improve_steps to train longer.")

    @property
    def last_step(self) -> Step | None:
        """The last step of all environments in this process, with environment actions; None before the first step."""
        step = self._newest_step
        return step and step._replace(action=action_map(self.environments.spec)(step.action))

    def stop(self, reason: str) -> None:
        """Stops the run after the current step; the result contains the reason."""
        self._stop_reason = reason or "stopped"

    def print(self, text: str) -> None:
        """Prints a line above the progress bar, unless the run is quiet."""
        self._terminal.print(text)

    def close(self) -> None:
        """Closes the environments and unlocks the run's folder; `run` calls it at the end."""
        self._closing.close()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Trains until the schedule, a threshold, a callback or a signal ends the run, and saves. Call it only once.

        Raises:
            EnvironmentFailure: an environment raised; the state before that step was saved.
            NonFiniteError: a metric, weight or action is not finite. The last checkpoint is from before; for a metric,
                the batch was saved too.
            CheckpointError: a checkpoint could not be written.
        """
        self._started, reason = True, "failed"
        use_bfloat16(self.settings.mixed_precision == "bfloat16")  # another Trainer may have changed it
        self.print(opening(self.directory, self.agent, self.settings.tensorboard))
        self._closing.callback(lambda: self._reporter.close(reason))
        with contextlib.closing(self):
            try:
                with self._signals:
                    self._reporter.start(self._resumed_at)
                    self._train()
            except (Exception, SystemExit) as error:
                reason, self.error = f"failed: {type(error).__name__}", self._fail(error)
            self._hooks.call("on_training_end")
            if self.error:
                raise self.error
            self._hooks.raise_error()
            reason = self._stop_reason or "finished"
        path, received, best = self.directory.path, self._signals.received, self._evaluator
        accepted = None if self.preset.validation.min_reward_threshold is None else best.accepted
        return Result(reason, path, self.counters, best.best, received, accepted, best.best_step)

    def _train(self) -> None:
        signals, evaluator = self._signals, self._evaluator
        self._hooks.call("on_training_begin")
        self._hooks.raise_error()
        try:
            if self._evaluation_due():  # in a resumed run, repeat an evaluation that failed
                self.evaluate()
            while not (self.schedule.finished() or self._stops()):
                self.train_one_step()
            running = self._shared and self._shared.length.any() and evaluator.best_updates
            if not signals.received and not running and evaluator.evaluated_at != self.counters.env_steps:
                self.evaluate()
            judged = evaluator.best_weights or not self.counters.updates or not self._workers.task.is_chief
            if not signals.received and not judged:  # no evaluations, and too few training episodes
                evaluator.save(-np.inf, self.counters)
        except KeyboardInterrupt:  # from an environment's handler, or the second Ctrl-C
            if not self._can_be_saved:
                raise
            signals.received = signals.received or signal.SIGINT
        except Exception:  # the signal may have also ended the environments' processes
            if not (signals.received and self._can_be_saved) or self._several:
                raise
        if signals.received:
            self.stop(signal.Signals(signals.received).name)
        saved = self.save()
        if signals.received:
            stopped = f"Stopped by {self._stop_reason} at step {self.counters.env_steps}"
            self.print(f"{stopped}; saved in {saved}. Continue with: {self.resume_command}")
        self._hooks.raise_error()

    def _stops(self) -> bool:
        return self._workers_stop if self._several else bool(self._signals.received or self._stop_reason)

    def _fail(self, error: BaseException) -> BaseException:
        """Saves the state unless a step was interrupted, prints how to resume, and returns the error to raise."""
        if isinstance(error, tf.errors.OpError) and self._several:
            reason = f"Another worker of this run ended or cannot be reached ({str(error.message).splitlines()[0]})"
            lost = TfsacError(f"{reason}. Start all workers with {self.resume_command} to continue.")
            lost.__cause__ = error
            return lost
        line = f"Failed at step {self.counters.env_steps}"
        if self._can_be_saved and not (self._several or isinstance(error, NonFiniteError)):  # workers save together
            try:
                self.save()
            except Exception as unsaved:
                line += f", which could not be saved: {unsaved}"
        advice = "there is no checkpoint to continue from"
        if saved := self._checkpoints.saved_checkpoints():
            advice = f"{self.resume_command} continues from the last checkpoint, {saved[-1].name}"
        self.print(f"{line}; {advice}.")
        return error

    def train_one_step(self) -> None:
        """Acts once in every environment, makes the pending updates, and evaluates and saves if due."""
        self.collect()
        self.update()
        if self._evaluation_due():
            self.evaluate()
        if self._checkpoint_period.tick(self.counters.env_steps):
            self.save()
        self._reporter.advance()
        if self._terminal.console.stdout_closed:  # as in `tfsac train | head`
            self._signals.received = self._signals.received or getattr(signal, "SIGPIPE", signal.SIGTERM)
        self._hooks.call("on_step")
        self._hooks.raise_error()

    def collect(self) -> None:
        """Acts once in every environment, stores the step and updates the running statistics. Nothing is stored if an
        environment raises or an action is not finite.
        """
        step = self._newest_step = self._collector.step(self.schedule.random_until(), self.counters.env_steps)
        self._can_be_saved = False
        ends, filters = (step.terminated, step.truncated), self.filters
        stored = step.observation, step.action, step.reward, *ends, step.next_observation, step.extras
        self.memory.add(*stored, **({"autoreset": step.autoreset} if len(step.autoreset) else {}))
        data = {"reward": step.reward, "ended": step.terminated | step.truncated, "length": step.length}
        data |= {OBSERVATION + key: step.following[key] for key in filters.observations}
        data |= {f"info/{key}": values for key, values in step.logged.items()}
        if self._several:
            data = self._gather_step(data)
        made: Any = slice(None)
        begun: Any = slice(None)
        if len(step.autoreset):  # exclude the last observation before a reset, and the step that only resets
            made, begun = ~step.autoreset, ~data["ended"]
        if filters.observations:
            filters.learn({key: data[OBSERVATION + key][begun] for key in filters.observations})
        if filters.learns_rewards:
            filters.learn_reward(data["reward"], data["ended"], made)
        self.schedule.count(len(data["ended"]), int(np.count_nonzero(data["ended"])))
        logged = {key: data[f"info/{key}"] for key in step.logged}
        self._reporter.add_step(data["reward"], data["ended"], data["length"], logged)

    def _gather_step(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns a step of all workers, and synchronises when they update and stop."""
        stop, complete = self._signals.received or (-1 if self._stop_reason else 0), "rollout_complete"
        status = {"stop": stop, "ready": self.memory.ready, complete: getattr(self.memory, complete, False)}
        data = self._workers.gather(data | {name: np.array([value]) for name, value in status.items()})
        self._sampler.workers_status = all(data["ready"]), any(data[complete])
        if any(data["stop"]):
            self._workers_stop, received = True, int(max(data["stop"]))
            self._stop_reason = self._stop_reason or "another worker stopped"
            self._signals.received = received if received > 0 else None
        return data

    def update(self) -> None:
        """Makes the pending updates, after a reset if one is due."""
        if self._resets.steps and (number := self._resets.pending(self.counters.env_steps)):
            self._updates.finish()
            self._resets.reset(number)
            self._collector.sync_from(self.agent.policy)
            self.print(f"Reset {number} of {len(self._resets.steps)} at step {self.counters.env_steps}.")
        for count in self._sampler.pending():
            if self._updates.running or self._updates.pending:
                self._updates.finish()  # the next sample uses its priorities
            if (batch := self._sampler.draw(count)) is not None:
                self.counters.updates += count if isinstance(batch, BatchesOnDevice) else len(batch.reward)
                if self._updates.thread:
                    self._updates.start(batch)
                else:
                    self._updates.take(batch, self.agent.update(batch))
        self._can_be_saved = True

    def _on_result(self, batch: Batches, result: UpdateResult) -> None:
        before, env_steps = self.counters.updates - len(result.metrics), self.counters.env_steps
        refuse_non_finite(self.agent.metric_names, result, batch, before, env_steps, self.directory.path)
        self._reporter.add_updates(result.metrics)
        self._hooks.call("on_updates", result.metrics)

    # -- evaluations ---------------------------------------------------------------------------------------------------

    def _evaluation_due(self) -> bool:
        """Returns whether an evaluation is due now; in a shared environment, only between episodes."""
        return self._evaluator.due(self.counters) and not (self._shared and self._shared.length.any())

    def evaluate(self) -> dict[str, Any]:
        """Evaluates the policy, logs a row of metrics and saves the weights if they are the best so far. In an
        environment that is shared with training, the running episode ends and a new one starts.

        Returns:
            The row, NaN for missing values; an empty dict on workers other than the chief, which evaluates for all.

        Raises:
            EnvironmentFailure: the environment raised; a resumed run repeats the evaluation.
        """
        self._updates.wait()
        speed, chief = self._reporter.steps_per_second(), self._workers.task.is_chief
        evaluated = self._evaluate_policy() if chief else {}
        self._evaluator.completed(self.counters)
        row = self._reporter.row(speed) | self.memory.metrics() | evaluated
        if not chief:
            return {}
        value = row.get("evaluation/return_mean", row.get(RECENT, np.nan))
        row |= {name: value for name, value in self._hooks.metrics().items() if name not in row}
        if not np.isnan(value):
            self._evaluator.save_if_best(value, self.counters)
            if self._evaluator.reached_threshold(value, self.counters) and self.settings.stop_at_threshold:
                self.stop(THRESHOLD_REACHED)
        row = self._reporter.write(row)
        self._hooks.call("on_evaluation", row)
        ends = self._started and (self.schedule.finished() or self._stop_reason or self._signals.received)
        if self._shared and not ends:
            if self._shared.length.any():
                self._end_episodes()
            self._shared.start_episodes()
        self._reporter.start_row()
        return row

    def _evaluate_policy(self) -> dict[str, Any]:
        """Returns the metrics that rate the policy: an evaluation, or the last training episodes once it learns."""
        if self.preset.environment.evaluation == "none":
            enough = self.schedule.since_heatup(EnvironmentEpisodes(1)) >= RECENT_EPISODES and self.counters.updates
            return {RECENT: self._reporter.recent_return() if enough else np.nan}
        first_observation = None
        if self._shared:
            self._evaluator.env = self._shared.local_envs[0]  # the run may have recreated it
            if not self._shared.length.any():
                first_observation = {key: array[0] for key, array in self._shared.observation.items()}
        return self._evaluator.evaluate(self.counters.env_steps, first_observation)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self) -> pathlib.Path:
        """Writes a checkpoint and returns its folder; writes nothing if a weight is not finite. All workers of a run
        must call it together.
        """
        self._updates.wait()
        refuse_non_finite_weights(self.agent.trained)
        collector = self._collector.state()
        environments = collector["environments"]
        everywhere = self._workers.gather({name: np.array(environments[name]) for name in PER_ENVIRONMENT})
        environments |= {name: value.tolist() for name, value in everywhere.items()}
        state = {name: part.state() for name, part in self._parts().items()}
        state |= {"collector": collector, "evaluator": self._evaluator.state(self.counters)}
        # Several workers start new episodes when the run is resumed.
        arrays = {} if self._several else {**self._collector.arrays(), **self._updates.arrays()}
        files = dict(self.run_files)
        if self._workers.task.is_chief:
            files |= self._reporter.files() | self._evaluator.files()
            if self.directory.config.is_file():
                files[CONFIG] = self.directory.config.read_bytes()
        checkpoint = self._checkpoints.save(self.counters.env_steps, state, arrays, files)
        self._hooks.call("on_checkpoint")
        return checkpoint

    def _parts(self) -> dict[str, Any]:
        """Returns the parts with a plain state by their name in a checkpoint; collector and evaluator save more."""
        return {
            "schedule": self.schedule,
            "reporter": self._reporter,
            "filters": self.filters,
            "sampler": self._sampler,
        }

    def _restore(self) -> None:
        """Restores a new trainer from the newest complete checkpoint in its folder."""
        restored, task = self._checkpoints.restore(), self._workers.task
        if self.directory.config.is_file():  # a missing config is recreated
            self.directory.check_spaces(self.environments.spec)
        for note in restored.notes:
            self.print(note)
        self.agent.policy.refresh()
        for name, part in self._parts().items():
            part.restore(restored.state[name])
        self._evaluator.restore(restored.state["evaluator"], self.counters, restored.run_files)
        collector = restored.state["collector"]
        environments = collector["environments"]
        envs = len(environments["length"]) // task.num_workers
        local = slice(task.index * envs, (task.index + 1) * envs)
        environments |= {name: environments[name][local] for name in PER_ENVIRONMENT}
        alone = restored.workers == task.num_workers == 1
        arrays = restored.arrays if alone else {}
        self._updates.restore(arrays)
        episode = self.memory.newest_steps(environments["length"][0]) if alone else None
        exact = self._collector.restore(collector, arrays, episode, self.agent.policy)
        self.run_files = restored.run_files
        if not alone:
            self._reseed()
        if not exact:
            self._end_episodes()
            self.print("The running episodes cannot be continued exactly; new ones begin.")
        self.print(f"Continuing {self.directory.path} from step {self.counters.env_steps}.")

    def _end_episodes(self) -> None:
        """Marks the running episodes as ended, so that the next checkpoint saves their newest steps again."""
        self._checkpoints.rewrite_newest_chunk()
        self.memory.end_episodes()
        self.filters.end_episodes()
        self._reporter.running[:] = 0.0

    def _reseed(self) -> None:
        """Gives this worker random streams that no other worker uses and that it has not used before this step."""
        position = [self._workers.task.index, self._workers.task.num_workers, self.counters.env_steps]
        self._sampler.rng = np.random.default_rng([self.settings.seed, Stream.SAMPLING, *position])
        self._collector.reseed([self.settings.seed, Stream.ACTING, *position])
