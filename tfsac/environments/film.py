"""Films of episodes, drawn in a process of their own.

The software renderers that MuJoCo uses on machines without a GPU carry another LLVM than TensorFlow does, and crash when both are
loaded. So the actions are played again from the episodes' seeds where TensorFlow is not.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import gymnasium as gym
import numpy as np

from tfsac.environments.check import EnvironmentFailure
from tfsac.environments.make import maker
from tfsac.parameters import EnvironmentParameters, from_json, to_json

HINT = (
    "MuJoCo draws off-screen with a GL library: install it (libegl1 in Debian) and set MUJOCO_GL=egl"
)


def write_film(
    parameters: EnvironmentParameters, seeds: Sequence[int], actions: Sequence[np.ndarray], path: pathlib.Path
) -> None:
    """Films episodes: a frame after every step.

    Args:
        parameters: the environment.
        seeds: of the episodes.
        actions: of each episode, `[T, ...]` in the environment's own numbers.
        path: a .mp4 or .gif file.

    Raises:
        ImportError: packages for films are missing.
        EnvironmentFailure: the environment cannot be drawn here.
    """
    job = {"parameters": to_json(parameters), "seeds": list(seeds), "path": str(path)}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "actions.npz"
        np.savez(file, job=np.array(json.dumps(job)), **{str(i): taken for i, taken in enumerate(actions)})  # type: ignore[arg-type]
        done = subprocess.run([sys.executable, "-m", __name__, str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        if "ModuleNotFoundError" in said:
            raise ImportError(f"Films need: pip install 'tfsac[video]'. Received: {said}")
        hint = f" {HINT}." if "mujoco" in done.stderr.lower() else ""
        raise EnvironmentFailure(f"{parameters.level} cannot be drawn here.{hint} Received: {said}")


def has_tracking_camera(env: gym.Env) -> bool:
    """Returns whether a MuJoCo model has a camera that follows the robot; the default one stays where it is."""
    model = getattr(env.unwrapped, "model", None)
    return model is not None and "track" in [model.cam(i).name for i in range(getattr(model, "ncam", 0))]


def draw(file: pathlib.Path) -> None:
    """Plays the episodes of a job and writes the film."""
    import imageio.v2 as imageio
    import imageio_ffmpeg  # noqa: F401  (says early when it is missing)

    with np.load(file) as arrays:
        job = json.loads(str(arrays["job"]))
        episodes = [arrays[str(i)] for i in range(len(job["seeds"]))]
    parameters = from_json(EnvironmentParameters, json.dumps(job["parameters"]))
    kwargs = {**parameters.kwargs, "render_mode": "rgb_array"}
    env = maker(dataclasses.replace(parameters, kwargs=kwargs))()
    if has_tracking_camera(env) and not {"camera_id", "camera_name"} & kwargs.keys():
        env.close()
        env = maker(dataclasses.replace(parameters, kwargs={**kwargs, "camera_name": "track"}))()
    frames = []
    for seed, actions in zip(job["seeds"], episodes, strict=True):
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
            frames.append(np.asarray(env.render()))
    fps = env.metadata.get("render_fps", 30)
    env.close()
    if job["path"].endswith(".gif"):
        imageio.mimsave(job["path"], frames, duration=1000 / fps, loop=0)  # type: ignore[arg-type]
    else:
        imageio.mimsave(job["path"], frames, fps=fps, macro_block_size=2)  # type: ignore[arg-type]


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]))
