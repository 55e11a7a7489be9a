"""Hyper-parameter search with Optuna: a study whose trials are runs of `tfsac train`, a process each. No TensorFlow.

tuning.json                     what is searched, so that the folder is resumed for nothing else
journal.log                     Optuna's storage
trial007/seed0                  a run directory
trial007/seed0.log              what the run printed
best.json                       the best trial's preset
tuning_*.png                    Optuna's figures
"""

from __future__ import annotations

import collections
import functools
import json
import pathlib
import statistics
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfsac.errors import TfsacError
from tfsac.experiments.comparison import aligned
from tfsac.experiments.grid import short_names
from tfsac.experiments.learning_curves import read_run
from tfsac.experiments.plots import read_curve
from tfsac.experiments.run_processes import PlannedRun, Series, say
from tfsac.experiments.search_space import Describe, Dimension, parse_dimension
from tfsac.utils.files import atomic_write, read_object

if TYPE_CHECKING:
    import optuna

PLAN, JOURNAL, STUDY = "tuning.json", "journal.log", "tfsac"
SHOWN = 10  # trials in the table of a report
# What makes a study; `trials` may grow, and `arguments` with them.
COMPARED = ("format", "space", "experiment", "seeds", "last_evaluations", "pruner", "prune_after")


def import_optuna() -> Any:
    """Returns the package, or raises TfsacError where it is not installed."""
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


