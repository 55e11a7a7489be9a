"""A table of command lines that cannot be carried out, one a kind: each ends with status 2 and says why in one line, and
writes nothing.
"""

import json
import shlex

import pytest

from tfsac import cli
from tfsac.catalog import load_preset
from tfsac.parameters import RunParameters, to_json

# Command line, a word of its reason. The working folder has the files and folders of the fixture `place`.
WRONG = [
    # the command and its flags
    ("trian", "train"),
    ("train --sed=1", "seed"),
    ("train --seed", "seed"),
    ("train --seed=1.5", "seed"),
    ("train --seed=1099511627776", "seed"),
    ("train --num_envs=0", "num_envs"),
    ("train --strategy=Mirrored", "mirrored"),
    ("train --num_devices=2", "num_devices"),
    ("train --histograms --notensorboard", "tensorboard"),
    ("train --jit_compile --eager", "eager"),
    ("train --num_actors=2", "ray_address"),
    ("train --num_seeds=2 --resume --run_dir=run", "resume"),
    ("train --strategy=multi_worker --run_dir=new", "TF_CONFIG"),
    (
        "train --preset=pendulum_twin_sac --stop_at_threshold --level=MountainCarContinuous-v0 --run_dir=new",
        "min_reward_threshold",
    ),
    ("train --logger=nonsense --run_dir=new", "nonsense"),
    # presets and parameters
    ("train --preset=Pendulum_sac", "pendulum_sac"),
    ("train --preset=bad/type.py", "type.py"),
    ("train --preset=bad/list.json", "list.json"),
    ("train --set=agent.algorithm.discont=1", "discount"),
    ("train --set=agent.algorithm.discount=1.5", "discount"),
    ("train --set=agent.memory.max_size=many", "max_size"),
    ("train --set=schedule.improve_steps=Minutes(5)", "improve_steps"),
    ("""train --set='agent.memory={"kind":"unifrom"}'""", "uniform"),
    # levels
    ("train --level=Pendulm-v1", "Pendulum-v1"),
    ("train --preset=pendulum_sac --level=CartPole-v1 --run_dir=new", "discrete"),
    # folders of runs
    ("train --run_dir=full", "full"),
    ("train --resume", "run_dir"),
    ("train --resume --run_dir=empty", "config.json"),
    ("train --resume --run_dir=run", "checkpoint"),
    ("train --resume --run_dir=run --seed=1", "seed"),
    ("train --checkpoint_restore_dir=missing --run_dir=new", "missing"),
    ("train --checkpoint_restore_dir=run --run_dir=new", "best.npz"),
    # what a run left
    ("evaluate --run_dir=missing", "config.json"),
    ("evaluate --run_dir=young", "saved weights"),
    ("evaluate --run_dir=run", "best.npz"),
    ("export --run_dir=missing --out=new", "config.json"),
    ("record --run_dir=missing --out=new.npz", "config.json"),
    ("plot missing", "missing"),
    ("compare missing", "missing"),
    # the rest
    ("sweep --run_dir=full", "full"),
    ("sweep --run_dir=new --grid=agent.algorithm.discount", "grid"),
    ("tune --run_dir=new --space=agent.algorithm.discount=unifrom(0,1)", "uniform"),
    ("load --card=missing", "missing"),
    ("spinup --gamma=2", "gamma"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that the table names."""
    folder = tmp_path_factory.mktemp("wrong")
    config = json.dumps({"preset": to_json(load_preset("pendulum_sac")), "run": to_json(RunParameters())}).encode()
    files = {
        "file.npz": b"mine",
        "full/x": b"mine",
        "bad/type.py": b"preset = 5\n",
        "bad/list.json": b"[]",
        "run/config.json": config,
        "run/best.npz": b"weights",
        "young/config.json": config,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)
    (folder / "empty").mkdir()
    return folder


def tree(folder):
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "word"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_command_line_says_why_in_one_line_and_writes_nothing(line, word, place, monkeypatch, capfd):
    monkeypatch.chdir(place)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    before = tree(place)
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line))
    printed = capfd.readouterr().err
    assert ended.value.code == 2, printed
    assert printed.startswith("tfsac: ") and printed.count("\n") == 1 and word in printed
    assert tree(place) == before
