"""A model card's folder as its user loads it: the policy acts, and plays episodes."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from tfsac import argument_checks
from tfsac.api import AFTER_TRAINING, DrawingError
from tfsac.cards.card_files import CONFIG, check_card, read_results
from tfsac.environments import episode_seed, maker, spec_of
from tfsac.environments.vectorize import EARLIER_SEEDS_BELOW, EVALUATION, SEEDS_BELOW
from tfsac.environments.video import write_video
from tfsac.exported import Exported, load_exported
from tfsac.files import new_file
from tfsac.parameters import EnvironmentEpisodes, EnvironmentParameters, from_json
from tfsac.training import Evaluation, RunDirectory, evaluate
from tfsac.training.recorded_functions import refuse_other_spaces, spec_in
from tfsac.types import Spec, input_name
from tfsac.user_code import described


class Card:
    """A model card: an exported policy, its environment and its returns. `tfsac.load_card` returns one.

    Args:
        path: of the folder.
        policy: the exported policy.
        environment: parameters of the environment in which it was trained.
        spec: of observations and actions.
        results: content of results.json; empty without it.

    Example:
        >>> card = tfsac.load_card("card")
        >>> card.reset()
        >>> action = card.act(observation)
    """

    def __init__(
        self,
        path: pathlib.Path,
        policy: Exported,
        environment: EnvironmentParameters,
        spec: Spec,
        results: Mapping[str, Any],
    ):
        self.path, self.policy, self.environment, self.spec, self.results = path, policy, environment, spec, results

    def reset(self) -> None:
        """Sets the policy's state to the initial one: an episode starts, in all environments."""
        self.policy.reset()

    def act(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """Chooses an action.

        Args:
            observation: as `tfsac.load_policy`'s `act` takes it.
            deterministic: the mode of the policy instead of a sample, which takes the SavedModel.

        Returns:
            an action as `tfsac.load_policy`'s `act` returns it.

        Raises:
            TypeError: deterministic is no flag.
            ValueError: an observation that `tfsac.load_policy`'s `act` refuses; a sample of a LiteRT file; another
                number of environments than in the call before where the policy has a state.
        """
        return self.policy(observation, deterministic)

    def evaluate(
        self,
        episodes: int | None = None,
        deterministic: bool = True,
        seed: int | None = None,
        render: Literal["", "human"] = "",
        dump_mp4: str | pathlib.Path | None = None,
        env_fn: Callable[[], gym.Env] | None = None,
        each_step: Callable[..., None] | None = None,
    ) -> Evaluation:
        """Plays episodes of the card's environment.

        Args:
            episodes: how many; None for as many as the card tells the returns of, or 10.
            deterministic: the policy's mode instead of samples.
            seed: of the episodes; None for that of the card, so that they are the card's own.
            render: "human" to open a window.
            dump_mp4: a new .mp4 or .gif file for a film of the episodes.
            env_fn: makes the environment, of a policy that was trained with a function; it then draws by itself.
            each_step: called after every step with (observation, action, reward, terminated, truncated,
                next_observation).

        Returns:
            returns and lengths of the episodes.

        Raises:
            TypeError, ValueError: arguments that cannot be used, or an environment that is not the card's.
            ImportError: the environment's package, or that of films, is missing.
            EnvironmentFailure: the environment raised.
            DrawingError: the film failed; it has the evaluation.
        """
        told = len(self.results.get("returns", ())) or 10
        episodes = argument_checks.whole("episodes", told if episodes is None else episodes, 1)
        seed = argument_checks.whole("seed", self.results.get("seed", 0) if seed is None else seed, 0)
        argument_checks.flag("deterministic", deterministic)
        film = None if dump_mp4 is None else new_file(argument_checks.path("dump_mp4", dump_mp4), ".mp4", ".gif")
        if self.environment.by_env_fn and env_fn is None:
            raise ValueError(
                f"A Python function made the environment {self.environment.name} of this policy, and no file holds it: "
                f"give one to Card.evaluate(env_fn=...). Received: no env_fn for {self.path}"
            )
        parameters = self.environment
        if render:
            parameters = dataclasses.replace(parameters, kwargs={**parameters.kwargs, "render_mode": render})
        actions: list[np.ndarray] = []

        def step(observation: Any, action: Any, *others: Any) -> None:
            actions.append(action)
            if each_step is not None:
                each_step(observation, action, *others)

        try:
            env = maker(parameters, env_fn, to_play=True)()
        except ImportError as error:
            raise ImportError(f"A card has no code of its environment; `act` works without it. {error}") from error
        try:
            if (self.path / CONFIG).is_file():
                read = [key for key in self.spec.observation if input_name(key) in self.policy.reads]
                refuse_other_spaces(RunDirectory(self.path), spec_of(env), read)
            act = lambda observation: self.act(observation, deterministic)  # noqa: E731
            largest = max(self.results.get("episode_seeds", ()), default=0)  # those of earlier versions were larger
            below = SEEDS_BELOW if largest < SEEDS_BELOW else EARLIER_SEEDS_BELOW
            done = evaluate(act, env, EnvironmentEpisodes(episodes), seed, AFTER_TRAINING, step, self.reset, below)
        finally:
            env.close()
        if film:
            seeds = [episode_seed(seed, EVALUATION, AFTER_TRAINING, i, below=below) for i in range(episodes)]
            by_episode = np.split(np.array(actions), np.cumsum(done.lengths)[:-1])
            try:
                write_video(self.environment, seeds, by_episode, film, env_fn, done.returns.tolist())
            except (OSError, ImportError, ValueError, RuntimeError) as error:
                raise DrawingError.of(done, error) from error
        return done


def load_card(folder: str | pathlib.Path) -> Card:
    """Loads a model card's folder; see docs/model_cards.md. Load only cards of people whom you trust.

    Args:
        folder: what `tfsac card` wrote, also without its page, pictures, results and one of its two policies.

    Returns:
        the card, whose `act` is that of the exported policy.

    Raises:
        FileNotFoundError: no card there, or no policy in it.
        ValueError: config, results or policy are damaged.
        ImportError: there is only the LiteRT file, and no package that runs it.

    Example:
        >>> card = tfsac.load_card("card")
        >>> print(card.evaluate(episodes=5).returns)
    """
    folder = argument_checks.path("folder", folder)
    path, config = check_card(folder)
    results = read_results(folder)
    try:
        environment = from_json(EnvironmentParameters, json.dumps(config["preset"]["environment"]))
        spec = spec_in(config["spaces"])
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / CONFIG} is damaged, or of another version of tfsac; download it again. "
            f"Received: {described(error)}"
        ) from error
    return Card(folder, load_exported(path), environment, spec, results)
