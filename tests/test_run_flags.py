"""Command-line flags of the run parameters."""

import dataclasses
import json

import pytest

from tfsac import cli
from tfsac.cli.command_registry import flag_values, help_of, parse
from tfsac.cli.train import requested_run, run_dir_of
from tfsac.parameters import RunParameters, to_json
from tfsac.parameters.base import descriptions
from tfsac.preset_lookup import load_preset
from tfsac.spinning_up.sac_arguments import SpinningUpArguments

# Flags, a field and its value, for each type of field.
FLAGS = [
    ("--seed=7", "seed", 7),
    ("--strategy=mirrored --num_devices=2", "num_devices", 2),
    ("--ray_address=auto", "ray_address", "auto"),
    ("--notensorboard", "tensorboard", False),
    ("--memory_on_disk", "memory_on_disk", True),
    ("--mixed_precision=bfloat16", "mixed_precision", "bfloat16"),
]


@pytest.mark.parametrize("line, name, value", FLAGS, ids=[name for _, name, _ in FLAGS])
def test_flag_sets_its_field(line, name, value):
    _, run = requested_run(parse("train", line.split())[0])
    assert getattr(run, name) == value != getattr(RunParameters(), name)


ON_RAY = {"ray_address": "10.0.0.5:6379", "num_actors": 4, "actor_steps": 8}


@pytest.mark.parametrize(
    ("old", "flag", "new"),
    [
        ({"strategy": "mirrored", "num_devices": 2}, "--seed=0", {"strategy": "mirrored", "num_devices": 2}),
        ({"strategy": "mirrored", "num_devices": 2}, "--strategy=none", {}),
        (ON_RAY, "--ray_address=auto", {**ON_RAY, "ray_address": "auto"}),
        (ON_RAY, "--ray_address=none", {}),
    ],
)
def test_flag_replaces_run_parameters_of_a_config(tmp_path, old, flag, new):
    config = {"preset": to_json(load_preset("pendulum_sac")), "run": old}
    (tmp_path / "config.json").write_text(json.dumps(config))
    source = [f"--run_dir={tmp_path}", "--resume"] if old is ON_RAY else [f"--preset={tmp_path}/config.json"]
    assert requested_run(parse("train", [*source, flag])[0])[1] == RunParameters(**new)


@pytest.mark.parametrize("command, cls", [("train", RunParameters), ("spinup", SpinningUpArguments)])
def test_every_field_is_a_documented_flag(command, cls):
    values = flag_values(cli.COMMANDS[command].defines)
    for field in dataclasses.fields(cls):
        if field.name == "skip_damaged_rows":  # ignored, from earlier versions
            continue
        assert values[field.name].default == field.default
        first = descriptions(cls)[field.name].partition(". ")[0]
        assert len(help_of(values[field.name])) >= len(first.rstrip(".")) > 5


def test_default_preset_depends_on_the_action_space(capsys):
    levels = {"CartPole-v1": "discrete", "Hopper-v5": "continuous", "ALE/Pong-v5": "images"}
    for level, preset in levels.items():
        f, _ = parse("train", [f"--level={level}"])
        assert requested_run(f)[0] == load_preset(preset, level)
        assert run_dir_of(f, level, 0).parent.name == f"{preset}-{level.replace('/', '-')}"
        output = capsys.readouterr()
        assert output.err.count(f"--preset={preset}\n") == 1 and not output.out
    assert requested_run(parse("train", [])[0])[0] == load_preset("pendulum_sac")
