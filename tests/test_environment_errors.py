"""What environments must not return, what they raise, and processes that hang or die."""

import functools
import time

import gymnasium as gym
import numpy as np
import pytest
from environment_tools import ODD, ZEROS, Continuing, Odd, Simulator
from toys import tiny_preset

import tfsac
from tfsac.environments import EnvironmentFailure, Environments, make, vectorize
from tfsac.environments.checked_env import time_limit_of
from tfsac.environments.subprocesses import IsolatedEnvironment
from tfsac.parameters import EnvironmentEpisodes, EnvironmentParameters, ParameterError, override
from tfsac.training import evaluation
from tfsac.training.evaluation import evaluate

Box, Dict = gym.spaces.Box, gym.spaces.Dict
IMAGE = Dict(a=Box(-1.0, 1.0, (2,)), image=Box(0, 255, (4, 4, 1), np.uint8))
WRONG = {
    "array of rewards": {"reward": np.ones(2)},
    "a reward beyond float32": {"reward": 1e300},
    "NaN": {"observation": np.float32([0, np.nan])},
    "short observation": {"observation": np.zeros(1, np.float32)},  # would be broadcast
    "four values": {"step": (ZEROS, 1.0, False, {})},
    "no info": {"info": None},
}


def made(vectorization="sync", num_envs=2, step_timeout_seconds=None, **kwargs):
    parameters = EnvironmentParameters(ODD, num_envs, vectorization, step_timeout_seconds=step_timeout_seconds)
    return Environments(parameters, 1, functools.partial(make, ODD, **kwargs))


def step_twice(environments):
    try:
        for _ in range(2):
            result = environments.step(np.zeros((environments.num_envs, 1), np.float32))
    finally:
        environments.close()
    return result


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_return_ends_training(wrong):
    with pytest.raises(EnvironmentFailure, match=rf"^{ODD}: .*\(environment 0, step 2\)$"):
        step_twice(made(wrong=wrong))


def test_a_wrong_return_ends_an_evaluation():
    env = make(ODD, max_episode_steps=5, wrong=WRONG["NaN"])
    with pytest.raises(EnvironmentFailure, match=r"^Odd-v0: .*\(evaluation episode 0, step .\)$"):
        evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(1))


@pytest.mark.parametrize("reset", [{"a": ZEROS}, {"a": ZEROS, "image": np.full((4, 4, 1), 256, np.uint16)}])
def test_the_keys_and_images_of_a_dict_are_checked(reset):
    with pytest.raises(EnvironmentFailure, match="image"):
        made(space=IMAGE, reset=(reset, {}))
    made(space=IMAGE, reset=({"a": [0, 1], "image": np.zeros((4, 4, 1), np.uint16)}, {})).close()


@pytest.mark.parametrize(
    "good",
    [{"reward": np.ones(1), "terminated": 0, "truncated": np.int64(0)}, {"reward": 1, "observation": [0, 1]}],
    ids=str,
)
def test_numbers_and_bools_of_other_types_are_accepted(good):
    result = step_twice(made(wrong=good))
    assert result.reward.tolist() == [1.0, 1.0] and result.reward.dtype == np.float32
    assert result.terminated.dtype == bool


# -- errors of environments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("subprocess", marks=pytest.mark.slow)])
@pytest.mark.parametrize("action, words", [("raise", "KeyError: 'gear'"), ("reset", "ValueError: no scene")])
def test_an_error_of_the_environment_has_its_file_and_line(vectorization, action, words):
    with pytest.raises(EnvironmentFailure, match=rf"^{ODD}: {words} \(.*environment_tools.py, line \d+\)") as error:
        step_twice(made(vectorization, action=action))
    assert "(environment " in str(error.value) and error.value.__cause__ is not None


def test_an_error_of_a_constructor_keeps_its_type():
    with pytest.raises(KeyError, match="model"):
        make(ODD, action="constructor")


def test_environments_are_closed_where_another_cannot_be_made(tmp_path):
    made, closed = [], []

    def port():
        if len(made) == 3:
            raise OSError("port in use")
        made.append(Odd())
        made[-1].close = lambda: closed.append(1)
        return made[-1]

    with pytest.raises(OSError, match="port in use"):
        tfsac.train(override(tiny_preset(), {"environment.num_envs": 4}), tmp_path / "run", env_fn=port, quiet=True)
    assert len(closed) == len(made) == 3


# -- processes ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_environment_in_a_process_may_have_processes_of_its_own(monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    environments = Environments(
        EnvironmentParameters("Simulator", num_envs=2, vectorization="subprocess"), 0, Simulator
    )
    environments.close()


@pytest.mark.slow
@pytest.mark.parametrize("action, words", [("kill", "SIGKILL"), ("leave", "exit status 3")])
def test_a_process_that_ends_is_a_failure_like_any_other(action, words):
    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=rf"process of environments 0 to 0 ended with {words}"):
        step_twice(made("subprocess", 1, 60.0, action=action))
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_an_environment_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    environments = made("subprocess", 4, 2.5, action="hang")  # two for each of two environments
    assert not environments.local_envs and len(environments.groups) == 2
    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"environments 0 to 1 was killed.*step_timeout_seconds \(5 s\)"):
        step_twice(environments)
    with pytest.raises(EnvironmentFailure, match="was killed"):
        made("subprocess", 2, 2.0, action="hang in reset")
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_an_isolated_environment_does_what_it_does_here_and_can_be_ended():
    space = Dict(a=Box(-1.0, 1.0, (2,)), b=Box(0, 9, (1,), np.int64))
    one = functools.partial(make, ODD, max_episode_steps=4, space=space)
    here, isolated = one(), IsolatedEnvironment(one(), one, 60.0)
    assert time_limit_of(isolated) == 4 and isolated.observation_space == space
    results = [evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(2)) for env in (here, isolated)]
    np.testing.assert_array_equal(results[0].returns, results[1].returns)
    seen = [env.step(env.reset(seed=1)[0]["a"][:1])[0] for env in (here, isolated)]
    assert all(np.array_equal(seen[0][key], seen[1][key]) for key in space)
    isolated.close()
    one = functools.partial(make, ODD, action="hang")
    isolated = IsolatedEnvironment(one(), one, 4.0)
    with pytest.raises(EnvironmentFailure, match=r"step_timeout_seconds .*\(evaluation episode 0, step 1\)"):
        evaluate(lambda observation: ZEROS[:1], isolated, EnvironmentEpisodes(1))
    isolated.close()


def test_a_timeout_is_refused_where_nothing_can_be_ended(tmp_path):
    preset = override(tiny_preset("Pendulum-v1"), {"environment.step_timeout_seconds": 5.0})
    with pytest.raises(ParameterError, match="subprocess"):
        tfsac.train(preset, tmp_path / "run")


# -- episodes that do not end ------------------------------------------------------------------------------------------


def test_an_evaluation_episode_without_end_is_cut_off_with_a_warning(monkeypatch):
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 30)
    for env in (make(ODD), Continuing(make(ODD, max_episode_steps=20))):
        with pytest.warns(RuntimeWarning, match="max_episode_steps"):
            done = evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(2))
        assert done.lengths.tolist() == [30, 30]
    done = evaluate(lambda observation: ZEROS[:1], make(ODD, max_episode_steps=40), EnvironmentEpisodes(1))
    assert done.lengths.tolist() == [40]  # a time limit of the environment's own holds
