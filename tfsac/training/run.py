"""A run is data: its parts, how they are made, and what a checkpoint holds of them."""

from __future__ import annotations

import contextlib
import dataclasses
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
from tfsac.distributed.tf_config import worker_task
from tfsac.distributed.workers import Workers
from tfsac.environments import Environments, Filters, IsolatedEnvironment, maker
from tfsac.errors import TfsacError
from tfsac.memories import in_ram, on_disk
from tfsac.networks import ModelMaker
from tfsac.networks.bfloat16 import use_bfloat16, uses_bfloat16
from tfsac.parameters import (
    EnvironmentEpisodes,
    OffPolicyAlgorithmParameters,
    Preset,
    RunParameters,
    override,
    to_json,
)
from tfsac.random_streams import Stream
from tfsac.training.build import (
    build_agent,
    build_device_memory,
    build_memory,
    build_policy,
    resolve_preset,
    with_absolute_paths,
)
from tfsac.training.callbacks import Callback, Hooks
from tfsac.training.checkpoints import CheckpointManager, Restored, identity_of, wrap_checkpoint_errors
from tfsac.training.collection import Collector
from tfsac.training.devices import configure_once, make_strategy, set_numerics
from tfsac.training.evaluation import Evaluator
from tfsac.training.loggers import Logger, TerminalLogger, make_loggers
from tfsac.training.loggers.means import RECENT, RECENT_EPISODES
from tfsac.training.non_finite import refuse_non_finite
from tfsac.training.policy import Policy
from tfsac.training.ray_collector import RayCollector, RolloutActor
from tfsac.training.recorded_spaces import check_order, check_spaces, spaces_of
from tfsac.training.reporting import Reporter
from tfsac.training.resets import Resets
from tfsac.training.run_directory import CONFIG, RunDirectory
from tfsac.training.schedule import Period, Sampler, Schedule
from tfsac.training.signals import StopSignals
from tfsac.training.updates import Updates
from tfsac.training.weights import load_initial_weights
from tfsac.types import Batches, UpdateResult
from tfsac.utils.files import read_object
from tfsac.utils.imports import name_of

PER_ENVIRONMENT = ("episode", "length")  # entries of the environments' state, a number for each of them
MakeTerminal = Callable[[bool], TerminalLogger]


