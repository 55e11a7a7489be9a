"""Atari games: the preprocessing's images, time limits, seeds, a video."""

import numpy as np
import pytest

from tfsac.environments import Environments, maker, spec_of
from tfsac.parameters import AtariPreprocessingParameters, EnvironmentParameters
from tfsac.types import ArraySpec, DiscreteSpec, Spec

PONG = "ALE/Pong-v5"


@pytest.fixture
def pong():
    """Makes Pong with preprocessing and closes it at the end."""
    made = []

    def make_pong(max_episode_steps=None, kwargs=None, **atari):
        parameters = EnvironmentParameters(
            PONG, max_episode_steps=max_episode_steps, kwargs=kwargs or {}, atari=AtariPreprocessingParameters(**atari)
        )
        made.append(maker(parameters)())
        return made[-1]

    yield make_pong
    for env in made:
        env.close()


def test_screens_are_grey_images_of_the_newest_frames(pong):
    env = pong()
    assert spec_of(env) == Spec({"observation": ArraySpec((84, 84, 4), "uint8", stacked=True)}, DiscreteSpec(6))
    before, _ = env.reset(seed=1)
    assert before.shape == (84, 84, 4) and before.dtype == np.uint8 and before in env.observation_space
    for frame in range(3):  # of the first screen four times
        np.testing.assert_array_equal(before[..., frame], before[..., 3])
    for _ in range(40):  # until the ball flies
        now = env.step(3)[0]
        np.testing.assert_array_equal(now[..., :3], before[..., 1:])
        before = now
    assert not np.array_equal(now[..., 3], now[..., 2])


def test_each_action_is_repeated_frame_skip_times(pong):
    played = {}
    for frame_skip in (1, 3):
        env = pong(frame_skip=frame_skip, noop_max=0)
        env.reset(seed=0)
        before = env.unwrapped.ale.getEpisodeFrameNumber()
        env.step(2)
        played[frame_skip] = env.unwrapped.ale.getEpisodeFrameNumber() - before
    assert played == {1: 1, 3: 3}


@pytest.mark.slow
def test_games_side_by_side_follow_from_their_seeds_and_come_back():
    parameters = EnvironmentParameters(PONG, num_envs=2, atari=AtariPreprocessingParameters(), max_episode_steps=20)
    one, two = Environments(parameters, 3), Environments(parameters, 3)
    actions = np.random.default_rng(0).integers(0, 6, (25, 2)).astype(np.int32)
    for action in actions:
        first, second = one.step(action), two.step(action)
        np.testing.assert_array_equal(first.following["observation"], second.following["observation"])
        np.testing.assert_array_equal(first.reward, second.reward)
    assert first.following["observation"].shape == (2, 84, 84, 4)
    assert one.episode.tolist() == [1, 1]
    assert not np.array_equal(first.following["observation"][0], first.following["observation"][1])
    alone = EnvironmentParameters(PONG, atari=AtariPreprocessingParameters())
    old, new = Environments(alone, 3), Environments(alone, 3)
    for action in actions[:, :1]:
        old.step(action)
    assert new.restore(old.state(), actions[:, 0], old.observation) is True
