"""Hyper-parameter search with Optuna; each trial consists of processes of `tfsac train`. Without TensorFlow.

tuning.json                     the search space; only the same search may resume in the folder
journal.log                     Optuna's storage
trial007/seed0                  a run directory
trial007/seed0.log              output of the run
best.json                       the best trial's preset
tuning_*.png                    Optuna's figures
"""

from __future__ import annotations

import collections
import functools
import json
import math
import pathlib
import re
import statistics
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from tfsac.errors import TfsacError
from tfsac.experiments.comparison import aligned
from tfsac.experiments.learning_curves import read_run
from tfsac.experiments.plots import trained_evaluations
from tfsac.experiments.run_processes import PlannedRun, Series, say
from tfsac.experiments.sweep import short_names, split_values
from tfsac.parameters import parse_assignment
from tfsac.parameters.overrides import covers
from tfsac.parameters.steps import STEPS
from tfsac.utils.files import atomic_write, leaves, read_object

PLAN, JOURNAL, STUDY = "tuning.json", "journal.log", "tfsac"
REPORTED_TRIALS = 10  # rows in the table of a report

optuna.logging.set_verbosity(optuna.logging.WARNING)

Describe = Callable[[list[str]], dict[str, Any]]  # returns the experiment for flags of `train`, as JSON values

VALUE_OF_NONE = {"target_entropy_factor": -1.0, "target_entropy_ratio": 0.98}  # effective values of None
DEFAULT = "default"  # placeholder for the default space among a user's dimensions

_LEARNING = (
    "agent.networks.*.learning_rate=log(1e-4, 3e-3)",
    "agent.algorithm.discount=1-log(0.003, 0.1)",
    "agent.hidden_layers=choice([64,64], [128,128], [256,256])",
)
_OFF_POLICY = (
    *_LEARNING,
    "agent.networks.*.batch_size=choice(64, 128, 256, 512)",
    "agent.algorithm.rate_for_copying_weights_to_target=log(1e-3, 5e-2)",
    "agent.algorithm.num_consecutive_training_steps=choice(1, 2, 4)",
)
_TEMPERATURE = (
    "agent.algorithm.temperature.alpha=log(0.01, 1)",
    "agent.algorithm.temperature.learning_rate=log(1e-4, 3e-3)",
)
_ACER = (
    *_LEARNING,
    "agent.networks.*.batch_size=choice(8, 16, 32)",
    "agent.algorithm.n_times_replay=choice(2, 4, 8)",
    "agent.algorithm.t_max=choice(10, 20, 40)",
    "agent.algorithm.beta=log(1e-4, 1e-2)",
    "agent.algorithm.trust_region_delta=log(1e-4, 1)",
    "agent.algorithm.trust_region_alpha=1-log(0.001, 0.1)",
)
_TAAC = ("agent.algorithm.alpha_learning_rate=log(1e-4, 3e-3)", "agent.algorithm.min_prob=uniform(0.01, 0.3)")
_FACTOR = "agent.algorithm.temperature.target_entropy_factor=uniform(-2, 0)"
_RATIO = "agent.algorithm.temperature.target_entropy_ratio=uniform(0.2, 0.98)"
# By kind of agent. Dimensions that a preset lacks, such as those of a fixed temperature, or rejects are skipped.
DEFAULT_SPACES: dict[str, tuple[str, ...]] = {
    "soft_actor_critic": (*_OFF_POLICY, "environment.filters.reward_rescale_factor=log(0.1, 10)"),
    "twin_soft_actor_critic": (*_OFF_POLICY, *_TEMPERATURE, _FACTOR),
    "discrete_soft_actor_critic": (*_OFF_POLICY, *_TEMPERATURE, _RATIO),
    "temporally_abstract_actor_critic": (*_OFF_POLICY, *_TAAC),
    "discrete_acer": _ACER,
    "gaussian_acer": _ACER,
}


# -- what is searched --------------------------------------------------------------------------------------------------


