"""Videos of episodes, recorded in a process of their own.

The software renderers that MuJoCo uses on machines without a GPU carry another LLVM than TensorFlow does, and crash
when both are loaded. So the actions are replayed from the episodes' seeds in a new process, which has TensorFlow only
where the environment imports it. Frames go to ffmpeg as they are drawn, so memory does not grow with the length.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import importlib.util
import math
import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from tfsac.environments.check import EnvironmentFailure
from tfsac.environments.make import maker
from tfsac.machine import option
from tfsac.parameters import EnvironmentParameters
from tfsac.user_code import described, name_of

FRAME_TIMEOUT = 120  # seconds for one frame, and for making the environment
CLOSE_TIMEOUT = 10.0  # seconds for closing the environment
DIFFERENT_EPISODES = 3  # exit status: the video is complete
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
            f"A window needs a display, and this machine has none; {option('--dump_mp4', 'dump_mp4')} makes a film "
            "without one. "
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
    returns: Sequence[float] | None = None,
) -> None:
    """Records a video of episodes: a frame after every step.

    Args:
        parameters: the environment.
        seeds: of the episodes.
        actions: of each episode, `[T, ...]` in the environment's own numbers.
        path: a .mp4 or .gif file.
        env_fn: made the environment instead of a level; it draws with `render_mode="rgb_array"`.
        returns: of the episodes; a warning says where the replayed ones have others.

    Raises:
        ImportError: packages for videos are missing.
        EnvironmentFailure: the environment cannot be drawn here, or the video cannot be written.
    """
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ImportError("Films need: pip install 'tfsac[video]'. Received: no imageio_ffmpeg")
    spec = gym.registry.get(parameters.level)  # a script or a notebook may have registered it
    job = (parameters, list(seeds), list(actions), path, env_fn, spec, returns)
    try:
        sent = ForkingPickler.dumps(CloudpickleWrapper(job))  # type: ignore[arg-type]
    except Exception as error:  # whatever the user's objects raise
        raise EnvironmentFailure(
            "A film is drawn by another process, to which env_fn cannot be sent: create what it holds inside it, or "
            f"define it in a module. Received: env_fn={env_fn and name_of(env_fn)}, {described(error)}"
        ) from error
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with tempfile.TemporaryFile() as errors:  # no pipe, which processes of the environment could keep open
        command = [sys.executable, "-m", __name__, str(FRAME_TIMEOUT)]
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": errors}
        status = subprocess.run(command, input=sent, env=variables, check=False, **streams).returncode
        errors.seek(0)
        output = errors.read().decode(errors="replace")
    if status == DIFFERENT_EPISODES:
        warnings.warn(
            f"The film {path} shows other episodes than those that were evaluated: their seeds and actions do not "
            "determine what the environment does.",
            RuntimeWarning,
            stacklevel=2,
        )
    elif status:
        path.unlink(missing_ok=True)
        raise _failure(parameters.name, path, status, output)


def _failure(name: str, path: pathlib.Path, status: int, output: str) -> EnvironmentFailure:
    """Returns the error for an exit status and for what the process has written to stderr."""
    cause = re.sub(r"^[\w.]+: ", "", (output.strip().splitlines() or [f"exit status {status}"])[-1])
    cause = cause.replace(" Received:", "")
    if status < 0:
        ended_by = signal.Signals(-status).name
        why = ", perhaps because memory ran out" if ended_by == "SIGKILL" else ""
        message = f"{name} cannot be drawn: its process was ended by {ended_by}{why}. Received: exit status {status}"
    elif output.startswith("Timeout (") or "\nTimeout (" in output:  # of faulthandler; the main thread comes last
        place = output.rpartition("(most recent call first):\n")[2].partition("\n")[0].strip()
        message = f"{name} cannot be drawn: no frame within {FRAME_TIMEOUT} seconds. Received: {place}"
    elif NOT_WRITTEN in output:
        ffmpeg = output.partition("Traceback (")[0].strip() or "ffmpeg ended early, or wrote no whole video"
        message = f"{NOT_WRITTEN}; make room, or choose a folder that can be written. Received: {path}: {ffmpeg}"
    elif "mujoco" in output.lower():
        message = f"{name} cannot be drawn here. {HINT}. Received: {cause}"
    else:
        message = f"{name} cannot be drawn: {PICTURES}. Received: {cause}"
    return EnvironmentFailure(message)


def has_tracking_camera(env: gym.Env) -> bool:
    """Returns whether a MuJoCo model has a camera that follows the robot; the default one stays where it is."""
    model = getattr(env.unwrapped, "model", None)
    return model is not None and "track" in [model.cam(i).name for i in range(getattr(model, "ncam", 0))]


def checked_picture(drawn: object) -> np.ndarray:
    """Returns what `render` of an environment returned, if it is a picture.

    Raises:
        ValueError: it is no uint8 array `[height, width, 3]`, or 4 with transparency.
    """
    if not isinstance(drawn, np.ndarray):
        raise ValueError(f"render() returned {type(drawn).__name__}")
    if drawn.dtype == np.uint8 and drawn.ndim == 3 and drawn.size and drawn.shape[2] in (3, 4):
        return drawn
    raise ValueError(f"render() returned {drawn.dtype} {list(drawn.shape)}")


def frame_rate(env: gym.Env) -> float:
    """Returns the environment's frames per second; 30 where its metadata has none that a video can have."""
    try:
        fps = float((env.metadata or {}).get("render_fps", 30))
    except (TypeError, ValueError):
        return 30.0
    return fps if 0.01 <= fps <= 1000 else 30.0


