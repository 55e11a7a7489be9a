"""The folder of a run: its configuration, code version, spaces and results."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import pathlib
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from filelock import FileLock

from tfsac.errors import TfsacError
from tfsac.parameters import Preset, RunParameters, to_json
from tfsac.preset_lookup import read_config
from tfsac.training.checkpoints.format import SEAL, checkpoints_in, newest_complete, sealed
from tfsac.types import (
    AGENT_STATE,
    ActionSpec,
    ArraySpec,
    DiscreteSpec,
    FactorsSpec,
    HybridSpec,
    Spec,
    map_action,
    same_bounds,
)
from tfsac.utils.files import LOCK, acquire, atomic_write, check_new_folder, differences, read_object, remove_temporary
from tfsac.utils.imports import IMPORT_FOLDERS

CONFIG, METRICS, BEST = "config.json", "metrics.csv", "best.npz"
PACKAGES = [
    *("tfsac", "tensorflow", "keras", "gymnasium", "numpy", "mujoco", "box2d", "ale-py", "opencv-python-headless"),
    *("pettingzoo", "mpe2", "minari"),
]


class RunDirectory:
    """Paths of the files in a run's folder. They are absolute, so the user's code may change the working directory.

    Attributes:
        path: absolute path of the folder.
        config: the resolved preset, run parameters, command, versions and git state, with a checksum.
        best: weights of the best evaluation.
        checkpoints: folder of the checkpoints to resume from.
        policy: the exported best policy.
        lock: held by the training process; the operating system releases it when the process ends.
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path).expanduser().absolute()
        self.config, self.best = self.path / CONFIG, self.path / BEST
        self.checkpoints, self.policy = self.path / "checkpoints", self.path / "policy"
        self.lock = FileLock(self.path / LOCK, blocking=False, thread_local=False)

    def weights(self, step: int | None = None) -> pathlib.Path:
        """Returns the file with the weights of the best evaluation of the run, or up to the checkpoint at `step`."""
        return self.best if step is None else self._checkpoint_of(step) / BEST

    def checkpoint(self, step: int | None = None) -> pathlib.Path:
        """Returns the newest checkpoint with complete files (except the memory's), or the checkpoint at `step`."""
        return newest_complete(self.checkpoints, None if step is None else self._checkpoint_of(step))[0]

    def _checkpoint_of(self, step: int) -> pathlib.Path:
        steps = [int(path.name) for path in checkpoints_in(self.checkpoints)]
        if step not in steps:
            raise TfsacError(f"step must be that of a checkpoint of {self.path}, {steps}, got {step!r}")
        return self.checkpoints / f"{step:09d}"

    def refuse_existing(self) -> None:
        """Raises an error if the folder cannot hold a new run."""
        check_new_folder(self.path, "choose another run directory, or resume it (--resume, resume=True)")

    def acquire_lock(self) -> None:
        """Locks the folder; raises BlockingIOError if another process, or another trainer in this one, holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        acquire(self.lock)

    def create(self, preset: Preset, run: RunParameters, extra: Mapping[str, Any] | None = None) -> None:
        """Creates the folder and writes its config, with `extra` next to the parameters."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.refuse_existing()
        self._write(preset, run, [], extra or {})

    def note_resume(self, preset: Preset, run: RunParameters, step: int, run_files: Mapping[str, bytes]) -> None:
        """Restores the run's files to their contents `run_files` at a checkpoint, and adds an entry about the resume to
        the config. Removes temporary files of killed writers.

        Raises:
            TfsacError: the config differs from its checksum. Configs of earlier versions have none.
        """
        earlier = read_object(self.config) if self.config.is_file() else json.loads(run_files.get(CONFIG, b"{}"))
        if self.config.is_file() and SEAL in earlier and sealed(earlier) != self.config.read_bytes():
            raise TfsacError(
                f"{self.config} is damaged or was edited: it differs from its checksum. Replace it by its copy "
                f"{self.checkpoints / f'{step:09d}' / CONFIG}, or remove its {SEAL!r} to keep it as it is"
            )
        remove_temporary(self.path)
        for name in run_files.keys() - {CONFIG}:
            with atomic_write(self.path / name) as file:
                file.write(run_files[name])
        if BEST not in run_files:
            self.best.unlink(missing_ok=True)
        resumed = [*earlier.get("resumed", []), {"env_steps": step, **provenance()}]
        self._write(preset, run, resumed, earlier)

    def add_to_config(self, values: Mapping[str, Any]) -> None:
        """Adds values to the top level of the config."""
        with atomic_write(self.config) as file:
            file.write(sealed({**read_object(self.config), **values}))

    def _write(
        self, preset: Preset, run: RunParameters, resumed: list[dict[str, Any]], extra: Mapping[str, Any]
    ) -> None:
        # Keep entries that callbacks have added to the config.
        content = {**extra, "preset": to_json(preset), "run": to_json(run), **provenance(), "resumed": resumed}
        with atomic_write(self.config) as file:
            file.write(sealed({**content, "import_folders": IMPORT_FOLDERS}))

    def read(self) -> tuple[Preset, RunParameters]:
        """Returns the preset and the run parameters."""
        return read_config(self.config)

    def spec(self) -> Spec | None:
        """Returns the spec of the training environment; None if its spaces were not recorded."""
        spaces = read_object(self.config).get("spaces")
        return spaces and spec_in(spaces)

    def check_spaces(self, spec: Spec, keys: Collection[str] | None = None, only: tuple[str, ...] = ("",)) -> None:
        """Rejects an environment whose spaces differ from the recorded spaces of training, if any.

        A policy that only acts needs the same actions and the observations in `keys`; networks that are trained further
        need all observations in the same order. `only` restricts the comparison to "order" and "sizes" (of actions).
        """
        trained, current = read_object(self.config).get("spaces"), spaces_of(spec)
        if trained is None:
            return
        for spaces, other in ((trained, current), (current, trained)):
            spaces["order"] = [key for key in spaces["observation"] if key in other["observation"]]
            spaces["sizes"] = [n for leaf in spaces["action"].get("leaves", {}).values() for n in leaf.get("sizes", ())]
        compared = only if keys is None else ("action.", *(f"observation.{key}." for key in keys))
        for name, before, now in differences(trained, current):
            kind = name.rpartition(".")[2] if name.startswith("action.") else ""
            compatible = kind == "dtype" or (kind in ("low", "high") and same_bounds(before, now))
            if f"{name}.".startswith(compared) and not compatible:
                raise TfsacError(
                    f"the policy of {self.path} belongs to another environment: its {name} is {before}, got {now}"
                )


