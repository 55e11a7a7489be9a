"""The folder of a run: what was run, by which code, and where its results lie."""

from __future__ import annotations

import contextlib
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfsac.catalog import read_config
from tfsac.errors import TfsacError
from tfsac.parameters import Preset, RunParameters, to_json
from tfsac.training.checkpoints.format import checkpoints_in, newest_whole
from tfsac.training.run_lock import RunLock
from tfsac.utils.files import atomic_write, check_run_dir, parse_object, read_object, sealed
from tfsac.utils.imports import IMPORT_FOLDERS

CONFIG, METRICS, BEST = "config.json", "metrics.csv", "best.npz"
TEMP_FILE = re.compile(  # left by a killed writer
    r"\.(config\.json|metrics\.csv|best\.npz|progress\.txt|learning_curve\.png|non_finite_update_\d+\.npz)\.\d+",
    re.ASCII,
)

PACKAGES = (
    "tfsac",
    "tensorflow",
    "keras",
    "gymnasium",
    "numpy",
    "mujoco",
    "box2d",
    "ale-py",
    "opencv-python-headless",
    "pettingzoo",
    "mpe2",
    "minari",
)


class RunDirectory(NamedTuple):
    """Names of the files in a run's folder.

    Attributes:
        path: of the folder.
        given: the same as the user wrote it, from the folder that was current then; None where `path` is that.
    """

    path: pathlib.Path
    given: pathlib.Path | None = None

    @classmethod
    def fixed(cls, path: pathlib.Path) -> RunDirectory:
        """Returns the folder at a path, which stays there when the user's code changes the current folder.

        Raises:
            FileNotFoundError: the current folder was deleted.
        """
        return cls(path.absolute(), path)

    def shown(self, path: pathlib.Path | None = None) -> pathlib.Path:
        """Returns a path in the folder, or that of the folder itself, as the user would write it."""
        given = self.given or self.path
        return given if path is None else given / path.relative_to(self.path)

    @property
    def config(self) -> pathlib.Path:
        """The resolved preset, how it was run, command, versions and git state."""
        return self.path / CONFIG

    @property
    def metrics(self) -> pathlib.Path:
        """A row for each evaluation."""
        return self.path / METRICS

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
        return self.path / BEST

    def weights(self, step: int | None = None) -> pathlib.Path:
        """Returns the file with the weights of the best evaluation: of the run, or until the checkpoint of a step."""
        return self.best if step is None else self._checkpoint_of(step) / BEST

    def checkpoint(self, step: int | None = None) -> pathlib.Path:
        """Returns the newest checkpoint whose files are whole, memory left aside, or that of a step."""
        return newest_whole(self.checkpoints, None if step is None else self._checkpoint_of(step))[0]

    def _checkpoint_of(self, step: int) -> pathlib.Path:
        steps = [int(path.name) for path in checkpoints_in(self.checkpoints)]
        if step not in steps:
            raise TfsacError(f"step must be that of a checkpoint of {self.path}, {steps}, got {step!r}")
        return self.checkpoints / f"{step:09d}"

    @property
    def policy(self) -> pathlib.Path:
        """The exported best policy."""
        return self.path / "policy"

    @property
    def disk(self) -> pathlib.Path:
        """This folder, or the nearest one above it that is there: where files without a name lie on the same disk."""
        return next(path for path in (self.path, *self.path.absolute().parents) if path.is_dir())

    def refuse_existing(self) -> None:
        """Refuses a folder in which no new run can be kept."""
        check_run_dir(self.path)

    def create(
        self, preset: Preset, run: RunParameters, others: dict[str, Any] | None = None, lock: RunLock | None = None
    ) -> str:
        """Makes the folder, locks it and writes its config, with `others` beside the parameters. Where that fails, what
        it made is gone.

        Returns:
            what `RunLock.acquire` returns.
        """
        self.refuse_existing()
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            note = lock.acquire(self.path) if lock else ""
            self.refuse_existing()
            self._write(preset, run, [], others or {})
        except BaseException:
            if lock:
                lock.release()
            with contextlib.suppress(OSError):  # where another process is faster
                for path in made:
                    path.rmdir()
            raise
        return note

    def note_resume(self, preset: Preset, run: RunParameters, step: int, run_files: Mapping[str, bytes]) -> None:
        """Brings the run's files to their contents `run_files` at a checkpoint, and adds where and how the run was
        continued to the config. What killed writers left is removed.
        """
        for path in list(self.path.iterdir()):
            if TEMP_FILE.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                path.unlink()
            elif path.name.startswith(f".{self.policy.name}.") and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        for name, content in run_files.items():
            path = self.path / name
            if name != CONFIG and not (path.is_file() and path.read_bytes() == content):
                with atomic_write(path) as file:
                    file.write(content)
        if BEST not in run_files:
            self.best.unlink(missing_ok=True)
        earlier = read_object(self.config) if self.config.is_file() else parse_object(run_files.get(CONFIG, b"{}"))
        resumed = [*earlier.get("resumed", []), {"env_steps": step, **provenance()}]
        self._write(preset, run, resumed, earlier)

    def add_to_config(self, values: Mapping[str, Any]) -> None:
        """Adds values to the top level of the config."""
        content = sealed({**read_object(self.config), **values})
        with atomic_write(self.config) as file:
            file.write(content)

    def _write(self, preset: Preset, run: RunParameters, resumed: list[dict[str, Any]], others: dict[str, Any]) -> None:
        # What callbacks have added to the config stays.
        content = {**others, "preset": to_json(preset), "run": to_json(run), **provenance(), "resumed": resumed}
        content["import_folders"] = IMPORT_FOLDERS
        with atomic_write(self.config) as file:
            file.write(sealed(content))

    def read(self) -> tuple[Preset, RunParameters]:
        """Returns the preset and how it was run."""
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
        "git": {
            "commit": git("rev-parse", "HEAD"),
            "changed_files": git("status", "--porcelain", "--untracked-files=no"),
        },
    }
