"""Hyper-parameter search: spaces, studies with a stand-in for `tfsac train`, and one real search."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal

import pytest
import stand_in as stand_in_for_train
import tiny
from cli_tools import folder_contents
from stand_in import send_when

from tfsac import cli
from tfsac.cli.command_registry import parse
from tfsac.errors import TfsacError
from tfsac.experiments import run_processes, tuning
from tfsac.experiments.tuning import DEFAULT_SPACES, draw, open_storage, open_study, parse_dimension, search_space
from tfsac.parameters import override, parse_assignment, to_json
from tfsac.preset_lookup import load_preset
from tfsac.utils.files import read_object

DISCOUNT, RATE = "agent.algorithm.discount", "agent.networks.*.learning_rate"
POLICY_RATE = "agent.networks.policy.learning_rate"
LAYERS, CRITIC_LAYERS = "agent.hidden_layers", "agent.networks.q.head_parameters.network_layers_sizes"
optuna = pytest.importorskip("optuna")


CHOICES = ("[64,64]", "tanh")
DISTRIBUTIONS = {
    "a.b=log(1e-4, 1)": ((1e-4, 1.0), optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)),
    "a.b = uniform(-2,0.5)": ((-2.0, 0.5), optuna.distributions.FloatDistribution(-2.0, 0.5)),
    "a.b=int(1, 8)": ((1, 8), optuna.distributions.IntDistribution(1, 8)),
    "a.b=1-log(0.001, 0.1)": ((0.001, 0.1), optuna.distributions.FloatDistribution(0.001, 0.1, log=True)),
    "a.b=choice([64,64], tanh)": (CHOICES, optuna.distributions.CategoricalDistribution(CHOICES)),
}


@pytest.mark.parametrize("text", DISTRIBUTIONS)
def test_parse_dimension(text):
    dimension = parse_dimension(text)
    assert (dimension.values, dimension.distribution) == DISTRIBUTIONS[text]
    assert parse_dimension(dimension.text) == dimension


@pytest.mark.parametrize("text", ["a.b=loguniform(1, 2)", "a.b=uniform(2, 1)"])
def test_invalid_dimension_is_rejected(text):
    with pytest.raises(TfsacError, match="--space must be"):
        parse_dimension(text)


def preset_with_flags(name="pendulum_twin_sac"):
    """Returns a function that applies flags to a preset, as the command line does."""

    def apply_flags(flags):
        changes = dict(parse_assignment(flag.removeprefix("--set=")) for flag in flags)
        return {"preset": to_json(override(load_preset(name), changes))}

    return apply_flags


@pytest.mark.parametrize(
    ("text", "sampled", "value"),
    [
        (f"{DISCOUNT}=1-log(0.001, 0.1)", 0.01, "0.99"),
        (f"{DISCOUNT}=uniform(0.9, 0.95)", None, None),
        (f"{RATE}=log(1e-4, 1e-2)", 1e-3, "0.001"),
        ("agent.hidden_layers=choice([64,64], [128,128])", "[128,128]", "[128,128]"),
        ("agent.algorithm.temperature.target_entropy_factor=uniform(-2, 0)", -1.0, "-1.0"),
        ("schedule.heatup_steps=int(500, 2000)", 1000, "1000"),
    ],
)
def test_first_trial_has_preset_values(text, sampled, value):
    dimension = parse_dimension(text)
    assert dimension.sampled_value(preset_with_flags()) == sampled
    assert sampled is None or dimension.flag(sampled) == f"--set={dimension.path}={value}"


@pytest.mark.parametrize("kind", DEFAULT_SPACES)
def test_default_space_of_every_agent(kind):
    presets = ["pendulum_sac", "pendulum_twin_sac", "cart_pole_discrete_sac", "taac_simple_control", "acer_cartpole"]
    apply_flags = preset_with_flags(dict(zip(DEFAULT_SPACES, [*presets, "acer_pendulum"], strict=True))[kind])
    assert apply_flags([])["preset"]["agent"]["kind"] == kind
    space, left_out = search_space([], apply_flags)
    assert all("no parameter" in line for line in left_out) and len(space) >= 7  # at least, with a fixed temperature
    assert {RATE, DISCOUNT, LAYERS} <= {dimension.path for dimension in space}


def test_unsupported_default_dimensions_are_skipped():
    factor = "agent.algorithm.temperature.target_entropy_factor"
    space, lines = search_space([], preset_with_flags("flash_sac_mujoco"))
    assert not {factor, LAYERS} & {dimension.path for dimension in space}
    assert {f"not searched: {path}" for path in (LAYERS, factor)} <= {line.split("=")[0] for line in lines}


def test_custom_dimensions_replace_default_ones():
    space, _ = search_space(["default", f"{DISCOUNT}=uniform(0.9, 0.99)"], preset_with_flags())
    assert [d.kind for d in space if d.path == DISCOUNT] == ["uniform"] and len(space) > 5
    assert len(search_space([f"{DISCOUNT}=uniform(0.9, 0.99)"], preset_with_flags())[0]) == 1
    for custom, default in ((f"{POLICY_RATE}=log(1e-5, 1e-4)", RATE), (f"{CRITIC_LAYERS}=choice([8], [16])", LAYERS)):
        space, [line, _] = search_space(["default", custom], preset_with_flags())
        assert space[0] == parse_dimension(custom) and default not in [dimension.path for dimension in space]
        assert line.startswith(f"not searched: {default}=")
    for fixed, default in ((POLICY_RATE, RATE), (LAYERS, LAYERS)):
        space, [line, _] = search_space([], preset_with_flags(), [fixed])
        assert line.startswith(f"not searched: {default}=") and default not in [dimension.path for dimension in space]


def test_invalid_range_is_rejected_before_training():
    with pytest.raises(TfsacError, match="discount"):
        search_space([f"{DISCOUNT}=uniform(0.9, 1.5)"], preset_with_flags())


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    shutil.copy(stand_in_for_train.__file__, tmp_path / "train.py")
    monkeypatch.setattr(run_processes, "TRAIN", [str(tmp_path / "train.py")])
    monkeypatch.setattr(tuning, "draw", lambda *arguments: None)
    return tmp_path / "tune"


SPACE = f"--space={DISCOUNT}=uniform(0.5, 1)"


def run(folder, *more, trials=3, space=SPACE):
    return cli.run(
        ["tune", f"--run_dir={folder}", f"--trials={trials}", "--jobs=1", *([space] if space else []), *more]
    )


def resume(folder, *more):
    return cli.run(["tune", f"--run_dir={folder}", "--resume", "--jobs=1", *more])


def trials_of(folder):
    return open_study(open_storage(folder), read_object(folder / "tuning.json")).trials


def states(folder):
    return [trial.state.name for trial in trials_of(folder)]


def starts(folder, trial, seed=0):
    return json.loads((folder / f"trial{trial:03d}" / f"seed{seed}" / "config.json").read_text())["starts"]


def test_tuning_reports_the_best_trial(stand_in, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "draw", draw)
    spaces = [
        f"{RATE}=log(1e-4, 1e-2)",
        "agent.networks.*.batch_size=choice(64, 128)",
        "agent.algorithm.n_step=int(1, 3)",
    ]
    assert run(stand_in, "--eager", *(f"--space={space}" for space in spaces)) == 0
    trials = trials_of(stand_in)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert trials[0].params[DISCOUNT] == 0.99  # the preset's value
    assert len({trial.params[DISCOUNT] for trial in trials}) == 3
    for trial in trials:
        value = trial.params[DISCOUNT]
        assert trial.value == pytest.approx(100 * value)
        assert trial.intermediate_values == {n: pytest.approx(25 * n * value) for n in (1, 2, 3, 4)}
        folder = stand_in / f"trial{trial.number:03d}" / "seed0"
        [arguments] = starts(stand_in, trial.number)
        assert arguments[:2] == ["--eager", f"--set={DISCOUNT}={value}"]
        assert arguments[-2:] == ["--seed=0", f"--run_dir={folder}"]
        assert (stand_in / f"trial{trial.number:03d}" / "seed0.log").read_text().endswith("done\n")
    best = max(trials, key=lambda trial: trial.value)
    best_preset = json.loads((stand_in / "best.json").read_text())
    assert best_preset["preset"]["agent"]["algorithm"]["discount"] == best.params[DISCOUNT]
    assert (best_preset["trial"], best_preset["score"]) == (best.number, best.value)
    assert best_preset["initial_weights"] == "runs/first"
    figures = {path.name: path.read_bytes()[:4] for path in stand_in.glob("tuning_*.png")}
    assert figures == dict.fromkeys([f"tuning_{x}.png" for x in ("history", "slices", "importances")], b"\x89PNG")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{stand_in}: 0 of 3 trials have ended"
    assert printed[4] == "score     trial000  99.00, best trial000 with 99.00"
    assert printed[-5].split()[:3] == [f"trial{best.number:03d}", f"{best.value:.2f}", f"{best.params[DISCOUNT]:.4g}"]
    assert cli.run(["tune", f"--run_dir={stand_in}", "--report"]) == 0
    assert capsys.readouterr().out.splitlines() == printed[-7:]
    with pytest.raises(FileNotFoundError):  # a tuning folder is no run directory
        cli.run(["evaluate", f"--run_dir={stand_in}"])


def test_proposals_are_seeded(tmp_path):
    content = {"seeds": [3], "pruner": "none", "prune_after": 3}
    distribution = {DISCOUNT: parse_dimension(f"{DISCOUNT}=uniform(0.5, 1)").distribution}

    def proposals(name):
        (tmp_path / name).mkdir(exist_ok=True)
        study = open_study(open_storage(tmp_path / name), content)
        return [study.ask(distribution).params[DISCOUNT] for _ in range(3)]

    first = proposals("a")
    assert proposals("b") == first and not set(proposals("a")) & set(first)


def test_score_is_the_mean_of_last_evaluations_and_seeds(stand_in):
    assert run(stand_in, "--num_seeds=2", "--seed=4", "--last_evaluations=2", trials=1) == 0
    [trial] = trials_of(stand_in)
    assert trial.value == pytest.approx((75 + 100) / 2 * 0.99 + 4.5)
    assert list(trial.intermediate_values.values()) == pytest.approx([25 * n * 0.99 + 4 for n in (1, 2, 3, 4)])
    assert starts(stand_in, 0, 5)[0][-2] == "--seed=5"


@pytest.mark.slow
def test_bad_trial_is_pruned(stand_in, monkeypatch, capsys):
    monkeypatch.setenv("WAIT", "trial005")
    assert run(stand_in, "--num_seeds=2", trials=6) == 0
    assert states(stand_in) == ["COMPLETE"] * 5 + ["PRUNED"]
    assert trials_of(stand_in)[5].intermediate_values == dict.fromkeys((1, 2, 3), -1000.0)
    assert (stand_in / "trial005" / "seed0" / "checkpoints").is_dir() and not (stand_in / "trial005" / "seed1").exists()
    printed = capsys.readouterr().out
    assert re.search(r"^pruned    trial005/seed0  after 0:00:0\d$", printed, re.MULTILINE)
    _, table = printed.split("6 trials: ")
    assert table.startswith("5 complete, 1 pruned\n") and "trial004" in table and "trial005" not in table


@pytest.mark.parametrize(("pruner", "pruned"), [("median", [False, True, True]), ("none", [False] * 3)])
def test_prune_after(tmp_path, pruner, pruned):
    study = open_study(open_storage(tmp_path), {"seeds": [0], "pruner": pruner, "prune_after": 2})

    def prune_decisions(values):
        trial, pruned_so_far = study.ask(), []
        for step, value in enumerate(values, 1):
            trial.report(value, step)
            pruned_so_far.append(bool(trial.should_prune()))
        study.tell(trial, values[-1])
        return pruned_so_far

    for value in range(5):
        prune_decisions([value, value, value])
    assert prune_decisions([-9, -9, -9]) == pruned


def test_failed_trial_is_reported(stand_in, monkeypatch, capsys):
    monkeypatch.setenv("BREAK", "trial000")
    assert run(stand_in, "--num_seeds=2", trials=1) == 1
    log = stand_in / "trial000" / "seed0.log"
    assert f"failed    trial000/seed0  status 1, see {log}\n          tfsac: broken" in capsys.readouterr().out
    assert not (stand_in / "trial000" / "seed1").exists()
    assert resume(stand_in, "--trials=2") == 0
    assert states(stand_in) == ["FAIL", "COMPLETE"]


@pytest.mark.slow
def test_incompatible_values_fail_without_training(stand_in, capsys):
    # Each value is valid alone, but not both together.
    factor, sigma = (f"agent.algorithm.temperature.target_entropy_{name}" for name in ("factor", "sigma"))
    flags = [f"--set={DISCOUNT}=0.5", f"--space={factor}=choice(null, -2)", f"--space={sigma}=choice(null, 0.1)"]
    assert run(stand_in, *flags, "--preset=pendulum_twin_sac", space=None, trials=12) == 0
    failed = [trial for trial in trials_of(stand_in) if trial.state.name == "FAIL"]
    assert {(trial.params[factor], trial.params[sigma]) for trial in failed} == {("-2", "0.1")}
    assert not any((stand_in / f"trial{trial.number:03d}").exists() for trial in failed)
    assert "refused   trial" in capsys.readouterr().out


def test_interrupted_trial_is_continued(stand_in, monkeypatch, capsys):
    monkeypatch.setenv("WAIT", "trial001")
    send_when(stand_in / "trial001" / "seed0" / "waiting", signal.SIGTERM)
    assert run(stand_in) == 143
    assert states(stand_in) == ["COMPLETE", "RUNNING"]
    assert f"tfsac tune --run_dir={stand_in} --resume" in capsys.readouterr().out.splitlines()[-1]
    monkeypatch.delenv("WAIT")
    journal = stand_in / "journal.log"
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "worker_i')  # a partial line, as from a full disk
    assert resume(stand_in) == 0
    assert states(stand_in) == ["COMPLETE"] * 3
    _, second = starts(stand_in, 1)
    assert "--resume" in second and f"--set={DISCOUNT}={trials_of(stand_in)[1].params[DISCOUNT]}" in second
    printed = capsys.readouterr().out
    assert f"{stand_in}: 1 of 3 trials have ended\n" in printed and "resumed   trial001/seed0\n" in printed
    assert len(starts(stand_in, 0)) == len(starts(stand_in, 2)) == 1
    assert resume(stand_in, "--trials=1") == 0
    assert "earlier" in capsys.readouterr().out.splitlines()[0]


def test_resume_with_another_preset_or_space_is_rejected(stand_in, monkeypatch):
    assert run(stand_in, trials=1) == 0
    before = folder_contents(stand_in)
    for more, word in (("--preset=pendulum_twin_sac", "preset"), (f"--space={DISCOUNT}=uniform(0.5, 0.9)", "uniform")):
        with pytest.raises(TfsacError, match=word):
            resume(stand_in, more)
    assert folder_contents(stand_in) == before
    assert resume(stand_in, "--preset=pendulum_sac") == 0
    (stand_in / "tuning.json").write_text("{")
    with pytest.raises(TfsacError, match=r"tuning\.json is damaged"):
        resume(stand_in)


def test_tuning_keeps_its_default_space(stand_in, monkeypatch, capsys):
    assert run(stand_in, f"--set={POLICY_RATE}=7e-5", trials=1, space=f"--set={DISCOUNT}=0.9") == 0
    printed = capsys.readouterr().out
    assert f"not searched: {RATE}=" in printed and f"not searched: {DISCOUNT}=" in printed
    assert not any(argument.startswith(f"--set={RATE}") for argument in starts(stand_in, 0)[0])
    monkeypatch.setitem(DEFAULT_SPACES, "soft_actor_critic", ("agent.algorithm.n_step=int(1, 3)",))
    assert resume(stand_in, "--trials=2") == 0
    assert len(trials_of(stand_in)[1].params) >= 4


@pytest.mark.acceptance
def test_tuning_on_a_cluster(stand_in):
    pytest.importorskip("ray")
    (stand_in.parent / "controls.json").write_text('{"WAIT": "trial005"}')
    one_at_a_time = f"--cpus_per_run={os.cpu_count()}"
    flags = ["--trials=6", "--ray_address=local", one_at_a_time, SPACE]
    assert cli.run(["tune", f"--run_dir={stand_in}", *flags]) == 0
    assert states(stand_in) == ["COMPLETE"] * 5 + ["PRUNED"]
    assert (stand_in / "trial005" / "seed0" / "checkpoints").is_dir()


PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "sweeps.md"
COMMANDS = re.findall(r"^tfsac tune (.*)$", PAGE.read_text(encoding="utf-8").replace("\\\n", " "), re.MULTILINE)


def test_docs_commands_and_default_spaces():
    assert len(COMMANDS) > 5
    for line in COMMANDS:
        f, _ = parse("tune", shlex.split(line, comments=True))
        search_space(f.space, preset_with_flags(f.preset or "pendulum_sac"))
    text = PAGE.read_text(encoding="utf-8").replace(" = ", "=")
    for dimension in map(parse_dimension, {text for texts in DEFAULT_SPACES.values() for text in texts}):
        assert f"`{dimension.text}`" in text


@pytest.mark.acceptance
def test_real_tuning(tmp_path):
    folder = tmp_path / "tune"
    flags = tiny.assignments({**tiny.CHANGES, **tiny.SHORTER})
    space = [f"--space={DISCOUNT}=1-log(0.01, 0.1)", f"--space={RATE}=log(1e-4, 1e-2)"]
    assert cli.run(["tune", f"--run_dir={folder}", "--trials=2", "--use_cpu", *flags, *space]) == 0
    best = max(trials_of(folder), key=lambda trial: trial.value)
    preset = load_preset(folder / "best.json")
    assert preset.agent.algorithm.discount == pytest.approx(1 - best.params[DISCOUNT])
    assert preset.agent.networks["q"].learning_rate == best.params[RATE]
    assert (folder / "tuning_slices.png").is_file()
    [returns] = [row["evaluation/return_mean"] for row in tiny.rows(folder / f"trial{best.number:03d}" / "seed0")[-1:]]
    assert best.value == float(returns)
    assert all((folder / f"trial00{number}" / "seed0" / "policy").is_dir() for number in (0, 1))
