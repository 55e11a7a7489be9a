"""Pages of the documentation run, and the parameters in the troubleshooting page exist."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tiny
from pages import ROOT, blocks, run_page

from tfsac import check_environment
from tfsac.parameters import ParameterError, RunParameters, override, parse_assignment, to_json
from tfsac.preset_lookup import load_preset

PRESET = "--preset="


def tiny_presets(folder, *names):
    """Writes tiny versions of presets to a folder, and returns replacements of their names or `--preset=NAME`."""
    for name in (text.removeprefix(PRESET) for text in names):
        fitting = {path: value for path, value in tiny.SHORTER.items() if "acer" not in name or "heatup" not in path}
        content = {"preset": to_json(tiny.shrunk(load_preset(name), **fitting)), "run": to_json(RunParameters())}
        (folder / f"tiny_{name}.json").write_text(json.dumps(content))
    return {text: f"{PRESET * text.startswith(PRESET)}tiny_{text.removeprefix(PRESET)}.json" for text in names}


@pytest.mark.acceptance
def test_first_steps_page_runs(tmp_path):
    shorter = {"4_000": "20", "5_000": "20", "--num_seeds=3": "--num_seeds=1"}
    shorter |= {"--last_evaluations=3": "--last_evaluations=1"}
    shorter |= tiny_presets(tmp_path, "pendulum_twin_sac", "--preset=continuous")
    page = run_page(ROOT / "docs" / "first_steps.md", tmp_path, shorter, ["--notensorboard"])
    assert page["result"].reason == "finished"
    assert (tmp_path / "curve.png").stat().st_size > 1000 and (tmp_path / "exported" / "saved_model.pb").exists()
    assert len(tiny.rows(tmp_path / "runs" / "thermostat")) == 2
    for folder in ("rates", "discount"):
        assert (tmp_path / "runs" / folder / "comparison.png").exists()


@pytest.mark.acceptance
def test_serving_section_runs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    from serve_exported import predict

    shorter = tiny_presets(tmp_path, "pendulum_twin_sac", "acer_partially_observable")
    page = run_page(
        ROOT / "docs" / "exports.md", tmp_path, shorter, ["--notensorboard"], "Serving and converting a policy"
    )
    first = json.loads((tmp_path / "first_state.json").read_text())
    assert not any(any(row) for field in page["predict"](first).values() for row in field)
    signatures = tf.saved_model.load(str(tmp_path / "models" / "pendulum" / "1")).signatures
    columns, rows = (json.loads((tmp_path / name).read_text()) for name in ("request.json", "rows.json"))
    actions = predict(signatures, columns)["outputs"]
    assert np.shape(actions) == (2, 1) and actions[0] != actions[1]
    assert predict(signatures, rows) == {"predictions": actions}


@pytest.mark.acceptance
def test_partial_observability_page_runs(tmp_path):
    shorter = tiny_presets(tmp_path, "pendulum_twin_sac", "acer_partially_observable")
    shorter[" --set=schedule.improve_steps=4_000"] = ""
    run_page(ROOT / "docs" / "partial_observability.md", tmp_path, shorter, ["--notensorboard"])
    for name, inputs in (("hidden", 2), ("stacked", 6)):
        assert len(np.load(tmp_path / "runs" / name / "best.npz")["policy/0"]) == inputs


def test_recurrent_sac_acting_section_runs(tmp_path):
    preset = tiny.shrunk(load_preset("recurrent_discrete_sac"))
    (tmp_path / "runs").mkdir()
    tiny.untrained_run(tmp_path / "runs" / "recurrent", "CartPole-v1", preset)
    run_page(ROOT / "docs" / "recurrent_soft_actor_critic.md", tmp_path, section="Acting")


@pytest.mark.acceptance
def test_images_page_runs(tmp_path):
    shorter = {"--preset=images": "--preset=images --set=schedule.heatup_steps=64", "15_000": "20"}
    shorter |= {'"num_filters":16': '"num_filters":2'}
    page = run_page(ROOT / "docs" / "images_and_atari.md", tmp_path, shorter, ["--notensorboard"])
    assert check_environment(page["stacked"], num_steps=50).usable
    kernels = {name: np.load(tmp_path / "runs" / name / "best.npz")["policy/0"].shape for name in ("square", "chosen")}
    assert kernels == {"square": (4, 4, 1, 16), "chosen": (4, 4, 1, 2)}


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("page", "section", "shorter"),
    [
        ("own_networks", "Custom Keras models", {"9000": "40"}),
        ("runs", "Fine-tuning", {"20000": "40", "25000": "60"}),
        ("exports", "Model cards", {"--out=": "--episodes=2 --out="}),
    ],
)
def test_section_runs(page, section, shorter, tmp_path):
    replaced = {**tiny_presets(tmp_path, "pendulum_twin_sac"), **shorter}
    run_page(ROOT / "docs" / f"{page}.md", tmp_path, replaced, section=section)


@pytest.mark.slow
def test_policy_examples_of_the_runs_page(tmp_path, monkeypatch, capsys):
    preset = tiny.shrunk(load_preset("pendulum_twin_sac"), **{"environment.max_episode_steps": 20})
    tiny.untrained_run(tmp_path / "runs" / "pendulum", "Pendulum-v1", preset)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    for block in blocks(page):
        if block.language == "python" and "tfsac." in block.text and "runs/swing" not in block.text:
            exec(block.text, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4 and all(line.startswith("This is not the environment") for line in printed[:2])
    assert printed[2].startswith("{'q': ") and printed[3].count(", ") == 3


TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PRESETS = ("pendulum_sac", "pendulum_twin_sac", "atari_discrete_sac", "taac_simple_control", "acer_cartpole")


def test_troubleshooting_parameters_exist():
    """Flags within the same backticks are set together; at least one preset must accept them."""
    flags = re.compile(r"--set=('[^']+'|[^\s`']+)")
    together = {tuple(flags.findall(code)) for code in re.findall(r"`([^`\n]*--set=[^`\n]+)`", TROUBLE)} - {("seed=1",)}
    assert len(together) > 20
    presets = [load_preset(name) for name in PRESETS]
    for changes in together:
        parsed, refused = dict(parse_assignment(change.strip("'")) for change in changes), []
        for preset in presets:
            try:
                override(preset, parsed)
            except ParameterError as error:
                refused.append(str(error))
        assert len(refused) < len(presets), (changes, refused)


def test_metrics_csv_example_of_the_runs_page(tmp_path, monkeypatch):
    (tmp_path / "runs" / "pendulum").mkdir(parents=True)
    (tmp_path / "runs" / "pendulum" / "metrics.csv").write_text("env_steps,q/q1\n1000,\n2000,-1.5\n3000,-2.5\n")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    (block,) = (block for block in blocks(page) if "csv.DictReader" in block.text)
    exec(block.text, namespace := {})
    assert namespace["curve"] == [(2000, -1.5), (3000, -2.5)]
