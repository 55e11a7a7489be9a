"""What an environment returns is checked by name, and what it raises is told with file and line, in every process."""

import functools
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import odd_tools
import pytest
import tiny
from odd_tools import ODD, ZEROS, Odd

import tfsac
from tfsac.environments import (
    EnvironmentFailure,
    Environments,
    IsolatedEnvironment,
    make,
    name_of_environment,
    vectorize,
)
from tfsac.environments.check import longest_episode
from tfsac.environments.film import write_film
from tfsac.machine import SIGNALLED
from tfsac.parameters import EnvironmentEpisodes, EnvironmentParameters, ParameterError, RunParameters, override
from tfsac.testing import tiny_preset
from tfsac.training import evaluation_episodes, signals
from tfsac.training.evaluation import evaluate
from tfsac.user_code import UserCodeError

Box, Dict = gym.spaces.Box, gym.spaces.Dict
STEP = "step must return (observation, reward, terminated, truncated, info)"
HERE, TEST = re.escape(odd_tools.__file__), re.escape(__file__)

WRONG = {
    "reward of text": ({"reward": "1"}, f"{STEP}, where reward is one number", "'1' (str)"),
    "no reward": ({"reward": None}, f"{STEP}, where reward is one number", "None (NoneType)"),
    "complex reward": ({"reward": 1j}, f"{STEP}, where reward is one number", "1j (complex)"),
    "array of rewards": (
        {"reward": np.ones(2)},
        f"{STEP}, where reward is one number",
        "an array of the shape (2,) and dtype float64",
    ),
    "a reward beyond float32": ({"reward": 1e300}, "the reward must fit into a float32", "1e+300"),
    "a reward beyond float64": ({"reward": 10**400}, f"{STEP}, where reward is one number", None),
    "terminated is None": ({"terminated": None}, f"{STEP}, where terminated is a bool", "None (NoneType)"),
    "terminated is a float": ({"terminated": 0.5}, f"{STEP}, where terminated is a bool", "0.5 (float)"),
    "truncated is 2": ({"truncated": 2}, f"{STEP}, where truncated is a bool", "2 (int)"),
    "truncated is a dict": ({"truncated": {}}, f"{STEP}, where truncated is a bool", "{} (dict)"),
    "no info": ({"info": None}, f"{STEP}, where info is a dict", "None (NoneType)"),
    "four values": ({"step": (ZEROS, 1.0, False, {})}, STEP, "4 values, ndarray, float, bool, dict"),
    "six values": (
        {"step": (ZEROS, 1.0, False, False, {}, 1)},
        STEP,
        "6 values, ndarray, float, bool, bool, dict, int",
    ),
    "nothing": ({"step": None}, STEP, "None (NoneType)"),
    "long observation": (
        {"observation": np.zeros(3, np.float32)},
        "step must return an observation of the shape (2,) and dtype float32, as its space says",
        "an array of the shape (3,) and dtype float32",
    ),
    "observation of text": (
        {"observation": ["a", "b"]},
        "step must return an observation of the shape (2,) and dtype float32, as its space says",
        "['a', 'b'] (list)",
    ),
    "observation of a dict": (
        {"observation": {"x": ZEROS}},
        "step must return an observation of the shape (2,) and dtype float32, as its space says",
        None,
    ),
    "ragged observation": (
        {"observation": [[1.0], [1.0, 2.0]]},
        "step must return an observation of the shape (2,)",
        None,
    ),
    "NaN": ({"observation": np.float32([0, np.nan])}, "observation 'observation' must be finite", "nan"),
    "infinite reward": ({"reward": float("inf")}, "the reward must be finite", "inf"),
}


def made(vectorization="sync", num_envs=2, **kwargs):
    fields = {name: kwargs.pop(name) for name in ("step_timeout_seconds",) if name in kwargs}
    return Environments(
        EnvironmentParameters(ODD, num_envs, vectorization, **fields), 1, functools.partial(make, ODD, **kwargs)
    )


def step_twice(environments):
    try:
        for _ in range(2):
            environments.step(np.zeros((environments.num_envs, 1), np.float32))
    finally:
        environments.close()


