"""Atari games of the Arcade Learning Environment."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments.levels import check_version
from tfsac.environments.spaces import FrameStack
from tfsac.parameters import AtariPreprocessingParameters


def make_atari(level: str, atari: AtariPreprocessingParameters | None, **kwargs: Any) -> gym.Env:
    """Makes a game.

    Args:
        level: such as "ALE/Pong-v5".
        atari: preprocessing, whose screens are `[screen, screen, frames]` bytes, the newest frame last; None for the
            raw ones, `[210, 160, 3]`.
        **kwargs: passed to `gymnasium.make`.

    Raises:
        ValueError: `kwargs` that the preprocessing sets.
        gymnasium.error.Error, ImportError, TypeError: from `gymnasium.make`.
    """
    ale = importlib.import_module("ale_py")  # makes the levels known to gymnasium
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # its banner would be printed for every game
    check_version(level)
    if atari is None:
        return gym.make(level, disable_env_checker=True, **kwargs)
    if taken := kwargs.keys() & {"frameskip", "obs_type"}:
        raise ValueError(f"{level}: the preprocessing chooses {' and '.join(sorted(taken))}. Received: {kwargs}")
    env = gym.make(level, disable_env_checker=True, frameskip=1, **kwargs)
    env = gym.wrappers.AtariPreprocessing(
        env,
        noop_max=atari.noop_max,
        frame_skip=atari.frame_skip,
        screen_size=atari.screen_size,
    )
    env = gym.wrappers.FrameStackObservation(env, atari.num_stacked_frames)
    space = FrameStack(atari.screen_size, atari.screen_size, atari.num_stacked_frames)
    return gym.wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), space)
