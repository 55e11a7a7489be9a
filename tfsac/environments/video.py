"""Record videos of episodes in a separate process.

The software renderers that MuJoCo uses on machines without a GPU bundle a different LLVM than TensorFlow, and crash
when both are loaded. So the actions are replayed from the episodes' seeds in a new process, which loads TensorFlow only
if the environment imports it. Frames are sent to ffmpeg as they are rendered, so memory does not grow with the length.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import math
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments.checked_env import EnvironmentFailure
from tfsac.environments.make import EnvFn, maker
from tfsac.environments.subprocesses import serialize
from tfsac.errors import TfsacError
from tfsac.parameters import EnvironmentParameters

FRAME_TIMEOUT = 120  # seconds for one frame, and for creating the environment
DIFFERENT_EPISODES = 3  # exit status: the video is complete


def check_display(render: str) -> None:
    """Rejects a window on a machine without a display, because the windowing libraries would end the process."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if render == "human" and sys.platform == "linux" and not any(map(os.environ.get, displays)):
        raise TfsacError("a window needs a display (DISPLAY or WAYLAND_DISPLAY); record a video instead (dump_mp4)")


def write_video(
    parameters: EnvironmentParameters,
    seeds: Sequence[int],
    actions: Sequence[Sequence[Any]],
    path: pathlib.Path,
    env_fn: EnvFn | None = None,
    returns: Sequence[float] | None = None,
) -> None:
    """Records a video of episodes, with one frame after every step.

    Args:
        parameters: parameters of the environment.
        seeds: seeds of the episodes.
        actions: actions of each episode, `[T, ...]` in the environment's own numbers.
        path: a .mp4 or .gif file.
        env_fn: created the environment instead of a level, with `render_mode="rgb_array"`.
        returns: returns of the episodes; a warning is issued if those of the replayed episodes differ.

    Raises:
        EnvironmentFailure: the environment cannot be rendered here, or the video cannot be written.
    """
    spec = gym.registry.get(parameters.level)  # a script or a notebook may have registered it
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-m", __name__, str(FRAME_TIMEOUT)]
    # ffmpeg may outlive the process that started it, so an incomplete file never has the path of the video. stderr is a
    # file instead of a pipe, because processes of the environment could keep a pipe open.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as errors,
    ):
        written = pathlib.Path(folder) / path.name
        job = serialize((parameters, list(seeds), list(actions), written, env_fn, spec, returns))
        done = subprocess.run(command, input=job, env=variables, stdout=subprocess.DEVNULL, stderr=errors, check=False)
        errors.seek(0)
        output = errors.read().decode(errors="replace").strip()
        if done.returncode in (0, DIFFERENT_EPISODES):
            shutil.move(written, path)
    if done.returncode == DIFFERENT_EPISODES:
        message = f"the video {path} shows other episodes than those evaluated: seeds and actions do not determine them"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    elif done.returncode:
        cause = output.splitlines()[-1] if output else f"exit status {done.returncode}"
        needs = "tfsac[video], render_mode='rgb_array', and for MuJoCo without a screen libegl1 and MUJOCO_GL=egl"
        message = f"no video of {parameters.name} ({cause}); videos need {needs}"
        raise EnvironmentFailure(message) from RuntimeError(output)


def _record(timeout: float, job: tuple[Any, ...]) -> bool:
    """Writes the video in this process, and ends the process if a frame takes longer than `timeout` seconds. Returns
    whether the replayed episodes have the returns of the job.
    """
    import imageio.v2 as imageio

    parameters, seeds, actions, path, env_fn, spec, returns = job
    if spec is not None:
        gym.registry.setdefault(spec.id, spec)
    kwargs = {} if env_fn is not None else {**parameters.kwargs, "render_mode": "rgb_array"}
    env = maker(dataclasses.replace(parameters, kwargs=kwargs), env_fn, to_play=True)()
    fps, replayed = float((env.metadata or {}).get("render_fps") or 30), list[float]()
    every = 1
    options: dict[str, Any] = {"fps": fps, "macro_block_size": 2}  # H.264 with 4:2:0 colours needs even sizes
    if path.suffix == ".gif":  # its delays are multiples of 10 ms, and browsers slow down those below 20
        every = math.ceil(fps / 50)
        options = {"loop": 0, "duration": 10 * round(100 * every / fps)}
    video: Any
    with imageio.get_writer(path, **options) as video:
        for seed, episode_actions in zip(seeds, actions, strict=True):
            env.reset(seed=seed)
            replayed.append(0.0)
            for step, action in enumerate(episode_actions):
                _, reward, terminated, truncated, _ = env.step(action)
                replayed[-1] += float(reward)
                if step % every == 0:
                    video.append_data(env.render())
                faulthandler.dump_traceback_later(timeout, exit=True)  # restarts the timer
                if terminated or truncated:
                    break
    faulthandler.cancel_dump_traceback_later()
    return returns is None or np.allclose(returns, replayed, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    limit = float(sys.argv[1])
    faulthandler.dump_traceback_later(limit, exit=True)  # before any of the user's code is imported
    reproduced = _record(limit, pickle.loads(sys.stdin.buffer.read()))
    sys.stderr.flush()
    os._exit(0 if reproduced else DIFFERENT_EPISODES)  # the video is complete, even if the environment cannot be closed