@pytest.mark.parametrize("wrong, what, received", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_return_is_refused_by_name_in_training(wrong, what, received):
    with pytest.raises(EnvironmentFailure, match=re.escape(what)) as error:
        step_twice(made(wrong=wrong))
    message = str(error.value)
    assert message.startswith(f"{ODD}: ") and "(environment 0, step " in message and "\n" not in message
    assert received is None or message.endswith(f"Received: {received}")


@pytest.mark.parametrize("wrong, what, received", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_return_is_refused_by_name_in_evaluation(wrong, what, received):
    env = make(ODD, max_episode_steps=5, wrong=wrong)  # the time limit unpacks what a step returns
    with pytest.raises(EnvironmentFailure, match=r"\(evaluation episode 0, step 1\)\. Received: ") as error:
        evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(1))
    assert str(error.value).startswith(f"Odd-v0: {what.partition(';')[0].partition(', where')[0]}")


@pytest.mark.slow
def test_a_wrong_return_is_refused_in_other_processes_and_in_demonstrations():
    with pytest.raises(
        EnvironmentFailure, match=re.escape(f"{STEP}, where reward is one number (environment 0, step 2).")
    ):
        step_twice(made("subprocess", wrong={"reward": "1"}))
    with pytest.raises(
        EnvironmentFailure, match=r"Odd: step must return .* \(evaluation episode 0, step 1\)\. Received: '1'"
    ):
        tfsac.demonstrate(lambda observation: ZEROS[:1], Odd(wrong={"reward": "1"}), 1)


@pytest.mark.parametrize(
    "returned, received",
    [
        (ZEROS, "an array of the shape (2,) and dtype float32"),
        ((ZEROS, {}, 1), "3 values, ndarray, dict, int"),
        (None, None),
    ],
)
def test_a_reset_of_the_old_interface_is_refused(returned, received):
    if returned is None:  # what is accepted
        return step_twice(made(reset=([0.0, 0.5], {})))
    with pytest.raises(
        EnvironmentFailure, match=re.escape("reset must return (observation, info) (environment 0, step 0)")
    ) as error:
        made(reset=returned)
    assert str(error.value).endswith(f"Received: {received}")
    return None


def test_the_keys_and_images_of_a_dict_are_checked():
    space = Dict(a=Box(-1.0, 1.0, (2,)), image=Box(0, 255, (4, 4, 1), np.uint8))
    image = np.zeros((4, 4, 1), np.uint8)
    with pytest.raises(
        EnvironmentFailure,
        match=re.escape("a dict with the keys ['a', 'image'] (environment 0, step 0). Received: keys ['a']"),
    ):
        made(space=space, reset=({"a": ZEROS}, {}))
    # Bytes made of numbers between 0 and 1 would all be 0.
    with pytest.raises(
        EnvironmentFailure, match=re.escape("an observation 'image' of the shape (4, 4, 1) and dtype uint8")
    ):
        made(space=space, reset=({"a": ZEROS, "image": image / 2.0}, {}))
    with pytest.raises(
        EnvironmentFailure,
        match=re.escape(
            "an observation 'image' whose values uint8 can hold, as its space says (environment 0, step 0). Received: 260"
        ),
    ):
        made(space=space, reset=({"a": ZEROS, "image": np.full((4, 4, 1), 260, np.uint16)}, {}))
    half = Box(-np.inf, np.inf, (2,), np.float16)
    with pytest.raises(EnvironmentFailure, match=r"whose values float16 can hold.*\. Received: 70000\.0"):
        made(space=half, reset=(np.full(2, 7e4, np.float32), {}))
    made(space=half, reset=(np.full(2, 0.1, np.float32), {})).close()
    made(space=space, reset=({"a": [0, 1], "image": image}, {})).close()
    made(space=space, reset=({"a": ZEROS, "image": image.astype(np.uint16) + 255}, {})).close()


class Simulator(Odd):
    """Has a process of its own."""

    def __init__(self):
        super().__init__()
        self.process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        self.process.start()

    def close(self):
        self.process.kill()
        self.process.join()


@pytest.mark.slow
def test_an_environment_in_a_process_may_have_processes_of_its_own(monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    environments = Environments(
        EnvironmentParameters("Simulator", num_envs=2, vectorization="subprocess"), 0, Simulator
    )
    environments.close()


class Port(Odd):
    """Takes one of a number of ports."""

    taken, given_back, ports = 0, 0, 3

    def __init__(self):
        if Port.taken == Port.ports:
            raise OSError("port in use")
        super().__init__()
        Port.taken += 1

    def close(self):
        Port.given_back += 1


@pytest.mark.parametrize(("num_envs", "ports"), [(4, 3), (4, 4), (1, 1)])
def test_environments_are_closed_where_another_cannot_be_made(num_envs, ports, monkeypatch, tmp_path):
    for name, value in {"taken": 0, "given_back": 0, "ports": ports}.items():
        monkeypatch.setattr(Port, name, value)
    preset = override(tiny_preset(), {"environment.num_envs": num_envs})
    with pytest.raises(UserCodeError, match="port in use"):
        tfsac.train(preset, tmp_path / "run", env_fn=Port, quiet=True)
    assert Port.given_back == Port.taken == ports


@pytest.mark.parametrize(
    "good",
    [
        {"reward": np.float32(1.0)},
        {"reward": np.ones(())},
        {"reward": 1},
        {"reward": True},
        {"reward": np.float16(1.0)},
        {"terminated": np.bool_(False)},
        {"terminated": 0, "truncated": np.int64(0)},
        {"observation": np.zeros(2)},
        {"observation": [0, 1]},
    ],
    ids=str,
)
def test_numbers_and_bools_of_other_types_are_accepted(good):
    step_twice(made(wrong=good))


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("subprocess", marks=pytest.mark.slow)])
def test_a_reward_of_the_shape_1_is_a_number_and_said_once(vectorization, monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    parameters = EnvironmentParameters(ODD, num_envs=4, vectorization=vectorization)
    environments = Environments(parameters, 1, functools.partial(Odd, wrong={"reward": np.full(1, 2.5)}))
    with pytest.warns(RuntimeWarning, match=r"shape \(1,\)") as said:
        rewards = [environments.step(np.zeros((4, 1), np.float32)).reward for _ in range(2)]
        environments.close()
    assert rewards[1].tolist() == [2.5] * 4 and rewards[1].dtype == np.float32 and len(said) == 1


def test_a_reward_of_the_shape_1_is_a_number_in_evaluations_and_demonstrations():
    one = functools.partial(Odd, wrong={"reward": np.full((1,), 2.5)})
    with pytest.warns(RuntimeWarning, match="taken as a number") as said:
        env = tfsac.environments.checked(gym.wrappers.TimeLimit(one(), 3))
        assert evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(2)).returns.tolist() == [4.5, 4.5]
        assert len(said) == 1
        shown = tfsac.demonstrate(lambda observation: ZEROS[:1], gym.wrappers.TimeLimit(one(), 3), 1)
    assert shown.records["reward"].tolist() == [1.0, 2.5, 1.0]
    assert [text for text in tfsac.check_environment(one, num_steps=5).warnings if "taken as a number" in text]


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("subprocess", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "action, words",
    [
        ("raise", r"step raised .*KeyError: 'gear' \("),
        ("exit", r"step raised .*SystemExit: 0 \("),
        ("end", r"step raised .*GeneratorExit: over \("),
        ("reset", r"reset raised .*ValueError: no scene \("),
    ],
)
def test_an_error_of_the_environment_has_its_file_and_line(vectorization, action, words):
    with pytest.raises(EnvironmentFailure, match=rf"^{ODD}: {words}{HERE}, line \d+, in (step|reset)\)$") as error:
        step_twice(made(vectorization, action=action))
    assert "(environment 0, step " in str(error.value)