class _Video:
    """A video file of pictures `[height, width, 3 or 4]` of one size, written as they come."""

    def __init__(self, path: pathlib.Path, fps: float):
        self.path, self.fps = path, fps
        self.frames: Generator[None, Any, None] | None = None
        self.shape: tuple[int, ...] = ()

    def add(self, picture: np.ndarray) -> None:
        import imageio_ffmpeg

        if self.frames is None:
            self.shape = picture.shape
            height, width, channels = picture.shape
            options: dict[str, Any] = {"pix_fmt_in": "rgb24" if channels == 3 else "rgba", "macro_block_size": 1}
            filters = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # H.264 with its usual colours has even sizes
            if self.path.suffix == ".gif":  # a palette a frame: one of all would need all frames at once
                filters = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
                options |= {"codec": "gif", "pix_fmt_out": "pal8", "quality": None}
            self.frames = imageio_ffmpeg.write_frames(
                str(self.path), (width, height), fps=self.fps, output_params=["-vf", filters], **options
            )
            self.frames.send(None)
        if picture.shape != self.shape:
            raise ValueError(f"render() returned pictures of different shapes, {self.shape} and {picture.shape}")
        with _not_written():
            self.frames.send(np.ascontiguousarray(picture))

    def close(self) -> None:
        with _not_written():
            if self.frames is not None:
                self.frames.close()
            # Both formats have an index or a mark at their end, which ffmpeg leaves out without an error where the
            # disk is full.
            with self.path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if not (content[-1:] == b";" if self.path.suffix == ".gif" else content.find(b"moov") >= 0):
                    raise OSError("it is incomplete")


@contextlib.contextmanager
def _not_written() -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise RuntimeError(NOT_WRITTEN) from error


def draw(
    timeout: float,
    parameters: EnvironmentParameters,
    seeds: Sequence[int],
    actions: Sequence[np.ndarray],
    path: pathlib.Path,
    env_fn: Callable[[], gym.Env] | None,
    spec: gym.envs.registration.EnvSpec | None,
    returns: Sequence[float] | None,
) -> bool:
    """Plays the episodes and writes the video, in a process of its own, which ends where a frame takes too long.

    Args:
        timeout: in seconds, of a frame.
        parameters, seeds, actions, path, env_fn, returns: as for `write_film`.
        spec: of the level, as Gymnasium has registered it.

    Returns:
        whether the episodes have these returns.
    """
    if spec is not None:
        gym.registry.setdefault(spec.id, spec)
    kwargs = {} if env_fn is not None else {**parameters.kwargs, "render_mode": "rgb_array"}
    env = maker(dataclasses.replace(parameters, kwargs=kwargs), env_fn, to_play=True)()
    if env_fn is None and has_tracking_camera(env) and not {"camera_id", "camera_name"} & kwargs.keys():
        env.close()
        env = maker(dataclasses.replace(parameters, kwargs={**kwargs, "camera_name": "track"}))()
    video, replayed = _Video(path, frame_rate(env)), list[float]()
    for seed, of_episode in zip(seeds, actions, strict=True):
        env.reset(seed=seed)
        replayed.append(0.0)
        for action in of_episode:
            _, reward, terminated, truncated, _ = env.step(action)
            replayed[-1] += float(reward)
            video.add(checked_picture(env.render()))
            faulthandler.dump_traceback_later(timeout, exit=True, file=2)  # starts the timer again
            if terminated or truncated:
                break
    video.close()
    faulthandler.cancel_dump_traceback_later()
    same = returns is None or all(map(lambda *pair: math.isclose(*pair, rel_tol=1e-3, abs_tol=1e-3), returns, replayed))
    ending = threading.Timer(CLOSE_TIMEOUT, os._exit, [0 if same else DIFFERENT_EPISODES])  # the video is complete
    ending.daemon = True
    ending.start()
    env.close()
    ending.cancel()
    return same


if __name__ == "__main__":
    limit = float(sys.argv[1])
    faulthandler.dump_traceback_later(limit, exit=True, file=2)  # before anything of the user's is imported
    sys.exit(0 if draw(limit, *ForkingPickler.loads(sys.stdin.buffer.read()).fn) else DIFFERENT_EPISODES)
