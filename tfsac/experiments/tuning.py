"""Hyper-parameter search with Optuna: a study whose trials are runs of `tfsac train`, a process each. No TensorFlow.

tuning.json                     what is searched, so that the folder is resumed for nothing else
journal.log                     Optuna's storage
trial007/seed0                  a run directory
trial007/seed0.log              what the run printed
best.json, tuning.png           from `tfsac.experiments.tuning_report`
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import pathlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfsac.experiments.evaluations import read_run
from tfsac.experiments.plots import read_curve
from tfsac.experiments.run_processes import Launch, PlannedRun, say, train_side_by_side
from tfsac.experiments.search_space import Describe, Dimension, names_of, parse_dimension
from tfsac.files import differences, new_file, read_object, written_aside

if TYPE_CHECKING:
    import optuna

PLAN, JOURNAL, STUDY = "tuning.json", "journal.log", "tfsac"
PRUNERS = ("median", "hyperband", "none")
# What makes a study; the number of its trials may grow.
FIXED = ("format", "space", "experiment", "seeds", "last_evaluations", "pruner", "prune_after")


class TuningPlan(NamedTuple):
    """What is searched, and how trials are judged.

    Attributes:
        space: the dimensions.
        experiment: what is trained, as JSON values of `describe`.
        seeds: of each trial.
        last_evaluations: of so many the score of a run is the mean; that of a trial is the mean over its seeds.
        pruner: one of `PRUNERS`.
        prune_after: evaluations that a trial has before it may be pruned.
    """

    space: Sequence[Dimension]
    experiment: dict[str, Any]
    seeds: Sequence[int]
    last_evaluations: int = 1
    pruner: str = "median"
    prune_after: int = 3

    def content(self) -> dict[str, Any]:
        """Returns what tuning.json says of it."""
        texts = {dimension.path: dimension.text.partition("=")[2] for dimension in self.space}
        return {"format": 1, **self._asdict(), "space": texts, "seeds": list(self.seeds)}

    @classmethod
    def read(cls, content: dict[str, Any]) -> TuningPlan:
        """Returns the plan in what `read_tuning` returns."""
        space = [parse_dimension(f"{path}={text}") for path, text in content["space"].items()]
        return cls(**{name: content[name] for name in cls._fields} | {"space": space})


def read_tuning(folder: pathlib.Path) -> dict[str, Any]:
    """Returns what tuning.json says: the plan, `arguments` of `tfsac tune`, and `trials`, how many.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
    """
    file = folder / PLAN
    if not file.is_file():
        raise FileNotFoundError(f"The folder of a tuning has a {PLAN}. Received: {folder}")
    try:
        content = read_object(file)
        if missing := [name for name in (*FIXED, "arguments", "trials") if name not in content]:
            raise ValueError(f"it has no {', '.join(missing)}")
        TuningPlan.read(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged ({error}). Received: {file.stat().st_size} bytes") from error
    return content


def import_optuna() -> Any:
    """Returns the package.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError(f"Tuning needs Optuna: pip install 'tfsac[tune]'. Received: {error}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(folder: pathlib.Path) -> optuna.storages.BaseStorage:
    """Returns the storage in a folder, a new one where there is none.

    Raises:
        ImportError: Optuna is not installed.
    """
    storages = import_optuna().storages
    return storages.JournalStorage(storages.journal.JournalFileBackend(str(folder / JOURNAL)))


def _cut_half_a_line(journal: pathlib.Path) -> None:
    """Removes the end of a last line that a full disk or a lost machine left half-written, before lines are added."""
    if not journal.is_file():
        return
    with journal.open("r+b") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)


def open_study(storage: optuna.storages.BaseStorage, plan: TuningPlan) -> optuna.Study:
    """Returns the study in a storage, a new one where there is none."""
    optuna = import_optuna()
    if STUDY in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=STUDY, storage=storage)
    else:
        study = optuna.create_study(study_name=STUDY, storage=storage, direction="maximize")
    # A sampler that starts again with the same seed would repeat its random trials.
    study.sampler = optuna.samplers.TPESampler(seed=plan.seeds[0] + 1000 * len(study.trials))
    if plan.pruner == "median":
        study.pruner = optuna.pruners.MedianPruner(n_warmup_steps=plan.prune_after)
    elif plan.pruner == "hyperband":
        study.pruner = optuna.pruners.HyperbandPruner(min_resource=plan.prune_after)
    else:
        study.pruner = optuna.pruners.NopPruner()
    return study


@dataclasses.dataclass
class OpenTrial:
    """A trial whose runs are trained.

    Attributes:
        trial: Optuna's.
        runs: one for each seed.
        left: those that have not ended.
        reported: evaluations that Optuna knows.
        pruned, failed: whether its runs are to end.
    """

    trial: optuna.Trial
    runs: list[PlannedRun]
    left: list[PlannedRun]
    reported: int
    pruned: bool = False
    failed: bool = False


