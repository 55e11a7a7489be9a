"""The Python interface: what it refuses, how it starts TensorFlow, policies in threads and processes."""

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
from cli_tools import ENVIRONMENT

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


REFUSED = {
    "a film of another kind": (lambda r: tfsac.evaluate(r, 1, dump_mp4="new/a.avi"), TfsacError, "mp4"),
    "no run": (lambda r: tfsac.evaluate("nowhere"), FileNotFoundError, "nowhere"),
    "a window without a display": (lambda r: tfsac.evaluate(r, 1, render="human"), TfsacError, "display"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_and_leaves_nothing(name, run_dir, tmp_path, monkeypatch):
    use, error, word = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(error, match=word):
        use(run_dir)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of Keras, which saves a layer to copy it
def test_a_copied_policy_keeps_its_weights_and_has_separate_random_numbers(run_dir):
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


def test_an_export_makes_room_for_another_and_for_nothing_else(policy, run_dir, tmp_path):
    """A wrong `out` must not cost anybody a run, or a file."""
    run, file = tmp_path / "run", tmp_path / "notes.txt"
    shutil.copytree(run_dir, run)
    file.write_text("mine")
    for out in (run, file):
        with pytest.raises(FileExistsError, match="empty folder"):
            tfsac.export(policy, out, replace=True)
    assert (run / "best.npz").is_file() and file.read_text() == "mine"
    out = tfsac.export(policy, tmp_path / "exported")
    assert tfsac.export(policy, out, replace=True) == out
    (out / "assets.extra").mkdir()  # of a server; a model card has other files beside
    with pytest.raises(FileExistsError, match="empty folder"):
        tfsac.export(policy, out, replace=True)
    assert (out / "assets.extra").is_dir()


def test_a_forked_process_is_told_to_be_spawned(run_dir, tmp_path, monkeypatch):
    tiny.register()
    changes = {"environment.level": "TfsacCameraArm-v0", **tiny.camera_networks()}
    preset = tfsac.override(tiny.shrunk(tfsac.load_preset("pendulum_sac")), changes)
    of_images = tfsac.load_policy(tiny.untrained_run(tmp_path / "camera", "TfsacCameraArm-v0", preset))
    seen = {"joints": np.zeros(3), "camera": np.zeros((8, 8, 3), np.uint8)}
    dense = tfsac.load_policy(run_dir)
    exported = tfsac.load_exported(tfsac.export(dense, tmp_path / "exported"))
    lite = tfsac.load_exported(tfsac.export(dense, tmp_path / "lite", "tflite"))
    expected = dense.act(np.ones(3))
    monkeypatch.setattr(machine, "TENSORFLOW_IN", [1])
    np.testing.assert_array_equal(dense.act(np.ones(3)), expected)  # in NumPy
    np.testing.assert_allclose(lite(np.ones(3)), expected, atol=1e-5)
    for use in (
        lambda: tfsac.train(PRESET, tmp_path / "run", quiet=True),
        lambda: tfsac.load_policy(run_dir),
        lambda: of_images.act(seen),
        lambda: exported(np.ones(3)),
    ):
        with pytest.raises(TfsacError, match="spawn"):
            use()
    assert not (tmp_path / "run").exists()


def test_threads_share_a_policy_and_get_the_actions_of_their_own_observations(policy, tmp_path, monkeypatch):
    seen = np.random.default_rng(0).uniform(-1, 1, (64, 3)).astype(np.float32)
    lite = tfsac.load_exported(tfsac.export(policy, tmp_path / "lite", "tflite"))
    runner, inputs = lite.serve, {}

    def interpreter(**given):  # has one set of inputs, as LiteRT's
        inputs.update(given)
        time.sleep(0.001)
        return runner(**inputs)

    monkeypatch.setattr(lite, "serve", interpreter)
    for act in (lite, tfsac.load_exported(tfsac.export(policy, tmp_path / "saved")), policy.act):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = np.array([*pool.map(act, seen)])
        np.testing.assert_allclose(found, policy.act(seen), atol=1e-5)


def test_samples_are_other_ones_at_every_load_unless_a_seed_is_given(run_dir):
    def samples(**given):
        policy = tfsac.load_policy(run_dir, **given)
        return [policy.act(np.zeros(3), deterministic=False).tolist() for _ in range(3)]

    assert samples(seed=3) == samples(seed=3) != samples(seed=4)
    assert samples() != samples()


def test_a_flipped_bit_in_the_best_weights_is_refused(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "run" / "best.npz") as archive:
        start = archive.getinfo("q/0.npy").header_offset
    content = bytearray((tmp_path / "run" / "best.npz").read_bytes())
    content[start + 300] ^= 1  # after the headers of the archive and of the array
    (tmp_path / "run" / "best.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"best\.npz is damaged .*q/0\.npy"):  # though acting needs no critic
        tfsac.load_policy(tmp_path / "run")


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_an_exported_policy_is_pickled_as_its_path(policy, tmp_path, monkeypatch, format):
    monkeypatch.chdir(tmp_path)
    exported = tfsac.load_exported(tfsac.export(policy, "exported", format))
    content = pickle.dumps(exported)
    monkeypatch.chdir(tmp_path.parent)
    np.testing.assert_array_equal(pickle.loads(content)(np.ones(3)), exported(np.ones(3)))


@pytest.mark.usefixtures("training_alone")
@pytest.mark.slow
def test_a_preset_is_given_by_name_path_or_config(tmp_path, monkeypatch):
    """The name is looked up before anything is built, so a wrong level of it would be refused here."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.py").write_text(
        "from toys import tiny_preset\npreset = tiny_preset(schedule__improve_steps=50)\n"
    )
    trained = tfsac.train("mine.py", "runs/a", quiet=True)
    again = tfsac.train(pathlib.Path("runs/a/config.json"), "runs/b", quiet=True)
    assert trained.counters.env_steps == again.counters.env_steps == 150
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
def test_a_script_has_the_threads_of_the_command_line_and_may_take_warnings_for_errors(
    run_python, tmp_path, monkeypatch
):
    for name in devices.THREADS:
        monkeypatch.delenv(name, raising=False)
    printed = run_python(SCRIPT, str(tmp_path)).splitlines()
    assert printed[-1].startswith("threads") and printed[-1].endswith(" 1") and printed.count("finished") == 2


@pytest.mark.slow
def test_a_script_computes_with_tensorflow_and_sees_nothing_of_its_start():
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", "import tfsac, keras; tfsac.train; print(keras.config.backend())"]
    done = subprocess.run(command, env={**environment, "KERAS_BACKEND": "jax"}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("tensorflow\n", "")


def test_a_preset_is_a_table_in_a_notebook_and_lines_where_it_is_shown(capsys):
    preset = tfsac.override(tfsac.load_preset("pendulum_sac"), {"environment.kwargs.name": "<b>"})
    table = preset._repr_html_()
    assert "<td>agent.algorithm.discount</td><td>0.99</td>" in table and "<td>&lt;b&gt;</td>" in table
    assert "<td>num_envs</td><td>1</td>" in preset.environment._repr_html_()
    tfsac.show(preset)
    lines = capsys.readouterr().out.splitlines()
    assert "agent.algorithm.discount=0.99" in lines and len(lines) == table.count("<tr>") - 1
    cli.run(["show", "--preset=pendulum_sac", "--set=environment.kwargs.name=<b>"])
    assert capsys.readouterr().out.splitlines() == lines
