"""Model cards: a folder to share, with an exported policy, its returns and a page about it; docs/exports.md.

README.md       the page; its front matter is the metadata of a Hugging Face model repository
config.json     the preset, run parameters, versions and spaces
results.json    returns of every episode
policy/         the SavedModel
curve.png       the learning curve
replay.mp4      the first episode, if the environment can be rendered
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium as gym

from tfsac.api import AFTER_TRAINING, play
from tfsac.environments import EnvFn, spec_of
from tfsac.errors import TfsacError
from tfsac.experiments.bootstrap import estimate, mean
from tfsac.experiments.plots import plot_run, trained_evaluations
from tfsac.exporting.exported import Exported, load_exported
from tfsac.exporting.loading import load_policy
from tfsac.exporting.saving import export
from tfsac.networks import ModelMaker
from tfsac.parameters import EnvironmentEpisodes, EnvironmentParameters, from_json
from tfsac.random_streams import EVALUATION, episode_seed
from tfsac.training import Evaluation, RunDirectory, evaluate
from tfsac.types import HybridSpec, input_name
from tfsac.utils.files import check_new_folder, new_file, read_object

FORMAT = "card"  # the key in config.json that identifies a card
# Entries of a run's config that are shared: no paths of the machine, and no git state of the author's code.
CONFIG_ENTRIES = ("preset", "run", "env_fn", "models", "spaces", "command", "versions")
PAGE = """---
library_name: tfsac
pipeline_tag: reinforcement-learning
{license_line}tags:
- {level_json}
- reinforcement-learning
- deep-reinforcement-learning
- {tag}
- tensorflow
model-index:
- name: {name_json}
  results:
  - task:
      type: reinforcement-learning
      name: reinforcement-learning
    dataset:
      type: {level_json}
      name: {level_json}
    metrics:
    - type: mean_reward
      value: "{mean:.2f} +/- {std:.2f}"
      name: mean_reward
      verified: false
---
# {agent} on {level}

A policy for `{level}`, trained with tfsac {version} and exported as a TensorFlow SavedModel. It was trained for
{env_steps} environment steps; its weights are those of the best evaluation, after {best_at} steps. `config.json` has
all parameters.

## Returns

Mean return of {episodes} episodes with deterministic actions: **{interval}**, standard deviation {std:.2f}. In brackets
is the 95 % bootstrap interval of the mean. Rewards are the environment's, not discounted. `results.json` has every
return with the seed of its episode.

![Learning curve](curve.png)
{video}
## Use with tfsac

```python
import tfsac

card = tfsac.load_card(".")
print(card.evaluate(episodes=1{env_fn}).returns)
```

`card.act(observation)` chooses an action; call `card.reset()` at the start of an episode. The environment comes from
its own package, which this folder does not contain.

## Use without tfsac

```python
import tensorflow as tf

policy = tf.saved_model.load("policy")
act = policy.signatures["serving_default"]
specs = act.structured_input_signature[1]  # shape and dtype of each input, with a first axis for environments
inputs = {{name: tf.ones([size or 1 for size in spec.shape], spec.dtype) for name, spec in specs.items()}}
{act}
```

Ones stand for real observations. A policy with a state has it as inputs, and returns the next state under the same
names; the signature `initial_state` returns that of the start of an episode.

## Limits

* The policy was evaluated only in `{level}`. Other dynamics, noise, delays and real machines were not tested.
* Only the author has verified the returns.
* The interval covers episodes of one trained policy; it does not show the variation between training seeds.
"""


@dataclasses.dataclass
class Card:
    """A model card: an exported policy, its environment and its returns. `tfsac.load_card` returns one.

    Attributes:
        path: path of the folder.
        policy: the exported policy.
        environment: parameters of the training environment.
        results: content of results.json; empty if it is missing.

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
        """Resets the policy's state at the start of an episode in all environments."""
        self.policy.reset()

    def observe(self, reward: Any) -> None:
        """Passes the reward of the last action to the policy; most policies ignore it."""
        self.policy.observe(reward)

    def act(self, observation: Any, deterministic: bool = True) -> Any:
        """Returns an action, the policy's mode or a sample, like `act` of `tfsac.load_policy`."""
        action = self.policy(observation, deterministic)
        nested = isinstance(action, dict) and isinstance(self._actions, HybridSpec)
        return self._actions.structured(action) if nested else action

    @functools.cached_property
    def _actions(self) -> Any:
        spec = RunDirectory(self.path).spec()
        return spec and spec.action

    def evaluate(
        self,
        episodes: int | None = None,
        deterministic: bool = True,
        seed: int | None = None,
        render: Literal["", "human"] = "",
        dump_mp4: str | pathlib.Path | None = None,
        env_fn: EnvFn | None = None,
    ) -> Evaluation:
        """Plays episodes in the card's environment.

        Args:
            episodes: number of episodes; None for the number of returns in the card, or 10.
            deterministic, render, dump_mp4: see `tfsac.evaluate`.
            seed: seed of the episodes; None for the card's seed, which repeats the card's episodes.
            env_fn: creates the environment, for a policy that was trained with a function; it must handle rendering.

        Raises:
            TfsacError: `env_fn` is missing, or the environment's spaces differ from the policy's.
        """
        if self.environment.by_env_fn and env_fn is None:
            raise TfsacError(f"a Python function creates the environment {self.environment.name}; pass it as env_fn")
        number = EnvironmentEpisodes(episodes or len(self.results.get("returns", ())) or 10)
        seed = self.results.get("seed", 0) if seed is None else seed

        def run_in(env: gym.Env, each_step: Callable[..., None]) -> Evaluation:
            spec = spec_of(env)
            keys = [key for key in spec.observation if input_name(key) in self.policy.reads]
            RunDirectory(self.path).check_spaces(spec, keys)
            act = functools.partial(self.act, deterministic=deterministic)
            return evaluate(act, env, number, seed, AFTER_TRAINING, each_step, self.reset, observe=self.policy.observe)

        return play(self.environment, run_in, seed, render, dump_mp4, env_fn=env_fn)


