"""Model cards: files, metadata, and reproducible results."""

import csv
import json
import pathlib
import shutil

import gymnasium as gym
import numpy as np
import pytest
import tiny
import yaml
from cli_tools import RETURN, format_returns, png_size
from pages import run_page

import tfsac
from tfsac import api, cli
from tfsac.errors import TfsacError
from tfsac.experiments.bootstrap import estimate, mean
from tfsac.preset_lookup import load_preset

pytestmark = pytest.mark.slow  # every test exports a policy and runs episodes
EPISODES = 3
ALL = {"README.md", "config.json", "results.json", "curve.png", "policy", "replay.mp4"}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "seed4"
    tiny.train(folder, "--seed=4", "--notensorboard")
    return folder


@pytest.fixture(scope="module")
def card(run_dir, tmp_path_factory):
    """A card written by the command line."""
    out = tmp_path_factory.mktemp("cards") / "card"
    assert cli.run(["card", f"--run_dir={run_dir}", f"--out={out}", f"--episodes={EPISODES}", "--license=mit"]) == 0
    return tfsac.load_card(out)


def evaluated(run_dir):
    """Writes evaluations for the curve of an untrained run."""
    names = ["env_steps", "updates", "wall_seconds", *(f"evaluation/return_{name}" for name in ("mean", "min", "max"))]
    with (run_dir / "metrics.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, [10, 1, 0.5, -3.0, -4.0, -2.0], [20, 2, 1.0, -5.0, -6.0, -4.0]])
    return run_dir


def metadata(path):
    """Returns the metadata and the text of a card's README.md."""
    _, head, text = (path / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), text


def test_card_has_its_files_and_no_temporary_ones(card, run_dir):
    assert {path.name for path in card.path.iterdir()} == ALL
    assert [path.name for path in card.path.parent.iterdir()] == ["card"]
    assert (card.path / "policy" / "saved_model.pb").is_file() and png_size(card.path / "curve.png")[0] > 500
    assert b"ftyp" in (card.path / "replay.mp4").read_bytes()[:16]
    content = (card.path / "config.json").read_text()
    assert load_preset(card.path / "config.json") == load_preset(run_dir / "config.json")
    assert "import_folders" in (run_dir / "config.json").read_text() and "import_folders" not in content


def test_metadata_follow_model_card_format(card):
    head, text = metadata(card.path)
    tags = ["Pendulum-v1", "reinforcement-learning", "deep-reinforcement-learning", "soft-actor-critic", "tensorflow"]
    assert head.pop("tags") == tags
    (model,) = head.pop("model-index")
    assert head == {"library_name": "tfsac", "pipeline_tag": "reinforcement-learning", "license": "mit"}
    (result,) = model["results"]
    assert model["name"] == "soft actor-critic on Pendulum-v1"
    assert result["task"] == {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    assert result["dataset"] == {"type": "Pendulum-v1", "name": "Pendulum-v1"}
    value = f"{card.results['mean']:.2f} +/- {card.results['std']:.2f}"
    assert result["metrics"] == [{"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}]
    assert "(curve.png)" in text and "(replay.mp4)" in text
    assert f"**{estimate(mean, [np.array(card.results['returns'])])}**" in text


def test_results_are_returns_of_best_policy(card, run_dir):
    results, live = card.results, api.evaluate(run_dir, EPISODES, seed=0)
    assert results == json.loads((card.path / "results.json").read_text())
    np.testing.assert_allclose(results["returns"], live.returns, rtol=1e-4)
    assert results["lengths"] == live.lengths.tolist() and len(set(results["episode_seeds"])) == EPISODES
    interval = estimate(mean, [np.array(results["returns"])])
    assert [results["mean"], *results["interval_95"]] == list(interval)
    env = gym.make("Pendulum-v1", max_episode_steps=10)
    loaded, total = tfsac.load_card(card.path), 0.0
    observation, _ = env.reset(seed=results["episode_seeds"][0])
    for _ in range(10):
        observation, reward, *_ = env.step(loaded.act(observation))
        total += float(reward)
    assert total == pytest.approx(results["returns"][0], rel=1e-5)


def test_load_replays_episodes_and_prints_card_returns(card, tmp_path, capsys):
    video = tmp_path / "video.gif"
    assert cli.run(["load", f"--card={card.path}", f"--dump_mp4={video}"]) == 0
    printed, results = capsys.readouterr().out, card.results
    evaluation = tfsac.load_card(card.path).evaluate()
    np.testing.assert_allclose(evaluation.returns, results["returns"], rtol=1e-6)
    assert RETURN.search(printed).groups()[:5] == (*format_returns(evaluation.returns), str(EPISODES))
    assert f"card    mean {results['mean']:.2f}  std {results['std']:.2f}  over {EPISODES} episodes\n" in printed
    assert video.read_bytes().startswith(b"GIF")
    # Compare all four numbers: in short episodes, the mean of samples may round to the mean of the mode.
    assert cli.run(["load", f"--card={card.path}", "--episodes=4", "--seed=7", "--stochastic"]) == 0
    sampled = RETURN.search(capsys.readouterr().out).groups()[:4]
    assert sampled != tuple(format_returns(tfsac.load_card(card.path).evaluate(4, seed=7).returns))


def test_other_folders_and_environments_are_rejected(card, run_dir, tmp_path):
    with pytest.raises(TfsacError, match="no model card"):
        tfsac.load_card(run_dir)
    with pytest.raises(OSError, match="exists"):
        tfsac.write_card(run_dir, card.path)
    copied = pathlib.Path(shutil.copytree(card.path, tmp_path / "copy"))
    config = json.loads((copied / "config.json").read_text())
    config["preset"]["environment"]["level"] = "CartPole-v1"
    (copied / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="another environment"):
        tfsac.load_card(copied).evaluate(1)


KINDS = {
    "temporally abstract": ("Pendulum-v1", tiny.taac),
    "nested actions": (
        "toys:HybridIdentity-v0",
        lambda: tiny.hybrid(**{"environment.kwargs": {"structure": "dict in dict"}}),
    ),
    "recurrent, discrete": ("CartPole-v1", lambda: tiny.acer(lstm=True)),
    "camera": (
        "TfsacCameraArm-v0",
        lambda: tiny.shrunk(
            load_preset("pendulum_sac"), **{"environment.level": "TfsacCameraArm-v0", **tiny.camera_networks()}
        ),
    ),
    "team": ("pettingzoo:mpe2.simple_spread_v3", lambda: tiny.shrunk(load_preset("simple_spread_discrete_sac"))),
}


@pytest.mark.filterwarnings("ignore:the card has no replay.mp4")  # the camera has none
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("temporally abstract", "nested actions") else pytest.mark.acceptance)
        for name in KINDS
    ],
)
def test_cards_of_other_policies_reproduce_and_examples_run(name, tmp_path):
    tiny.register()
    level, preset = KINDS[name]
    run = evaluated(tiny.untrained_run(tmp_path / "run", level, preset()))
    card = tfsac.write_card(run, tmp_path / "card", 2)
    np.testing.assert_allclose(tfsac.load_card(card.path).evaluate().returns, card.results["returns"], rtol=1e-6)
    assert "license" not in metadata(card.path)[0]
    namespace = run_page(tmp_path / "card" / "README.md", tmp_path / "card")
    assert np.isfinite(namespace.get("action", 0.0)).all()
