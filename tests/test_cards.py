"""Model cards: what a folder for others holds, that it plays as its results say, and what is refused of it."""

import csv
import dataclasses
import json
import pathlib
import re
import shutil

import gymnasium as gym
import numpy as np
import pytest
import tiny
import yaml
from cli_tools import RETURN, parts, png_size, tree
from pages import run_page

import tfsac
from tfsac import api, cli
from tfsac.cards import card_maker
from tfsac.cards.card_page import module_needed, nearest_preset
from tfsac.catalog import load_preset
from tfsac.environments import episode_seed
from tfsac.environments.vectorize import EVALUATION
from tfsac.experiments.estimates import estimate, mean
from tfsac.parameters import EnvironmentParameters, ParameterError, RunParameters, override, to_json

pytestmark = pytest.mark.slow  # each exports and plays
EPISODES = 3
ALL = {"README.md", "config.json", "results.json", "curve.png", "policy", "policy.tflite", "replay.mp4"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two tiny runs of one experiment, with other seeds, the first of which says that it was resumed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (4, 5):
        tiny.train(folder / f"seed{seed}", f"--seed={seed}", "--notensorboard")
    config = folder / "seed4" / "config.json"
    resumed = {"env_steps": 10, "command": ["tfsac"], "git": {"commit": "secret"}}
    config.write_text(json.dumps({**json.loads(config.read_text()), "resumed": [resumed]}))
    return [folder / "seed4", folder / "seed5"]


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    """A card of one run, and what the command printed."""
    out = tmp_path_factory.mktemp("cards") / "card"
    made = tfsac.write_card(runs[0], out, EPISODES, license="apache-2.0")
    assert made.left_out == {} and made.path == out
    return made


@pytest.fixture
def copied(made, tmp_path):
    """A card of its own for a test that damages it."""
    return pathlib.Path(shutil.copytree(made.path, tmp_path / "copy"))


def evaluated(run_dir):
    """Writes the evaluations of a run that was not trained, for its curve."""
    names = ["env_steps", "updates", "wall_seconds", *(f"evaluation/return_{name}" for name in ("mean", "min", "max"))]
    with (run_dir / "metrics.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, [10, 1, 0.5, -3.0, -4.0, -2.0], [20, 2, 1.0, -5.0, -6.0, -4.0]])
    return run_dir


def read(path):
    return json.loads((path / "results.json").read_text())


def metadata(path):
    """Returns the head of a card's page, and its text."""
    _, head, text = (path / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), text


# -- what a card holds -------------------------------------------------------------------------------------------------


def test_a_card_has_its_files_and_nothing_is_left_beside_it(made):
    assert {path.name for path in made.path.iterdir()} == ALL
    assert [path.name for path in made.path.parent.iterdir()] == ["card"]
    assert (made.path / "policy" / "saved_model.pb").is_file() and png_size(made.path / "curve.png")[0] > 500
    assert b"ftyp" in (made.path / "replay.mp4").read_bytes()[:16]


def test_the_metadata_are_those_of_a_model_repository(made):
    head, text = metadata(made.path)
    results = read(made.path)
    value = f"{results['mean']:.2f} +/- {results['std']:.2f}"
    assert head.pop("tags") == [
        "Pendulum-v1", "reinforcement-learning", "deep-reinforcement-learning", "soft-actor-critic", "tensorflow",
    ]  # fmt: skip
    assert head == {
        "library_name": "tfsac",
        "pipeline_tag": "reinforcement-learning",
        "license": "apache-2.0",
        "model-index": [
            {
                "name": "soft actor-critic on Pendulum-v1",
                "results": [
                    {
                        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                        "dataset": {"type": "Pendulum-v1", "name": "Pendulum-v1"},
                        "metrics": [{"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}],
                    }
                ],
            }
        ],
    }
    assert text.endswith("## License\n\napache-2.0\n") and "(curve.png)" in text and "(replay.mp4)" in text


def test_the_results_are_the_returns_of_the_best_policy_in_fresh_episodes(made, runs):
    results, live = read(made.path), api.evaluate(runs[0], EPISODES, seed=0)
    np.testing.assert_allclose(results["returns"], live.returns, rtol=1e-4)
    assert results["lengths"] == live.lengths.tolist() and len(set(results["episode_seeds"])) == EPISODES
    returns = np.array(results["returns"])
    found = estimate(mean, [returns])
    assert (results["mean"], results["std"]) == (returns.mean(), returns.std())
    assert results["interval_95"] == [found.low, found.high]
    assert results["versions"]["tfsac"] == tfsac.__version__ and results["machine"]["cores"] > 0
    assert max(results["largest_action_difference"].values()) <= 1e-5
    env = gym.make("Pendulum-v1", max_episode_steps=10)
    card, total = tfsac.load_card(made.path), 0.0
    observation, _ = env.reset(seed=results["episode_seeds"][0])
    for _ in range(10):
        observation, reward, *_ = env.step(card.act(observation))
        total += float(reward)
    assert total == pytest.approx(results["returns"][0], rel=1e-5)


def test_a_card_with_seeds_of_before_plays_its_own_episodes(copied):
    results = read(copied)
    seeds = [episode_seed(5, EVALUATION, api.AFTER_TRAINING, i, below=2**32) for i in range(EPISODES)]
    assert max(seeds) >= 2**31
    (copied / "results.json").write_text(json.dumps({**results, "seed": 5, "episode_seeds": seeds}))
    card, env, returns = tfsac.load_card(copied), gym.make("Pendulum-v1", max_episode_steps=10), []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        rewards = []
        for _ in range(10):
            observation, reward, *_ = env.step(card.act(observation))
            rewards.append(reward)
        returns.append(sum(rewards))
    np.testing.assert_allclose(card.evaluate().returns, returns, rtol=1e-5)


def test_the_page_tells_preset_changes_steps_and_limits(made):
    _, text = metadata(made.path)
    results = read(made.path)
    assert f"**{results['mean']:.2f} [{results['interval_95'][0]:.2f}, " in text
    assert "| preset of tfsac | `pendulum_sac` |" in text and "| seed | 4 |" in text
    assert "| `environment.max_episode_steps` | `null` | `10` |" in text
    assert "| environment steps | 60, exported: the best evaluation, after " in text
    assert f"tfsac {tfsac.__version__}, tensorflow " in text and "; all others in `config.json` |" in text
    assert "Only one seed was trained" in text and "were not tested" in text
    assert "Episodes last 10 steps. " in text and "An input has a row for each environment. " in text
    assert "Python module" not in text


def test_the_config_repeats_the_run_and_has_no_folders_of_its_author(made, runs):
    content = (made.path / "config.json").read_text()
    assert load_preset(made.path / "config.json") == load_preset(runs[0] / "config.json")
    assert "import_folders" in (runs[0] / "config.json").read_text() and "import_folders" not in content


def test_the_git_state_of_resumes_is_left_out_too(made):
    config = (made.path / "config.json").read_text()
    assert json.loads(config)["resumed"] == [{"env_steps": 10, "command": ["tfsac"]}] and "secret" not in config


def test_the_nearest_preset_is_found_with_its_changes():
    changed = override(load_preset("pendulum_twin_sac"), {"agent.algorithm.discount": 0.5})
    assert nearest_preset(changed) == ("pendulum_twin_sac", [("agent.algorithm.discount", 0.99, 0.5)])
    hopper = load_preset("mujoco_twin_sac")
    assert nearest_preset(override(hopper, {"environment.level": "Hopper-v5"}))[0] == "mujoco_twin_sac"


def test_the_examples_of_the_page_run(copied):
    namespace = run_page(copied / "README.md", copied)
    assert namespace["evaluation"].returns[0] == pytest.approx(read(copied)["returns"][0], rel=1e-6)
    np.testing.assert_allclose(namespace["action"][0], namespace["card"].act(np.zeros(3)), atol=1e-6)


@pytest.mark.acceptance
def test_the_page_about_cards_runs(tmp_path):
    preset = tiny.shrunk(load_preset("pendulum_twin_sac"), **tiny.SHORTER)
    (tmp_path / "tiny.json").write_text(json.dumps({"preset": to_json(preset), "run": to_json(RunParameters())}))
    page = pathlib.Path(__file__).parents[1] / "docs" / "model_cards.md"
    namespace = run_page(page, tmp_path, {"pendulum_twin_sac": "tiny.json", "--out=": "--episodes=2 --out="})
    assert set(namespace["made"].results["seeds"]) == {"mean", "std", "interval_95"}
    assert namespace["action"].shape == (1,) and (tmp_path / "card_of_two" / "replay.mp4").is_file()


# -- several seeds -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(runs, tmp_path_factory):
    return tfsac.write_card(runs, tmp_path_factory.mktemp("several") / "card", EPISODES)


def test_a_card_of_several_runs_has_returns_per_seed_and_exports_the_best(several, runs):
    results = read(several.path)
    assert [run["seed"] for run in results["runs"]] == [4, 5]
    other = [api.evaluate(run, EPISODES, seed=1).returns.mean() for run in runs]  # episodes that choose
    np.testing.assert_allclose([run["choice_mean"] for run in results["runs"]], other, rtol=1e-4)
    best = int(np.argmax(other))
    assert results["exported_seed"] == (4, 5)[best] and results["returns"] == results["runs"][best]["returns"]
    means = np.array([run["mean"] for run in results["runs"]])
    found = estimate(mean, [means])
    assert results["seeds"]["mean"] == means.mean() and results["seeds"]["interval_95"] == [found.low, found.high]
    live = tfsac.load_policy(runs[best])
    observation = np.array([[0.1, 0.2, 0.3], [1.0, 0.0, -4.0]])
    np.testing.assert_allclose(tfsac.load_card(several.path).act(observation), live.act(observation), atol=1e-5)
    head, text = metadata(several.path)
    assert "license" not in head and "## License" not in text
    assert f"**{means.mean():.2f} [{found.low:.2f}, {found.high:.2f}]**" in text and "| 5 | " in text


def test_the_command_takes_a_sweeps_folder(runs, tmp_path, capsys):
    sweep = tmp_path / "sweep"
    for run in runs:
        shutil.copytree(run, sweep / run.name)
    (sweep / "sweep.json").write_text(json.dumps({"format": 1, "grid": [], "first": {}}))
    assert cli.run(["card", f"--run_dir={sweep}", f"--out={tmp_path / 'card'}", "--episodes=2"]) == 0
    printed = capsys.readouterr().out
    results = read(tmp_path / "card")
    assert [run["seed"] for run in results["runs"]] == [4, 5] and len(results["returns"]) == 2
    assert re.findall(r"^seed (\d) +mean (\S+)", printed, re.MULTILINE) == [
        (str(run["seed"]), f"{run['mean']:.2f}") for run in results["runs"]
    ]
    scores = {run["seed"]: run["choice_mean"] for run in results["runs"]}
    best = max(scores, key=scores.get)
    assert f"export  seed {best}, whose mean in other episodes is the highest: {scores[best]:.2f}\n" in printed
    assert f"return  mean {results['mean']:.2f}  std {results['std']:.2f}  over 2 episodes\n" in printed
    assert printed.endswith(f"card    {tmp_path / 'card'}\n")


def test_a_combinations_folder_stands_for_its_runs_and_a_sweep_of_several_names_them(runs, tmp_path):
    sweep, names = tmp_path / "sweep", ("rate=1", "rate=2")
    for run in runs:
        for name in names:
            shutil.copytree(run, sweep / name / run.name)
    (sweep / "sweep.json").write_text(json.dumps({"format": 1, "grid": [["a.rate", ["1", "2"]]], "first": {}}))
    found = card_maker.check_runs(sweep / "rate=2")
    assert found == {seed: sweep / "rate=2" / f"seed{seed}" for seed in (4, 5)}
    one, two = (re.escape(str(sweep / name)) for name in names)
    with pytest.raises(ValueError, match=rf"Give the folder of one: {one}, {two}\. Received: {re.escape(str(sweep))}$"):
        card_maker.check_runs(sweep)
    with pytest.raises(ValueError, match=rf"Give the folder of one: {one}, {two}\. Received: "):
        cli.run(["card", f"--run_dir={sweep}", f"--out={tmp_path / 'card'}"])
    with pytest.raises(FileExistsError):
        cli.run(["card", f"--run_dir={sweep / 'rate=1'}", f"--out={sweep}"])


def test_runs_of_different_experiments_or_the_same_seed_are_refused(runs, tmp_path):
    other = pathlib.Path(shutil.copytree(runs[1], tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    config["preset"]["agent"]["algorithm"]["discount"] = 0.5
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"is 0\.99\. Received: agent\.algorithm\.discount=0\.5 in .*other$"):
        tfsac.write_card([runs[0], other], tmp_path / "card")
    config["preset"]["agent"]["algorithm"]["discount"] = 0.99
    config["run"]["asynchronous_collection"] = True
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"is False\. Received: asynchronous_collection=True in .*other$"):
        tfsac.write_card([runs[0], other], tmp_path / "card")
    with pytest.raises(ValueError, match=r"have a seed each.*Received: seed=4 in .*seed4 and .*seed4$"):
        tfsac.write_card([runs[0], runs[0]], tmp_path / "card")
    with pytest.raises(ValueError, match=r"A card needs a run\. Received: none$"):
        tfsac.write_card([], tmp_path / "card")
    assert not (tmp_path / "card").exists()


# -- loading -----------------------------------------------------------------------------------------------------------


def test_a_card_whose_environment_is_missing_acts_and_says_what_it_lacks(made):
    card = tfsac.load_card(made.path)
    assert card.act(np.zeros(3, np.float32)).shape == (1,)
    card.environment = dataclasses.replace(card.environment, level="nothing_of_this_name:Mine-v0")
    with pytest.raises(
        ImportError, match=r"^A card has no code of its environment; `act` works without it\. There is no"
    ):
        card.evaluate(episodes=1)


def test_load_plays_the_cards_episodes_beside_its_returns(made, tmp_path, capsys):
    film = tmp_path / "film.gif"
    assert cli.run(["load", f"--card={made.path}", f"--dump_mp4={film}"]) == 0
    printed, results = capsys.readouterr().out, read(made.path)
    told = tfsac.load_card(made.path).evaluate()
    np.testing.assert_allclose(told.returns, results["returns"], rtol=1e-6)
    assert RETURN.search(printed).groups()[:5] == (*parts(told.returns), str(EPISODES))
    assert f"card    mean {results['mean']:.2f}  std {results['std']:.2f}  over {EPISODES} episodes\n" in printed
    error = told.returns.std(ddof=1) / EPISODES**0.5
    assert f"        the mean's standard error is {error:.2f}; more episodes make it smaller\n" in printed
    assert film.read_bytes().startswith(b"GIF")
    # Short episodes: a sampled mean alone is now and then the mode's to two digits, but not all four figures.
    assert cli.run(["load", f"--card={made.path}", "--episodes=4", "--seed=7", "--stochastic"]) == 0
    sampled = RETURN.search(capsys.readouterr().out).groups()[:4]
    assert sampled != tuple(parts(tfsac.load_card(made.path).evaluate(4, seed=7).returns))


def test_a_film_that_fails_does_not_lose_the_evaluation(made, tmp_path, capsys, monkeypatch):
    def no_camera(*_):
        raise ValueError("There is no camera. Received: none")

    monkeypatch.setattr("tfsac.cards.card_folder.write_film", no_camera)
    with pytest.raises(
        api.DrawingError, match=r"^The episodes were played .*There is no camera\. Received: none$"
    ) as error:
        tfsac.load_card(made.path).evaluate(2, dump_mp4=tmp_path / "film.gif")
    assert len(error.value.evaluation.returns) == 2
    with pytest.raises(api.DrawingError):
        cli.run(["load", f"--card={made.path}", "--episodes=2", f"--dump_mp4={tmp_path / 'film.gif'}"])
    assert RETURN.search(capsys.readouterr().out).groups()[:4] == (*parts(error.value.evaluation.returns),)


def test_a_film_of_what_a_function_made_needs_its_drawing_before_anything_is_played(made, tmp_path):
    with pytest.raises(ValueError, match=r"render_mode='rgb_array'.*Received: render_mode=None$"):
        tfsac.load_card(made.path).evaluate(
            2, dump_mp4=tmp_path / "film.gif", env_fn=lambda: gym.make("Pendulum-v1", max_episode_steps=10)
        )


def test_a_card_acts_as_the_policy_of_its_run(made, runs):
    card, live = tfsac.load_card(made.path), tfsac.load_policy(runs[0])
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(card.act(rows), live.act(rows), atol=1e-5)
    np.testing.assert_allclose(card.act(rows[0]), live.act(rows[0]), atol=1e-5)
    assert card.act(rows[0]).shape == (1,)
    sampled = card.act(np.repeat(rows[:1], 500, axis=0), deterministic=False)
    assert sampled.std() > 0.01 and np.abs(sampled).max() <= 2.0


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(4), r"ends in the shape \(3,\)\. Received: \(4,\)"),
        ({"camera": np.zeros(3)}, r"reads observation\. Received: \['camera'\]"),
        (np.array([0.0, np.nan, 0.0]), "must be finite. Received: "),
    ],
)
def test_other_observations_are_refused(made, observation, message):
    with pytest.raises(ValueError, match=message):
        tfsac.load_card(made.path).act(observation)


def test_a_card_without_its_optional_files_still_loads(copied, made, capsys):
    for name in ALL - {"config.json", "policy"}:
        (copied / name).unlink()
    shutil.rmtree(copied / "policy" / "assets")  # empty folders are in no repository
    assert cli.run(["load", f"--card={copied}", f"--episodes={EPISODES}"]) == 0
    printed = capsys.readouterr().out
    assert float(RETURN.search(printed)[1]) == pytest.approx(read(made.path)["mean"], abs=0.01)
    assert "card  " not in printed


def test_a_card_with_the_litert_file_alone_acts_and_says_how_it_samples(copied, made):
    shutil.rmtree(copied / "policy")
    card, whole = tfsac.load_card(copied), tfsac.load_card(made.path)
    rows = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(card.act(rows), whole.act(rows), atol=1e-5)
    with pytest.raises(ValueError, match=r"take their noise as an input.*Received: deterministic=False$"):
        card.act(rows, deterministic=False)


def damage(folder, name):
    """Damages a card; returns the flag's folder."""
    config = json.loads((folder / "config.json").read_text())
    if name == "nothing there":
        return folder / "none"
    if name == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    elif name == "config cut":
        (folder / "config.json").write_bytes((folder / "config.json").read_bytes()[:100])
    elif name == "config of something else":
        (folder / "config.json").write_text('{"model_type": "bert"}')
    elif name == "no checksums":
        (folder / "config.json").write_text(json.dumps({**config, "policy_files": None}))
    elif name == "environment of another version":
        config["preset"]["environment"]["levle"] = "Pendulum-v1"
        (folder / "config.json").write_text(json.dumps(config))
    elif name == "policy is a pointer of Git LFS":
        (folder / "policy" / "saved_model.pb").write_text("version https://git-lfs.github.com/spec/v1\n")
    elif name == "a byte of the weights":
        path = folder / "policy" / "variables" / "variables.data-00000-of-00001"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif name == "no weights":
        (folder / "policy" / "variables" / "variables.index").unlink()
    elif name == "no policy":
        shutil.rmtree(folder / "policy")
        (folder / "policy.tflite").unlink()
    elif name == "results cut":
        (folder / "results.json").write_text('{"returns": [1')
    elif name == "results of something else":
        (folder / "results.json").write_text('{"returns": [1]}')
    elif name == "another environment":
        config["preset"]["environment"]["level"] = "CartPole-v1"
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing there", r"is a folder that tfsac card wrote\. Received: .*none$"),
        ("empty", r"has a config\.json\. Received: .*copy$"),
        ("config cut", r"config\.json is damaged .*download it again\. Received: 100 bytes$"),
        ("config of something else", r"is not of a model card\. Received: .*copy$"),
        ("no checksums", r"is damaged; download it again\. Received: no policy_files$"),
        ("environment of another version", r"of another version of tfsac.*Received: .*levle"),
        ("policy is a pointer of Git LFS", r"saved_model\.pb is not the file .*git lfs pull.*Received: \d+ bytes$"),
        ("a byte of the weights", r"variables\.data-.* is not the file .*Received: \d+ bytes$"),
        ("no weights", r"is missing; download the whole card\. Received: no .*variables\.index$"),
        ("no policy", r"The card has no policy.*Received: .*copy$"),
        ("results cut", r"results\.json is damaged .*or remove it\. Received: 14 bytes$"),
        ("results of something else", r"results\.json is damaged .*Received: 16 bytes$"),
        ("another environment", r"belongs to another environment.*Received: "),
    ],
)
def test_a_damaged_or_foreign_folder_is_refused(name, message, copied, capsys):
    folder = damage(copied, name)
    with pytest.raises(SystemExit) as ended:
        cli.main(["load", f"--card={folder}", "--episodes=1"])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.out == ""
    assert re.search(message, printed.err.strip(), re.DOTALL), printed.err


