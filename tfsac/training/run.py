"""A run is data: its parts, how they are made, and what a checkpoint holds of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.agents import Agent
from tfsac.catalog import load_preset
from tfsac.distributed.partition import preset_of_worker, refuse_timeout_in_this_process
from tfsac.distributed.ray_environments import RayEnvironments
from tfsac.distributed.tf_config import WorkerTask, worker_task
from tfsac.distributed.workers import Workers
from tfsac.environments import Environments, Filters, IsolatedEnvironment, maker
from tfsac.errors import TfsacError
from tfsac.memories import EpisodicMemory, TransitionMemory, in_ram, on_disk
from tfsac.networks import ModelMaker
from tfsac.networks.bfloat16 import use_bfloat16, uses_bfloat16
from tfsac.parameters import (
    EnvironmentEpisodes,
    OffPolicyAlgorithmParameters,
    Preset,
    RunParameters,
    ScheduleParameters,
    from_json,
    override,
    to_json,
)
from tfsac.random_streams import Stream
from tfsac.training.build import build_agent, build_device_memory, build_memory, build_policy, with_absolute_paths
from tfsac.training.callbacks import Callback, Hooks
from tfsac.training.checkpoints import CheckpointManager, Restored, identity_of, wrap_checkpoint_errors
from tfsac.training.collection import Collector
from tfsac.training.devices import configure_once, make_strategy, set_numerics
from tfsac.training.evaluation import Evaluator, time_limit_warning
from tfsac.training.loggers import Logger, TerminalLogger, make_loggers, terminal_or_notebook
from tfsac.training.policy import Policy
from tfsac.training.ray_collector import RayCollector, RolloutActor
from tfsac.training.recorded_functions import (
    bounds_warning,
    check_functions,
    check_spaces,
    recorded,
    refuse_other_order,
    resolve_preset,
)
from tfsac.training.reporting import Reporter
from tfsac.training.resets import Resets
from tfsac.training.run_directory import CONFIG, RunDirectory
from tfsac.training.run_lock import RunLock
from tfsac.training.schedule import Counters, Period, Sampler, Schedule
from tfsac.training.signals import StopSignals
from tfsac.training.updates import Updates
from tfsac.training.weights import load_initial_weights
from tfsac.utils.files import read_object
from tfsac.utils.machine import option

PER_ENVIRONMENT = ("episode", "length")  # entries of the environments' state, a number for each of them
STOPPED = "stopped"  # entry of a checkpoint's state: why the run ended before its schedule
MakeTerminal = Callable[[bool], TerminalLogger]


@dataclasses.dataclass
class Run:
    """The parts of a run.

    Attributes:
        preset, settings: the experiment, as config.json has it, and how it is run.
        evaluation_env: the environment of evaluations; with `environment.evaluation="shared"` that of training.
        resume_command: the command, or the call in Python, that continues the run.
        run_files: contents of files in the run's folder that checkpoints keep, by name, beside those of its parts.
        resumed_at: environment steps of the checkpoint that is continued; None for a new run.
        stopped: why a run that is resumed had ended before its schedule.
        bfloat16_before: the process's precision, perhaps that of a run around this one.
    """

    preset: Preset
    settings: RunParameters
    directory: RunDirectory
    workers: Workers
    schedule: Schedule
    evaluation_env: gym.Env
    environments: Environments | RayEnvironments
    filters: Filters
    collector: Collector | RayCollector
    memory: TransitionMemory | EpisodicMemory
    sampler: Sampler
    agent: Agent
    policy: Policy
    updates: Updates
    resets: Resets
    evaluator: Evaluator
    reporter: Reporter
    checkpoints: CheckpointManager
    checkpoint_period: Period
    hooks: Hooks
    signals: StopSignals
    lock: RunLock
    update_metrics: list[str]
    resume_command: str
    bfloat16_before: bool
    run_files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    resumed_at: int | None = None
    stopped: str = ""

    @property
    def counters(self) -> Counters:
        """Environment steps, episodes, updates."""
        return self.schedule.counters

    @property
    def is_shared(self) -> bool:
        """Whether evaluations are made in the environment of training."""
        return self.preset.environment.evaluation == "shared"

    def print(self, text: str) -> None:
        """Prints a line above the progress bar, unless the run is quiet."""
        self.reporter.terminal.print(text)

    def resume_advice(self) -> str:
        """Returns how the run continues from its last checkpoint."""
        saved = self.checkpoints.saved_checkpoints()
        if not saved:
            return "There is no checkpoint to continue from."
        return f"{self.resume_command} continues from the last checkpoint, {saved[-1].name}."

    def close(self) -> None:
        """Closes the environments and unlocks the run's folder."""
        with contextlib.ExitStack() as closing:  # whatever one of them raises
            closing.callback(use_bfloat16, self.bfloat16_before)
            closing.callback(self.lock.release)
            if self.preset.environment.evaluation == "separate":
                closing.callback(self.evaluation_env.close)
            closing.callback(self.environments.close)
            closing.callback(self.updates.close)

    # -- what a checkpoint holds beside agent and memory ---------------------------------------------------------------

    def save(self, stop_reason: str) -> pathlib.Path:
        """Writes a checkpoint and returns its folder; all workers call it together.

        `stop_reason` says why the run ends now; "" where it does not.
        """
        chief, config, alone = self.workers.task.is_chief, self.directory.config, self.workers.task.num_workers == 1
        collector = self.collector.state()
        environments = collector["environments"]
        everywhere = self.workers.gather({name: np.array(environments[name]) for name in PER_ENVIRONMENT})
        state = {
            "schedule": self.schedule.state(),
            "sampler": self.sampler.state(),
            "collector": {
                **collector,
                "environments": {**environments, **{name: value.tolist() for name, value in everywhere.items()}},
            },
            "evaluator": self.evaluator.state(self.counters),
            "reporter": self.reporter.state(),
            "filters": self.filters.state(),
            STOPPED: stop_reason,
        }
        # Several workers start new episodes where the run is resumed.
        arrays = {**self.collector.arrays(), **self.updates.arrays()} if alone else {}
        files = dict(self.run_files)
        if chief:
            files |= self.reporter.files() | self.evaluator.files()
        if chief and config.is_file():
            files[CONFIG] = config.read_bytes()
        return self.checkpoints.save(self.counters.env_steps, state, arrays, files)

    def restore(self) -> None:
        """Brings a new run to where the newest whole checkpoint in its folder was taken."""
        restored = self.checkpoints.restore()
        if self.directory.config.is_file():  # a missing one is made again
            check_spaces(self.directory, self.environments.spec)
        for note in restored.notes:
            self.print(note)
        with wrap_checkpoint_errors(restored.path):
            exact = self._restore(restored)
        self.run_files, self.resumed_at = restored.run_files, self.counters.env_steps
        if not exact:
            self.checkpoints.rewrite_newest_chunk()
            self.print("The running episodes cannot be continued exactly; new ones begin.")
        self.print(f"Continuing {self.directory.as_typed()} from step {self.counters.env_steps}.")

    def _restore(self, restored: Restored) -> bool:
        """Has each part take its state, and returns whether the running episodes continue."""
        state, task = restored.state, self.workers.task
        self.stopped = state.get(STOPPED, "")
        collector, environments = state["collector"], state["collector"]["environments"]
        self.agent.policy.refresh()
        self.schedule.restore(state["schedule"])
        self.evaluator.restore(state["evaluator"], self.counters, restored.run_files)
        self.reporter.restore(state["reporter"])
        self.filters.restore(state["filters"])
        self.sampler.restore(state["sampler"])
        envs = len(environments["length"]) // task.num_workers
        own = slice(task.index * envs, (task.index + 1) * envs)
        environments |= {name: environments[name][own] for name in PER_ENVIRONMENT}
        alone = restored.workers == task.num_workers == 1
        arrays = restored.arrays if alone else {}
        self.updates.restore(arrays)
        actions = self.memory.newest_actions(environments["length"][0])
        exact = self.collector.restore(collector, arrays, actions, self.agent.policy)
        if not alone:
            self.reseed()
        if not exact:
            self.end_episodes()
        return exact

    def end_episodes(self) -> None:
        """Notes that the running episodes do not continue."""
        self.memory.end_episodes()
        self.filters.end_episodes()
        self.reporter.recorder.drop_running()

    def reseed(self) -> None:
        """Gives this worker streams of random numbers that neither another one has nor itself had before this step."""
        position = [self.workers.task.index, self.workers.task.num_workers, self.counters.env_steps]
        self.sampler.reseed([self.settings.seed, Stream.SAMPLING, *position])
        self.collector.reseed([self.settings.seed, Stream.ACTING, *position])


