"""The page of a model card: metadata as a Hugging Face model repository has it, and what a stranger needs to know."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from tfsac.cards.card_files import CONFIG, CURVE, FILM, LITE, POLICY, RESULTS
from tfsac.catalog import load_preset, preset_names
from tfsac.exported import Exported
from tfsac.files import differences
from tfsac.parameters import EnvironmentParameters, ParameterError, Preset, for_level, to_json

NOT_TRAINING = ("levels", "validation")  # parts of a preset that do not change what is learned
MOST_CHANGES = 25  # of a preset that the page lists; with more it is another experiment


def page_of(
    preset: Preset,
    config: Mapping[str, Any],
    results: Mapping[str, Any],
    license: str | None,
    files: Collection[str],
    policy: Exported,
) -> str:
    """Returns the content of a card's README.md.

    Args:
        preset: of the run.
        config: content of config.json.
        results: content of results.json.
        license: identifier for the metadata, or None.
        files: that are in the folder.
        policy: the exported one, whose inputs the examples name.
    """
    agent = preset.agent.kind.rpartition(".")[2].replace("_", " ").replace("actor critic", "actor-critic")
    level = results["level"]
    parts = [
        _metadata(agent, results, license),
        f"# {agent[:1].upper()}{agent[1:]} on {level}\n\nA policy for `{level}`, trained with tfsac "
        f"{config['versions'].get('tfsac', '')} and exported as a TensorFlow SavedModel.",
        "## Returns\n\n" + "\n\n".join(_returns(results)),
        f"![Learning curve]({CURVE})",
        *([f"[A film of the first episode]({FILM})"] if FILM in files else []),
        "## Training\n\n" + _training(preset, config, results, agent),
        "## Use with tfsac\n\n" + _with_tfsac(_function("env_fn", preset, config)),
        *([needed] if (needed := module_needed(preset.environment)) else []),
        "## Use without tfsac\n\n" + _without_tfsac(policy, LITE in files),
        "## Files\n\n" + _files(files),
        "## Limits\n\n" + _limits(preset, config, results),
        *([f"## License\n\n{license}"] if license else []),
    ]
    return "\n\n".join(parts) + "\n"


def nearest_preset(preset: Preset) -> tuple[str, list[tuple[str, Any, Any]]]:
    """Returns the name of the preset of tfsac that a preset differs least from, and the differences: dotted path,
    value there, value here; an empty name where it is like none.
    """
    ours = _trained(preset)
    found: list[tuple[str, list[tuple[str, Any, Any]]]] = []
    for name in preset_names():
        theirs = load_preset(name)
        if theirs.agent.kind == preset.agent.kind:
            try:
                theirs = for_level(theirs, preset.environment.level)
            except ParameterError:  # what its table says of the level needs another preset
                continue
            found.append((name, differences(_trained(theirs), ours)))
    name, changes = min(found, key=lambda entry: len(entry[1]), default=("", []))
    return (name, changes) if len(changes) <= MOST_CHANGES else ("", [])


def _trained(preset: Preset) -> dict[str, Any]:
    return {name: part for name, part in to_json(preset).items() if name not in NOT_TRAINING}


def _metadata(agent: str, results: Mapping[str, Any], license: str | None) -> str:
    """Returns the YAML head; texts are written as JSON, which YAML reads."""
    level = json.dumps(results["level"])
    names = [results["level"], "reinforcement-learning", "deep-reinforcement-learning", agent.replace(" ", "-")]
    names += ["soft-actor-critic"] if agent.endswith(" soft actor-critic") else []
    lines = ["---", "library_name: tfsac", "pipeline_tag: reinforcement-learning"]
    lines += [f"license: {json.dumps(license)}"] if license else []
    lines += ["tags:", *(f"- {json.dumps(name)}" for name in [*names, "tensorflow"])]
    lines += ["model-index:", f"- name: {json.dumps(f'{agent} on ' + results['level'])}", "  results:"]
    lines += ["  - task:", "      type: reinforcement-learning", "      name: reinforcement-learning"]
    lines += ["    dataset:", f"      type: {level}", f"      name: {level}", "    metrics:"]
    value = json.dumps(f"{results['mean']:.2f} +/- {results['std']:.2f}")
    lines += ["    - type: mean_reward", f"      value: {value}", "      name: mean_reward", "      verified: false"]
    return "\n".join([*lines, "---"])


def _told(results: Mapping[str, Any]) -> str:
    interval = results["interval_95"]
    return f"{results['mean']:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def _returns(results: Mapping[str, Any]) -> list[str]:
    lengths, episodes, runs = results["lengths"], len(results["returns"]), results["runs"]
    steps = " to ".join(map(str, sorted({min(lengths), max(lengths)})))
    parts = [
        f"Mean return of {episodes} episodes, deterministic actions: **{_told(results)}**, standard deviation "
        f"{results['std']:.2f}, from {min(results['returns']):.2f} to {max(results['returns']):.2f}. In brackets: "
        f"the 95 % bootstrap interval of the mean. Episodes last {steps} steps. Rewards are the environment's, "
        f"not discounted. `{RESULTS}` has each return with the seed of its episode."
    ]
    if len(runs) > 1:
        parts.append(
            f"The same experiment was trained with {len(runs)} seeds. Over seeds the mean return in these episodes is "
            f"**{_told(results['seeds'])}**, which is what to expect of another training. The line above is of the "
            f"exported policy, that of seed {results['exported_seed']}. It has the highest mean in {episodes} other "
            "episodes, which chose it."
        )
        rows = [
            "| seed | mean return [interval over episodes] | mean that chose | environment steps |",
            "|---|---|---|---|",
        ]
        rows += [f"| {run['seed']} | {_told(run)} | {run['choice_mean']:.2f} | {run['env_steps']} |" for run in runs]
        parts.append("\n".join(rows))
    return parts


def _training(preset: Preset, config: Mapping[str, Any], results: Mapping[str, Any], agent: str) -> str:
    run = next(run for run in results["runs"] if run["seed"] == results["exported_seed"])
    name, changes = nearest_preset(preset)
    environment = preset.environment
    made_by = f", made by the Python function `{config.get('env_fn')}`" if environment.by_env_fn else ""
    rows = [
        ("environment", f"`{environment.name}`{made_by}"),
        ("arguments of the environment", f"`{json.dumps(environment.kwargs)}`" if environment.kwargs else ""),
        ("time limit", f"{environment.max_episode_steps} steps" if environment.max_episode_steps else ""),
        ("algorithm", agent),
        ("preset of tfsac", f"`{name}`" if name else f"none; `{CONFIG}` has all parameters"),
        ("seed" if len(results["runs"]) == 1 else "seeds", ", ".join(str(run["seed"]) for run in results["runs"])),
        ("environment steps", f"{run['env_steps']}, exported: the best evaluation, after {run['best_at']}"),
        ("updates", str(run["updates"])),
        ("wall clock", f"{run['wall_seconds']:.0f} seconds"),
        (
            "versions",
            ", ".join(f"{name} {version}" for name, version in list(config["versions"].items())[:5])
            + f"; all others in `{CONFIG}`",
        ),
    ]
    lines = ["| | |", "|---|---|", *(f"| {label} | {text} |" for label, text in rows if text)]
    if changes:
        lines += ["", "Changes of the preset:", "", "| parameter | preset | here |", "|---|---|---|"]
        lines += [f"| `{path}` | {_cell(theirs)} | {_cell(ours)} |" for path, theirs, ours in changes]
    given = [f"{name}={made}" for name in ("env_fn", "models") if (made := _function(name, preset, config))]
    command = f"tfsac train --preset={CONFIG} --run_dir=RUN"
    if given:  # no command line has functions
        command = f'tfsac.train("{CONFIG}", "RUN", {", ".join(given)})'
    lines += ["", "To train it again:", "", "```" + "python" * bool(given), command, "```"]
    return "\n".join(lines)


def _function(name: str, preset: Preset, config: Mapping[str, Any]) -> str:
    """Returns the Python function that made a run's environment ("env_fn") or networks ("models"), or an empty text."""
    if not config.get(name) or (name == "env_fn" and not preset.environment.by_env_fn):
        return ""
    made_by = str(config[name]).rpartition(".")[2]
    return made_by if made_by.isidentifier() else "..."  # a lambda