def load_card(folder: str | pathlib.Path) -> Card:
    """Loads a model card's folder. Load only cards from people you trust; see docs/exports.md.

    Args:
        folder: a folder from `tfsac card`; the page, plots and results are optional.

    Raises:
        OSError: config.json or the policy is missing.
        TfsacError: the folder is not a card but, for example, a run.

    Example:
        >>> card = tfsac.load_card("card")
        >>> print(card.evaluate(episodes=5).returns)
    """
    folder = pathlib.Path(folder)
    config = read_object(folder / "config.json")
    if FORMAT not in config:
        raise TfsacError(f"{folder} has no model card; `tfsac card` creates one from a run")
    environment = from_json(EnvironmentParameters, json.dumps(config["preset"]["environment"]))
    results = read_object(path) if (path := folder / "results.json").is_file() else {}
    return Card(folder, load_exported(folder / "policy"), environment, results)


def write_card(
    run_dir: str | pathlib.Path,
    out: str | pathlib.Path,
    episodes: int = 20,
    seed: int = 0,
    license: str | None = None,
    env_fn: EnvFn | None = None,
    models: ModelMaker | None = None,
) -> Card:
    """Writes a model card: the exported best policy with its returns, learning curve, video and a page to publish.

    Args:
        run_dir: folder of the run.
        out: a new or empty folder.
        episodes: number of episodes whose returns are on the card.
        seed: seed of the episodes.
        license: identifier for the metadata, such as "apache-2.0"; None omits the line.
        env_fn, models: the functions that the run was trained with, if any.

    Raises:
        OSError: `out` exists or cannot be written, or there is no run; no partial card is left behind.

    Example:
        >>> card = tfsac.write_card("runs/pendulum", "card", license="apache-2.0")
    """
    run, out = RunDirectory(run_dir), pathlib.Path(out)
    check_new_folder(out)
    environment, config = run.read()[0].environment, read_object(run.config)
    steps, evaluations = trained_evaluations(run.path)
    new_file(out, replace=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        folder = pathlib.Path(temporary, "card")
        folder.mkdir()
        entries = {FORMAT: 1, **{name: config[name] for name in CONFIG_ENTRIES if name in config}}
        (folder / "config.json").write_text(json.dumps(entries, indent=2), encoding="utf-8")
        exported = load_exported(export(load_policy(run.path, env_fn, models), folder / "policy"))
        card = Card(folder, exported, environment, {"seed": seed})
        evaluation = card.evaluate(episodes, env_fn=env_fn)
        plot_run(run.path, folder / "curve.png", environment.name)
        try:
            card.evaluate(1, dump_mp4=folder / "replay.mp4", env_fn=env_fn)
        except (OSError, RuntimeError, ValueError) as error:  # it cannot be rendered
            warnings.warn(f"the card has no replay.mp4: {error}", stacklevel=2)
        interval = estimate(mean, [evaluation.returns])
        results = {
            "level": environment.name,
            "env_steps": int(steps[-1]),
            "best_at": int(steps[evaluations.argmax()]),
            "seed": seed,
            "episode_seeds": [episode_seed(seed, EVALUATION, AFTER_TRAINING, i) for i in range(episodes)],
            "returns": evaluation.returns.tolist(),
            "lengths": evaluation.lengths.tolist(),
            "mean": float(interval.value),
            "std": float(evaluation.returns.std()),
            "interval_95": None if math.isnan(interval.low) else [float(interval.low), float(interval.high)],
        }
        (folder / "results.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
        kind = config["preset"]["agent"]["kind"].rpartition(".")[2]
        agent = kind.replace("_", " ").replace("actor critic", "actor-critic")
        page = PAGE.format(
            license_line=f"license: {json.dumps(license)}\n" if license else "",
            level_json=json.dumps(environment.name),
            name_json=json.dumps(f"{agent} on {environment.name}"),
            tag=json.dumps(agent.replace(" ", "-")),
            agent=agent[:1].upper() + agent[1:],
            version=config["versions"].get("tfsac", ""),
            episodes=episodes,
            interval=interval,
            video="\n[A video of the first episode](replay.mp4)\n" if (folder / "replay.mp4").is_file() else "",
            env_fn=", env_fn=env_fn" if environment.by_env_fn else "",
            act='action = act(**inputs)["action"]' if exported.actions == {"action"} else "actions = act(**inputs)",
            **results,
        )
        (folder / "README.md").write_text(page, encoding="utf-8")
        if out.exists():
            out.rmdir()
        folder.rename(out)
    return load_card(out)