@pytest.mark.slow
def test_an_interrupt_that_an_environment_raises_in_its_process_does_not_end_that(monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    with pytest.raises(
        EnvironmentFailure, match=rf"it raised .*Received: KeyboardInterrupt \({HERE}, line \d+, in step\)$"
    ):
        step_twice(made("subprocess", 1, step_timeout_seconds=60.0, action="interrupt"))


def test_errors_of_render_and_close_have_file_and_line():
    env = make(ODD, action="close", render_mode="rgb_array")
    env.reset()
    with pytest.raises(EnvironmentFailure, match=rf"^render raised\. Received: OSError: no screen \({HERE}"):
        env.render()
    with pytest.warns(RuntimeWarning, match=rf"close raised\. Received: OSError: no port \({HERE}"):
        env.close()


@pytest.mark.slow
@pytest.mark.parametrize("action, words", [("kill", "signal SIGKILL"), ("leave", "exit status 3")])
def test_a_process_that_ends_is_a_failure_like_any_other(monkeypatch, action, words):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    environments = made("subprocess", 1, step_timeout_seconds=60.0, action=action)
    began = time.monotonic()
    with pytest.raises(
        EnvironmentFailure,
        match=rf"the process of environment 0 ended .*\(environment 0, step 1\)\. Received: {words}$",
    ):
        step_twice(environments)
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_an_environment_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    environments = made("subprocess", 4, action="hang", step_timeout_seconds=2.5)  # two for each of two environments
    assert (
        environments.groups.here is None and environments.groups.others == 2
    )  # nothing in this process could be ended
    began = time.monotonic()
    words = "the process of environments 0 to 1 did not answer within step_timeout_seconds and was ended (environment 0, step 4). Received: 5 seconds"
    with pytest.raises(EnvironmentFailure, match=re.escape(words)):
        step_twice(environments)
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_an_isolated_environment_does_what_it_does_here_and_can_be_ended(monkeypatch):
    space = Dict(a=Box(-1.0, 1.0, (2,)), b=Box(0, 9, (1,), np.int64))
    one = functools.partial(make, ODD, max_episode_steps=4, space=space)
    here, isolated = one(), IsolatedEnvironment(one(), one, 60.0)
    assert isolated.spec.max_episode_steps == 4 and isolated.observation_space == space
    results = [evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(2)) for env in (here, isolated)]
    np.testing.assert_array_equal(results[0].returns, results[1].returns)
    seen = [env.step(env.reset(seed=1)[0]["a"][:1])[0] for env in (here, isolated)]
    assert all(np.array_equal(seen[0][key], seen[1][key]) and seen[0][key].dtype == seen[1][key].dtype for key in space)
    isolated.close()
    one = functools.partial(make, ODD, action="hang")
    isolated = IsolatedEnvironment(one(), one, 4.0)
    with pytest.raises(
        EnvironmentFailure, match=r"did not answer within step_timeout_seconds .*\(evaluation episode 0, step 1\)"
    ):
        evaluate(lambda observation: ZEROS[:1], isolated, EnvironmentEpisodes(1))
    isolated.close()


