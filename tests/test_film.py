"""Videos of episodes: what the process that records them meets in other people's environments."""

import os
import pathlib
import resource
import signal
import subprocess
import time

import gymnasium as gym
import numpy as np
import pytest

from tfsac.environments import film
from tfsac.environments.check import EnvironmentFailure
from tfsac.environments.film import frame_rate, write_film
from tfsac.parameters import EnvironmentParameters

imageio = pytest.importorskip("imageio.v2")
pytest.importorskip("imageio_ffmpeg")

# imageio's reader leaves its pipes open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

STEPS = 9


class Drawn(gym.Env):
    """Episodes of `STEPS` steps; picture t has a bright column more than the one before."""

    observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,))
    metadata, render_mode = {"render_modes": ["rgb_array"], "render_fps": 20}, "rgb_array"

    def __init__(self, shape=(16, 16, 3), at_step=lambda t: None, render_mode=None):
        self.shape, self.at_step = shape, at_step

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, False, self.t == STEPS, {}

    def render(self):
        picture = np.zeros(self.at_step(self.t) or self.shape, np.uint8)
        picture[:, : self.t] = 255
        return picture


def record(path, env_fn=None, level="Drawn-v0", episodes=1, **others):
    actions = [np.zeros((STEPS, 1), np.float32)] * episodes
    write_film(EnvironmentParameters(level), [0] * episodes, actions, path, env_fn, **others)
    with imageio.get_reader(path) as reader:
        return [np.asarray(frame)[..., :3] for frame in reader]


@pytest.mark.parametrize(
    "fps, right",
    [(20, 20), (np.float32(12.5), 12.5), ("24", 24), (0.5, 0.5)]
    + [(wrong, 30) for wrong in (0, None, -3, float("nan"), float("inf"), 1e9, "fast", [20])],
)
def test_a_video_has_a_frame_rate_whatever_the_metadata_say(fps, right):
    env = Drawn()
    env.metadata = {"render_fps": fps}
    assert frame_rate(env) == right
    env.metadata = None
    assert frame_rate(env) == 30


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["mp4", "gif"])
@pytest.mark.parametrize("shape", [(63, 65, 3), (16, 1, 3), (20, 30, 4)], ids=str)
def test_pictures_of_odd_sizes_are_recorded(shape, ending, tmp_path):
    def opaque(t):
        return None if shape[2] == 3 else (20, 30, 3)

    frames = record(tmp_path / f"video.{ending}", lambda: Drawn(shape, opaque))
    height, width = shape[:2]
    even = ending == "mp4"  # those that H.264 takes: a black line is added
    assert len(frames) == STEPS
    assert frames[0].shape == (height + height % 2 * even, width + width % 2 * even, 3)
    if width > 1:
        assert frames[8][: height - 2, :6].min() > 200 and frames[8][:, 14:].max() < 60
        assert frames[0][:, 6:].max() < 60


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_memory_does_not_grow_with_the_number_of_frames(ending, tmp_path):
    grown = tmp_path / "grown"

    def measure(t):
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB
        grown.write_text(f"{grown.read_text() if grown.exists() else ''} {used}")

    record(tmp_path / f"video.{ending}", lambda: Drawn((1000, 1000, 3), measure), episodes=4)
    used = [float(megabytes) for megabytes in grown.read_text().split()]
    assert len(used) == 4 * STEPS and used[-1] - used[STEPS - 1] < 30  # 27 more frames have 81 MB


def kill_ffmpeg(t):
    if t == 4:
        children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        time.sleep(0.2)


FAILURES = {
    "killed": (lambda t: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL, perhaps because memory ran out"),
    "crashed": (lambda t: os.kill(os.getpid(), signal.SIGSEGV), r"ended by SIGSEGV\. Received: exit status -11"),
    "ffmpeg killed": (kill_ffmpeg, "cannot be written.*ffmpeg ended"),
    "other sizes": (lambda t: (8, 8, 3) if t > 4 else None, r"different shapes, \(16, 16, 3\) and \(8, 8, 3\)"),
    "nothing": (lambda t: (0, 8, 3), r"render\(\) returned uint8 \[0, 8, 3\]"),
    "hanging": (lambda t: t == 3 and time.sleep(1000), r"no frame within 8 seconds\. Received: .*line \d+ in"),
}


@pytest.mark.slow
@pytest.mark.parametrize("at_step, message", FAILURES.values(), ids=FAILURES)
def test_a_video_that_fails_says_why_and_leaves_no_file(at_step, message, tmp_path, monkeypatch):
    if at_step is kill_ffmpeg and not pathlib.Path("/proc/self/task").exists():
        pytest.skip("finds the process of ffmpeg in /proc")
    monkeypatch.setattr(film, "FRAME_TIMEOUT", 8)
    with pytest.raises(EnvironmentFailure, match=message):
        record(tmp_path / "video.mp4", lambda: Drawn(at_step=at_step))
    assert not list(tmp_path.iterdir())


class SlowToLoad:
    """Hangs where another process imports or makes it."""

    def __reduce__(self):
        return time.sleep, (1000,)


@pytest.mark.slow
def test_a_process_that_hangs_before_its_first_frame_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "FRAME_TIMEOUT", 5)
    with pytest.raises(EnvironmentFailure, match="no frame within 5 seconds"):
        record(tmp_path / "video.mp4", SlowToLoad())
    assert not list(tmp_path.iterdir())


class NeverClosed(Drawn):
    def close(self):
        time.sleep(1000)


@pytest.mark.slow
def test_a_video_is_complete_though_the_environment_does_not_close(tmp_path):
    assert len(record(tmp_path / "video.mp4", NeverClosed)) == STEPS


def test_what_cannot_be_sent_to_another_process_is_named(tmp_path):
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(EnvironmentFailure, match=r"env_fn cannot be sent.*Received: env_fn=test_film.*cannot pickle"):
        record(tmp_path / "video.mp4", lambda: Drawn(process))


@pytest.mark.slow
def test_another_episode_than_the_evaluated_one_is_not_shown_silently(tmp_path):
    actions, video = [np.zeros((STEPS, 1), np.float32)] * 2, tmp_path / "video.mp4"
    with pytest.warns(RuntimeWarning, match="shows other episodes"):
        write_film(EnvironmentParameters("Drawn-v0"), [0, 0], actions, video, Drawn, [STEPS, STEPS - 1])
    with imageio.get_reader(video) as reader:
        assert sum(1 for _ in reader) == 2 * STEPS
    record(tmp_path / "same.mp4", Drawn, episodes=2, returns=[STEPS, STEPS])


@pytest.mark.slow
def test_a_level_that_only_this_process_has_registered_is_recorded(tmp_path):
    gym.register("OnlyHere-v0", entry_point=lambda render_mode: Drawn())
    try:
        assert len(record(tmp_path / "video.gif", level="OnlyHere-v0")) == STEPS
    finally:
        del gym.registry["OnlyHere-v0"]


@pytest.mark.slow
def test_an_environment_that_computes_with_tensorflow_is_recorded(tmp_path):
    import tensorflow as tf

    weights = tf.Variable([[100.0]])
    tf.function(lambda: tf.matmul(weights, weights))()  # starts threads, for which a forked process would wait

    def at_step(t):
        assert tf.function(lambda x: tf.matmul(x, weights))(tf.constant([[t]], tf.float32)) == 100 * t

    assert len(record(tmp_path / "video.mp4", lambda: Drawn(at_step=at_step))) == STEPS
