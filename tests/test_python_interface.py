"""Wrong uses of the Python interface, each with the words that it must give."""

import concurrent.futures
import copy
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import time
import zipfile

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

import tfsac
from tfsac import cli
from tfsac.environments import as_arrays, spec_of
from tfsac.memories import Demonstrations, load_demonstrations
from tfsac.parameters import EnvironmentSteps, ParameterError
from tfsac.testing import Identity, tiny_preset
from tfsac.training import Callback, devices
from tfsac.training.evaluation import Evaluation
from tfsac.utils import machine
from tfsac.utils.machine import option

SHORT = {"schedule__heatup_steps": 40, "schedule__improve_steps": 20, "schedule__steps_between_evaluation_periods": 50}
PRESET = tiny_preset(**SHORT)


ENDS = np.array([(False, True)], [("terminated", bool), ("truncated", bool)])
DEMONSTRATIONS = Demonstrations(ENDS, "Pendulum-v1", np.zeros(1))


class Own(Callback):
    pass


class NoCallback:
    def on_step(self, trainer):
        pass


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return tiny.untrained_run(tmp_path_factory.mktemp("interface") / "run", "Pendulum-v1", PRESET)


@pytest.fixture(scope="module")
def policy(run_dir):
    return tfsac.load_policy(run_dir)


TRAIN = {
    "preset a number": ({"preset": 42}, ParameterError, "preset is a Preset .* Received: 42$"),
    "preset a dict": ({"preset": {"agent": "sac"}}, ParameterError, "preset is a Preset .* Received: {'agent': "
                                                                    "'sac'}$"),
    "preset nothing": ({"preset": None}, ParameterError, "preset is a Preset .* Received: None$"),
    "preset of another name": ({"preset": "pendulum_sax"}, ParameterError, "Did you mean 'pendulum_sac'.* Received: "
                                                                           "'pendulum_sax'$"),
    "preset of no file": ({"preset": "nowhere.py"}, ParameterError, "no preset file of this path. Received: "
                                                                    "nowhere.py$"),
    "no folder": ({"run_dir": None}, TypeError, "run_dir is the path of a folder.* Received: None$"),
    "a folder without a name": ({"run_dir": ""}, ValueError, "run_dir is the path of a folder.* Received: ''$"),
    "a number for a folder": ({"run_dir": 3}, TypeError, "run_dir is the path of a folder.* Received: 3$"),
    "run a dict": ({"run": {"seed": 1}}, TypeError, r"run is RunParameters, such as tfsac.RunParameters\(seed=1\). "
                                                    r"Received: {'seed': 1}$"),
    "run a seed": ({"run": 7}, TypeError, "run is RunParameters.* Received: 7$"),
    "resume a word": ({"resume": "yes"}, TypeError, "resume is True or False. Received: 'yes'$"),
    "quiet a number": ({"quiet": 1}, TypeError, "quiet is True or False. Received: 1$"),
    "a class of callbacks": (
        {"callbacks": [Own]}, TypeError, r"list of Callback objects, not of classes: write Own\(...\). Received: the "
                                         r"class Own$",
    ),
    "one callback": ({"callbacks": Own()}, TypeError, "callbacks is a list of Callback objects. Received: <"),
    "no callback": ({"callbacks": [NoCallback()]}, TypeError, "callbacks is a list of Callback objects. Received: <"),
    "a function as callback": ({"callbacks": [print]}, TypeError, "list of Callback objects. Received: <built-in "
                                                                  "function print>$"),
    "callbacks none": ({"callbacks": None}, TypeError, "callbacks is a list of Callback objects. Received: None$"),
    "models a dict": ({"models": {}}, TypeError, "models is a function without arguments .* Received: {}$"),
    "weights a number": ({"initial_weights": 1}, TypeError, "initial_weights is the run directory .* Received: 1$"),
}  # fmt: skip


