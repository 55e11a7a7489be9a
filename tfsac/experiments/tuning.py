"""Hyper-parameter search with Optuna: a study whose trials are runs of `tfsac train`, a process each. No TensorFlow.

tuning.json                     what is searched, so that the folder is resumed for nothing else
journal.log                     Optuna's storage
trial007/seed0                  a run directory
trial007/seed0.log              what the run printed
best.json, tuning.png           from `tfsac.experiments.tuning_report`
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import statistics
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfsac.errors import TfsacError
from tfsac.experiments.evaluations import read_run
from tfsac.experiments.plots import read_curve
from tfsac.experiments.run_processes import PlannedRun, Series, say
from tfsac.experiments.search_space import Describe, Dimension, names_of

if TYPE_CHECKING:
    import optuna

PLAN, JOURNAL, STUDY = "tuning.json", "journal.log", "tfsac"
# What makes a study; `trials` may grow, and `arguments` with them.
COMPARED = ("format", "space", "experiment", "seeds", "last_evaluations", "pruner", "prune_after")


def import_optuna() -> Any:
    """Returns the package.

    Raises:
        TfsacError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise TfsacError("tuning needs Optuna: pip install 'tfsac[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(folder: pathlib.Path) -> optuna.storages.BaseStorage:
    """Returns the storage in a folder, a new one where there is none."""
    storages = import_optuna().storages
    return storages.JournalStorage(storages.journal.JournalFileBackend(str(folder / JOURNAL)))


def open_study(storage: optuna.storages.BaseStorage, content: dict[str, Any]) -> optuna.Study:
    """Returns the study in a storage, a new one where there is none, with the sampler and pruner of a tuning.json."""
    optuna = import_optuna()
    study = optuna.create_study(study_name=STUDY, storage=storage, direction="maximize", load_if_exists=True)
    # A sampler that starts again with the same seed would repeat its random trials.
    study.sampler = optuna.samplers.TPESampler(seed=content["seeds"][0] + 1000 * len(study.trials))
    study.pruner = {
        "median": optuna.pruners.MedianPruner(n_warmup_steps=content["prune_after"]),
        "hyperband": optuna.pruners.HyperbandPruner(min_resource=content["prune_after"]),
        "none": optuna.pruners.NopPruner(),
    }[content["pruner"]]
    return study


@dataclasses.dataclass
class Progress:
    """What Optuna knows of a trial: the evaluations of its first seed, then those of the second averaged with the score
    of the first, and so on, so that trials are comparable at each.

    Attributes:
        trial: Optuna's.
        reported: evaluations that it knows.
        scores: of the seeds that have ended.
        before: evaluations of these.
        pruned: whether the trial is to end.
    """

    trial: optuna.Trial
    reported: int
    scores: list[float] = dataclasses.field(default_factory=list)
    before: int = 0
    pruned: bool = False

    def report(self, run: PlannedRun) -> bool:
        """Reports the new evaluations of a run, and returns whether its trial is to end."""
        for step, value in enumerate(trained_returns(run.path), self.before + 1):
            if step > self.reported and not self.pruned:
                self.reported = step
                self.trial.report(statistics.fmean([*self.scores, value]), step)
                self.pruned = self.trial.should_prune()
        return self.pruned


class Tuning(Series):
    """A search for the values of parameters with the highest returns, in one folder.

    Args:
        folder: new or empty, or of the same tuning.
        space: the dimensions.
        flags: of `train`, for all runs.
        describe: returns what flags of `train` ask for, beside `flags`, or raises a ValueError.
        **settings: `experiment`, what is trained as JSON values; `seeds` of each trial; `last_evaluations`, of so many
            the score of a run is the mean; `pruner`, "median", "hyperband" or "none"; `prune_after`, evaluations that a
            trial has before it may be pruned; `trials`, how many; `arguments` of `tfsac tune`, to resume it.

    Raises:
        FileExistsError, TfsacError: there is something else in the folder, or another tuning; Optuna is not installed.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        space: Sequence[Dimension],
        flags: Sequence[str],
        describe: Describe,
        **settings: Any,
    ):
        texts = dict(dimension.text.split("=", 1) for dimension in space)
        super().__init__(folder, PLAN, {"format": 1, "space": texts, **settings}, COMPARED)
        self.optuna, self.space, self.flags, self.describe = import_optuna(), space, flags, describe
        self.preset = settings["experiment"]["preset"]
        self.choosing = threading.Lock()

    def begin(self) -> int:
        """Opens the study, whose first trial has the preset's own values; returns how many trials are left."""
        journal = self.folder / JOURNAL
        if journal.is_file():  # a full disk or a lost machine may have left half a line
            complete_size = journal.read_bytes().rfind(b"\n") + 1
            with journal.open("r+b") as file:
                file.truncate(complete_size)
        self.storage = open_storage(self.folder)
        self.study = open_study(self.storage, self.content)
        trials, states = self.study.get_trials(deepcopy=False), self.optuna.trial.TrialState
        ended, num_trials = sum(trial.state.is_finished() for trial in trials), self.content["trials"]
        enough = f"; --trials={num_trials} counts earlier ones" if ended >= num_trials else ""
        say(f"{self.folder}: {ended} of {num_trials} trials have ended{enough}")
        if not trials:
            own = {dimension.path: dimension.sampled_value(self.preset) for dimension in self.space}
            self.study.enqueue_trial({path: sampled for path, sampled in own.items() if sampled is not None})
        self._open = [trial.number for trial in trials if trial.state == states.RUNNING]
        self._trials_to_start = num_trials - sum(trial.state != states.WAITING for trial in trials)
        return len(self._open) + self._trials_to_start

    def work(self) -> None:
        """Trains the trials that an earlier process left open, then new ones."""
        while not self.signals and (trial := self._next_trial()):
            state, score = self._train(trial)
            if state:
                self.study.tell(trial, score, self.optuna.trial.TrialState[state])
            if score is not None:
                best = self.study.best_trial
                say(f"score     {name_of(trial)}  {score:.2f}, best {name_of(best)} with {best.value:.2f}")

    def _next_trial(self) -> optuna.Trial | None:
        with self.choosing:
            if self._open:
                study_id = self.storage.get_study_id_from_name(STUDY)
                trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, self._open.pop(0))
                return self.optuna.trial.Trial(self.study, trial_id)
            self._trials_to_start -= 1
            return self.study.ask({d.path: d.distribution for d in self.space}) if self._trials_to_start >= 0 else None

    def _train(self, trial: optuna.Trial) -> tuple[str, float | None]:
        """Trains the runs of a trial, seed after seed, and returns its state and score.

        The state of a trial that a signal stops is "": it stays open.
        """
        name, names = name_of(trial), names_of(self.space)
        sampled = [(dimension, trial.params[dimension.path]) for dimension in self.space]
        say(f"{name}  {', '.join(f'{names[d.path]}={short_text(d.value(value))}' for d, value in sampled)}")
        flags = [flag for dimension, value in sampled for flag in dimension.assignments(value, self.preset)]
        try:
            self.describe(flags)
        except ValueError as error:  # values that do not fit together
            say(f"refused   {name}  {error}")
            return "FAIL", None
        reported = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        progress, seeds = Progress(trial, len(reported)), self.content["seeds"]
        for seed in seeds:
            run = PlannedRun(self.folder / name / f"seed{seed}", [*self.flags, *flags, f"--seed={seed}"])
            status = 0 if run.finished else self.train_run(run, functools.partial(progress.report, run))
            if status and self.signals:
                return "", None
            if progress.report(run) and not (run.finished and seed == seeds[-1]):
                return "PRUNED", None
            if status:
                return "FAIL", None
            try:
                progress.scores.append(read_run(run.path, self.content["last_evaluations"]).last)
            except (TfsacError, OSError) as error:
                say(f"failed    {name}  {error}")
                return "FAIL", None
            progress.before += len(trained_returns(run.path))
        return "COMPLETE", statistics.fmean(progress.scores)


def name_of(trial: optuna.Trial | optuna.trial.FrozenTrial) -> str:
    """Returns the name of a trial's folder."""
    return f"trial{trial.number:03d}"


def trained_returns(run_dir: pathlib.Path) -> list[float]:
    """Returns the evaluations of a run after its first update: before it a policy means nothing for a trial."""
    file = run_dir / "metrics.csv"
    return _trained_returns(file, file.stat().st_size) if file.is_file() else []


@functools.lru_cache(maxsize=64)
def _trained_returns(file: pathlib.Path, size: int) -> list[float]:
    try:
        steps, returns = read_curve(file)
        update_steps, updates = read_curve(file, "updates")
    except TfsacError:  # no evaluation yet
        return []
    return returns[np.searchsorted(steps, update_steps[updates == 0].max(initial=-1), "right") :].tolist()


def short_text(value: Any) -> str:
    """Returns a value of a parameter with few digits."""
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