def test_a_folder_is_checked_before_tensorflow_loads(copied, run_python):
    (copied / "policy" / "saved_model.pb").write_text("pointer")
    printed = run_python(
        """
import sys
from tfsac import cli
try:
    cli.main(["load", f"--card={sys.argv[1]}"])
except SystemExit as ended:
    print(ended.code, "tensorflow" in sys.modules)
""",
        str(copied),
    )
    assert printed == "2 False\n"


def test_a_run_is_no_card_and_the_error_says_how_it_becomes_one(runs):
    with pytest.raises(ValueError, match=r"tfsac card --run_dir=.*seed4 --out=FOLDER makes a card.*Received: .*seed4$"):
        tfsac.load_card(runs[0])


def test_a_card_is_no_run_and_the_error_says_what_reads_it(made, capsys):
    message = r"no run directory but a model card: tfsac load --card=FOLDER or tfsac\.load_card reads it\. Received: "
    with pytest.raises(FileNotFoundError, match=message):
        tfsac.load_policy(made.path)
    with pytest.raises(SystemExit):
        cli.main(["evaluate", f"--run_dir={made.path}"])
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("card --out={tmp}/card", "--run_dir is required. Received: no --run_dir$"),
        ("card --run_dir={run}", "--out is required. Received: no --out$"),
        ("card --run_dir={tmp} --out={tmp}/card", "no run directory: it has no config.json. Received: "),
        ("card --run_dir={run} --out={run}", "new or empty folder. Received: .*seed4$"),
        ("card --run_dir={run} --out={tmp}/card --episodes=0", "positive integer. Received: --episodes=0$"),
        ("load", "--card is required. Received: no --card$"),
        (
            "load --run_dir={run}",
            r"has no flag --run_dir.* --card=.*seed4\. tfsac card makes one of a run\. Received: ",
        ),
        ("load --card={card} --episodes=1 --dump_mp4={tmp}/a.xyz", "ends in .mp4 or .gif. Received: .*a.xyz$"),
    ],
)
def test_a_wrong_command_line_is_refused_and_leaves_nothing(line, message, runs, made, tmp_path, capsys):
    before = tree(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(line.format(tmp=tmp_path, run=runs[0], card=made.path).split())
    assert ended.value.code == 2 and tree(tmp_path) == before
    assert re.search(message, capsys.readouterr().err.strip())


@pytest.mark.parametrize(
    ("level", "module"),
    [("my_env:Point-v0", "my_env"), ("pettingzoo:mpe2.simple_spread_v3", "mpe2.simple_spread_v3"), ("Ant-v5", "")],
)
def test_a_page_names_the_module_that_its_level_needs(level, module):
    needed = module_needed(EnvironmentParameters(level))
    assert needed.startswith(f"The environment needs the Python module `{module}`, ") if module else needed == ""


@pytest.mark.parametrize("license", ["", "a\nb", 7])
def test_a_license_is_one_line(runs, tmp_path, license):
    with pytest.raises(ValueError, match=r"license is one line.*Received: "):
        tfsac.write_card(runs[0], tmp_path / "card", license=license)


def test_a_card_that_fails_leaves_nothing_behind(runs, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tfsac.cards.card_maker.write_json", fail)
    with pytest.raises(OSError, match=r"cannot be written \(No space left on device\).*Received: .*card$"):
        tfsac.write_card(runs[0], tmp_path / "card", 1)
    assert list(tmp_path.iterdir()) == []


# -- other environments and policies -----------------------------------------------------------------------------------


def test_what_cannot_be_made_is_left_out_with_its_reason(tmp_path, monkeypatch, capsys):
    tiny.register()
    run = evaluated(tiny.untrained_run(tmp_path / "run", "tiny:TfsacCliff-v0"))
    monkeypatch.setattr("tfsac.cards.card_maker.TOLERANCE", -1.0)  # as if the LiteRT file acted otherwise
    assert cli.run(["card", f"--run_dir={run}", f"--out={tmp_path / 'card'}", "--episodes=1"]) == 0
    printed = capsys.readouterr().out
    assert "without policy.tflite: its actions differ by " in printed
    assert re.search(r"^without replay\.mp4: .*Received: ", printed, re.MULTILINE)
    assert {path.name for path in (tmp_path / "card").iterdir()} == ALL - {"policy.tflite", "replay.mp4"}
    _, text = metadata(tmp_path / "card")
    assert "tflite" not in text and "film" not in text
    assert "\n\nThe environment needs the Python module `tiny`, which this folder does not contain. " in text
    assert read(tmp_path / "card")["interval_95"] is None  # of one episode


@pytest.mark.acceptance
def test_a_run_that_a_function_made_needs_it_again(tmp_path):
    def env_fn():
        return gym.make("Pendulum-v1", g=5.0, max_episode_steps=10, render_mode="rgb_array")

    changes = {**tiny.SHORTER, "schedule.improve_steps": 5}
    preset = tiny.shrunk(load_preset("pendulum_sac"), **changes)
    tfsac.train(preset, tmp_path / "run", env_fn=env_fn, quiet=True)
    with pytest.raises(ParameterError, match=r"pass it again as env_fn=.*Received: no env_fn"):
        tfsac.write_card(tmp_path / "run", tmp_path / "card")
    made = tfsac.write_card(tmp_path / "run", tmp_path / "card", 2, env_fn=env_fn)
    card = tfsac.load_card(tmp_path / "card")
    np.testing.assert_allclose(card.evaluate(env_fn=env_fn).returns, made.results["returns"], rtol=1e-6)
    with pytest.raises(ValueError, match=r"Card\.evaluate\(env_fn=\.\.\.\)\. Received: no env_fn for .*card$"):
        card.evaluate()
    text = metadata(tmp_path / "card")[1]
    assert '\ntfsac.train("config.json", "RUN", env_fn=env_fn)\n' in text and "tfsac train" not in text
    assert "\nevaluation = card.evaluate(episodes=1, env_fn=env_fn)\n" in text and "tfsac load" not in text


KINDS = {
    "temporally abstract": ("Pendulum-v1", tiny.taac),
    "recurrent, discrete": ("CartPole-v1", lambda: tiny.acer(lstm=True)),
    "camera": (
        "TfsacCameraArm-v0",
        lambda: tiny.shrunk(
            load_preset("pendulum_sac"), **{"environment.level": "TfsacCameraArm-v0", **tiny.camera_networks()}
        ),
    ),
    "team": ("pettingzoo:mpe2.simple_spread_v3", lambda: tiny.shrunk(load_preset("simple_spread_discrete_sac"))),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.acceptance if name != "temporally abstract" else ()) for name in KINDS],
)
def test_cards_of_other_policies_play_as_they_say_and_their_examples_run(name, tmp_path):
    tiny.register()
    level, preset = KINDS[name]
    run = evaluated(tiny.untrained_run(tmp_path / "run", level, preset()))
    made = tfsac.write_card(run, tmp_path / "card", 2)
    card = tfsac.load_card(tmp_path / "card")
    np.testing.assert_allclose(card.evaluate().returns, made.results["returns"], rtol=1e-6)
    assert max(made.results["largest_action_difference"].values()) <= 1e-5
    namespace = run_page(tmp_path / "card" / "README.md", tmp_path / "card")
    assert np.isfinite(namespace["action"]).all()