@pytest.mark.parametrize("entry", [tfsac.train, tfsac.Trainer])
@pytest.mark.parametrize("name", TRAIN)
def test_training_refuses_what_it_cannot_use(name, entry, tmp_path, monkeypatch):
    given, error, message = TRAIN[name]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        entry(**{"preset": PRESET, "run_dir": tmp_path / "run", "quiet": True, **given})
    assert not list(tmp_path.iterdir())


EPISODES = {
    "text": ({"episodes": "3"}, TypeError, "episodes is a whole number of at least 1. Received: '3'$"),
    "none": ({"episodes": 0}, ValueError, "episodes is at least 1. Received: 0$"),
    "negative": ({"episodes": -1}, ValueError, "episodes is at least 1. Received: -1$"),
    "a fraction": ({"episodes": 2.5}, TypeError, "episodes is a whole number .* Received: 2.5$"),
    "a flag": ({"episodes": True}, TypeError, "episodes is a whole number .* Received: True$"),
    "a negative seed": ({"seed": -1}, ValueError, "seed is at least 0. Received: -1$"),
    "no seed": ({"seed": None}, TypeError, "seed is a whole number of at least 0. Received: None$"),
}


@pytest.mark.parametrize("name", EPISODES)
def test_episodes_and_seeds_are_whole_numbers(name, run_dir, tmp_path):
    given, error, message = EPISODES[name]
    env = gym.make("Pendulum-v1")
    for use in (
        lambda: tfsac.evaluate(run_dir, **given),
        lambda: tfsac.record(run_dir, tmp_path / "new" / "a.npz", **given),
        lambda: tfsac.demonstrate(lambda observation: np.zeros(1), env, **given),
        *([lambda: tfsac.test_policy(run_dir, **given)] if "episodes" in given else []),
    ):
        with pytest.raises(error, match=message):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("episodes", [np.int64(1), 1])
def test_whole_numbers_of_numpy_are_numbers(run_dir, episodes):
    assert len(tfsac.evaluate(run_dir, episodes).returns) == 1


def in_pendulum(action):
    return tfsac.demonstrate(lambda observation: action, gym.make("Pendulum-v1"), 1)