class Dimension(NamedTuple):
    """One parameter that is searched.

    Attributes:
        path: path of the parameter, as for --set.
        kind: "log" and "uniform" are floats, "1-log" is 1 minus a "log" float, "int" is an integer, "choice" one of
            several values.
        values: the two bounds of a range, or the texts of the choices.
    """

    path: str
    kind: str
    values: tuple[Any, ...]

    @property
    def text(self) -> str:
        """The dimension as typed on the command line."""
        texts = (str(int(v) if isinstance(v, float) and v.is_integer() else v) for v in self.values)
        return f"{self.path}={self.kind}({', '.join(texts)})"

    @property
    def distribution(self) -> BaseDistribution:
        """The Optuna distribution."""
        if self.kind == "choice":
            return CategoricalDistribution(self.values)
        if self.kind == "int":
            return IntDistribution(*self.values)
        low, high = self.values
        return FloatDistribution(low, high, log=self.kind != "uniform")

    def value(self, sampled: Any) -> Any:
        """Returns the parameter's value for a sampled number or the text of a choice."""
        if self.kind == "1-log":
            return float(f"{1.0 - sampled:.12g}")
        return parse_assignment(f"x={sampled}")[1] if self.kind == "choice" else sampled

    def flag(self, sampled: Any) -> str:
        """Returns the flag of `train` for a sample."""
        return f"--set={self.path}={sampled if self.kind == 'choice' else self.value(sampled)}"

    def sampled_value(self, describe: Describe) -> Any:
        """Returns the sample that gives the preset's own value, or None if it is outside the dimension."""
        preset = describe([])["preset"]
        if self.kind == "choice":
            return next((text for text in self.values if describe([self.flag(text)])["preset"] == preset), None)
        values = [value for path, value in leaves(preset) if covers(self.path, path)]
        if not values or any(value != values[0] for value in values):
            return None
        value: Any = VALUE_OF_NONE.get(self.path.rpartition(".")[2]) if values[0] is None else values[0]
        if isinstance(value, str) and (steps := STEPS.fullmatch(value)):
            value = int(steps[2])
        if type(value) not in (int, float):
            return None
        sampled = float(f"{1.0 - value:.12g}") if self.kind == "1-log" else value
        return sampled if self.values[0] <= sampled <= self.values[1] else None


def parse_dimension(text: str) -> Dimension:
    """Parses a dimension such as ``agent.algorithm.discount=uniform(0.95, 0.999)``."""
    match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(log|1-log|uniform|int|choice)\s*\((.*)\)\s*", text, re.DOTALL)
    try:
        path, kind, inside = match.groups()  # type: ignore[union-attr]
        read: Callable[[str], Any] = {"choice": str, "int": int}.get(kind, float)
        dimension = Dimension(path, kind, tuple(map(read, split_values(inside))))
        assert dimension.distribution
        return dimension
    except (AttributeError, TypeError, ValueError) as error:
        raise TfsacError(
            "--space must be PATH=log(low, high), 1-log(low, high), uniform(low, high), int(low, high) or "
            f"choice(value, value, ...), got {text!r} ({error})"
        ) from error


def search_space(
    dimensions: Sequence[str], describe: Describe, set_paths: Sequence[str] = ()
) -> tuple[list[Dimension], list[str]]:
    """Returns the dimensions to search, and a message for each default dimension that is skipped. Validates the bounds
    of each range, a number between them and all choices with the preset, one at a time.

    Args:
        dimensions: texts of dimensions, or `DEFAULT`; if empty, the default space of the agent's kind.
        describe: returns the experiment for flags of `train`, or raises a ValueError.
        set_paths: paths that are set explicitly and therefore not searched by default.
    """
    space, left_out = [parse_dimension(text) for text in dimensions if text != DEFAULT], list[str]()
    changed_paths = {dimension.text: _changed_paths(dimension, describe) for dimension in space}
    if dimensions and DEFAULT not in dimensions:
        return space, left_out
    changed_paths |= {path: [path] for path in set_paths}
    kind = describe([])["preset"]["agent"]["kind"]
    if kind not in DEFAULT_SPACES:
        raise TfsacError(f"{kind} has no default search space; name dimensions with --space")
    for dimension in map(parse_dimension, DEFAULT_SPACES[kind]):
        try:
            changed = _changed_paths(dimension, describe)
            for text, paths in changed_paths.items():
                if any(covers(a, b) or covers(b, a) for a in paths for b in changed):
                    raise TfsacError(f"{text} sets it")
            space.append(dimension)
        except ValueError as error:
            left_out.append(f"not searched: {dimension.text}: {error}")
    return space, left_out


def _changed_paths(dimension: Dimension, describe: Describe) -> list[str]:
    """Tries the bounds and a number between them, or the choices, with the preset; returns the paths they change."""
    low, high = dimension.values[0], dimension.values[-1]
    # An integer field rejects the number between the bounds.
    inner = [low + (high - low) / math.pi] if dimension.kind in ("log", "1-log", "uniform") else []
    first, *rest = [
        dict(leaves(describe([dimension.flag(sampled)])["preset"])) for sampled in (*dimension.values, *inner)
    ]
    return [dimension.path, *(path for path in first if any(first[path] != other.get(path) for other in rest))]