class Tuning:
    """A search for the values of parameters with the highest returns, in one folder.

    Args:
        folder: new or empty, or of the same tuning.
        plan: what is searched.
        trials: how many, earlier ones included.
        flags: of `train`, for all runs.
        describe: returns what flags of `train` ask for, beside `flags`, or raises a ValueError.
        arguments: of `tfsac tune`, to be read from tuning.json where it is resumed.

    Attributes:
        study: Optuna's.

    Raises:
        ImportError: Optuna is not installed.
        FileExistsError, ValueError: there is something else in the folder, or another tuning.
        OSError: it cannot be written.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        plan: TuningPlan,
        trials: int,
        flags: Sequence[str],
        describe: Describe,
        arguments: Sequence[str],
    ):
        self.folder, self.plan, self.trials, self.flags, self.describe = folder, plan, trials, flags, describe
        import_optuna()
        self.content = {**plan.content(), "trials": trials, "arguments": list(arguments)}
        self._claim()
        self.storage = open_storage(folder)
        self.study = open_study(self.storage, plan)
        self.names = names_of(plan.space)
        self.asked: int | None = None  # trials whose values Optuna was asked for
        self.open: dict[int, OpenTrial] = {}
        self.queue: list[PlannedRun] = []
        # By run: the file's size, its returns, and how many of these are from before the first update.
        self.curves: dict[pathlib.Path, tuple[int, list[float], int]] = {}

    def _claim(self) -> None:
        file = self.folder / PLAN
        if file.is_file():  # written again once no other process trains in this folder
            theirs, ours = read_tuning(self.folder), json.loads(json.dumps(self.content))
            for name, before, now in differences(*({key: c[key] for key in FIXED} for c in (theirs, ours))):
                raise ValueError(f"{file} is of another tuning, whose {name} is {before!r}. Received: {name}={now!r}")
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise FileExistsError(f"A tuning has a new or empty folder, or its own. Received: {self.folder}")
        else:
            self._write()

    def _write(self) -> None:
        with written_aside(new_file(self.folder / PLAN, replace=True)) as stream:
            stream.write(json.dumps(self.content, indent=2).encode())

    def train(self, jobs: int = 1, cores: int | None = None, launch: Launch | None = None) -> int | None:
        """Trains the trials that are left; one that fails does not stop the others.

        Args:
            jobs, cores, launch: as for `train_side_by_side`.

        Returns:
            the number of the signal that stopped it, or None. The signal was passed on to the runs, which saved.

        Raises:
            BlockingIOError: another tuning is training in this folder, or another process one of its runs.
        """
        jobs = min(jobs, self.trials * len(self.plan.seeds))
        return train_side_by_side(self.folder, self._following, self._ended, jobs, cores, launch, self._to_end)

    def _take_up(self) -> int:
        """Continues the trials that an earlier process left, or proposes the preset's own values for the first one.

        Returns:
            for how many trials Optuna was asked.
        """
        self._write()
        _cut_half_a_line(self.folder / JOURNAL)
        optuna = import_optuna()
        states = [trial.state for trial in self.study.get_trials(deepcopy=False)]
        ended = sum(state.is_finished() for state in states)
        if ended > 0 and ended >= self.trials:
            say(f"{self.folder} has its {ended} trials already; --trials={self.trials} counts earlier ones")
        else:
            say(f"{self.folder}: {ended} of {self.trials} trials have ended")
        if not states:
            preset = self.plan.experiment["preset"]
            own = {dimension.path: dimension.of_preset(preset) for dimension in self.plan.space}
            self.study.enqueue_trial({path: sampled for path, sampled in own.items() if sampled is not None})
        for number, state in enumerate(states):
            if state == optuna.trial.TrialState.RUNNING:
                self._begin(self._again(number))
        return len(states) - states.count(optuna.trial.TrialState.WAITING)

    def _again(self, number: int) -> optuna.Trial:
        """Returns a trial that an earlier process did not end."""
        study_id = self.storage.get_study_id_from_name(STUDY)
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
        return import_optuna().trial.Trial(self.study, trial_id)

    # -- the runs that train_side_by_side asks for and tells of --------------------------------------------------------

    def _following(self) -> PlannedRun | None:
        if self.asked is None:  # now that no other process trains in this folder
            self.asked = self._take_up()
        while not self.queue and self.asked < self.trials:
            self.asked += 1
            self._begin(self.study.ask())
        return self.queue.pop(0) if self.queue else None

    def _begin(self, trial: optuna.Trial) -> None:
        """Samples a trial's values, or reads those that it has, and queues its runs."""
        name, flags = f"trial{trial.number:03d}", []
        preset = self.plan.experiment["preset"]
        values = {}
        for dimension in self.plan.space:
            sampled = _sample(trial, dimension)
            flags += dimension.assignments(sampled, preset)
            values[dimension.path] = dimension.value(sampled)
        shown = ", ".join(f"{self.names[path]}={text_of_value(value)}" for path, value in values.items())
        say(f"{name}  {shown}")
        try:
            self.describe(flags)
        except ValueError as error:  # values that do not fit together
            self.study.tell(trial, state=import_optuna().trial.TrialState.FAIL)
            say(f"refused   {name}  {error}")
            return
        runs = [
            PlannedRun(self.folder / name / f"seed{seed}", [*self.flags, *flags, f"--seed={seed}"])
            for seed in self.plan.seeds
        ]
        new_file(runs[0].log, replace=True)
        left = [run for run in runs if not run.finished]
        known = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        self.open[trial.number] = opened = OpenTrial(trial, runs, left, len(known))
        self.queue += left
        self._close_if_ended(opened)

    def _ended(self, run: PlannedRun, status: int, seconds: float, stopping: bool) -> None:
        opened = next(opened for opened in self.open.values() if run in opened.runs)
        name, took = run.path.relative_to(self.folder), datetime.timedelta(seconds=round(seconds))
        if status == 0:
            say(f"finished  {name}  best evaluation {read_curve(run.path)[1].max():.1f}, {took}")
        elif stopping:
            say(f"stopped   {name}")
            return
        elif opened.pruned or opened.failed:
            say(f"{'pruned' if opened.pruned else 'ended':<9} {name}  after {took}")
        else:
            last = run.log.read_text(errors="replace").splitlines()[-1]
            say(f"failed    {name}  status {status}, see {run.log}\n          {last}")
            opened.failed = True
            self._drop_queued(opened)
        opened.left.remove(run)
        self._report_evaluations(opened)
        self._close_if_ended(opened)

    def _to_end(self, running: Collection[PlannedRun]) -> list[PlannedRun]:
        for opened in self.open.values():
            self._report_evaluations(opened)
        ending = [opened for opened in self.open.values() if opened.pruned or opened.failed]
        return [run for opened in ending for run in opened.left if run in running]

    def _drop_queued(self, opened: OpenTrial) -> None:
        queued = [run for run in opened.runs if run in self.queue]
        for runs in (self.queue, opened.left):
            runs[:] = [run for run in runs if run not in queued]

    # -- what Optuna is told -------------------------------------------------------------------------------------------

    def _report_evaluations(self, opened: OpenTrial) -> None:
        """Reports what is new of a trial, up to the evaluation at which it is pruned."""
        for value in [] if opened.pruned else self._evaluations(opened)[opened.reported :]:
            opened.reported += 1
            opened.trial.report(value, opened.reported)
            if opened.trial.should_prune():
                opened.pruned = True
                self._drop_queued(opened)
                break

    def _evaluations(self, opened: OpenTrial) -> list[float]:
        """Returns the evaluations of a trial, seed after seed, so that trials are comparable at each; those of a later
        seed are averaged with the scores of the earlier ones. Before its first update a policy says nothing of a trial.
        """
        made: list[float] = []
        scores: list[float] = []
        for run in opened.runs:
            returns, untrained = self._returns(run)
            made += [sum([*scores, value]) / (len(scores) + 1) for value in returns[untrained:]]
            if not run.finished or run in opened.left:
                break
            last = returns[-self.plan.last_evaluations :]
            scores.append(sum(last) / len(last))
        return made

    def _returns(self, run: PlannedRun) -> tuple[list[float], int]:
        none_yet = (0, list[float](), 0)
        with contextlib.suppress(OSError, ValueError):
            size = (run.path / "metrics.csv").stat().st_size
            if self.curves.get(run.path, none_yet)[0] != size:
                steps, returns = read_curve(run.path)
                known, updates = read_curve(run.path, "updates")
                untrained = np.searchsorted(steps, known[updates == 0].max(initial=-1), "right")
                self.curves[run.path] = size, returns.tolist(), int(untrained)
        return self.curves.get(run.path, none_yet)[1:]

    def _close_if_ended(self, opened: OpenTrial) -> None:
        """Tells Optuna the score of a trial whose runs have ended."""
        if opened.left:
            return
        states, name = import_optuna().trial.TrialState, f"trial{opened.trial.number:03d}"
        del self.open[opened.trial.number]
        if all(run.finished for run in opened.runs):
            try:
                score = score_of([run.path for run in opened.runs], self.plan.last_evaluations)
            except (OSError, ValueError) as error:
                say(f"failed    {name}  {error}")
                self.study.tell(opened.trial, state=states.FAIL)
                return
            self.study.tell(opened.trial, score)
            best = self.study.best_trial
            say(f"score     {name}  {score:.2f}, best trial{best.number:03d} with {best.value:.2f}")
        else:
            self.study.tell(opened.trial, state=states.FAIL if opened.failed else states.PRUNED)


def score_of(runs: Sequence[pathlib.Path], last_evaluations: int) -> float:
    """Returns the mean over runs of the mean of their last evaluations.

    Raises:
        FileNotFoundError, ValueError: from `read_run`.
    """
    return sum(read_run(run, last_evaluations).last for run in runs) / len(runs)


def text_of_value(value: Any) -> str:
    """Returns a value of a parameter with few digits."""
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _sample(trial: optuna.Trial, dimension: Dimension) -> Any:
    if dimension.kind == "int":
        return trial.suggest_int(dimension.path, *dimension.values)
    if dimension.is_range:
        return trial.suggest_float(dimension.path, *dimension.values, log=dimension.kind != "uniform")
    return trial.suggest_categorical(dimension.path, dimension.values)
