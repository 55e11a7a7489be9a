"""The parts of a run: made from what was asked for, restored from a checkpoint, closed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tfsac.agents import Agent
from tfsac.device_memory import UPDATES_PER_CALL
from tfsac.distributed.partition import preset_of_worker
from tfsac.distributed.ray_environments import RayEnvironments
from tfsac.distributed.workers import Workers
from tfsac.environments import Environments, Filters, IsolatedEnvironment, maker
from tfsac.environments.make import Maker
from tfsac.machine import option
from tfsac.memories import in_ram, on_disk
from tfsac.metrics import TerminalSink
from tfsac.networks.bfloat16 import use_bfloat16, uses_bfloat16
from tfsac.parameters import (
    OffPolicyAlgorithmParameters,
    ParameterError,
    ScheduleParameters,
    from_json,
)
from tfsac.training.build import build_agent, build_device_memory, build_memory, build_policy
from tfsac.training.callbacks import Hooks
from tfsac.training.checkpoints import CheckpointManager, identity_of, understanding
from tfsac.training.collection import Collector
from tfsac.training.devices import configure_once, make_strategy, set_numerics
from tfsac.training.evaluation_episodes import about_time_limit
from tfsac.training.evaluator import Evaluator
from tfsac.training.failures import HowToResume, Writing
from tfsac.training.policy import Policy
from tfsac.training.ray_collector import RayCollector, RolloutActor
from tfsac.training.recorded_functions import (
    about_other_bounds,
    about_threshold,
    described,
    recorded,
    refuse_other_order,
    refuse_other_spaces,
    training_models,
)
from tfsac.training.reporting import Reporter
from tfsac.training.resets import Resets
from tfsac.training.run_directory import CONFIG, METRICS
from tfsac.training.run_lock import RunLock
from tfsac.training.run_request import RunRequest
from tfsac.training.run_state import RunState
from tfsac.training.sampling import Sampler
from tfsac.training.schedule import Period, Schedule
from tfsac.training.signals import StopSignals
from tfsac.training.updates import Updates
from tfsac.training.weights import load_initial_weights
from tfsac.types import Batches, UpdateResult

FIXED = (
    "agent",
    "memory",
    "environments",
    "filters",
    "policy",
    "counters",
    "preset",
    "directory",
)  # callbacks must not replace them

STOPPED = "stopped"  # entry of a checkpoint's state: why the run ended before its schedule
MakeTerminal = Callable[[int, str, bool, Sequence[str]], TerminalSink]


class RunParts:
    """What a run is made of; `Trainer` says what of it is for callbacks.

    Args:
        asked: what the run is to be.
        terminal: makes what prints the progress.
        computed, apply: called with the results of updates; see `Updates`.

    Raises:
        TypeError, ValueError, ImportError, UserCodeError: as `Trainer` raises them.
    """

    def __init__(
        self,
        asked: RunRequest,
        terminal: MakeTerminal,
        computed: Callable[[Batches, UpdateResult], None],
        apply: Callable[[UpdateResult], None],
    ):
        self.directory, self.settings, self.signals = asked.directory, asked.run, StopSignals()
        self.hooks = Hooks(asked.callbacks, self.signals)
        self.bfloat16_before = uses_bfloat16()  # the process's precision, perhaps that of a run around this one
        self.lock, self.run_files = RunLock(), dict[str, bytes]()
        self.error: Exception | None = None
        self.stopped = ""  # why a run that is resumed had ended before its schedule
        self.schedule = Schedule(asked.preset.schedule)
        self.counters = self.schedule.counters
        quiet = asked.quiet or not asked.task.is_chief
        self.terminal = terminal(*self.schedule.length(), quiet, self.hooks.metric_names())
        notes = [configure_once()]
        self.workers = Workers(make_strategy(self.settings, asked.task), asked.task)
        self.workers.agree(asked.to_agree())
        self._make_environments(asked)
        if not asked.resume:  # the run has said it at its start
            notes += [about_time_limit(self.evaluation_env), about_threshold(asked.preset, self.preset)]
        try:
            notes.append(set_numerics(self.settings))
            self._make_learner(asked)
            if asked.initial_weights is not None:
                notes.append(about_other_bounds(asked.initial_weights, self.environments.spec))
            self.updates = Updates(self.agent, computed, apply, self.settings.asynchronous_collection)
            self._make_reports()
            self._open(asked)
        except BaseException:
            self.close()
            raise
        for line in (*self.agent.notes, *filter(None, notes)):
            self.print(line)
        if asked.resume and self.schedule.finished():
            self.print(
                f"This run has completed its schedule at step {self.counters.env_steps}, so there is nothing to train. "
                f"{self._for_more(asked.preset.schedule)}."
            )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED and name in vars(self):  # it would have no effect, or none that can be resumed
            # Without "Received: ", so that the callback whose error it is gets named.
            raise AttributeError(f"trainer.{name} is a part of the run, which cannot be replaced")
        super().__setattr__(name, value)

    def _make_environments(self, asked: RunRequest) -> None:
        one = maker(asked.preset.environment, asked.env_fn)
        self.evaluation_env = one()
        with ExitStack() as failed:
            failed.callback(lambda: self.evaluation_env.close())
            self._make_training_environments(asked, one, failed)
            failed.pop_all()

    def _make_training_environments(self, asked: RunRequest, one: Maker, failed: ExitStack) -> None:
        env_fn, task = asked.env_fn, asked.task
        self.preset = described(asked.preset, self.evaluation_env, env_fn, asked.models)
        if self.settings.stop_at_threshold and (line := about_threshold(asked.preset, self.preset)):
            name = self.preset.environment.name
            raise ParameterError(f"{line} Received: stop_at_threshold with an env_fn for {name}")
        environment, first = self.preset.environment, self.evaluation_env
        self.shared, self.one_at_once = environment.evaluation == "shared", environment.evaluation != "separate"
        if (timeout := environment.step_timeout_seconds) is not None and not self.one_at_once:
            self.evaluation_env = IsolatedEnvironment(first, one, timeout)
        self.worker_preset = preset_of_worker(self.preset, task)
        self.environments: Environments | RayEnvironments
        if self.one_at_once:
            failed.pop_all()
            if environment.vectorization == "sync" and self.settings.ray_address is None:
                one.made.append(first)
            else:  # another process makes it
                first.close()
        if self.settings.ray_address is None:
            own, begin = self.worker_preset.environment, not asked.resume  # which begins the episodes of a checkpoint
            self.environments = Environments(own, self.settings.seed, one, task.index * own.num_envs, begin)
        else:
            arguments = self.preset, self.settings, one, asked.models
            self.environments = RayEnvironments(self.preset, self.settings, RolloutActor, arguments, self.print)

    def _make_learner(self, asked: RunRequest) -> None:
        preset, settings, spec, env_fn = self.preset, self.settings, self.environments.spec, asked.env_fn
        if asked.resume and env_fn is not None:
            refuse_other_spaces(self.directory, spec)
        if asked.resume:
            refuse_other_order(self.directory, spec)
        self.functions = recorded(env_fn, asked.models, asked.initial_weights, spec)
        self.functions["restore_memory"] = asked.restore_memory
        with self.workers.strategy.scope():
            self.agent = build_agent(preset, settings, spec, asked.models)
        actor = self.agent.policy
        if settings.asynchronous_collection:
            actor = build_policy(preset, settings, spec, asked.models, collecting=True)
        self.filters = Filters(preset.environment.filters, self.agent.spec, preset.agent.algorithm.discount)
        allocate = on_disk(self.directory.disk) if settings.memory_on_disk else in_ram
        beside = settings.asynchronous_collection or settings.ray_address is not None
        self.memory = build_memory(
            self.worker_preset,
            self.agent.spec,
            self.filters,
            self.agent.policy.recurrent_state,
            allocate,
            older_policies=beside,
        )
        self.collector: Collector | RayCollector = (
            RayCollector(actor, self.filters, self.environments, settings.actor_steps)
            if isinstance(self.environments, RayEnvironments)
            else Collector(actor, self.filters, self.environments)
        )
        self.sampler = Sampler(self.worker_preset, self.memory, self.schedule, settings.seed)
        if made := build_device_memory(self.memory, self.worker_preset, self.filters, self.agent, settings.seed):
            self.sampler.source, self.sampler.updates_per_call = made, UPDATES_PER_CALL
        if not asked.resume:
            self.filters.learn(self.workers.gather(self.environments.observation))
        if asked.initial_weights is not None:
            load_initial_weights(asked.initial_weights, self.agent, self.filters)
        self.policy = Policy(self.agent.policy, self.filters, self.agent)
        algorithm = preset.agent.algorithm

        def make_agent(seed: int) -> Agent:
            return build_agent(preset, dataclasses.replace(settings, seed=seed), spec, asked.models)

        self.resets = Resets(self.agent, getattr(algorithm, "reset_steps", ()), make_agent, settings.seed)
        one_by_one = isinstance(algorithm, OffPolicyAlgorithmParameters) and (
            preset.environment.num_envs * algorithm.num_consecutive_training_steps == 1
        )
        with training_models(preset):
            self.update_metrics = self.agent.trace(single=one_by_one)
        self.collector.hand_over(self.agent.policy)

    def _make_reports(self) -> None:
        preset, settings, workers = self.preset, self.settings, self.workers
        self.evaluator = Evaluator(preset, settings, self.policy, self.agent, self.evaluation_env, self.directory.best)
        self.evaluator.begin_episode = self.signals.keep
        self.reporter = Reporter(
            self.schedule,
            settings,
            self.update_metrics,
            preset.environment,
            self.terminal,
            self.hooks.metric_names(),
        )
        identity = identity_of(preset, settings.seed, self.agent.spec)
        self.checkpoints = CheckpointManager(
            self.directory.checkpoints, self.agent, self.memory, identity, settings.num_checkpoints_to_keep, workers
        )
        self.checkpoint_period = Period(settings.checkpoint_save_steps or self.schedule.steps_between_checkpoints())
        self.state = RunState(
            workers=workers,
            agent=self.agent,
            memory=self.memory,
            schedule=self.schedule,
            sampler=self.sampler,
            collector=self.collector,
            updates=self.updates,
            evaluator=self.evaluator,
            reporter=self.reporter,
            filters=self.filters,
            seed=settings.seed,
        )
        if workers.task.num_workers > 1:
            self.state.reseed()
        self.how_to_resume = HowToResume(
            self.directory, self.checkpoints, self.functions, callbacks=bool(self.hooks.callbacks)
        )
        self.writing = Writing(self.counters, self.how_to_resume)

    def _open(self, asked: RunRequest) -> None:
        """Makes the run's folder, or brings everything to where the newest checkpoint in it was taken."""
        columns, chief = self.reporter.columns(self.evaluator.columns()), self.workers.task.is_chief
        if asked.restore_memory and (source := asked.initial_weights) is not None:
            refuse_other_spaces(source, self.environments.spec)
            self.checkpoints.take_memory(source.checkpoints)
            self.print(f"The memory of {source.shown()} has {len(self.memory)} steps, so there is no warm-up.")
        if asked.resume:
            self._restore()
            self._check_schedule(asked.preset.schedule)
        elif chief and (note := self.directory.create(self.preset, self.settings, self.functions, self.lock)):
            self.print(note)
        if chief:
            with self.writing:
                self.reporter.open(self.directory, columns, self.run_files.get(METRICS, b""))
            if asked.resume:
                for note in self.directory.note_resume(
                    self.preset, self.settings, self.counters.env_steps, self.run_files
                ):
                    self.print(note)
        self.checkpoint_period.start(self.counters.env_steps)

    def close(self) -> None:
        """Closes the environments and unlocks the run's folder; `run` does so at its end."""
        with ExitStack() as closing:  # whatever one of them raises
            closing.callback(use_bfloat16, self.bfloat16_before)
            closing.callback(self.lock.release)
            if not self.one_at_once:
                closing.callback(self.evaluation_env.close)
            closing.callback(self.environments.close)

    def _restore(self) -> None:
        """Locks the run's folder and brings a new run to where its newest whole checkpoint was taken."""
        if (
            self.workers.task.is_chief
            and self.checkpoints.places()
            and (note := self.lock.acquire(self.directory.path))
        ):
            self.print(note)
        restored = self.checkpoints.restore(self.settings.skip_damaged_rows)
        if self.directory.config.is_file():  # a missing one is made again
            refuse_other_spaces(self.directory, self.environments.spec)
        for note in restored.notes:
            self.print(note)
        self.stopped = restored.state.pop(STOPPED, "")
        with understanding(restored.place):
            exact = self.state.restore(restored)
        self.run_files = restored.run_files
        if not exact:
            self.checkpoints.rewrite_newest_chunk()
            self.print("The running episodes cannot be continued exactly; new ones begin.")
        self.print(f"Continuing {self.directory.shown()} from step {self.counters.env_steps}.")

    def _check_schedule(self, schedule: ScheduleParameters) -> None:
        """Refuses a schedule that changes what was trained already, before the run's config has it."""
        if CONFIG not in self.run_files:
            return
        saved = json.loads(self.run_files[CONFIG])["preset"]["schedule"]
        before = from_json(ScheduleParameters, json.dumps(saved))
        if not self.schedule.heating_up and schedule.heatup_steps != before.heatup_steps:
            raise ParameterError(
                f"The warm-up of this run is over: leave schedule.heatup_steps at {before.heatup_steps.num_steps}. "
                f"Received: {schedule.heatup_steps}"
            )
        improve, trained = schedule.improve_steps, before.improve_steps
        if self.schedule.finished() and type(improve) is type(trained) and improve.num_steps < trained.num_steps:
            raise ParameterError(
                f"The schedule.improve_steps of a resumed run are all after its warm-up. {self._for_more(schedule)}. "
                f"Received: {improve.num_steps}"
            )

    def _for_more(self, schedule: ScheduleParameters) -> str:
        improve, heatup = schedule.improve_steps, schedule.heatup_steps
        trained = max(self.schedule.since_heatup(improve), improve.num_steps)
        return f"It has trained {trained} after a warm-up of {heatup.num_steps}; for 1000 more: " + option(
            f"--set=schedule.improve_steps={trained + 1000}",
            f'tfsac.override(preset, {{"schedule.improve_steps": {trained + 1000}}})',
        )

    def print(self, text: str) -> None:
        """Prints a line above the progress bar, unless the run is quiet."""
        self.terminal.print(text)
