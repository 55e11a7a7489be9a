"""Films of episodes, drawn in a process of their own.

The software renderers that MuJoCo uses on machines without a GPU carry another LLVM than TensorFlow does, and crash
when both are loaded. So the actions are replayed from the episodes' seeds where TensorFlow is not.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import multiprocessing
import operator
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

import gymnasium as gym
import numpy as np

from tfsac.environments.check import EnvironmentFailure
from tfsac.environments.make import maker
from tfsac.parameters import EnvironmentParameters, from_json, to_json
from tfsac.user_code import described, name_of

NOT_WRITTEN = "The film cannot be written"
HINT = "MuJoCo draws off-screen with a GL library: install it (libegl1 in Debian) and set MUJOCO_GL=egl"
PICTURES = (
    "a film needs an environment whose constructor takes render_mode='rgb_array', and whose render() returns uint8 "
    "[height, width, 3]"
)


def check_render(render: object, of_level: bool) -> None:
    """Refuses what is no way to draw an evaluation, and a window where there is none: the libraries that open it would
    crash.

    Args:
        render: "human" for a window, or "".
        of_level: whether a level's environment draws, not one that a function of the user makes.

    Raises:
        ValueError: another value, or no display.
    """
    if render not in ("", "human"):
        raise ValueError(f"render is '' or 'human'. Received: {render!r}")
    displays = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if render and of_level and sys.platform == "linux" and not any(map(os.environ.get, displays)):
        raise ValueError(
            "A window needs a display, and this machine has none; dump_mp4 (--dump_mp4) makes a film without one. "
            "For an environment that draws elsewhere, such as on the terminal, set the variable SDL_VIDEODRIVER=dummy. "
            "Received: no DISPLAY, no WAYLAND_DISPLAY"
        )


def check_drawn(env: gym.Env, mode: str) -> None:
    """Refuses what a user's function made, if it does not draw in this mode; "" is none."""
    if mode and env.render_mode != mode:
        raise ValueError(
            f"To draw, env_fn makes its environment with render_mode={mode!r}; another env_fn than that of training "
            f"may do so. Received: render_mode={env.render_mode!r}"
        )


def write_film(
    parameters: EnvironmentParameters,
    seeds: Sequence[int],
    actions: Sequence[np.ndarray],
    path: pathlib.Path,
    env_fn: Callable[[], gym.Env] | None = None,
) -> None:
    """Films episodes: a frame after every step.

    Args:
        parameters: the environment.
        seeds: of the episodes.
        actions: of each episode, `[T, ...]` in the environment's own numbers.
        path: a .mp4 or .gif file.
        env_fn: made the environment instead of a level; it draws with `render_mode="rgb_array"`. Where another process
            can import it, that process draws; else a copy of this one, which ends if it crashes and leaves this one
            alone.

    Raises:
        ImportError: packages for films are missing.
        EnvironmentFailure: the environment cannot be drawn here, or the film cannot be written.
    """
    place = None if env_fn is None else _place_of(env_fn)
    job = {"parameters": to_json(parameters), "seeds": list(seeds), "path": str(path), "env_fn": place}
    with tempfile.TemporaryDirectory() as folder:
        file, errors = pathlib.Path(folder) / "actions.npz", pathlib.Path(folder) / "errors.txt"
        np.savez(file, job=np.array(json.dumps(job)), **{str(i): taken for i, taken in enumerate(actions)})  # type: ignore[arg-type]
        if env_fn is None or place is not None:
            found = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
            done = subprocess.run(
                [sys.executable, "-m", __name__, str(file)], env=found, capture_output=True, text=True, check=False
            )
            status, said = done.returncode, done.stderr
        elif "fork" not in multiprocessing.get_all_start_methods():
            raise EnvironmentFailure(
                "A film is drawn by a process of its own, which imports env_fn: "
                f"define it in a module, not in a script, a notebook or a lambda. Received: env_fn={name_of(env_fn)}"
            )
        else:
            errors.touch()
            process = multiprocessing.get_context("fork").Process(target=_draw_in_copy, args=(file, env_fn, errors))
            process.start()
            process.join()
            status, said = process.exitcode or 0, errors.read_text()
    if status:
        path.unlink(missing_ok=True)
        last = (said.strip().splitlines() or [f"exit status {status}"])[-1]
        if "ModuleNotFoundError" in last and "imageio" in last:
            raise ImportError(f"Films need: pip install 'tfsac[video]'. Received: {last}")
        if NOT_WRITTEN in said:
            raise EnvironmentFailure(
                f"{NOT_WRITTEN}; make room, or choose a folder that can be written. Received: {path}"
            )
        cause = re.sub(r"^[\w.]+: ", "", last).replace(" Received:", "")
        if "mujoco" in said.lower():
            raise EnvironmentFailure(f"{parameters.name} cannot be drawn here. {HINT}. Received: {cause}")
        raise EnvironmentFailure(f"{parameters.name} cannot be drawn: {PICTURES}. Received: {cause}")


