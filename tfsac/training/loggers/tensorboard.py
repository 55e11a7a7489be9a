"""TensorBoard events: scalars and histograms of weights."""

from __future__ import annotations

import os
import pathlib
import socket
import time
from collections.abc import Mapping
from typing import Any

from tfsac.training.loggers.logger import Kind, RunInfo


class TensorBoardLogger:
    """Writes a new event file for every start of a run.

    Uses TensorBoard's own record writer, because TensorBoard discards later events of earlier files only after a
    session start event, and because this writer raises OSError on a full disk. The weights of `networks`, by name, are
    logged as histograms at each evaluation.
    """

    def __init__(self, directory: pathlib.Path, networks: Mapping[str, Any] = {}):
        self.directory, self.networks = directory, networks

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """Starts a new file; TensorBoard ignores events of earlier files from after the checkpoint."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.curves = Event, frozenset(run.update_metrics)
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 1000:016d}.{socket.gethostname()}.{os.getpid()}"
        self.writer = RecordWriter((self.directory / name).open("wb"))
        self._add(file_version="brain.Event:2")
        first = 0 if resumed_at is None else resumed_at + 1
        self._add(step=first, session_log=SessionLog(status=SessionLog.START))

    def _add(self, **fields: Any) -> None:
        self.writer.write(self.event(wall_time=time.time(), **fields).SerializeToString())

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Adds scalars; update metrics are skipped in evaluation rows because they have separate curves."""
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        for tag, value in values.items():
            if kind != "evaluation" or tag not in self.curves:
                self._add(step=step, summary=scalar_pb(tag, value))
        for name, network in self.networks.items() if kind == "evaluation" else ():
            for variable in network.trainable_variables:
                self._add(step=step, summary=histogram_pb(f"{name}/{variable.path}", variable.numpy()))
        if kind != "episode":
            self.writer.flush()

    def close(self, reason: str) -> None:
        """Flushes and closes the file."""
        self.writer.close()