@pytest.mark.slow
def test_an_isolated_environment_that_nobody_registered_has_its_name_and_its_time_limit():
    def one():
        return gym.wrappers.TimeLimit(Odd(), 4)

    isolated = IsolatedEnvironment(one(), one, 60.0)
    assert longest_episode(isolated) == 4 and name_of_environment(isolated) == "Odd"
    isolated.close()
    unlimited = IsolatedEnvironment(Odd(), Odd, 60.0)
    assert longest_episode(unlimited) is None
    unlimited.close()


def test_a_timeout_is_refused_where_nothing_can_be_ended(tmp_path):
    preset = override(tiny_preset("Pendulum-v1"), {"environment.step_timeout_seconds": 5.0})
    with pytest.raises(
        ParameterError, match=r'set environment.vectorization to "subprocess". Received: 5 with vectorization "sync"'
    ):
        tfsac.train(preset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- making ------------------------------------------------------------------------------------------------------------


def test_an_error_of_a_constructor_has_its_file_and_line():
    with pytest.raises(
        UserCodeError, match=rf"cannot be made\. Received: KeyError: 'model' \({HERE}, line \d+, in __init__\)"
    ):
        make(ODD, action="constructor")
    with pytest.raises(ValueError, match=r"does not take these arguments: .*'colour'.*Received: {'colour': 1}"):
        make(ODD, colour=1)


def test_a_type_error_inside_a_constructor_is_not_about_the_arguments(monkeypatch):
    monkeypatch.setattr(Odd, "load", lambda self: None, raising=False)
    monkeypatch.setattr(Odd, "__init__", lambda self, **kwargs: self.load(3))
    with pytest.raises(UserCodeError, match=rf"Received: TypeError: .*2 were given \({TEST}, line \d+, in <lambda>\)$"):
        make(ODD)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_an_environment_without_a_space_is_refused(monkeypatch, name):
    monkeypatch.setattr(Odd, "__init__", lambda self: None)
    monkeypatch.setattr(Odd, "observation_space", Box(-1.0, 1.0, (2,)), raising=False)
    monkeypatch.setattr(Odd, name, None)
    with pytest.raises(
        ValueError, match=rf"Odd-v0: an environment has an attribute {name}, one of gymnasium.spaces. Received: none"
    ):
        make(ODD)


def test_what_helps_against_infinite_bounds_does_help():
    env = gym.make("Pendulum-v1")
    env = gym.wrappers.TransformAction(env, lambda action: action, Box(-np.inf, np.inf, (1,)))
    with pytest.raises(ValueError, match=r"actions need finite bounds: .*gymnasium.wrappers.TransformAction"):
        tfsac.demonstrate(lambda observation: ZEROS[:1], env, 1)
    env = gym.wrappers.TransformAction(env, lambda action: action, Box(-2.0, 2.0, (1,)))
    assert len(tfsac.demonstrate(lambda observation: ZEROS[:1], env, 1).returns) == 1


# -- episodes that do not end ------------------------------------------------------------------------------------------


def test_an_evaluation_episode_without_end_is_cut_off_with_a_warning(monkeypatch):
    monkeypatch.setattr(evaluation_episodes, "LONGEST_EPISODE", 30)
    with pytest.warns(
        RuntimeWarning, match="did not end within 30 steps and was cut off.*environment.max_episode_steps"
    ):
        done = evaluate(lambda observation: ZEROS[:1], make(ODD), EnvironmentEpisodes(2))
    assert done.lengths.tolist() == [30, 30]
    done = evaluate(lambda observation: ZEROS[:1], make(ODD, max_episode_steps=40), EnvironmentEpisodes(1))
    assert done.lengths.tolist() == [40]  # a time limit of the environment's own holds


class Continuing(gym.Wrapper):
    """Drops the end that a time limit makes."""

    def step(self, action):
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, False, info


def test_a_time_limit_whose_end_a_wrapper_drops_does_not_make_an_evaluation_endless(monkeypatch):
    monkeypatch.setattr(evaluation_episodes, "LONGEST_EPISODE", 30)
    with pytest.warns(RuntimeWarning, match="within 30 steps and was cut off.* or a wrapper drops `truncated`"):
        done = evaluate(
            lambda observation: ZEROS[:1], Continuing(make(ODD, max_episode_steps=20)), EnvironmentEpisodes(1)
        )
    assert done.lengths.tolist() == [30]


# -- signals -----------------------------------------------------------------------------------------------------------

HANGING = """
import multiprocessing, os, signal, time
from tfsac.training.signals import StopSignals

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    with StopSignals() as signals:
        print(child.pid, flush=True)
        while True:  # an environment that hangs
            time.sleep(600)
"""


@pytest.mark.parametrize("kept", [False, True])
def test_a_signal_is_received_whoever_handles_it_and_each_handler_is_called_once(kept):
    seen, before = [], signal.getsignal(signal.SIGINT)
    with signals.StopSignals() as stopping:

        def theirs(number, frame):  # as middleware does, it calls the handler that it found
            seen.append(number)
            earlier(number, frame)
            raise KeyboardInterrupt

        earlier = signal.signal(signal.SIGINT, theirs)
        if kept:
            signal.set_wakeup_fd(-1)
            stopping.keep()
            os.kill(os.getpid(), signal.SIGINT)
        else:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            if stopping.received:
                break
            time.sleep(0.05)
        assert stopping.received == signal.SIGINT and seen == [signal.SIGINT]
        stopping.interrupt()  # the same Ctrl-C, which a callback reports
        with pytest.raises(KeyboardInterrupt):
            stopping.interrupt()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.acceptance)])