# -- trials ------------------------------------------------------------------------------------------------------------


def open_storage(folder: pathlib.Path) -> JournalStorage:
    """Opens or creates the storage in a folder."""
    return JournalStorage(JournalFileBackend(str(folder / JOURNAL)))


def open_study(storage: JournalStorage, content: Mapping[str, Any]) -> optuna.Study:
    """Opens or creates the study in a storage, with the sampler and pruner of a tuning.json."""
    study = optuna.create_study(study_name=STUDY, storage=storage, direction="maximize", load_if_exists=True)
    # A sampler restarted with the same seed would repeat its random trials.
    study.sampler = optuna.samplers.TPESampler(seed=content["seeds"][0] + 1000 * len(study.trials))
    study.pruner = {
        "median": optuna.pruners.MedianPruner(n_warmup_steps=content["prune_after"]),
        "hyperband": optuna.pruners.HyperbandPruner(min_resource=content["prune_after"]),
        "none": optuna.pruners.NopPruner(),
    }[content["pruner"]]
    return study


class Tuning(Series):
    """A search for the parameter values with the highest returns, in one folder.

    Args:
        folder, flags: see `Sweep`.
        space: the dimensions.
        describe: returns the experiment for flags of `train` in addition to `flags`, or raises a ValueError.
        **settings: `experiment`, as JSON values; `seeds` of each trial; `last_evaluations`, how many are averaged in
            the score of a run; `pruner`, "median", "hyperband" or "none"; `prune_after`, the number of evaluations
            before a trial may be pruned; `trials`, their number; `arguments` of `tfsac tune`, to resume it.
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
        super().__init__(folder, PLAN, {"format": 1, "space": texts, **settings})
        self.space, self.flags, self.describe, self.study_lock = space, flags, describe, threading.Lock()

    def jobs(self) -> list[int | None]:
        """Opens the study; its first trial has the preset's own values. Returns the numbers of the trials that an
        earlier process left open, and None for each new trial.
        """
        journal = self.folder / JOURNAL
        if journal.is_file():  # a full disk or a crash may have left half a line
            complete_size = journal.read_bytes().rfind(b"\n") + 1
            with journal.open("r+b") as file:
                file.truncate(complete_size)
        self.storage = open_storage(self.folder)
        self.study = open_study(self.storage, self.content)
        trials, num_trials = self.study.get_trials(deepcopy=False), self.content["trials"]
        ended, running = (
            [trial.number for trial in trials if trial.state in states]
            for states in ((TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL), (TrialState.RUNNING,))
        )
        note = f"; --trials={num_trials} includes earlier trials" if len(ended) >= num_trials else ""
        say(f"{self.folder}: {len(ended)} of {num_trials} trials have ended{note}")
        if not trials:
            preset_values = {dimension.path: dimension.sampled_value(self.describe) for dimension in self.space}
            self.study.enqueue_trial({path: sampled for path, sampled in preset_values.items() if sampled is not None})
        return [*running, *[None] * (num_trials - len(ended) - len(running))]

    def do(self, job: int | None) -> None:
        """Trains a trial."""
        if job is None:
            with self.study_lock:
                trial = self.study.ask({d.path: d.distribution for d in self.space})
        else:
            study_id = self.storage.get_study_id_from_name(STUDY)
            trial = Trial(self.study, self.storage.get_trial_id_from_study_id_trial_number(study_id, job))
        state, score = self._train(trial)
        if state is not None:
            self.study.tell(trial, score, state)
        if score is not None:
            best = self.study.best_trial
            say(f"score     {name_of(trial)}  {score:.2f}, best {name_of(best)} with {best.value:.2f}")

    def _train(self, trial: Trial) -> tuple[TrialState | None, float | None]:
        """Trains the runs of a trial, one seed after the other, and returns its state and score. Evaluations of the
        first seed decide whether it is pruned. A trial that a signal stops stays open: it has no state.
        """
        name, names = name_of(trial), short_names([d.path for d in self.space])
        if not {d.path for d in self.space} <= trial.params.keys():  # Optuna was killed before it had stored them all
            return TrialState.FAIL, None
        sampled = [(dimension, trial.params[dimension.path]) for dimension in self.space]
        say(f"{name}  {', '.join(f'{names[d.path]}={short_text(d.value(value))}' for d, value in sampled)}")
        flags = [dimension.flag(value) for dimension, value in sampled]
        try:
            self.describe(flags)
        except ValueError as error:  # the values are incompatible with each other
            say(f"refused   {name}  {error}")
            return TrialState.FAIL, None
        num_reported, pruned = len(self.study.trials[trial.number].intermediate_values), False

        def prune(run: PlannedRun) -> bool:
            nonlocal num_reported, pruned
            metrics = run.path / "metrics.csv"
            for value in trained_returns(metrics, metrics.stat().st_size if metrics.is_file() else 0)[num_reported:]:
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
                return None, None
            if ends() and not (run.finished and seed == self.content["seeds"][-1]):
                return TrialState.PRUNED, None
            if status:
                return TrialState.FAIL, None
            try:
                scores.append(read_run(run.path, self.content["last_evaluations"]).last)
            except (TfsacError, OSError) as error:
                say(f"failed    {name}  {error}")
                return TrialState.FAIL, None
        return TrialState.COMPLETE, statistics.fmean(scores)


def name_of(trial: Trial | FrozenTrial) -> str:
    """Returns the name of a trial's folder."""
    return f"trial{trial.number:03d}"