class Run:
    """The parts of a run, new or where its newest checkpoint was taken; see `Trainer` for the arguments.

    Nothing is written before everything is built, so bad parameters leave no folder behind.

    Attributes:
        preset, settings: the experiment, as config.json has it, and how it is run.
        several: whether other workers share the run.
        resume_command: the command, or the call in Python, that continues the run.
        bfloat16_before: the process's precision, perhaps that of a run around this one.
        run_files: contents of files in the run's folder that checkpoints keep, by name, besides those of its parts.
        resumed_at: environment steps of the checkpoint that is continued; None for a new run.
        stop_reason: why the run ends after this step; "" where it does not.
        stop_agreed: whether one of several workers stops, and so all of them.
    """

    def __init__(
        self,
        preset: Preset | str | pathlib.Path,
        run_dir: str | pathlib.Path,
        settings: RunParameters | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        quiet: bool = False,
        initial_weights: str | pathlib.Path | None = None,
        env_fn: Callable[[], gym.Env] | None = None,
        models: ModelMaker | None = None,
        make_terminal: MakeTerminal = TerminalLogger,
        restore_memory: bool = False,
        loggers: Sequence[Logger | str] = (),
    ):
        self.directory = directory = RunDirectory(run_dir)
        source = None
        if initial_weights is not None and not resume:  # a resumed run has its weights from its checkpoint
            source = RunDirectory(initial_weights)
        if restore_memory and not source:
            raise TfsacError("restore_memory needs initial_weights (--checkpoint_restore_dir) of a new run")
        exists = resume and directory.config.is_file()
        preset = with_absolute_paths(preset if isinstance(preset, Preset) else load_preset(preset))
        if restore_memory or (exists and read_object(directory.config).get("restore_memory")):  # no warm-up is needed
            no_warm_up = {"schedule.heatup_steps": EnvironmentEpisodes(0), "schedule.random_action_steps": None}
            preset = override(preset, no_warm_up)
        self.settings = settings = settings or (directory.read()[1] if exists else RunParameters())
        task = worker_task(settings)
        preset_of_worker(preset, task)  # raises
        refuse_timeout_in_this_process(preset, settings)
        if not resume:
            directory.refuse_existing()
        terminal, all_loggers = make_terminal(quiet or not task.is_chief), make_loggers(loggers)
        self.signals = StopSignals()
        self.hooks = Hooks(callbacks, self.signals)
        self.run_files: dict[str, bytes] = {}
        self.resumed_at: int | None = None
        self.stop_reason, self.stop_agreed = "", False
        notes = [configure_once()]
        self.workers, self.several = Workers(make_strategy(settings, task), task), task.num_workers > 1
        functions = {"env_fn": env_fn is not None, "models": models is not None}
        flags = {"resume": resume, "restore_memory": restore_memory, "initial_weights": source is not None}
        self.workers.check_shared({"preset": to_json(preset), "run": to_json(settings), **flags, **functions})
        self.bfloat16_before = uses_bfloat16()
        with contextlib.ExitStack() as failed:
            failed.callback(use_bfloat16, self.bfloat16_before)
            failed.callback(directory.lock.release)
            evaluation_env = self._make_environments(preset, env_fn, models, resume, terminal.print, failed)
            preset = self.preset
            worker_preset, spec = preset_of_worker(preset, task), self.environments.spec
            if settings.stop_at_threshold and preset.validation.min_reward_threshold is None:
                name = preset.environment.name
                raise TfsacError(f"stop_at_threshold needs validation.min_reward_threshold for {name}")
            notes.append(set_numerics(settings))

            def make_agent(seed: int) -> Agent:
                return build_agent(preset, dataclasses.replace(settings, seed=seed), spec, models)

            with self.workers.strategy.scope():
                self.agent = agent = make_agent(settings.seed)
            algorithm: Any = preset.agent.algorithm
            self.filters = filters = Filters(preset.environment.filters, agent.spec, algorithm.discount)
            existing = next(path for path in (directory.path, *directory.path.parents) if path.is_dir())
            self.memory = memory = build_memory(
                worker_preset,
                agent.spec,
                filters,
                agent.policy.recurrent_state,
                on_disk(existing) if settings.memory_on_disk else in_ram,
                older_policies=settings.asynchronous_collection or settings.ray_address is not None,
            )
            acting = agent.policy
            if settings.asynchronous_collection:
                acting = build_policy(preset, settings, spec, models, collecting=True)
            self.collector: Collector
            if isinstance(self.environments, RayEnvironments):
                self.collector = RayCollector(acting, filters, self.environments, settings.actor_steps)
            else:
                self.collector = Collector(acting, filters, self.environments)
            if not resume:
                filters.learn(self.workers.gather(self.environments.observation))
            if source:
                notes.append(load_initial_weights(source, agent, filters))
            device_memory = build_device_memory(memory, worker_preset, filters, agent, settings.seed)
            one_by_one = isinstance(algorithm, OffPolicyAlgorithmParameters) and (
                preset.environment.num_envs * algorithm.num_consecutive_training_steps == 1
            )
            agent.trace(single=one_by_one)
            self.collector.sync_from(agent.policy)
            self.schedule = schedule = Schedule(preset.schedule)
            self.counters = schedule.counters
            self.sampler = Sampler(worker_preset, memory, filters, schedule, settings.seed, device_memory)
            self.updates = Updates(agent, memory, self.collector, self._on_result, settings.asynchronous_collection)
            self.resets = Resets(agent, getattr(algorithm, "reset_steps", ()), make_agent, settings.seed)
            self.policy = Policy(agent.policy, filters, agent)
            self.evaluator = Evaluator(preset, settings, self.policy, agent, evaluation_env, directory.best)
            columns = self.evaluator.columns(), [name for callback in callbacks for name in callback.metric_names]
            self.reporter = Reporter(
                preset, settings, directory.path, schedule, agent, *columns, terminal, all_loggers, task.is_chief
            )
            identity, keep = identity_of(preset, settings.seed, agent.spec), settings.num_checkpoints_to_keep
            self.checkpoints = CheckpointManager(directory.checkpoints, agent, memory, identity, keep, self.workers)
            self.checkpoint_period = Period(settings.checkpoint_save_steps or schedule.steps_between_checkpoints())
            recorded = {
                "env_fn": env_fn and name_of(env_fn),
                "models": models and name_of(models),
                "initial_weights": source and str(source.path),
                "restore_memory": restore_memory,
                "spaces": spaces_of(spec),
            }
            self.resume_command = resume_command(directory, recorded, bool(callbacks))
            if self.several:
                self.reseed()
            self._open(source if restore_memory else None, resume, recorded)
            failed.pop_all()
        for line in (*agent.notes, *filter(None, notes)):
            self.print(line)

    def _make_environments(
        self,
        preset: Preset,
        env_fn: Callable[[], gym.Env] | None,
        models: ModelMaker | None,
        resume: bool,
        note: Callable[[str], None],
        failed: contextlib.ExitStack,
    ) -> gym.Env:
        """Makes those of training, which `failed` closes where something fails afterwards, and the preset as the config
        records it; returns the environment of evaluations.
        """
        settings, task = self.settings, self.workers.task
        make_env = maker(preset.environment, env_fn)
        evaluation_env = make_env()
        closing = failed.enter_context(contextlib.ExitStack())
        closing.callback(evaluation_env.close)
        self.preset = preset = resolve_preset(preset, evaluation_env, env_fn, models)
        environment = preset.environment
        if environment.evaluation != "separate":  # there may be only one at a time
            closing.pop_all()
            if environment.vectorization == "sync" and settings.ray_address is None:
                make_env.prepared.append(evaluation_env)
            else:  # another process makes it
                evaluation_env.close()
        elif environment.step_timeout_seconds is not None:
            closing.pop_all()
            evaluation_env = IsolatedEnvironment(evaluation_env, make_env, environment.step_timeout_seconds)
            failed.callback(evaluation_env.close)
        self.environments: Environments | RayEnvironments
        if settings.ray_address is None:
            local, begin = preset_of_worker(preset, task).environment, not resume  # which begins those of a checkpoint
            self.environments = Environments(local, settings.seed, make_env, task.index * local.num_envs, begin)
        else:
            arguments = preset, settings, make_env, models
            self.environments = RayEnvironments(preset, settings, RolloutActor, arguments, note)
        failed.callback(self.environments.close)
        return evaluation_env

    def _open(self, source: RunDirectory | None, resume: bool, recorded: dict[str, Any]) -> None:
        """Makes the run's folder, or brings the parts to where the newest checkpoint was taken; `source` is the run
        whose memory to begin with, `recorded` what the config has next to the parameters.
        """
        chief, directory = self.workers.task.is_chief, self.directory
        if source:
            check_spaces(source, self.environments.spec)
            self.checkpoints.take_memory(source.checkpoints)
            self.print(f"The memory of {source.path} has {len(self.memory)} steps, so there is no warm-up.")
        if chief and (not resume or directory.checkpoints.is_dir()):
            directory.acquire_lock()
        if resume:
            self.restore()
        if chief and resume:
            directory.note_resume(self.preset, self.settings, self.counters.env_steps, self.run_files)
        elif chief:
            directory.create(self.preset, self.settings, recorded)
        if self.reporter.csv:
            self.reporter.csv.start(self.reporter.info, self.resumed_at)
        self.checkpoint_period.start(self.counters.env_steps)
        threshold = self.preset.validation.min_reward_threshold
        unexported = resume and self.settings.stop_at_threshold and not directory.policy.exists()
        judged = self.evaluator.best_return if self.evaluator.best_updates else -np.inf
        if unexported and threshold is not None and judged >= threshold:  # it was killed while it ended
            self.stop_reason, self.stop_agreed = "threshold reached", True
        if resume and self.schedule.finished():
            improve = self.preset.schedule.improve_steps
            self.print(
                "This run has completed its schedule, so there is nothing to train. It has trained "
                f"{self.schedule.since_heatup(improve)} {type(improve).__name__}: set a larger schedule.improve_steps."
            )

    @property
    def shared(self) -> Environments | None:
        """The environments of training where evaluations are made in them, too."""
        is_shared = self.preset.environment.evaluation == "shared"
        return self.environments if is_shared and isinstance(self.environments, Environments) else None

    def stops(self) -> bool:
        """Returns whether the run ends before its schedule."""
        return self.stop_agreed if self.several else bool(self.signals.received or self.stop_reason)

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
            closing.callback(self.directory.lock.release)
            if self.preset.environment.evaluation == "separate":
                closing.callback(self.evaluator.env.close)
            closing.callback(self.environments.close)
            closing.callback(self.updates.close)

    def gather_step(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns a step of all workers, which agree on when they update and stop."""
        stop = self.signals.received or (-1 if self.stop_reason else 0)
        data = self.workers.gather({**data, **self.sampler.local_status(), "stop": np.array([stop])})
        self.sampler.merge_status(data)
        if any(data["stop"]):
            self.stop_agreed, received = True, int(max(data["stop"]))
            self.stop_reason = self.stop_reason or "another worker stopped"
            self.signals.received = received if received > 0 else None
        return data

    def _on_result(self, batch: Batches, result: UpdateResult) -> None:
        before, env_steps = self.counters.updates - len(result.metrics), self.counters.env_steps
        refuse_non_finite(self.agent.metric_names, result, batch, before, env_steps, self.directory.path)
        self.reporter.add_updates(result.metrics)
        self.hooks.call("on_updates", result.metrics)

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def evaluation_due(self) -> bool:
        """Returns whether an evaluation is due now; in the environment that is trained in, between episodes."""
        return self.evaluator.due(self.counters) and not (self.shared and self.shared.length.any())

    def last_evaluation_due(self) -> bool:
        """Returns whether the last policy is not evaluated yet; a running episode of a shared environment stays."""
        running = self.shared and self.shared.length.any() and self.evaluator.best_updates
        return self.evaluator.evaluated_at != self.counters.env_steps and not running

    def is_judged_by_nothing(self) -> bool:
        """Returns whether there are no evaluations and too few training episodes to judge a policy by."""
        without = self.preset.environment.evaluation == "none" and self.workers.task.is_chief
        return bool(without and self.counters.episodes and not self.evaluator.best_weights)

    def evaluate(self) -> dict[str, float]:
        """Returns what the policy is judged by: an evaluation, or the last training episodes once it learns."""
        if self.preset.environment.evaluation == "none":
            mean, episodes = self.reporter.recent_return(), self.schedule.since_heatup(EnvironmentEpisodes(1))
            enough = episodes >= RECENT_EPISODES and self.counters.updates
            return {RECENT: mean} if mean is not None and enough else {}
        first_observation = None
        if self.shared:
            self.evaluator.env = self.shared.local_envs[0]  # the run may have made another
            if not self.shared.length.any():
                first_observation = {key: seen[0] for key, seen in self.shared.observation.items()}
        return self.evaluator.evaluate(self.counters.env_steps, first_observation)

    def start_shared_episode(self) -> None:
        """Starts a training episode after an evaluation in the same environment, which ended the one that ran."""
        assert self.shared
        if self.shared.length.any():
            self.end_episodes()
            self.checkpoints.rewrite_newest_chunk()
        self.shared.start_episodes()

    # -- what a checkpoint holds besides agent and memory --------------------------------------------------------------

    def save(self) -> pathlib.Path:
        """Writes a checkpoint and returns its folder; all workers call it together."""
        collector = self.collector.state()
        environments = collector["environments"]
        everywhere = self.workers.gather({name: np.array(environments[name]) for name in PER_ENVIRONMENT})
        environments |= {name: value.tolist() for name, value in everywhere.items()}
        state = {
            "schedule": self.schedule.state(),
            "sampler": self.sampler.state(),
            "collector": collector,
            "evaluator": self.evaluator.state(self.counters),
            "reporter": self.reporter.state(),
            "filters": self.filters.state(),
        }
        # Several workers start new episodes where the run is resumed.
        arrays = {} if self.several else {**self.collector.arrays(), **self.updates.arrays()}
        files = dict(self.run_files)
        if self.workers.task.is_chief:
            files |= self.reporter.files() | self.evaluator.files()
            if self.directory.config.is_file():
                files[CONFIG] = self.directory.config.read_bytes()
        return self.checkpoints.save(self.counters.env_steps, state, arrays, files)

    def restore(self) -> None:
        """Brings a new run to where the newest whole checkpoint in its folder was taken."""
        exists = self.directory.config.is_file()  # a missing one is made again
        if exists:
            check_order(self.directory, self.environments.spec)
        restored = self.checkpoints.restore()
        if exists:
            check_spaces(self.directory, self.environments.spec)
        for note in restored.notes:
            self.print(note)
        with wrap_checkpoint_errors(restored.path):
            exact = self._restore(restored)
        self.run_files, self.resumed_at = restored.run_files, self.counters.env_steps
        if not exact:
            self.checkpoints.rewrite_newest_chunk()
            self.print("The running episodes cannot be continued exactly; new ones begin.")
        self.print(f"Continuing {self.directory.path} from step {self.counters.env_steps}.")

    def _restore(self, restored: Restored) -> bool:
        """Has each part take its state, and returns whether the running episodes continue."""
        state, task = restored.state, self.workers.task
        collector, environments = state["collector"], state["collector"]["environments"]
        self.agent.policy.refresh()
        self.schedule.restore(state["schedule"])
        self.evaluator.restore(state["evaluator"], self.counters, restored.run_files)
        self.reporter.restore(state["reporter"])
        self.filters.restore(state["filters"])
        self.sampler.restore(state["sampler"])
        envs = len(environments["length"]) // task.num_workers
        local = slice(task.index * envs, (task.index + 1) * envs)
        environments |= {name: environments[name][local] for name in PER_ENVIRONMENT}
        alone = restored.workers == task.num_workers == 1
        arrays = restored.arrays if alone else {}
        self.updates.restore(arrays)
        actions = self.memory.newest_actions(environments["length"][0]) if alone else None
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
        self.reporter.running[:] = 0.0

    def reseed(self) -> None:
        """Gives this worker streams of random numbers that neither another one has nor itself had before this step."""
        position = [self.workers.task.index, self.workers.task.num_workers, self.counters.env_steps]
        self.sampler.reseed([self.settings.seed, Stream.SAMPLING, *position])
        self.collector.reseed([self.settings.seed, Stream.ACTING, *position])


def resume_command(directory: RunDirectory, functions: dict[str, Any], callbacks: bool) -> str:
    """Returns the command that continues a run, or the call in Python where it needs functions or callbacks."""
    keywords = [f"{name}={functions[name].rpartition('.')[2]}" for name in ("env_fn", "models") if functions[name]]
    keywords += ["callbacks=[...]"] if callbacks else []
    if not keywords:
        return f"tfsac train {shlex.quote(f'--run_dir={directory.path}')} --resume"
    paths = [repr(str(directory.config)), repr(str(directory.path))]
    return f"tfsac.train({', '.join([*paths, 'resume=True', *keywords])})"