def _place_of(env_fn: Callable[[], gym.Env]) -> list[str] | None:
    """Returns module and name under which another process finds a function; None for lambdas, notebooks and the
    running script.
    """
    module, name = getattr(env_fn, "__module__", "__main__"), getattr(env_fn, "__qualname__", "<")
    if module == "__main__" or "<" in name:
        return None
    try:
        return [module, name] if operator.attrgetter(name)(sys.modules[module]) is env_fn else None
    except (AttributeError, KeyError):
        return None


def _draw_in_copy(file: pathlib.Path, env_fn: Callable[[], gym.Env], errors: pathlib.Path) -> None:
    """Draws in a forked process, and leaves what it raises in a file."""
    try:
        draw(file, env_fn)
    except Exception as error:
        errors.write_text(described(error))
        os._exit(1)  # this copy ends nothing of the process that it was made of
    os._exit(0)


def has_tracking_camera(env: gym.Env) -> bool:
    """Returns whether a MuJoCo model has a camera that follows the robot; the default one stays where it is."""
    model = getattr(env.unwrapped, "model", None)
    return model is not None and "track" in [model.cam(i).name for i in range(getattr(model, "ncam", 0))]


def checked_picture(drawn: object) -> np.ndarray:
    """Returns what `render` of an environment returned, if it is a picture.

    Raises:
        ValueError: it is no uint8 array `[height, width, 3]`, or 4 with transparency.
    """
    if isinstance(drawn, np.ndarray) and drawn.dtype == np.uint8 and drawn.ndim == 3 and drawn.shape[2] in (3, 4):
        return drawn
    shape = f"{drawn.dtype} {list(drawn.shape)}" if isinstance(drawn, np.ndarray) else type(drawn).__name__
    raise ValueError(f"render() returned {shape}")


def draw(file: pathlib.Path, env_fn: Callable[[], gym.Env] | None = None) -> None:
    """Plays the episodes of a job and writes the film.

    Args:
        file: of the job.
        env_fn: makes the environment, where the job does not say how.
    """
    import imageio.v2 as imageio
    import imageio_ffmpeg  # noqa: F401  (says early when it is missing)

    with np.load(file) as arrays:
        job = json.loads(str(arrays["job"]))
        episodes = [arrays[str(i)] for i in range(len(job["seeds"]))]
    if job["env_fn"] is not None:
        module, name = job["env_fn"]
        env_fn = operator.attrgetter(name)(importlib.import_module(module))
    parameters = from_json(EnvironmentParameters, json.dumps(job["parameters"]))
    kwargs = {} if env_fn is not None else {**parameters.kwargs, "render_mode": "rgb_array"}
    env = maker(dataclasses.replace(parameters, kwargs=kwargs), env_fn, to_play=True)()
    if env_fn is None and has_tracking_camera(env) and not {"camera_id", "camera_name"} & kwargs.keys():
        env.close()
        env = maker(dataclasses.replace(parameters, kwargs={**kwargs, "camera_name": "track"}))()
    frames = []
    for seed, actions in zip(job["seeds"], episodes, strict=True):
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
            frames.append(checked_picture(env.render()).copy())  # which it may draw over
    fps = (env.metadata or {}).get("render_fps", 30)
    env.close()
    path = pathlib.Path(job["path"])
    try:
        if path.suffix == ".gif":
            imageio.mimsave(path, frames, duration=1000 / fps, loop=0)  # type: ignore[arg-type]
            return
        imageio.mimsave(path, frames, fps=fps, macro_block_size=2)  # type: ignore[arg-type]
    except OSError as error:
        raise RuntimeError(NOT_WRITTEN) from error
    # An index at the end, which ffmpeg leaves out without an error where the disk is full.
    if not path.is_file() or b"moov" not in path.read_bytes():
        raise RuntimeError(NOT_WRITTEN)


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]))