OTHERS = {
    "evaluate deterministic": (lambda r, p: tfsac.evaluate(r, deterministic="no"), TypeError, "deterministic is True "
                                                                                              "or False. Received: "
                                                                                              "'no'$"),
    "evaluate a flag for a film": (lambda r, p: tfsac.evaluate(r, 1, dump_mp4=True), TypeError, "dump_mp4 is the path "
                                                                                                "of a new file.* "
                                                                                                "Received: True$"),
    "evaluate a film of another kind": (lambda r, p: tfsac.evaluate(r, 1, dump_mp4="new/a.avi"), ValueError, "ends in .mp4 or .gif. Received: new/a.avi$"),
    "evaluate a picture": (lambda r, p: tfsac.evaluate(r, 1, plot_actions="new/a.jpg"), ValueError, "ends in .png. Received: new/a.jpg$"),
    "evaluate no run": (lambda r, p: tfsac.evaluate("nowhere"), FileNotFoundError, "no run directory: it has no config.json. "
                                                                                   "Received: nowhere$"),
    "record to a number": (lambda r, p: tfsac.record(r, 3), TypeError, "out is the path of a new file.* Received: 3$"),
    "record to another kind": (lambda r, p: tfsac.record(r, "new/a.csv"), ValueError, "ends in .npz. Received: "
                                                                                      "new/a.csv$"),
    "demonstrate with an action": (lambda r, p: tfsac.demonstrate(0.5, gym.make("Pendulum-v1")), TypeError, "act is a function .* Received: 0.5$"),
    "demonstrate in a level": (lambda r, p: tfsac.demonstrate(p.act, "Pendulum-v1"), TypeError, "env is a Gymnasium "
                                                                                                "environment.* Received: 'Pendulum-v1'$"),
    "override a name": (lambda r, p: tfsac.override("pendulum_sac", {}), ParameterError, "preset is a Preset.* "
                                                                                         "Received: 'pendulum_sac'$"),
    "override with a list": (lambda r, p: tfsac.override(PRESET, ["a=1"]), ParameterError, r"changes are a dict .* "
                                                                                           r"Received: \['a=1'\]$"),
    "override a number": (lambda r, p: tfsac.override(PRESET, {1: 2}), ParameterError, "A path is a string.* Received: 1$"),
    "override with a function": (lambda r, p: tfsac.override(PRESET, {"environment.level": print}), ParameterError, "environment.level is set to .* Received: <built-in"),
    "override another field": (lambda r, p: tfsac.override(PRESET, {"agent.algorithm.discont": 1}), ParameterError, "Did you mean 'discount'"),
    "load_preset a number": (lambda r, p: tfsac.load_preset(42), ParameterError, "Received: 42$"),
    "load_preset nothing": (lambda r, p: tfsac.load_preset(None), ParameterError, "Received: None$"),
    "load_preset a run": (lambda r, p: tfsac.load_preset(str(r)), ParameterError, "Did you mean '.*config.json'.* "
                                                                                  "Received: "),
    "act deterministic": (lambda r, p: p.act(np.zeros(3), "no"), TypeError, "deterministic is True or False. Received: "
                                                                            "'no'$"),
    "a policy of numbers": (lambda r, p: tfsac.Policy(1, 2), TypeError, "acting is an agent's policy; .* Received: 1$"),
    "save no demonstrations": (lambda r, p: tfsac.save_demonstrations("a.npz", [1]), TypeError, r"demonstrations is "
                                                                                                r"Demonstrations, .* "
                                                                                                r"Received: \[1\]$"),
    "plot nothing": (lambda r, p: tfsac.plot(None), TypeError, "run_dir is the path of a folder.* Received: None$"),
    "sac with no actor_critic": (lambda r, p: tfsac.sac(Identity, 3), ParameterError, "actor_critic is a function, "
                                                                                      "such as tfsac.mlp_actor_critic. "
                                                                                      "Received: 3$"),
    "load demonstrations of an environment": (
        lambda r, p: load_demonstrations("a.npz", gym.make("Pendulum-v1")), TypeError, r"spec is the spec of an "
                                                                                       r"environment, tfsac.environments.spec_of\(env\). Received: <",
    ),
    "load demonstrations of nothing": (lambda r, p: load_demonstrations(None, p.acting.spec), TypeError, "path is a demonstration file.* Received: None$"),
    "load demonstrations of another level": (lambda r, p: load_demonstrations("a.npz", p.acting.spec, 3), TypeError, "level is the id .* Received: 3$"),
    "load a text of episodes": (lambda r, p: load_demonstrations("a.npz", p.acting.spec, None, "2"), TypeError, "num_episodes is a whole .* Received: '2'$"),
    "save other records": (lambda r, p: tfsac.save_demonstrations("a.npz", DEMONSTRATIONS._replace(records=None)), TypeError, "records is what tfsac.demonstrate returns. Received: None$"),
    "save another level": (lambda r, p: tfsac.save_demonstrations("a.npz", DEMONSTRATIONS._replace(level=3)), TypeError, "level is what tfsac.demonstrate returns. Received: 3$"),
    "save no returns": (lambda r, p: tfsac.save_demonstrations("a.npz", DEMONSTRATIONS._replace(returns=None)), TypeError, "returns is what .* Received: None$"),
    "save other returns": (
        lambda r, p: tfsac.save_demonstrations("a.npz", DEMONSTRATIONS._replace(returns=np.zeros(3))), ValueError, r"returns has one number .*, here 1. Received: the shape \(3,\)$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_used_is_refused_in_words(name, run_dir, policy, tmp_path, monkeypatch):
    use, error, message = OTHERS[name]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message) as caught:
        use(run_dir, policy)
    assert "Received: " in str(caught.value) and "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["saved_model.pb", "policy.tflite"])
def test_an_export_is_no_run_and_the_error_says_what_reads_it(name, tmp_path):
    (tmp_path / name).touch()
    message = r"no config\.json\. It is an export: tfsac\.load_exported reads it\. Received: "
    with pytest.raises(FileNotFoundError, match=message):
        tfsac.load_policy(tmp_path)


def test_an_image_is_not_made_of_fractions():
    spec = spec_of(tiny.CameraArm())
    seen = {"joints": np.zeros(3), "camera": np.zeros((8, 8, 3), np.int64)}
    assert as_arrays(seen, spec)["camera"].dtype == np.uint8
    for wrong in (0.5, -1, 256, np.nan):
        with pytest.raises(ValueError, match="0 to 255"):
            as_arrays({**seen, "camera": np.full((8, 8, 3), wrong)}, spec)


def test_demonstrations_keep_what_was_seen():
    """An act that writes into its observation does not change the record."""

    def act(observation):
        observation[:] = 99.0
        return np.zeros(1)

    recorded = tfsac.demonstrate(act, gym.make("Pendulum-v1", max_episode_steps=3), 1).records
    assert np.abs(recorded["observation/observation"]).max() < 9


def test_an_export_makes_room_for_another_and_for_nothing_else(policy, run_dir, tmp_path):
    """A wrong `out` must not cost anybody a run, or a file."""
    run, file = tmp_path / "run", tmp_path / "notes.txt"
    shutil.copytree(run_dir, run)
    file.write_text("mine")
    for out in (run, file):
        with pytest.raises(FileExistsError, match=r"Exports go to a new or empty folder. Received: "):
            tfsac.export(policy, out, replace=True)
    assert (run / "best.npz").is_file() and file.read_text() == "mine"
    out = tfsac.export(policy, tmp_path / "exported")
    assert tfsac.export(policy, out, replace=True) == out
    (out / "assets.extra").mkdir()  # of a server; a model card has other files beside
    with pytest.raises(FileExistsError, match=r"Exports go to a new or empty folder. Received: "):
        tfsac.export(policy, out, replace=True)
    assert (out / "assets.extra").is_dir()


SETTINGS = {
    "mixed": (
        lambda: keras.config.set_dtype_policy("mixed_float16"),
        lambda: keras.config.set_dtype_policy("float32"),
        "float32: .*keras.json.* Received: mixed_float16$",
    ),
    "float64": (
        lambda: keras.config.set_floatx("float64"),
        lambda: keras.config.set_floatx("float32"),
        "float32: .* Received: float64$",
    ),
    "images": (
        lambda: keras.config.set_image_data_format("channels_first"),
        lambda: keras.config.set_image_data_format("channels_last"),
        "channels_last.*keras.json.* Received: channels_first$",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_keras_that_change_networks_are_refused(name, run_dir, tmp_path):
    change, back, message = SETTINGS[name]
    change()
    try:
        for use in (lambda: tfsac.train(PRESET, tmp_path / "run", quiet=True), lambda: tfsac.load_policy(run_dir)):
            with pytest.raises(ValueError, match=message):
                use()
    finally:
        back()
    assert not list(tmp_path.iterdir())


def test_a_mirrored_strategy_in_scope_has_several_devices(tmp_path):
    with (
        tf.distribute.MirroredStrategy(["/cpu:0"]).scope(),
        pytest.raises(ValueError, match=r"Received: the scope of a Mirrored.* of 1 device$"),
    ):
        tfsac.train(PRESET, tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_window_needs_a_display(run_dir, monkeypatch):
    """The library that opens it would end the process with a segmentation fault."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="display"):
        tfsac.evaluate(run_dir, 1, render="human")


def test_a_trainer_that_has_ended_does_not_evaluate(tmp_path):
    trainer = tfsac.Trainer(PRESET, tmp_path / "run", quiet=True)
    trainer.run()
    with pytest.raises(RuntimeError, match=r"The run has ended: tfsac.evaluate.* Received: .*run$"):
        trainer.evaluate()


def test_a_current_folder_that_was_deleted_is_named(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError, match=r"The current folder was deleted: .* Received: run$"):
        tfsac.train(PRESET, "run", quiet=True)


def test_a_forked_process_is_told_to_be_spawned(run_dir, tmp_path, monkeypatch):
    tiny.register()
    changes = {"environment.level": "TfsacCameraArm-v0", **tiny.camera_networks()}
    preset = tfsac.override(tiny.shrunk(tfsac.load_preset("pendulum_sac")), changes)
    of_images = tfsac.load_policy(tiny.untrained_run(tmp_path / "camera", "TfsacCameraArm-v0", preset), critics=True)
    seen = {"joints": np.zeros(3), "camera": np.zeros((8, 8, 3), np.uint8)}
    dense, action = tfsac.load_policy(run_dir), of_images.act(seen)
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
        lambda: of_images.values(seen, action),
        lambda: exported(np.ones(3)),
        lambda: tfsac.load_exported(tmp_path / "exported"),
        lambda: tfsac.export(dense, tmp_path / "again"),
    ):
        with pytest.raises(
            RuntimeError, match=r"get_context\('spawn'\). Received: process \d+, forked after process 1 "
        ):
            use()
    assert not (tmp_path / "run").exists() and not (tmp_path / "again").exists()


FORKED = """
import multiprocessing, sys
import numpy as np
import tfsac

def ask(connection):
    try:
        connection.send(policy(np.zeros(3, np.float32)).shape)
    except Exception as error:
        connection.send(type(error).__name__)

for load in (tfsac.load_exported, lambda path: tfsac.load_policy(path).act):
    policy = load(sys.argv.pop(1))
    ask_child, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=ask, args=(child,))
    process.start()
    print(ask_child.recv() if ask_child.poll(60) else "hangs")
    process.kill()
"""


@pytest.mark.slow
def test_a_child_of_fork_acts_in_numpy_and_does_not_wait_for_tensorflow(run_dir, policy, tmp_path, run_python):
    exported = tfsac.export(policy, tmp_path / "exported")
    assert run_python(FORKED, str(exported), str(run_dir)).splitlines() == ["RuntimeError", "(1,)"]


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
    first, again = (tfsac.evaluate(run_dir, 1, deterministic=False, seed=5).returns for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("entry", ["policy/0", "q/0"])
def test_a_flipped_bit_in_the_best_weights_is_refused(run_dir, tmp_path, entry):
    shutil.copytree(run_dir, tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "run" / "best.npz") as archive:
        start = archive.getinfo(f"{entry}.npy").header_offset
    content = bytearray((tmp_path / "run" / "best.npz").read_bytes())
    content[start + 300] ^= 1  # after the headers of the archive and of the array
    (tmp_path / "run" / "best.npz").write_bytes(content)
    for use in (tfsac.load_policy, tfsac.evaluate, lambda run: tfsac.load_policy(run, critics=True)):
        with pytest.raises(ValueError, match=rf"best\.npz is damaged .*{entry}\.npy.* Received: "):
            use(tmp_path / "run")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # inside Keras
def test_a_policy_is_copied_and_what_cannot_be_pickled_says_what_to_pass(run_dir):
    policy = tfsac.load_policy(run_dir, seed=0)
    copied = copy.deepcopy(policy)
    samples = [each.act(np.ones(3), deterministic=False).tolist() for each in (policy, copied, policy)]
    assert samples[0] == samples[1] != samples[2]  # of the same random numbers, each for itself
    with pytest.raises(TypeError, match=r"run_dir, and call tfsac\.load_policy"):
        pickle.dumps(policy)


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_an_exported_policy_is_pickled_as_its_path(policy, tmp_path, monkeypatch, format):
    monkeypatch.chdir(tmp_path)
    exported = tfsac.load_exported(tfsac.export(policy, "exported", format))
    content = pickle.dumps(exported)
    monkeypatch.chdir(tmp_path.parent)
    np.testing.assert_array_equal(pickle.loads(content)(np.ones(3)), exported(np.ones(3)))


def test_networks_are_not_built_in_a_graph(run_dir):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"outside tf.function, .* Received: graph mode$"):
        tfsac.load_policy(run_dir)


@pytest.mark.usefixtures("training_alone")
@pytest.mark.slow
def test_a_preset_is_given_by_name_path_or_config(tmp_path, monkeypatch):
    """The name is looked up before anything is built, so a wrong level of it would be refused here."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.py").write_text(
        "from tfsac.testing import tiny_preset\npreset = tiny_preset(schedule__improve_steps=50)\n"
    )
    trained = tfsac.train("mine.py", "runs/a", quiet=True)
    again = tfsac.train(pathlib.Path("runs/a/config.json"), "runs/b", quiet=True)
    assert trained.counters.env_steps == again.counters.env_steps == 150
    assert tfsac.Trainer("pendulum_sac", "runs/c", quiet=True).preset.environment.level == "Pendulum-v1"


def test_override_takes_parameter_objects():
    changed = tfsac.override(
        PRESET, {"schedule.improve_steps": EnvironmentSteps(7), "agent.algorithm.discount": np.float64(0.5).item()}
    )
    assert (changed.schedule.improve_steps, changed.agent.algorithm.discount) == (EnvironmentSteps(7), 0.5)


SCRIPT = """
import sys
import warnings
import tensorflow as tf
import tfsac
from tfsac.testing import tiny_preset
warnings.simplefilter("error")
for i in range(2):
    print(tfsac.train(tiny_preset(schedule__improve_steps=10), f"{sys.argv[1]}/{i}").reason)
print("threads", tf.config.threading.get_inter_op_parallelism_threads(), tf.config.threading.get_intra_op_parallelism_threads())
"""
COMMAND = """
import sys
import tensorflow as tf
from tfsac.testing import tiny_preset
from tfsac import cli
cli.run(["train", f"--run_dir={sys.argv[1]}", "--set=schedule.heatup_steps=256", "--set=schedule.improve_steps=1", "--set=schedule.evaluation_steps=1"])
print("threads", tf.config.threading.get_inter_op_parallelism_threads(), tf.config.threading.get_intra_op_parallelism_threads())
"""


@pytest.mark.acceptance
def test_a_script_has_the_threads_of_the_command_line_and_may_take_warnings_for_errors(
    run_python, tmp_path, monkeypatch
):
    for name in devices.THREADS:
        monkeypatch.delenv(name, raising=False)
    command = run_python(COMMAND, str(tmp_path / "command")).splitlines()[-1]
    own = run_python(SCRIPT, str(tmp_path / "own"))
    assert own.splitlines()[-1] == command and command.endswith(" 1") and "TensorFlow was used before" not in own
    assert own.splitlines().count("finished") == 2


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
@pytest.mark.parametrize("quiet", [False, True])
def test_a_process_that_used_tensorflow_before_is_told_once_that_its_threads_stay(tmp_path, monkeypatch, capsys, quiet):
    for name in devices.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(devices, "CONFIGURED", [])

    def refuse(number):  # as TensorFlow does, unless an earlier test gave this process the same number
        raise RuntimeError("Inter op parallelism cannot be modified after initialization.")

    monkeypatch.setattr(tf.config.threading, "set_inter_op_parallelism_threads", refuse)
    for i in range(2):
        tfsac.Trainer(PRESET, tmp_path / f"run{i}", quiet=quiet).close()
    assert capsys.readouterr().out.count("TensorFlow was used before tfsac could set its threads") == (not quiet)


@pytest.mark.slow
def test_keras_computes_with_tensorflow_whatever_it_is_set_to(monkeypatch):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    code = "import tfsac, keras; tfsac.train; print(keras.config.backend())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "KERAS_BACKEND": "jax"}, capture_output=True, text=True
    )
    assert done.stdout == "tensorflow\n"
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"import tfsac before keras, or set KERAS_BACKEND=tensorflow\. .* with jax$"):
        tfsac.train("pendulum_twin_sac", "never", quiet=True)