def build_run(
    preset: Preset | str | pathlib.Path,
    run_dir: str | pathlib.Path,
    settings: RunParameters | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback | Logger] = (),
    quiet: bool = False,
    initial_weights: str | pathlib.Path | None = None,
    env_fn: Callable[[], gym.Env] | None = None,
    models: ModelMaker | None = None,
    make_terminal: MakeTerminal = terminal_or_notebook,
    restore_memory: bool = False,
    loggers: Sequence[Logger | str] = (),
) -> Run:
    """Returns a run, new or where its newest checkpoint was taken; see `Trainer` for the arguments.

    Nothing is written before everything is built, so bad parameters leave no folder behind.
    """
    directory = RunDirectory.fixed(pathlib.Path(run_dir))
    source = None if initial_weights is None else RunDirectory.fixed(pathlib.Path(initial_weights))
    weights_flag = option("--checkpoint_restore_dir", "initial_weights")
    if resume and source:
        raise TfsacError(f"a resumed run has its weights from its checkpoint: leave {weights_flag} out")
    if restore_memory and not source:
        raise TfsacError(f"restore_memory needs {weights_flag}, the run whose memory it is")
    exists = resume and directory.config.is_file()
    preset = with_absolute_paths(preset if isinstance(preset, Preset) else load_preset(preset))
    if restore_memory or (exists and read_object(directory.config).get("restore_memory")):
        # The memory is there.
        preset = override(
            preset, {"schedule.heatup_steps": EnvironmentEpisodes(0), "schedule.random_action_steps": None}
        )
    settings = settings or (directory.read()[1] if exists else RunParameters())
    task = worker_task(settings)
    worker_preset = preset_of_worker(preset, task)
    refuse_timeout_in_this_process(preset, settings)
    if exists:
        check_functions(directory, env_fn, models)
    elif not resume:
        directory.refuse_existing()
    made_loggers = make_loggers([*loggers, *(each for each in callbacks if not isinstance(each, Callback))])
    signals = StopSignals()
    hooks = Hooks([each for each in callbacks if isinstance(each, Callback)], signals)
    terminal = make_terminal(quiet or not task.is_chief)
    notes = [configure_once()]
    workers = Workers(make_strategy(settings, task), task)
    given = {"env_fn": env_fn is not None, "models": models is not None, "initial_weights": source is not None}
    flags = {"resume": resume, "restore_memory": restore_memory}
    workers.check_shared({"preset": to_json(preset), "run": to_json(settings), **flags, **given})
    bfloat16_before = uses_bfloat16()
    with contextlib.ExitStack() as failed:
        failed.callback(use_bfloat16, bfloat16_before)
        preset, evaluation_env, environments = _environments(
            preset, settings, task, env_fn, models, resume, terminal.print, failed
        )
        worker_preset, spec = preset_of_worker(preset, task), environments.spec
        if settings.stop_at_threshold and preset.validation.min_reward_threshold is None:
            raise TfsacError(f"stop_at_threshold needs validation.min_reward_threshold for {preset.environment.name}")
        if resume and directory.config.is_file():
            if env_fn is not None:
                check_spaces(directory, spec)
            refuse_other_order(directory, spec)
        notes.append(set_numerics(settings))
        with workers.strategy.scope():
            agent = build_agent(preset, settings, spec, models)
        filters = Filters(preset.environment.filters, agent.spec, preset.agent.algorithm.discount)
        is_remote = settings.asynchronous_collection or settings.ray_address is not None
        memory = build_memory(
            worker_preset,
            agent.spec,
            filters,
            agent.policy.recurrent_state,
            on_disk(directory.disk) if settings.memory_on_disk else in_ram,
            older_policies=is_remote,
        )
        collecting_policy = agent.policy
        if settings.asynchronous_collection:
            collecting_policy = build_policy(preset, settings, spec, models, collecting=True)
        collector: Collector | RayCollector = (
            RayCollector(collecting_policy, filters, environments, settings.actor_steps)
            if isinstance(environments, RayEnvironments)
            else Collector(collecting_policy, filters, environments)
        )
        schedule = Schedule(preset.schedule)
        if not resume:
            filters.learn(workers.gather(environments.observation))
            notes.append(time_limit_warning(evaluation_env))
        if source:
            load_initial_weights(source, agent, filters)
            notes.append(bounds_warning(source, spec))
        policy = Policy(agent.policy, filters, agent)
        algorithm: Any = preset.agent.algorithm

        def make_agent(seed: int) -> Agent:
            return build_agent(preset, dataclasses.replace(settings, seed=seed), spec, models)

        device_memory = build_device_memory(memory, worker_preset, filters, agent, settings.seed)
        one_by_one = isinstance(algorithm, OffPolicyAlgorithmParameters) and (
            preset.environment.num_envs * algorithm.num_consecutive_training_steps == 1
        )
        update_metrics = agent.trace(single=one_by_one)
        collector.sync_from(agent.policy)
        evaluator = Evaluator(preset, settings, policy, agent, evaluation_env, directory, signals.keep)
        functions = recorded(env_fn, models, source, restore_memory, spec)
        identity = identity_of(preset, settings.seed, agent.spec)
        run = Run(
            preset=preset,
            settings=settings,
            directory=directory,
            workers=workers,
            schedule=schedule,
            evaluation_env=evaluation_env,
            environments=environments,
            filters=filters,
            collector=collector,
            memory=memory,
            sampler=Sampler(worker_preset, memory, filters, schedule, settings.seed, device_memory),
            agent=agent,
            policy=policy,
            updates=Updates(agent, memory, collector, settings.asynchronous_collection),
            resets=Resets(agent, getattr(algorithm, "reset_steps", ()), make_agent, settings.seed),
            evaluator=evaluator,
            reporter=Reporter(
                preset,
                settings,
                directory.path,
                schedule,
                agent,
                evaluator.columns(),
                hooks.metric_names(),
                terminal,
                made_loggers,
                task.is_chief,
            ),
            checkpoints=CheckpointManager(
                directory.checkpoints, agent, memory, identity, settings.num_checkpoints_to_keep, workers
            ),
            checkpoint_period=Period(settings.checkpoint_save_steps or schedule.steps_between_checkpoints()),
            hooks=hooks,
            signals=signals,
            lock=RunLock(),
            update_metrics=update_metrics,
            resume_command=resume_command(directory, functions, bool(hooks.callbacks)),
            bfloat16_before=bfloat16_before,
        )
        failed.callback(run.lock.release)
        if workers.task.num_workers > 1:
            run.reseed()
        _open(run, source if restore_memory else None, resume, functions)
        failed.pop_all()
    for line in (*agent.notes, *filter(None, notes)):
        run.print(line)
    return run


