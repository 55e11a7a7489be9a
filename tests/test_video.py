"""Videos: the recording process with unusual and failing environments."""

import os
import signal
import time

import gymnasium as gym
import numpy as np
import pytest

from tfsac.environments import EnvironmentFailure, video
from tfsac.environments.video import write_video
from tfsac.parameters import EnvironmentParameters

imageio = pytest.importorskip("imageio.v2")
pytest.importorskip("imageio_ffmpeg")

# imageio's reader does not close its pipes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

STEPS = 9


class Drawn(gym.Env):
    """Episodes of `STEPS` steps; frame t has t bright columns, drawn into a reused array."""

    observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,))
    metadata, render_mode = {"render_modes": ["rgb_array"], "render_fps": 20}, "rgb_array"

    def __init__(self, shape=(16, 16, 3), at_step=lambda t: None, render_mode=None):
        self.shape, self.at_step, self.frames = shape, at_step, {}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, False, self.t == STEPS, {}

    def render(self):
        shape = self.at_step(self.t) or self.shape
        image = self.frames.setdefault(shape, np.zeros(shape, np.uint8))
        image[:] = 255 * (np.arange(shape[1]) < self.t)[:, None]
        return image


class Fast(Drawn):
    metadata = {**Drawn.metadata, "render_fps": 125}


class NeverClosed(Drawn):
    def close(self):
        time.sleep(1000)


def record(path, env_fn=None, level="Drawn-v0", episodes=1, **kwargs):
    actions = [np.zeros((STEPS, 1), np.float32)] * episodes
    write_video(EnvironmentParameters(level), [0] * episodes, actions, path, env_fn, **kwargs)
    with imageio.get_reader(path) as reader:
        return [np.asarray(frame)[..., :3] for frame in reader]


@pytest.mark.slow
def test_odd_frame_sizes_and_hanging_close(tmp_path):
    frames = record(tmp_path / "video.mp4", lambda: NeverClosed((63, 65, 3)))
    assert len(frames) == STEPS and frames[0].shape == (64, 66, 3)  # padded, as H.264 needs even sizes
    assert frames[8][:61, :6].min() > 200 and frames[8][:, 14:].max() < 60
    assert frames[0][:, 6:].max() < 60


FAILURES = {
    "crashed": (lambda: Drawn(at_step=lambda t: os.kill(os.getpid(), signal.SIGSEGV)), "no video of Drawn-v0"),
    "varying sizes": (lambda: Drawn(at_step=lambda t: (8, 8, 3) if t > 4 else None), "same size"),
    "hanging": (lambda: Drawn(at_step=lambda t: t == 3 and time.sleep(1000)), "no video of Drawn-v0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("env_fn, message", FAILURES.values(), ids=FAILURES)
def test_failed_video_leaves_no_file(env_fn, message, tmp_path, monkeypatch):
    monkeypatch.setattr(video, "FRAME_TIMEOUT", 4)
    with pytest.raises(EnvironmentFailure, match=message):
        record(tmp_path / "video.mp4", env_fn)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_other_episodes_than_evaluated_warn(tmp_path):
    with pytest.warns(RuntimeWarning, match="shows other episodes"):
        frames = record(tmp_path / "video.gif", Drawn, episodes=2, returns=[STEPS, STEPS - 1])
    assert len(frames) == 2 * STEPS


@pytest.mark.slow
def test_gif_of_a_fast_environment_has_the_right_speed(tmp_path):
    assert len(record(tmp_path / "video.gif", Fast)) == 3  # every third frame, for 20 ms
    with pytest.importorskip("PIL.Image").open(tmp_path / "video.gif") as image:
        assert image.info["duration"] == 20