@pytest.mark.slow
def test_a_script_sees_nothing_of_tensorflows_start():

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    done = subprocess.run(
        [sys.executable, "-c", "import tfsac; tfsac.train"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SAC", "tfsac.train(preset, run_dir)"),
        ("check_env", "tfsac.check_environment(env_fn)"),
        ("PPO", "another library"),
    ],
)
def test_a_name_of_another_library_says_where_to_look(name, words):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'. What you look for is {re.escape(words)}"):
        getattr(tfsac, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [("predict", "act(observation) returns"), ("agent", "acting is the policy"), ("model", "help(policy) lists")],
)
def test_what_a_policy_does_not_have_says_where_to_look(name, words, tmp_path):
    policy = tfsac.load_policy(tiny.untrained_run(tmp_path / "run", "Pendulum-v1"))
    with pytest.raises(AttributeError, match=rf"^A policy has no {name}\. {re.escape(words)}"):
        getattr(policy, name)


@pytest.mark.parametrize(
    ("function", "name", "words"),
    [
        ("train", "seed", "It belongs to a run: tfsac.RunParameters(seed=...)"),
        ("train", "env", "Did you mean 'env_fn'?"),
        ("train", "callback", "Did you mean 'callbacks'?"),
        ("train", "learning_rate", 'tfsac.override(preset, {"agent.networks.*.learning_rate": ...})'),
        ("train", "critic_subset", 'tfsac.override(preset, {"agent.algorithm.critic_subset": ...})'),
        ("train", "resumed", "Did you mean 'resume'?"),
        ("train", "unheard_of", "Its arguments are preset, run_dir, run"),
        ("override", "gamma", 'tfsac.override(preset, {"agent.algorithm.discount": ...})'),
        ("load_preset", "env_id", "Did you mean 'level'?"),
        ("load_preset", "gamma", 'tfsac.override(preset, {"agent.algorithm.discount": ...})'),
        ("evaluate", "n_eval_episodes", "Did you mean 'episodes'?"),
    ],
)
def test_an_argument_of_another_library_says_what_it_is_called_here(function, name, words):
    with pytest.raises(
        TypeError, match=rf"^{function} has no argument '{name}'\. .*{re.escape(words)}.* Received: {name}=7$"
    ):
        getattr(tfsac, function)(**{name: 7})


