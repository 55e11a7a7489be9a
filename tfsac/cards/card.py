"""A model card as its user loads it: the policy acts, and plays episodes."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from tfsac.api import AFTER_TRAINING, play
from tfsac.environments import spec_of
from tfsac.errors import TfsacError
from tfsac.exporting.exported import Exported, load_exported
from tfsac.parameters import EnvironmentEpisodes, EnvironmentParameters, from_json
from tfsac.training import Evaluation, RunDirectory, evaluate
from tfsac.types import input_name
from tfsac.utils.files import read_object

FORMAT = "card"  # the key in config.json that makes a folder a card


@dataclasses.dataclass
class Card:
    """A model card: an exported policy, its environment and its returns. `tfsac.load_card` returns one.

    Attributes:
        path: of the folder.
        policy: the exported policy.
        environment: parameters of the environment in which it was trained.
        results: content of results.json; empty without it.

    Example:
        >>> card = tfsac.load_card("card")
        >>> card.reset()
        >>> action = card.act(observation)
    """

    path: pathlib.Path
    policy: Exported
    environment: EnvironmentParameters
    results: Mapping[str, Any]

    def reset(self) -> None:
        """Sets the policy's state to the initial one: an episode starts, in all environments."""
        self.policy.reset()

    def act(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """Returns an action, the policy's mode or a sample, as the `act` of `tfsac.load_policy` does."""
        return self.policy(observation, deterministic)

    def evaluate(
        self,
        episodes: int | None = None,
        deterministic: bool = True,
        seed: int | None = None,
        render: Literal["", "human"] = "",
        dump_mp4: str | pathlib.Path | None = None,
        env_fn: Callable[[], gym.Env] | None = None,
    ) -> Evaluation:
        """Plays episodes of the card's environment.

        Args:
            episodes: how many; None for as many as the card has returns, or 10.
            deterministic, render, dump_mp4: see `tfsac.evaluate`.
            seed: of the episodes; None for that of the card, so that they are the card's own.
            env_fn: makes the environment, of a policy that was trained with a function; it then draws by itself.

        Raises:
            TfsacError: `env_fn` is missing, or the environment's spaces are not those of the policy.
        """
        if self.environment.by_env_fn and env_fn is None:
            raise TfsacError(f"a Python function made the environment {self.environment.name}; pass it as env_fn")
        number = EnvironmentEpisodes(episodes or len(self.results.get("returns", ())) or 10)
        seed = self.results.get("seed", 0) if seed is None else seed

        def run_in(env: gym.Env, each_step: Callable[..., None]) -> Evaluation:
            spec = spec_of(env)
            keys = [key for key in spec.observation if input_name(key) in self.policy.reads]
            RunDirectory(self.path).check_spaces(spec, keys)
            act = functools.partial(self.act, deterministic=deterministic)
            return evaluate(act, env, number, seed, AFTER_TRAINING, each_step, self.reset)

        return play(self.environment, run_in, seed, render, dump_mp4, env_fn=env_fn)


def load_card(folder: str | pathlib.Path) -> Card:
    """Loads a model card's folder. Load only cards of people whom you trust; see docs/exports.md.

    Args:
        folder: what `tfsac card` wrote, also without its page, pictures and results.

    Raises:
        OSError: no config.json or policy there.
        TfsacError: the folder of something else, such as a run.

    Example:
        >>> card = tfsac.load_card("card")
        >>> print(card.evaluate(episodes=5).returns)
    """
    folder = pathlib.Path(folder)
    config = read_object(folder / "config.json")
    if FORMAT not in config:
        raise TfsacError(f"{folder} is no model card; `tfsac card` makes one of a run")
    environment = from_json(EnvironmentParameters, json.dumps(config["preset"]["environment"]))
    results = read_object(path) if (path := folder / "results.json").is_file() else {}
    return Card(folder, load_exported(folder / "policy"), environment, results)
