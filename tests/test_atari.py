"""Atari preprocessing: frame stacks and frame skipping."""

import numpy as np

from tfsac.environments import maker, spec_of
from tfsac.parameters import AtariPreprocessingParameters, EnvironmentParameters
from tfsac.types import ArraySpec, DiscreteSpec, Spec

PONG = "ALE/Pong-v5"


def pong(**atari):
    return maker(EnvironmentParameters(PONG, atari=AtariPreprocessingParameters(**atari)))()


def test_observations_are_stacked_grey_frames():
    env = pong()
    assert spec_of(env) == Spec({"observation": ArraySpec((84, 84, 4), "uint8", stacked=True)}, DiscreteSpec(6))
    before, _ = env.reset(seed=1)
    assert before.shape == (84, 84, 4) and before.dtype == np.uint8 and before in env.observation_space
    for frame in range(3):  # four copies of the first screen
        np.testing.assert_array_equal(before[..., frame], before[..., 3])
    for _ in range(40):  # until the ball moves
        now = env.step(3)[0]
        np.testing.assert_array_equal(now[..., :3], before[..., 1:])
        before = now
    assert not np.array_equal(now[..., 3], now[..., 2])


def test_action_is_repeated_frame_skip_times():
    frames = {}
    for frame_skip in (1, 3):
        env = pong(frame_skip=frame_skip, noop_max=0)
        env.reset(seed=0)
        before = env.unwrapped.ale.getEpisodeFrameNumber()
        env.step(2)
        frames[frame_skip] = env.unwrapped.ale.getEpisodeFrameNumber() - before
    assert frames == {1: 1, 3: 3}
