"""Every run parameter is a flag, made from the field's name, type, default and description."""

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

# What a user types for a field of each type, and what the field is then.
TYPED = [
    ("--seed=7", "seed", 7),
    ("--strategy=mirrored --num_devices=2", "num_devices", 2),
    ("--ray_address=auto", "ray_address", "auto"),
    ("--notensorboard", "tensorboard", False),
    ("--memory_on_disk", "memory_on_disk", True),
    ("--mixed_precision=bfloat16", "mixed_precision", "bfloat16"),
]


@pytest.mark.parametrize("line, name, value", TYPED, ids=[name for _, name, _ in TYPED])
def test_a_flag_sets_its_field(line, name, value):
    _, run = requested_run(parse("train", line.split())[0])
    assert getattr(run, name) == value != getattr(RunParameters(), name)


def test_another_strategy_forgets_the_number_of_devices(tmp_path):
    config = {"preset": to_json(load_preset("pendulum_sac")), "run": {"strategy": "mirrored", "num_devices": 2}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    line = [f"--preset={tmp_path}/config.json"]
    assert requested_run(parse("train", line)[0])[1].num_devices == 2
    assert requested_run(parse("train", [*line, "--strategy=none"])[0])[1] == RunParameters()


def test_a_run_leaves_a_cluster_and_its_actors(tmp_path):
    on_ray = {"ray_address": "10.0.0.5:6379", "num_actors": 4, "actor_steps": 8}
    config = {"preset": to_json(load_preset("pendulum_sac")), "run": on_ray}
    (tmp_path / "config.json").write_text(json.dumps(config))
    line = [f"--run_dir={tmp_path}", "--resume"]
    run = requested_run(parse("train", [*line, "--ray_address=auto"])[0])[1]
    assert run == RunParameters(**{**on_ray, "ray_address": "auto"})
    assert requested_run(parse("train", [*line, "--ray_address=none"])[0])[1] == RunParameters()


@pytest.mark.parametrize("command, cls", [("train", RunParameters), ("spinup", SpinningUpArguments)])
def test_every_field_is_a_flag_with_its_default_and_its_description(command, cls):
    values = flag_values(cli.COMMANDS[command].defines)
    for field in dataclasses.fields(cls):
        if field.name == "skip_damaged_rows":  # of earlier versions
            continue
        assert values[field.name].default == field.default
        first = descriptions(cls)[field.name].partition(". ")[0]
        assert len(help_of(values[field.name])) >= len(first.rstrip(".")) > 5


def test_without_a_preset_the_actions_of_the_level_choose_one(capsys):
    levels = {"CartPole-v1": "discrete", "Hopper-v5": "continuous", "ALE/Pong-v5": "images"}
    for level, preset in levels.items():
        f, _ = parse("train", [f"--level={level}"])
        assert requested_run(f)[0] == load_preset(preset, level)
        assert run_dir_of(f, level, 0).parent.name == f"{preset}-{level.replace('/', '-')}"
        said = capsys.readouterr()
        assert said.err.count(f"--preset={preset}\n") == 1 and not said.out
    assert requested_run(parse("train", [])[0])[0] == load_preset("pendulum_sac")
