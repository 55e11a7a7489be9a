"""MinAtar, Atari games of 10 x 10 pixels (Young and Tian 2019, arXiv 1903.03176), as levels with image observations:
"tfsac.environments.minatar:Breakout-v0", Asterix, Freeway, Seaquest and SpaceInvaders. They need
`pip install 'tfsac[minatar]'`.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym
import numpy as np

GAMES = {"Asterix": "asterix", "Breakout": "breakout", "Freeway": "freeway"}
GAMES |= {"Seaquest": "seaquest", "SpaceInvaders": "space_invaders"}


def make_minatar(game: str, **kwargs: Any) -> gym.Env:
    """Returns a game with one channel of bytes, 0 or 255, per kind of object."""
    env = importlib.import_module("minatar.gym").BaseEnv(game, **kwargs)
    image = gym.spaces.Box(0, 255, env.observation_space.shape, np.uint8)
    return gym.wrappers.TransformObservation(env, lambda objects: 255 * objects.astype(np.uint8), image)


for name, game in GAMES.items():
    entry_point = "tfsac.environments.minatar:make_minatar"
    gym.register(f"{name}-v0", entry_point, kwargs={"game": game}, max_episode_steps=5_000)