def test_the_second_signal_ends_a_run_that_hangs_at_once_and_its_children(tmp_path, number):
    file = tmp_path / "hanging.py"
    file.write_text(HANGING)
    process = subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = int(process.stdout.readline())
    process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    assert signals.PATIENCE.decode() in iter(process.stderr.readline, "")  # TensorFlow's lines come first
    process.send_signal(number)
    assert process.wait(30) == SIGNALLED + number
    process.stdout.close()
    process.stderr.close()
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if "Z" in pathlib.Path(f"/proc/{child}/stat").read_text().rpartition(")")[2][:3]:
            return
        time.sleep(0.1)
    raise AssertionError("the child survived")


# -- coming back -------------------------------------------------------------------------------------------------------


class OnceFaulty(gym.Env):
    """Rewards the action; raises in one step of all the process, where that is asked for. It may only be reset when its
    episode is over.
    """

    observation_space, action_space = Box(-9.0, 9.0, (2,), np.float32), Box(-1.0, 1.0, (1,), np.float32)
    fails_at, steps = -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert self.steps in (0, 20)
        self.steps = 0
        self.seen = self.np_random.normal(size=2).astype(np.float32)
        return self.seen.clip(-9, 9), {}

    def step(self, action):
        if OnceFaulty.fails_at == 0:
            OnceFaulty.fails_at = -1
            raise OSError("the cable came off")
        OnceFaulty.fails_at -= 1
        self.steps += 1
        self.seen = (self.seen + np.float32([action[0], 0.1])).clip(-9, 9)
        return self.seen, float(action[0]), False, False, {}