def _environments(
    preset: Preset,
    settings: RunParameters,
    task: WorkerTask,
    env_fn: Callable[[], gym.Env] | None,
    models: ModelMaker | None,
    resume: bool,
    note: Callable[[str], None],
    failed: contextlib.ExitStack,
) -> tuple[Preset, gym.Env, Environments | RayEnvironments]:
    """Returns the preset as the config records it, the environment of evaluations and those of training, which `failed`
    closes where something fails afterwards.
    """
    make_env = maker(preset.environment, env_fn)
    first = evaluation_env = make_env()
    closing = failed.enter_context(contextlib.ExitStack())
    closing.callback(first.close)
    preset = resolve_preset(preset, first, env_fn, models)
    environment = preset.environment
    if environment.evaluation == "separate":
        if environment.step_timeout_seconds is not None:
            evaluation_env = IsolatedEnvironment(first, make_env, environment.step_timeout_seconds)
            closing.pop_all()
            closing.callback(evaluation_env.close)
    else:  # there may be only one at a time
        closing.pop_all()
        if environment.vectorization == "sync" and settings.ray_address is None:
            make_env.prepared.append(first)
        else:  # another process makes it
            first.close()
    environments: Environments | RayEnvironments
    if settings.ray_address is None:
        own, begin = preset_of_worker(preset, task).environment, not resume  # which begins those of a checkpoint
        environments = Environments(own, settings.seed, make_env, task.index * own.num_envs, begin)
    else:
        arguments = preset, settings, make_env, models
        environments = RayEnvironments(preset, settings, RolloutActor, arguments, note)
    failed.callback(environments.close)
    return preset, evaluation_env, environments


