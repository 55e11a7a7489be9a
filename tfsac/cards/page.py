"""The page of a model card: metadata as a Hugging Face model repository has it, and what a stranger needs to know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfsac.cards.card import Card
from tfsac.exporting.exported import Exported

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

Mean return of {episodes} episodes with deterministic actions: **{told}**, standard deviation {std:.2f}. In brackets is
the 95 % bootstrap interval of the mean. Rewards are the environment's, not discounted. `results.json` has every return
with the seed of its episode.
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
{call}
print(action.numpy())
```

An input has a row for each environment.

## Limits

* It was evaluated in `{level}` alone. Other dynamics, noise, delays and real machines were not tested.
* Nobody but its author has verified the returns.
* The interval of episodes does not tell how much trainings with other seeds differ.
"""


def page_of(config: Mapping[str, Any], results: Mapping[str, Any], license: str | None, card: Card, video: bool) -> str:
    """Returns the content of the README.md of a run's card, from its config and the content of results.json."""
    kind = config["preset"]["agent"]["kind"]
    agent = kind.rpartition(".")[2].replace("_", " ").replace("actor critic", "actor-critic")
    exported = next(run for run in results["runs"] if run["seed"] == results["exported_seed"])
    return PAGE.format(
        license_line=f"license: {json.dumps(license)}\n" if license else "",
        level=results["level"],
        level_json=json.dumps(results["level"]),
        name_json=json.dumps(f"{agent} on {results['level']}"),
        tag=json.dumps(agent.replace(" ", "-")),
        agent=agent[:1].upper() + agent[1:],
        version=config["versions"].get("tfsac", ""),
        env_steps=exported["env_steps"],
        best_at=exported["best_at"],
        episodes=len(results["returns"]),
        mean=results["mean"],
        std=results["std"],
        told=_interval(results),
        seeds=_seeds(results),
        video="\n[A video of the first episode](replay.mp4)\n" if video else "",
        env_fn=", env_fn=env_fn" if card.environment.by_env_fn else "",
        call=_call(card.policy),
    )


def _interval(results: Mapping[str, Any]) -> str:
    interval = results["interval_95"]
    return f"{results['mean']:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def _seeds(results: Mapping[str, Any]) -> str:
    """Returns what several runs reached, and which of them was exported."""
    if len(results["runs"]) == 1:
        return ""
    return f"""
The same experiment was trained with {len(results["runs"])} seeds. Over seeds the mean return in these episodes is
**{_interval(results["seeds"])}**, which is what to expect of another training. The exported policy is that of seed
{results["exported_seed"]}. It has the highest mean in other episodes, which chose it.
"""


def _call(policy: Exported) -> str:
    """Returns a call of the policy with zeros in the place of real observations."""
    tensors = []
    for name, (shape, dtype) in sorted(policy.reads.items()):
        sizes = [1, *(2 if size in (None, -1) else size for size in shape)]
        maker = "ones" if dtype == np.bool_ else "zeros"  # a mask needs a valid action
        tensors.append(f'"{name}": tf.{maker}({sizes}, tf.{dtype.name})')
    inputs = f"inputs = {{{', '.join(tensors)}}}"
    if not policy.fields:
        return f'{inputs}\naction = act(**inputs)["action"]'
    return f"""{inputs}
state = policy.signatures["initial_state"](rows=tf.constant(1))  # at the start of an episode
state = act(**inputs, **state)
action = state.pop("action")"""