gym.register("OnceFaulty-v0", entry_point=OnceFaulty, max_episode_steps=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step, saved_at",
    [(73, 73), pytest.param(85, 80, marks=pytest.mark.acceptance)],
    ids=["in training", "in the evaluation at step 80"],
)
def test_a_resume_after_an_error_of_the_environment_is_exact(tmp_path, step, saved_at):
    changes = {
        "schedule.heatup_steps": 40,
        "schedule.improve_steps": 60,
        "schedule.steps_between_evaluation_periods": 80,
        "schedule.evaluation_steps": 1,
        "environment.filters.observation_normalization": True,
    }
    preset = override(tiny_preset(f"{__name__}:OnceFaulty-v0"), changes)
    run = RunParameters(seed=3)
    OnceFaulty.fails_at = -1
    whole = tfsac.Trainer(preset, tmp_path / "whole", run, quiet=True)
    whole.run()
    OnceFaulty.fails_at = step
    broken = tfsac.Trainer(preset, tmp_path / "broken", run, quiet=True)
    with pytest.raises(EnvironmentFailure, match="OSError: the cable came off"):
        broken.run()
    resumed = tfsac.Trainer(preset, tmp_path / "broken", run, resume=True, quiet=True)
    assert resumed.counters.env_steps == saved_at
    resumed.run()
    np.testing.assert_array_equal(whole.memory.ring, resumed.memory.ring)
    for one, other in zip(
        whole.agent.networks["policy"].model.weights, resumed.agent.networks["policy"].model.weights, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    rows = [[row["env_steps"], row["evaluation/return_mean"]] for row in tiny.rows(tmp_path / "whole")]
    assert (
        rows == [[row["env_steps"], row["evaluation/return_mean"]] for row in tiny.rows(tmp_path / "broken")]
        and len(rows) == 2
    )


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs a place that is always full")
@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_film_that_the_disk_cannot_hold_is_no_success(ending, tmp_path):
    film = tmp_path / f"film.{ending}"
    film.symlink_to("/dev/full")
    with pytest.raises(EnvironmentFailure, match=r"^The film cannot be written.*; make room, .* Received: .*film\."):
        write_film(EnvironmentParameters("Pendulum-v1"), [1], [np.zeros((4, 1))], film)
    assert not film.is_symlink()


@pytest.mark.filterwarnings("ignore:.*render_mode")  # gymnasium's own words about it
def test_a_render_mode_that_an_environment_does_not_name_is_refused_unless_it_names_none(monkeypatch):
    for mode in ("rgb_array", "rgb_array_list"):
        make(ODD, render_mode=mode).close()
    with pytest.raises(
        ValueError, match=r"has the render modes 'rgb_array'\. Did you mean 'rgb_array'\? Received: render_mode='rgb'$"
    ):
        make(ODD, render_mode="rgb")
    monkeypatch.setattr(Odd, "metadata", {})
    make(ODD, render_mode="rgb").close()