@pytest.mark.slow
def test_keras_and_tensorflow_load_quietly_after_tfsac():
    for line in ("import tfsac, keras; keras.ops.ones(1)", "import tfsac, tensorflow as tf; tf.ones(1)"):
        done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
        assert done.stderr == ""


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
    tfsac.show("pendulum_sac")
    assert set(capsys.readouterr().out.splitlines()) < {*lines, "environment.kwargs={}"}


def test_an_evaluation_prints_its_mean_and_interval():
    returns = np.array([-150.0, -130.0, -140.0, -160.0])
    text = str(Evaluation(returns, np.full(4, 200)))
    mean, low, high = map(float, re.fullmatch(r"(\S+) \[(\S+), (\S+)\], 4 episodes", text).groups())
    assert mean == -145 and -160 <= low < -150 and -140 < high <= -130
    assert str(Evaluation(returns[:1], np.full(1, 200))) == "-150.00, 1 episode"


def test_messages_name_flags_only_where_a_command_runs(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileExistsError, match=r"continue it with resume=True\. Received: "):
        tfsac.train("pendulum_sac", tmp_path)
    with pytest.raises(FileExistsError, match=r"continue it with --resume\. Received: "):
        cli.run(["train", f"--run_dir={tmp_path}"])
    assert option("--resume", "resume=True") == "resume=True"  # the command has ended