def _cell(value: Any) -> str:
    return "`" + json.dumps(value).replace("|", "\\|") + "`"


PLAYED = """```
tfsac load --card=.
```

plays the same episodes and prints their returns beside those of this card.

"""
WITH_TFSAC = """```python
import tfsac

card = tfsac.load_card(".")
evaluation = card.evaluate(episodes=1{})
print(evaluation.returns)
```

`card.act(observation)` chooses an action in a loop of your own; call `card.reset()` where an episode starts."""


def _with_tfsac(env_fn: str) -> str:
    """Returns examples, of a level as one types them, and with the Python function that made an environment."""
    return WITH_TFSAC.format(f", env_fn={env_fn}") if env_fn else PLAYED + WITH_TFSAC.format("")


def module_needed(environment: EnvironmentParameters) -> str:
    """Returns a sentence about the Python module that registers the level, or an empty text where it names none."""
    before, colon, after = environment.level.partition(":")
    if not colon or environment.by_env_fn:
        return ""
    module = after if before == "pettingzoo" else before
    return (
        f"The environment needs the Python module `{module}`, which this folder does not contain. Install it, or start "
        "Python where it can be imported. `card.act` does without it."
    )


def _without_tfsac(policy: Exported, lite: bool) -> str:
    """Returns examples that name the policy's inputs, with zeros in the place of real observations."""
    inputs, fields = policy.serve.structured_input_signature[1], policy.fields
    given = {}
    for name in sorted(inputs.keys() - fields):
        shape = [1, *(2 if size is None else size for size in inputs[name].shape[1:])]
        maker = "ones" if inputs[name].dtype.is_bool else "zeros"  # a mask needs a valid action
        given[name] = f"np.{maker}({tuple(shape)}, np.{inputs[name].dtype.name.replace('bool', 'bool_')})"
    several = "An input has a row for each environment. One call computes the actions of all rows."
    lines = [
        "```python",
        "import numpy as np",
        "import tensorflow as tf",
        "",
        f'model = tf.saved_model.load("{POLICY}")',
    ]
    lines += ['act = model.signatures["serving_default"]']
    # In a dict, because a key of the observation may be called `act` or `state`.
    tensors = [f'"{name}": tf.constant({value})' for name, value in given.items()]
    lines += [f"inputs = {{{', '.join(tensors)}}}"]
    if fields:
        lines += ['state = model.signatures["initial_state"](rows=tf.constant(1))  # where an episode starts']
        lines += ["state = act(**inputs, **state)", 'action = state.pop("action")']
    else:
        lines += ['action = act(**inputs)["action"]']
    lines += ["print(action.numpy())", "```", "", several]
    if lite and not fields:
        lines += ["", "With LiteRT (`pip install ai-edge-litert`):", "", "```python", "import numpy as np"]
        lines += ["from ai_edge_litert.interpreter import Interpreter", ""]
        lines += [f'act = Interpreter("{LITE}").get_signature_runner("serving_default")']
        arrays = [f'"{name}": {value}' for name, value in given.items()]
        lines += [f"inputs = {{{', '.join(arrays)}}}"]
        lines += ["print(act(**inputs)['action'])", "```"]
    return "\n".join(lines)


