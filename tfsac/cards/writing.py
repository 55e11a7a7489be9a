"""Making a model card of a run, or of runs of one experiment with several seeds."""

from __future__ import annotations

import json
import math
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.api import AFTER_TRAINING
from tfsac.cards.card import FORMAT, Card
from tfsac.environments import episode_seed
from tfsac.environments.vectorize import EVALUATION
from tfsac.errors import TfsacError
from tfsac.experiments.estimates import estimate, mean
from tfsac.experiments.learning_curves import learning_parameters
from tfsac.experiments.plots import plot_curves, plot_run, read_curve
from tfsac.experiments.sweep import runs_of
from tfsac.exporting.exported import load_exported
from tfsac.exporting.loading import load_policy
from tfsac.exporting.saving import export
from tfsac.networks import ModelMaker
from tfsac.training import Evaluation, RunDirectory
from tfsac.utils.files import check_new_folder, differences, new_file, read_object

# Of a run's config, what a stranger needs: no paths of its machine, and no state of its author's code.
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
{seeds}
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
action = act(**inputs)["action"]
```

Ones stand for real observations. A policy with a state has it as inputs, zeros at the start of an episode, and returns
the next state under the same names.

## Limits

* It was evaluated in `{level}` alone. Other dynamics, noise, delays and real machines were not tested.
* Nobody but its author has verified the returns.
* The interval of episodes does not tell how much trainings with other seeds differ.
"""
SEEDS = """
The same experiment was trained with {number} seeds. Over seeds the mean return in these episodes is **{interval}**,
which is what to expect of another training. The exported policy is that of seed {exported_seed}. It has the highest
mean in other episodes, which chose it.
"""


class MadeCard(NamedTuple):
    """What `write_card` made: the folder, its results.json, and why optional files could not be made, by name."""

    path: pathlib.Path
    results: dict[str, Any]
    left_out: dict[str, str]


def write_card(
    run_dirs: str | pathlib.Path | Sequence[str | pathlib.Path],
    out: str | pathlib.Path,
    episodes: int = 20,
    seed: int = 0,
    license: str | None = None,
    env_fn: Callable[[], gym.Env] | None = None,
    models: ModelMaker | None = None,
) -> MadeCard:
    """Writes a model card: the exported best policy with its returns, learning curve, video and a page for strangers.

    Args:
        run_dirs: of a run, of several runs of one experiment with other seeds, or of a sweep or its combination. Of
            several, the policy with the highest mean return is exported, and evaluated again in other episodes.
        out: a new or empty folder.
        episodes: whose returns are on the card, of every run.
        seed: of the episodes.
        license: identifier for the metadata, such as "apache-2.0"; None leaves the line out.
        env_fn, models: the functions that the runs were trained with, if they were.

    Raises:
        OSError: there is something at `out`, or it cannot be written, or there is no run; nothing is left there then.
        TfsacError: runs of different experiments, or of the same seed.

    Example:
        >>> tfsac.write_card(["runs/seed1", "runs/seed2"], "card", license="apache-2.0")
    """
    out = pathlib.Path(out)
    check_new_folder(out)
    paths = check_runs([run_dirs] if isinstance(run_dirs, str | os.PathLike) else run_dirs)
    new_file(out, replace=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        cards, runs = {}, list[dict[str, Any]]()
        for run_seed, path in paths.items():
            exported = load_exported(export(load_policy(path, env_fn, models), pathlib.Path(temporary, f"{run_seed}")))
            cards[run_seed] = card = Card(path, exported, RunDirectory(path).read()[0].environment, {})
            evaluation = card.evaluate(episodes, seed=seed, env_fn=env_fn)
            runs.append(_run_results(path, run_seed, evaluation))
            if len(paths) > 1:  # one is chosen in other episodes, so that the choice does not flatter its returns
                choice = card.evaluate(episodes, seed=seed + 1, env_fn=env_fn)
                runs[-1]["choice_mean"] = float(choice.returns.mean())
        best = max(runs, key=lambda run: run.get("choice_mean", 0.0))
        card = cards[best["seed"]]
        level, number = card.environment.name, len(runs)
        results = {
            "level": level,
            "episode_seeds": [episode_seed(seed, EVALUATION, AFTER_TRAINING, i) for i in range(episodes)],
            **best,
            "seed": seed,
            "exported_seed": best["seed"],
            "runs": runs,
        }
        if number > 1:
            results["seeds"] = _statistics([run["mean"] for run in runs])
        folder, left_out = pathlib.Path(temporary, "card"), {}
        folder.mkdir()
        card.policy.path.rename(folder / "policy")
        if number == 1:
            plot_run(card.path, folder / "curve.png", f"{level}, seed {best['seed']}")
        else:
            plot_curves({level: list(paths.values())}, folder / "curve.png", f"{level}, {number} seeds")
        try:
            card.evaluate(1, seed=seed, dump_mp4=folder / "replay.mp4", env_fn=env_fn)
        except (OSError, RuntimeError, ValueError) as error:  # it cannot be drawn
            left_out["replay.mp4"] = str(error)
        config = read_object(card.path / "config.json")
        shared_config = {FORMAT: 1, **{name: config[name] for name in CONFIG_ENTRIES if name in config}}
        for name, content in (("config.json", shared_config), ("results.json", results)):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        page = _page(config, results, license, card.environment.by_env_fn, not left_out)
        (folder / "README.md").write_text(page, encoding="utf-8")
        if out.exists():
            out.rmdir()
        folder.rename(out)
    return MadeCard(out, results, left_out)


def check_runs(run_dirs: Sequence[str | pathlib.Path]) -> dict[int, pathlib.Path]:
    """Returns the folders of runs of one experiment by seed; a folder of several stands for its finished runs."""
    runs: dict[int, pathlib.Path] = {}
    first: dict[str, Any] = {}
    for path in [path for run_dir in run_dirs for path in runs_of(pathlib.Path(run_dir))]:
        experiment, seed = learning_parameters(path), RunDirectory(path).read()[1].seed
        if different := differences(first or experiment, experiment):
            raise TfsacError(f"runs of a card must differ in their seed alone, {path} differs in {different[0][0]}")
        if seed in runs:
            raise TfsacError(f"runs of a card must differ in their seed, got {seed} twice: {runs[seed]} and {path}")
        runs[seed], first = path, experiment
    if not runs:
        raise TfsacError("a card needs a run, got none")
    return dict(sorted(runs.items()))


def _run_results(path: pathlib.Path, seed: int, evaluation: Evaluation) -> dict[str, Any]:
    """Returns how long a run trained, its best evaluation, and its returns in the card's episodes."""
    steps, returns = read_curve(path)
    return {
        "seed": seed,
        "env_steps": int(steps[-1]),
        "best_at": int(steps[returns.argmax()]),
        "lengths": evaluation.lengths.tolist(),
        **_statistics(evaluation.returns),
    }


def _statistics(returns: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Returns mean, deviation and the 95 % bootstrap interval of the mean, which a single return does not have."""
    interval = estimate(mean, [np.asarray(returns)])
    return {
        "returns": list(map(float, returns)),
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
        "interval_95": None if math.isnan(interval.low) else [float(interval.low), float(interval.high)],
    }


def _page(
    config: Mapping[str, Any], results: Mapping[str, Any], license: str | None, by_env_fn: bool, video: bool
) -> str:
    """Returns the README.md of a card, of the run's config and the content of results.json."""
    kind = config["preset"]["agent"]["kind"].rpartition(".")[2]
    agent = kind.replace("_", " ").replace("actor critic", "actor-critic")
    seeds = ""
    if "seeds" in results:
        seeds = SEEDS.format(number=len(results["runs"]), interval=_interval(results["seeds"]), **results)
    return PAGE.format(
        license_line=f"license: {json.dumps(license)}\n" if license else "",
        level_json=json.dumps(results["level"]),
        name_json=json.dumps(f"{agent} on {results['level']}"),
        tag=json.dumps(agent.replace(" ", "-")),
        agent=agent[:1].upper() + agent[1:],
        version=config["versions"].get("tfsac", ""),
        episodes=len(results["returns"]),
        interval=_interval(results),
        video="\n[A video of the first episode](replay.mp4)\n" if video else "",
        env_fn=", env_fn=env_fn" if by_env_fn else "",
        **{**results, "seeds": seeds},
    )


def _interval(statistics: Mapping[str, Any]) -> str:
    return str(estimate(mean, [np.array(statistics["returns"])]))