class Tuning(Series):
    """A search for the values of parameters with the highest returns, in one folder.

    Args:
        folder, flags: see `Sweep`.
        space: the dimensions.
        describe: returns what flags of `train` ask for, beside `flags`, or raises a ValueError.
        **settings: `experiment`, what is trained as JSON values; `seeds` of each trial; `last_evaluations`, of so many
            the score of a run is the mean; `pruner`, "median", "hyperband" or "none"; `prune_after`, evaluations that a
            trial has before it may be pruned; `trials`, how many; `arguments` of `tfsac tune`, to resume it.
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
        self.asking = threading.Lock()

    def jobs(self) -> list[int | None]:
        """Opens the study, whose first trial has the preset's own values; returns the numbers of the trials that an
        earlier process left open, and None for each new one.
        """
        journal = self.folder / JOURNAL
        if journal.is_file():  # a full disk or a lost machine may have left half a line
            complete_size = journal.read_bytes().rfind(b"\n") + 1
            with journal.open("r+b") as file:
                file.truncate(complete_size)
        self.storage = open_storage(self.folder)
        self.study = open_study(self.storage, self.content)
        trials, num_trials = self.study.get_trials(deepcopy=False), self.content["trials"]
        states = collections.Counter(trial.state.name for trial in trials)
        ended = len(trials) - states["RUNNING"] - states["WAITING"]
        enough = f"; --trials={num_trials} counts earlier ones" if ended >= num_trials else ""
        say(f"{self.folder}: {ended} of {num_trials} trials have ended{enough}")
        if not trials:
            own = {dimension.path: dimension.sampled_value(self.describe) for dimension in self.space}
            self.study.enqueue_trial({path: sampled for path, sampled in own.items() if sampled is not None})
        still_open = [trial.number for trial in trials if trial.state.name == "RUNNING"]
        return [*still_open, *[None] * (num_trials - ended - len(still_open))]

    def do(self, job: int | None) -> None:
        """Trains a trial."""
        if job is None:
            with self.asking:
                trial = self.study.ask({d.path: d.distribution for d in self.space})
        else:
            study_id = self.storage.get_study_id_from_name(STUDY)
            trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, job)
            trial = self.optuna.trial.Trial(self.study, trial_id)
        state, score = self._train(trial)
        if state:
            self.study.tell(trial, score, self.optuna.trial.TrialState[state])
        if score is not None:
            best = self.study.best_trial
            say(f"score     {name_of(trial)}  {score:.2f}, best {name_of(best)} with {best.value:.2f}")

    def _train(self, trial: optuna.Trial) -> tuple[str, float | None]:
        """Trains the runs of a trial, seed after seed, and returns its state and score. Evaluations of the first seed
        decide whether it is pruned.

        The state of a trial that a signal stops is "": it stays open.
        """
        name, names = name_of(trial), short_names([d.path for d in self.space])
        sampled = [(dimension, trial.params[dimension.path]) for dimension in self.space]
        say(f"{name}  {', '.join(f'{names[d.path]}={short_text(d.value(value))}' for d, value in sampled)}")
        flags = [dimension.flag(value) for dimension, value in sampled]
        try:
            self.describe(flags)
        except ValueError as error:  # values that do not fit together
            say(f"refused   {name}  {error}")
            return "FAIL", None
        num_reported, pruned = len(self.study.get_trials(deepcopy=False)[trial.number].intermediate_values), False

        def prune(run: PlannedRun) -> bool:
            nonlocal num_reported, pruned
            for value in trained_returns(run.path)[num_reported:]:
                num_reported += 1
                trial.report(value, num_reported)
                pruned = pruned or trial.should_prune()
            return pruned

        scores: list[float] = []
        for seed in self.content["seeds"]:
            run = PlannedRun(self.folder / name / f"seed{seed}", [*self.flags, *flags, f"--seed={seed}"])
            ends = functools.partial(prune, run) if not scores else lambda: False
            status = 0 if run.finished else self.train_run(run, ends)
            if status and self.signals:
                return "", None
            if ends() and not (run.finished and seed == self.content["seeds"][-1]):
                return "PRUNED", None
            if status:
                return "FAIL", None
            try:
                scores.append(read_run(run.path, self.content["last_evaluations"]).last)
            except (TfsacError, OSError) as error:
                say(f"failed    {name}  {error}")
                return "FAIL", None
        return "COMPLETE", statistics.fmean(scores)


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


def report(folder: pathlib.Path) -> str:
    """Writes best.json and the figures, and returns what there is to print: the best trials and these files.

    Raises:
        OSError, TfsacError: no tuning has begun there, no trial is complete, or Optuna is not installed.
    """
    content = read_object(folder / PLAN)
    (folder / JOURNAL).stat()  # Optuna would make one
    space = [parse_dimension(f"{path}={text}") for path, text in content["space"].items()]
    trials = open_study(open_storage(folder), content).get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]  # pruned ones have a value, too
    complete.sort(key=lambda trial: -(trial.value or 0.0))
    states = collections.Counter(trial.state.name.lower() for trial in trials)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if not complete:
        raise TfsacError(f"no trial in {folder} is complete ({counted})")
    best = complete[0]
    config = read_object(folder / name_of(best) / f"seed{content['seeds'][0]}" / "config.json")
    saved_config = {
        name: config[name] for name in ("preset", "run", "import_folders", "initial_weights") if name in config
    }
    with atomic_write(folder / "best.json") as stream:  # as --preset takes it
        stream.write(json.dumps({**saved_config, "trial": best.number, "score": best.value}, indent=2).encode())
    names = short_names([d.path for d in space])
    table = [["trial", "score", *names.values()]]
    for trial in complete[:SHOWN]:
        values = [short_text(dimension.value(trial.params[dimension.path])) for dimension in space]
        table.append([name_of(trial), f"{trial.value:.2f}", *values])
    draw(folder, names, trials)
    files = [f"preset  {folder / 'best.json'}", f"figures {folder / 'tuning_*.png'}"]
    return "\n".join([f"{folder}: {len(trials)} trials: {counted}", *aligned(table), *files])


def draw(folder: pathlib.Path, names: Mapping[str, str], trials: Sequence[optuna.trial.FrozenTrial]) -> None:
    """Draws Optuna's history and slices of trials, and importances where scores differ; `names` are by path."""
    from matplotlib import pyplot

    optuna = import_optuna()
    study = optuna.create_study(direction="maximize")  # the same trials with short names
    for trial in trials:
        if trial.state.is_finished():
            params = {names[path]: sampled for path, sampled in trial.params.items()}
            kinds = {names[path]: kind for path, kind in trial.distributions.items()}
            study.add_trial(
                optuna.trial.create_trial(state=trial.state, value=trial.value, params=params, distributions=kinds)
            )
    visual = optuna.visualization.matplotlib
    plots = {"history": visual.plot_optimization_history, "slices": visual.plot_slice}
    with warnings.catch_warnings(), pyplot.rc_context():
        warnings.simplefilter("ignore")  # of few trials, and that the figures are experimental
        if len({trial.value for trial in study.trials if trial.state.name == "COMPLETE"}) > 1:
            plots["importances"] = visual.plot_param_importances
        for name, plot in plots.items():
            figure = np.ravel(plot(study, target_name="score"))[0].figure
            with atomic_write(folder / f"tuning_{name}.png") as stream:
                figure.savefig(stream, format="png", bbox_inches="tight")
            pyplot.close(figure)
