"""Spinning Up's log: a table per epoch in the terminal and in progress.txt, and its keys in config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfsac.training import Callback, Trainer
from tfsac.training.loggers import Kind, TerminalLogger
from tfsac.utils.files import atomic_write

PROGRESS = "progress.txt"
EPISODE_METRICS = {"EpRet": "training/return", "TestEpRet": "evaluation/return"}
UPDATE_METRICS = {"Q1Vals": "q/q1", "Q2Vals": "q/q2", "LogPi": "policy/log_prob"}
LOSSES = {"LossPi": "loss/policy", "LossQ1": "loss/q1", "LossQ2": "loss/q2"}
WORDS = {"Average": "mean", "Std": "std", "Max": "max", "Min": "min"}


class BarOnly(TerminalLogger):
    """A terminal logger without evaluation lines, which the table of `EpochLog` replaces."""

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Prints nothing."""


class EpochLog(Callback):
    """Writes a row to progress.txt and prints it as a table at every evaluation, which ends an epoch.

    Values without data in an epoch are nan. Averages are those of metrics.csv; Std, Max and Min of Q1Vals, Q2Vals and
    LogPi are taken over the batch means of the epoch's updates. `config` is added to the top level of config.json.
    """

    def __init__(self, config: Mapping[str, Any]):
        self.config, self.updates = config, list[np.ndarray]()  # arrays [U, 3]
        self.lines: list[str] = []

    def on_training_begin(self, trainer: Trainer) -> None:
        """Adds to config.json; progress.txt continues from its copy in the checkpoint."""
        trainer.directory.add_to_config(self.config)
        self.path = trainer.directory.path / PROGRESS
        self.columns = [trainer.update_metrics.index(name) for name in UPDATE_METRICS.values()]
        self.lines = trainer.run_files.get(PROGRESS, b"").decode().splitlines()

    def on_updates(self, trainer: Trainer, metrics: np.ndarray) -> None:
        """Stores the metrics for Std, Max and Min."""
        self.updates.append(metrics[:, self.columns])

    def on_evaluation(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Ends an epoch."""
        steps_per_epoch = trainer.preset.schedule.steps_between_evaluation_periods.num_steps
        values: dict[str, Any] = {"Epoch": row["env_steps"] // steps_per_epoch}
        for name, metric in EPISODE_METRICS.items():
            values |= {word + name: row.get(f"{metric}_{key}", math.nan) for word, key in WORDS.items()}
        values |= {
            "EpLen": row.get("training/length_mean", math.nan),
            "TestEpLen": row["evaluation/length_mean"],
            "TotalEnvInteracts": row["env_steps"],
        }
        metrics_of_updates = np.concatenate(self.updates) if self.updates else np.full([1, len(UPDATE_METRICS)], np.nan)
        self.updates = []
        for (name, metric), of_update in zip(UPDATE_METRICS.items(), metrics_of_updates.T, strict=True):
            values["Average" + name] = row.get(metric, math.nan)
            values |= {word + name: float(getattr(np, key)(of_update)) for word, key in [*WORDS.items()][1:]}
        values |= {name: row.get(metric, math.nan) for name, metric in LOSSES.items()}
        values["Time"] = row["wall_seconds"]
        self.lines = [*(self.lines or ["\t".join(values)]), "\t".join(map(str, values.values()))]
        content = "".join(f"{line}\n" for line in self.lines).encode()
        with atomic_write(self.path) as file:
            file.write(content)
        trainer.run_files[PROGRESS] = content  # for the next checkpoint
        trainer.print(table(values))


def table(values: Mapping[str, float]) -> str:
    """Returns a table with one name and value per line."""
    width = max(map(len, values))
    rule = "-" * (width + 19)
    texts = {name: value if isinstance(value, int) else format(value, ".5g") for name, value in values.items()}
    return "\n".join([rule, *(f"| {name:>{width}} | {text:>12} |" for name, text in texts.items()), rule])
