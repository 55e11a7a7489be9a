"""Every run parameter is a flag, made from the field's name, type, default and description."""

import dataclasses
import json

import pytest
from absl import flags

from tfsac import cli
from tfsac.catalog import load_preset
from tfsac.cli.command import UsageError, help_of
from tfsac.cli.field_flags import define_fields, given_fields
from tfsac.cli.learning import _experiment, _remarks
from tfsac.cli.parsing import parse
from tfsac.parameters import RunParameters, to_json
from tfsac.parameters.base import descriptions, parameters
from tfsac.spinning_up.sac_arguments import SpinningUpArguments

# What a user types for each field, and what the field is then; fields that exclude each other stand in different lines.
TYPED = [
    ("--seed=7", "seed", 7),
    ("--strategy=one_device", "strategy", "one_device"),
    ("--strategy=mirrored --num_devices=2", "num_devices", 2),
    ("--asynchronous_collection", "asynchronous_collection", True),
    ("--ray_address=auto", "ray_address", "auto"),
    ("--ray_address=auto --num_actors=3", "num_actors", 3),
    ("--ray_address=auto --actor_steps=8", "actor_steps", 8),
    ("--checkpoint_save_steps=50", "checkpoint_save_steps", 50),
    ("--num_checkpoints_to_keep=5", "num_checkpoints_to_keep", 5),
    ("--stop_at_threshold", "stop_at_threshold", True),
    ("--stochastic_evaluation", "stochastic_evaluation", True),
    ("--notensorboard", "tensorboard", False),
    ("--histograms", "histograms", True),
    ("--updates_between_diagnostics=1", "updates_between_diagnostics", 1),
    ("--memory_on_disk", "memory_on_disk", True),
    ("--deterministic", "deterministic", True),
    ("--mixed_precision=bfloat16", "mixed_precision", "bfloat16"),
    ("--eager", "eager", True),
    ("--jit_compile", "jit_compile", True),
]
FIELDS = [field.name for field in dataclasses.fields(RunParameters)]


@pytest.mark.parametrize("line, name, value", TYPED, ids=[name for _, name, _ in TYPED])
def test_a_flag_sets_its_field(line, name, value):
    _, run = _experiment(parse("train", line.split())[0])
    assert getattr(run, name) == value != getattr(RunParameters(), name)


def test_another_strategy_forgets_the_number_of_devices(tmp_path):
    config = {"preset": to_json(load_preset("pendulum_sac")), "run": {"strategy": "mirrored", "num_devices": 2}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    line = [f"--preset={tmp_path}/config.json"]
    assert _experiment(parse("train", line)[0])[1].num_devices == 2
    assert _experiment(parse("train", [*line, "--strategy=none"])[0])[1] == RunParameters()


def test_a_run_leaves_a_cluster_and_its_actors(tmp_path):
    on_ray = {"ray_address": "10.0.0.5:6379", "num_actors": 4, "actor_steps": 8}
    config = {"preset": to_json(load_preset("pendulum_sac")), "run": on_ray}
    (tmp_path / "config.json").write_text(json.dumps(config))
    line = [f"--run_dir={tmp_path}", "--resume"]
    run = _experiment(parse("train", [*line, "--ray_address=auto"])[0])[1]
    assert run == RunParameters(**{**on_ray, "ray_address": "auto"})
    assert _experiment(parse("train", [*line, "--ray_address=none"])[0])[1] == RunParameters()


def test_what_a_config_has_of_its_own_level_and_first_weights_is_told(tmp_path):
    config = {"preset": to_json(load_preset("mujoco_sac", level="Humanoid-v5")), "initial_weights": "runs/first"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "run": {}}))

    def told(*more):
        return list(_remarks(parse("train", [f"--preset={tmp_path}/config.json", *more])[0]))

    weights = told()
    assert [text.partition("To begin with them, too: ")[2] for text in weights] == [
        "--checkpoint_restore_dir=runs/first"
    ]
    scale, level = "environment.filters.reward_rescale_factor", "--level=HalfCheetah-v5"
    kept = f"Kept from Humanoid-v5 in {tmp_path}/config.json: {scale}. --set gives other values."
    assert told(level) == [*weights, kept]
    assert told(level, f"--set={scale}=5.0", "--checkpoint_restore_dir=runs/second") == []
    assert told("--level=Humanoid-v5", "--checkpoint_restore_dir=runs/second") == []


def test_every_field_is_typed_above_or_resumes():
    assert {name for _, name, _ in TYPED} | {"skip_damaged_rows"} == set(FIELDS)


def test_flags_that_are_not_given_leave_every_default():
    assert _experiment(parse("train", [])[0])[1] == RunParameters()


@pytest.mark.parametrize("command, cls", [("train", RunParameters), ("spinup", SpinningUpArguments)])
def test_every_field_is_a_flag_with_its_default_and_its_description(command, cls):
    cli.COMMANDS[command].define(values := flags.FlagValues())
    for field in dataclasses.fields(cls):
        assert values[field.name].default == field.default
        first = descriptions(cls)[field.name].partition(". ")[0]
        assert len(help_of(values[field.name])) >= len(first.rstrip(".")) > 5


def test_the_first_sentence_names_other_flags_as_flags():
    assert "with --ray_address, processes of one CPU core" in help_of(flags_of("train")["num_actors"])
    assert help_of(flags_of("train")["tensorboard"]).endswith("into its folder; --notensorboard turns it off")


def flags_of(name):
    cli.COMMANDS[name].define(values := flags.FlagValues())
    return values


def test_a_sweep_has_the_flags_of_every_run_but_those_of_one():
    assert set(FIELDS) - {*flags_of("sweep")} == {"num_actors", "actor_steps", "skip_damaged_rows"}
    assert "its HOST:PORT" in flags_of("sweep")["ray_address"].help  # of the runs, not of the environments


@pytest.mark.parametrize(
    "argument, words",
    [
        (
            "--num_checkpoints_to_keep=0",
            "--num_checkpoints_to_keep is a positive integer. Received: --num_checkpoints_to_keep=0",
        ),
        ("--seed=-1", "--seed is a non-negative integer. Received: --seed=-1"),
        ("--strategy=miror", "Did you mean 'mirrored'?"),
        ("--eager=maybe", "--eager is true or false"),
    ],
)
def test_a_wrong_value_is_refused_by_the_flag(argument, words):
    with pytest.raises(UsageError) as error:
        parse("train", [argument])
    assert words in str(error.value)


@parameters
class Lists:
    """A class with a field that no flag has.

    Attributes:
        first, second: several
            names. And more.
        third: of another sort.

    Example:
        a: is no attribute.
    """

    first: int = 1
    second: float = 2.0
    third: tuple[int, ...] = ()


def test_attributes_of_a_docstring_are_read_by_name():
    assert descriptions(Lists) == {
        "first": "several names. And more.",
        "second": "several names. And more.",
        "third": "of another sort.",
    }


def test_a_field_of_another_type_is_refused():
    with pytest.raises(TypeError, match="Received: third: tuple"):
        define_fields(flags.FlagValues(), Lists)
    define_fields(values := flags.FlagValues(), Lists, without=("third",))
    assert given_fields(values, Lists) == {} and values["first"].help == "several names"