@functools.lru_cache(maxsize=64)
def trained_returns(metrics: pathlib.Path, size: int) -> list[float]:
    """Returns the evaluations since the first update, when training starts; `size` in bytes invalidates the cache."""
    try:
        return trained_evaluations(metrics)[1].tolist()
    except (TfsacError, OSError):  # no evaluation yet
        return []


def short_text(value: Any) -> str:
    """Returns a parameter's value as text with few digits."""
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def report(folder: pathlib.Path) -> str:
    """Writes best.json and the figures, and returns the text to print: the best trials and these files."""
    content = read_object(folder / PLAN)
    (folder / JOURNAL).stat()  # raises if it is missing; Optuna would create one
    study = open_study(open_storage(folder), content)
    states = collections.Counter(trial.state.name.lower() for trial in study.trials)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    complete = study.get_trials(states=[TrialState.COMPLETE])  # pruned trials also have a value
    if not complete:
        raise TfsacError(f"no trial in {folder} is complete ({counted})")
    complete.sort(key=lambda trial: -(trial.value or 0.0))
    best = complete[0]
    config = read_object(folder / name_of(best) / f"seed{content['seeds'][0]}" / "config.json")
    saved = {name: config[name] for name in ("preset", "run", "import_folders", "initial_weights") if name in config}
    with atomic_write(folder / "best.json") as stream:  # in the format of --preset
        stream.write(json.dumps({**saved, "trial": best.number, "score": best.value}, indent=2).encode())
    space = [parse_dimension(f"{path}={text}") for path, text in content["space"].items()]
    names = short_names([d.path for d in space])
    table = [["trial", "score", *names.values()]]
    for trial in complete[:REPORTED_TRIALS]:
        values = [short_text(dimension.value(trial.params[dimension.path])) for dimension in space]
        table.append([name_of(trial), f"{trial.value:.2f}", *values])
    draw(folder, study, names)
    files = [f"preset  {folder / 'best.json'}", f"figures {folder / 'tuning_*.png'}"]
    return "\n".join([f"{folder}: {len(study.trials)} trials: {counted}", *aligned(table), *files])


def draw(folder: pathlib.Path, study: optuna.Study, names: Mapping[str, str]) -> None:
    """Draws Optuna's history and slices of trials, and importances if scores differ; `names` maps paths to labels."""
    from matplotlib import pyplot

    visual = optuna.visualization.matplotlib
    plots: dict[str, Callable[..., Any]] = {"history": visual.plot_optimization_history, "slices": visual.plot_slice}
    with warnings.catch_warnings(), pyplot.rc_context():
        warnings.simplefilter("ignore")  # warnings about few trials and experimental figures
        if len({trial.value for trial in study.get_trials(states=[TrialState.COMPLETE])}) > 1:
            plots["importances"] = visual.plot_param_importances
        for name, plot in plots.items():
            figure = np.ravel(plot(study, target_name="score"))[0].figure
            for axes in figure.axes:
                axes.set_xlabel(names.get(axes.get_xlabel(), axes.get_xlabel()))
            with atomic_write(folder / f"tuning_{name}.png") as stream:
                figure.savefig(stream, format="png", bbox_inches="tight")
            pyplot.close(figure)