def spaces_of(spec: Spec) -> dict[str, Any]:
    """Returns shapes and dtypes of observations, and shape and bounds (or count) of actions, as JSON values."""
    observation = {key: {"shape": list(array.shape), "dtype": array.dtype} for key, array in spec.observation.items()}
    return {"observation": observation, "action": _action_space(spec.action), "num_rewards": spec.num_rewards}


def _action_space(action: ActionSpec | FactorsSpec) -> dict[str, Any]:
    if isinstance(action, HybridSpec):
        leaves = {name: _action_space(leaf) for name, leaf in action.leaves.items()}
        structure = map_action(str, action.structure)  # TensorFlow has wrapped its dicts
        return {"structure": json.loads(json.dumps(structure)), "leaves": leaves}
    shape = {"shape": list(action.shape)}
    if isinstance(action, DiscreteSpec):
        return shape | {"num_actions": action.num_actions, "start": action.start, "dtype": action.native_dtype}
    if isinstance(action, FactorsSpec):
        return shape | {"sizes": list(action.sizes), "starts": list(action.starts), "dtype": action.native_dtype}
    bounds = {"low": action.low, "high": action.high}
    return shape | {name: None if bound is None else bound.tolist() for name, bound in bounds.items()}


def _action_spec(acts: Mapping[str, Any]) -> Any:
    if "leaves" in acts:
        leaves = {name: _action_spec(leaf) for name, leaf in acts["leaves"].items()}
        return HybridSpec(leaves, _with_tuples(acts["structure"]))
    shape, native = tuple(acts["shape"]), acts.get("dtype", "int64")  # missing in older configs
    if "num_actions" in acts:
        return DiscreteSpec(acts["num_actions"], shape, acts["start"], native_dtype=native)
    if "sizes" in acts:
        return FactorsSpec(tuple(acts["sizes"]), tuple(acts["starts"]), shape, native)
    low, high = (None if acts[name] is None else np.array(acts[name], np.float32) for name in ("low", "high"))
    return ArraySpec(shape, "float32", low, high)


def _with_tuples(structure: Any) -> Any:
    """Returns a structure of actions with the lists from JSON converted to tuples."""
    if isinstance(structure, dict):
        return {key: _with_tuples(part) for key, part in structure.items()}
    return tuple(map(_with_tuples, structure)) if isinstance(structure, list) else structure


def spec_in(spaces: Mapping[str, Any]) -> Spec:
    """Returns the spec for a result of `spaces_of`."""
    observation = spaces["observation"]
    return Spec(
        {key: ArraySpec(tuple(array["shape"]), array["dtype"]) for key, array in observation.items()},
        _action_spec(spaces["action"]),
        num_agents=observation[AGENT_STATE]["shape"][0] if AGENT_STATE in observation else None,
        num_rewards=spaces.get("num_rewards"),
    )


def provenance() -> dict[str, Any]:
    """Returns command, versions and the git state of the working directory, if any."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    git = {"commit": _git("rev-parse", "HEAD"), "changed_files": _git("status", "--porcelain", "--untracked-files=no")}
    return {"command": sys.argv, "versions": versions, "git": git}


def _git(*arguments: str) -> str | None:
    try:
        completed = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip()