def _open(run: Run, source: RunDirectory | None, resume: bool, functions: dict[str, Any]) -> None:
    """Makes the folder of a run with new parts, or brings it to where the newest checkpoint was taken; `source` is the
    run whose memory to begin with, `functions` what `recorded` returned.
    """
    chief, directory = run.workers.task.is_chief, run.directory
    if source:
        check_spaces(source, run.environments.spec)
        run.checkpoints.take_memory(source.checkpoints)
        run.print(f"The memory of {source.as_typed()} has {len(run.memory)} steps, so there is no warm-up.")
    if not resume:
        note = directory.create(run.preset, run.settings, functions, run.lock) if chief else ""
    else:
        note = run.lock.acquire(directory.path) if chief and run.checkpoints.saved_checkpoints() else ""
        run.restore()
        _check_schedule(run)
        if chief:
            directory.note_resume(run.preset, run.settings, run.counters.env_steps, run.run_files)
    if note:
        run.print(note)
    if run.reporter.csv:
        run.reporter.csv.start(run.reporter.info, run.resumed_at)
    run.checkpoint_period.start(run.counters.env_steps)
    if resume and run.schedule.finished():
        run.print(f"This run has completed its schedule, so there is nothing to train. {_for_more(run)}")


def _check_schedule(run: Run) -> None:
    """Refuses a schedule that changes what was trained already, before the run's config has it."""
    if CONFIG not in run.run_files:
        return
    schedule = run.preset.schedule
    saved = json.loads(run.run_files[CONFIG])["preset"]["schedule"]
    before = from_json(ScheduleParameters, json.dumps(saved))
    if not run.schedule.heating_up and schedule.heatup_steps != before.heatup_steps:
        raise TfsacError(
            f"the warm-up of this run is over: schedule.heatup_steps stays {before.heatup_steps.num_steps}, "
            f"got {schedule.heatup_steps.num_steps}"
        )
    improve, trained = schedule.improve_steps, before.improve_steps
    if run.schedule.finished() and type(improve) is type(trained) and improve.num_steps < trained.num_steps:
        raise TfsacError(
            f"schedule.improve_steps of a resumed run counts all steps after its warm-up, got {improve.num_steps}. "
            f"{_for_more(run)}"
        )


def _for_more(run: Run) -> str:
    improve = run.preset.schedule.improve_steps
    trained = max(run.schedule.since_heatup(improve), improve.num_steps)
    more = option(
        f"--set=schedule.improve_steps={trained + 1000}",
        f'tfsac.override(preset, {{"schedule.improve_steps": {trained + 1000}}})',
    )
    return f"It has trained {trained} after its warm-up; for 1000 more: {more}"


def resume_command(directory: RunDirectory, functions: dict[str, Any], callbacks: bool) -> str:
    """Returns the command that continues a run, or the call in Python where it needs functions or callbacks."""
    keywords = [
        f"{name}={function.rpartition('.')[2]}" for name in ("env_fn", "models") if (function := functions[name])
    ]
    if callbacks:
        keywords.append("callbacks=[...]")
    config, folder = str(directory.as_typed(directory.config)), str(directory.as_typed())
    in_python = f"tfsac.train({', '.join([repr(config), repr(folder), 'resume=True', *keywords])})"
    return in_python if keywords else option(f"tfsac train {shlex.quote(f'--run_dir={folder}')} --resume", in_python)
