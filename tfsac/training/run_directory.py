"""The folder of a run: what was run, by which code, and where its results lie."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

from tfsac.catalog import read_config
from tfsac.files import check_run_dir, written_aside
from tfsac.parameters import Preset, RunParameters, to_json
from tfsac.user_code import FOLDERS

PACKAGES = (
    "tfsac", "tensorflow", "keras", "tensorflow-probability", "gymnasium", "numpy",
    "mujoco", "box2d", "ale-py", "opencv-python-headless", "pettingzoo", "mpe2", "minari",
)


class RunDirectory(NamedTuple):
    """Names of the files in a run's folder."""

    path: pathlib.Path

    @property
    def config(self) -> pathlib.Path:
        """The resolved preset, how it was run, command, versions and git state."""
        return self.path / "config.json"

    @property
    def metrics(self) -> pathlib.Path:
        """A row for each evaluation."""
        return self.path / "metrics.csv"

    @property
    def events(self) -> pathlib.Path:
        """TensorBoard."""
        return self.path / "events"

    @property
    def checkpoints(self) -> pathlib.Path:
        """To resume from."""
        return self.path / "checkpoints"

    @property
    def best(self) -> pathlib.Path:
        """Weights of the best evaluation."""
        return self.path / "best.npz"

    @property
    def policy(self) -> pathlib.Path:
        """The exported best policy."""
        return self.path / "policy"

    @property
    def disk(self) -> pathlib.Path:
        """This folder, or the nearest one above it that is there: where files without a name lie on the same disk."""
        return next(path for path in (self.path, *self.path.absolute().parents) if path.is_dir())

    def refuse_existing(self) -> None:
        """Refuses a folder in which no new run can be kept; see `tfsac.files.check_run_dir`."""
        check_run_dir(self.path)

    def create(self, preset: Preset, run: RunParameters, others: dict[str, Any] | None = None) -> int:
        """Makes the folder, writes its config and returns the number of rows of metrics in it: none.

        Args:
            preset, run: what is run, and how.
            others: what the config says beside them, such as the names of the user's functions.

        Raises:
            FileExistsError: there is something in it.
            OSError: it cannot be written.
        """
        self.refuse_existing()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(preset, run, [], others or {})
        except OSError as error:
            raise OSError(f"The run directory cannot be written ({error}). Received: {self.path}") from error
        return 0

    def note_resume(self, preset: Preset, run: RunParameters, step: int) -> None:
        """Writes the config again, with a line of where and how the run was continued."""
        earlier = json.loads(self.config.read_text()) if self.config.is_file() else {}
        resumed = [*earlier.get("resumed", []), {"env_steps": step, **provenance()}]
        self._write(preset, run, resumed, earlier)

    def _write(self, preset: Preset, run: RunParameters, resumed: list[dict[str, Any]], others: dict[str, Any]) -> None:
        # What callbacks have added to the config stays.
        content = {**others, "preset": to_json(preset), "run": to_json(run), **provenance(), "resumed": resumed}
        content["import_folders"] = FOLDERS
        with written_aside(self.config) as file:
            file.write(json.dumps(content, indent=2).encode())

    def read(self) -> tuple[Preset, RunParameters]:
        """Returns the preset and how it was run.

        Raises:
            FileNotFoundError: not a run directory.
            ParameterError: its config is damaged.
        """
        return read_config(self.config)


def provenance() -> dict[str, Any]:
    """Returns command, versions and the git state of the working folder, where it has one."""
    versions = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    return {
        "command": sys.argv,
        "versions": versions,
        "git": {"commit": git("rev-parse", "HEAD"), "changed_files": git("status", "--porcelain", "--untracked-files=no")},
    }