def _files(files: Collection[str]) -> str:
    about = {
        POLICY: "the SavedModel: raw observations in, the environment's own actions out",
        LITE: "the same policy for LiteRT",
        CONFIG: "all parameters, the command, versions, and checksums of the policy's files",
        RESULTS: "the return, length and seed of every episode, and the machine that played them",
        CURVE: "the learning curve",
        FILM: "the first episode",
    }
    return "\n".join(
        ["| file | holds |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in about.items() if name in files)]
    )


def _limits(preset: Preset, config: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    episodes, runs = len(results["returns"]), len(results["runs"])
    lines = [
        f"It was evaluated in {episodes} episodes of `{results['level']}` alone, with the versions in `{RESULTS}`. "
        "Other versions, other dynamics, noise, delays and real machines were not tested.",
        "Nobody but its author has verified the returns.",
        "The weights are those of the best evaluation while it trained, not of the last one.",
        f"The interval of {episodes} episodes does not tell how much trainings with other seeds differ."
        if runs == 1
        else f"{runs} seeds are few: their interval is rough.",
    ]
    lines += ["Only one seed was trained for this card."] if runs == 1 else []
    if config.get("initial_weights") or any(
        "checkpoint_restore_dir" in str(word) for word in config.get("command", ())
    ):
        lines.append("The training began with the weights of another run.")
    return "\n".join(f"* {line}" for line in lines)
