"""The Python interface: errors, TensorFlow start-up, policies in threads and processes."""

import concurrent.futures
import copy
import pathlib
import pickle
import shutil
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import tensorflow as tf
import tiny
from cli_tools import SUBPROCESS_ENV

import tfsac
from tfsac import cli
from tfsac.errors import TfsacError
from tfsac.training import devices
from tfsac.utils import machine

PRESET = tiny.short_preset()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return tiny.untrained_run(tmp_path_factory.mktemp("interface") / "run", "Pendulum-v1", PRESET)


@pytest.fixture(scope="module")
def policy(run_dir):
    return tfsac.load_policy(run_dir)


INVALID = {
    "unknown video format": (lambda r: tfsac.evaluate(r, 1, dump_mp4="new/a.avi"), TfsacError, "mp4"),
    "no run": (lambda r: tfsac.evaluate("nowhere"), FileNotFoundError, "nowhere"),
    "human rendering without a display": (lambda r: tfsac.evaluate(r, 1, render="human"), TfsacError, "display"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_calls_write_nothing(name, run_dir, tmp_path, monkeypatch):
    call, error, word = INVALID[name]
    monkeypatch.chdir(tmp_path)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(error, match=word):
        call(run_dir)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # raised in Keras
def test_deepcopied_policy_is_independent(run_dir):
    policy = tfsac.load_policy(run_dir, seed=0)
    copied = copy.deepcopy(policy)
    samples = [each.act(np.ones(3), deterministic=False).tolist() for each in (policy, copied, policy)]
    assert samples[0] == samples[1] != samples[2]
    before = policy.act(np.ones(3), deterministic=True)
    assert copied.act(np.ones(3), deterministic=True) == before
    for variable in policy.acting.networks["policy"].variables:
        variable.assign(tf.zeros_like(variable))
    policy.acting.refresh()
    assert policy.act(np.ones(3), deterministic=True) != before
    assert copied.act(np.ones(3), deterministic=True) == before


def test_export_replaces_only_exports(policy, run_dir, tmp_path):
    run, file = tmp_path / "run", tmp_path / "notes.txt"
    shutil.copytree(run_dir, run)
    file.write_text("mine")
    for out in (run, file):
        with pytest.raises(FileExistsError, match="empty folder"):
            tfsac.export(policy, out, replace=True)
    assert (run / "best.npz").is_file() and file.read_text() == "mine"
    out = tfsac.export(policy, tmp_path / "exported")
    assert tfsac.export(policy, out, replace=True) == out
    (out / "assets.extra").mkdir()  # SavedModels of other programs are kept
    with pytest.raises(FileExistsError, match="empty folder"):
        tfsac.export(policy, out, replace=True)
    assert (out / "assets.extra").is_dir()


def test_forked_process_needs_spawn(run_dir, tmp_path, monkeypatch):
    tiny.register()
    changes = {"environment.level": "TfsacCameraArm-v0", **tiny.camera_networks()}
    preset = tfsac.override(tiny.shrunk(tfsac.load_preset("pendulum_sac")), changes)
    image_policy = tfsac.load_policy(tiny.untrained_run(tmp_path / "camera", "TfsacCameraArm-v0", preset))
    observation = {"joints": np.zeros(3), "camera": np.zeros((8, 8, 3), np.uint8)}
    dense_policy = tfsac.load_policy(run_dir)
    exported = tfsac.load_exported(tfsac.export(dense_policy, tmp_path / "exported"))
    lite = tfsac.load_exported(tfsac.export(dense_policy, tmp_path / "lite", "tflite"))
    expected = dense_policy.act(np.ones(3))
    monkeypatch.setattr(machine, "TENSORFLOW_IN", [1])
    np.testing.assert_array_equal(dense_policy.act(np.ones(3)), expected)  # NumPy forward pass
    np.testing.assert_allclose(lite(np.ones(3)), expected, atol=1e-5)
    for call in (
        lambda: tfsac.train(PRESET, tmp_path / "run", quiet=True),
        lambda: tfsac.load_policy(run_dir),
        lambda: image_policy.act(observation),
        lambda: exported(np.ones(3)),
    ):
        with pytest.raises(TfsacError, match="spawn"):
            call()
    assert not (tmp_path / "run").exists()


def test_policies_are_thread_safe(policy, tmp_path, monkeypatch):
    observation = np.random.default_rng(0).uniform(-1, 1, (64, 3)).astype(np.float32)
    lite = tfsac.load_exported(tfsac.export(policy, tmp_path / "lite", "tflite"))
    runner, inputs = lite.serve, {}

    def interpreter(**kwargs):  # shares its inputs between threads, as LiteRT does
        inputs.update(kwargs)
        time.sleep(0.001)
        return runner(**inputs)

    monkeypatch.setattr(lite, "serve", interpreter)
    for act in (lite, tfsac.load_exported(tfsac.export(policy, tmp_path / "saved")), policy.act):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            actions = np.array([*pool.map(act, observation)])
        np.testing.assert_allclose(actions, policy.act(observation), atol=1e-5)


def test_loaded_policy_is_seeded(run_dir):
    def samples(**kwargs):
        policy = tfsac.load_policy(run_dir, **kwargs)
        return [policy.act(np.zeros(3), deterministic=False).tolist() for _ in range(3)]

    assert samples(seed=3) == samples(seed=3) != samples(seed=4)
    assert samples() != samples()


def test_corrupt_weights_are_rejected(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "run" / "best.npz") as archive:
        start = archive.getinfo("q/0.npy").header_offset
    content = bytearray((tmp_path / "run" / "best.npz").read_bytes())
    content[start + 300] ^= 1  # past the archive and array headers
    (tmp_path / "run" / "best.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"best\.npz is damaged .*q/0\.npy"):  # although acting needs no critic
        tfsac.load_policy(tmp_path / "run")


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_exported_policy_is_picklable(policy, tmp_path, monkeypatch, format):
    monkeypatch.chdir(tmp_path)
    exported = tfsac.load_exported(tfsac.export(policy, "exported", format))
    content = pickle.dumps(exported)
    monkeypatch.chdir(tmp_path.parent)
    np.testing.assert_array_equal(pickle.loads(content)(np.ones(3)), exported(np.ones(3)))


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_preset_by_name_path_or_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.py").write_text(
        "from toys import tiny_preset\npreset = tiny_preset(schedule__improve_steps=50)\n"
    )
    first = tfsac.train("mine.py", "runs/a", quiet=True)
    second = tfsac.train(pathlib.Path("runs/a/config.json"), "runs/b", quiet=True)
    assert first.counters.env_steps == second.counters.env_steps == 150
    assert tfsac.Trainer("pendulum_sac", "runs/c", quiet=True).preset.environment.level == "Pendulum-v1"


SCRIPT = """
import sys
import warnings
import tensorflow as tf
import tfsac
from toys import tiny_preset
warnings.simplefilter("error")
for i in range(2):
    print(tfsac.train(tiny_preset(schedule__improve_steps=10), f"{sys.argv[1]}/{i}").reason)
print("threads", tf.config.threading.get_inter_op_parallelism_threads(), tf.config.threading.get_intra_op_parallelism_threads())
"""


@pytest.mark.acceptance
def test_script_sets_threads_and_raises_no_warnings(run_python, tmp_path, monkeypatch):
    for name in devices.THREADS:
        monkeypatch.delenv(name, raising=False)
    printed = run_python(SCRIPT, str(tmp_path)).splitlines()
    assert printed[-1].startswith("threads") and printed[-1].endswith(" 1") and printed.count("finished") == 2


@pytest.mark.slow
def test_script_start_is_silent_and_selects_tensorflow():
    environment = {name: value for name, value in SUBPROCESS_ENV.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", "import tfsac, keras; tfsac.train; print(keras.config.backend())"]
    done = subprocess.run(command, env={**environment, "KERAS_BACKEND": "jax"}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("tensorflow\n", "")


def test_preset_as_html_table_and_text(capsys):
    preset = tfsac.override(tfsac.load_preset("pendulum_sac"), {"environment.kwargs.name": "<b>"})
    table = preset._repr_html_()
    assert "<td>agent.algorithm.discount</td><td>0.99</td>" in table and "<td>&lt;b&gt;</td>" in table
    assert "<td>num_envs</td><td>1</td>" in preset.environment._repr_html_()
    tfsac.show(preset)
    lines = capsys.readouterr().out.splitlines()
    assert "agent.algorithm.discount=0.99" in lines and len(lines) == table.count("<tr>") - 1
    cli.run(["show", "--preset=pendulum_sac", "--set=environment.kwargs.name=<b>"])
    assert capsys.readouterr().out.splitlines() == lines
