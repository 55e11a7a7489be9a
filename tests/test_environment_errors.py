"""Invalid results and errors of environments, subprocesses that hang or die, and endless episodes."""

import functools
import sys
import time

import gymnasium as gym
import numpy as np
import pytest
from environment_tools import BROKEN, ZEROS, BrokenEnv, DropTruncation, EnvWithSubprocess
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
    "reward beyond float32": {"reward": 1e300},
    "NaN": {"observation": np.float32([0, np.nan])},
    "short observation": {"observation": np.zeros(1, np.float32)},  # would be broadcast
    "four values": {"step": (ZEROS, 1.0, False, {})},
    "no info": {"info": None},
}


def make_environments(vectorization="sync", num_envs=2, step_timeout_seconds=None, **kwargs):
    parameters = EnvironmentParameters(BROKEN, num_envs, vectorization, step_timeout_seconds=step_timeout_seconds)
    return Environments(parameters, 1, functools.partial(make, BROKEN, **kwargs))


def step_twice(environments):
    try:
        for _ in range(2):
            result = environments.step(np.zeros((environments.num_envs, 1), np.float32))
    finally:
        environments.close()
    return result


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_invalid_step_result_ends_training(wrong):
    with pytest.raises(EnvironmentFailure, match=rf"^{BROKEN}: .*\(environment 0, step 2\)$"):
        step_twice(make_environments(wrong=wrong))


def test_invalid_step_result_ends_evaluation():
    env = make(BROKEN, max_episode_steps=5, wrong=WRONG["NaN"])
    with pytest.raises(EnvironmentFailure, match=r"^BrokenEnv-v0: .*\(evaluation episode 0, step .\)$"):
        evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(1))


@pytest.mark.parametrize("reset", [{"a": ZEROS}, {"a": ZEROS, "image": np.full((4, 4, 1), 256, np.uint16)}])
def test_keys_and_images_of_dict_observations_are_checked(reset):
    with pytest.raises(EnvironmentFailure, match="image"):
        make_environments(space=IMAGE, reset=(reset, {}))
    make_environments(space=IMAGE, reset=({"a": [0, 1], "image": np.zeros((4, 4, 1), np.uint16)}, {})).close()


@pytest.mark.parametrize(
    "good",
    [{"reward": np.ones(1), "terminated": 0, "truncated": np.int64(0)}, {"reward": 1, "observation": [0, 1]}],
    ids=str,
)
def test_other_number_and_bool_types_are_accepted(good):
    result = step_twice(make_environments(wrong=good))
    assert result.reward.tolist() == [1.0, 1.0] and result.reward.dtype == np.float32
    assert result.terminated.dtype == bool


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("subprocess", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "action, words", [("raise", "KeyError: 'gear'"), ("exit", "SystemExit"), ("reset", "ValueError: no scene")]
)
def test_environment_error_reports_file_and_line(vectorization, action, words):
    with pytest.raises(EnvironmentFailure, match=rf"^{BROKEN}: {words} \(.*environment_tools.py, line \d+\)") as error:
        step_twice(make_environments(vectorization, action=action))
    assert "(environment " in str(error.value) and error.value.__cause__ is not None


def test_exit_in_an_evaluation_is_an_environment_failure():
    with pytest.raises(EnvironmentFailure, match="SystemExit"):
        evaluate(lambda observation: ZEROS[:1], make(BROKEN, action="exit"), EnvironmentEpisodes(1))


@pytest.mark.parametrize("close, words", [(lambda: {}["port"], "KeyError: 'port'"), (sys.exit, "SystemExit")])
def test_error_in_close_is_a_warning(close, words):
    environments = make_environments()
    for env in environments.local_envs:
        env.unwrapped.close = close
    with pytest.warns(RuntimeWarning, match=f"close.. raised {words}") as caught:
        environments.close()
    assert len(caught) == 2


def test_constructor_error_keeps_its_type():
    with pytest.raises(KeyError, match="model"):
        make(BROKEN, action="constructor")


def test_environments_are_closed_if_another_constructor_fails(tmp_path):
    created, closed = [], []

    def port():
        if len(created) == 3:
            raise OSError("port in use")
        created.append(BrokenEnv())
        created[-1].close = lambda: closed.append(1)
        return created[-1]

    with pytest.raises(OSError, match="port in use"):
        tfsac.train(override(tiny_preset(), {"environment.num_envs": 4}), tmp_path / "run", env_fn=port, quiet=True)
    assert len(closed) == len(created) == 3


@pytest.mark.slow
def test_environment_in_a_subprocess_may_start_processes(monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    environments = Environments(
        EnvironmentParameters("EnvWithSubprocess", num_envs=2, vectorization="subprocess"), 0, EnvWithSubprocess
    )
    environments.close()


@pytest.mark.slow
@pytest.mark.parametrize("action, words", [("kill", "SIGKILL"), ("leave", "exit status 3")])
def test_ended_subprocess_is_an_environment_failure(action, words):
    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=rf"process of environments 0 to 0 ended with {words}"):
        step_twice(make_environments("subprocess", 1, 60.0, action=action))
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_hanging_environment_is_killed(monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    environments = make_environments("subprocess", 4, 2.5, action="hang")  # two environments in each of two processes
    assert not environments.local_envs and len(environments.groups) == 2
    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"environments 0 to 1 was killed.*step_timeout_seconds \(5 s\)"):
        step_twice(environments)
    with pytest.raises(EnvironmentFailure, match="was killed"):
        make_environments("subprocess", 2, 2.0, action="hang in reset")
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_isolated_environment_matches_local_and_can_be_killed():
    space = Dict(a=Box(-1.0, 1.0, (2,)), b=Box(0, 9, (1,), np.int64))
    make_env = functools.partial(make, BROKEN, max_episode_steps=4, space=space)
    local, isolated = make_env(), IsolatedEnvironment(make_env(), make_env, 60.0)
    assert time_limit_of(isolated) == 4 and isolated.observation_space == space
    results = [evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(2)) for env in (local, isolated)]
    np.testing.assert_array_equal(results[0].returns, results[1].returns)
    observations = [env.step(env.reset(seed=1)[0]["a"][:1])[0] for env in (local, isolated)]
    assert all(np.array_equal(observations[0][key], observations[1][key]) for key in space)
    isolated.close()
    make_env = functools.partial(make, BROKEN, action="hang")
    isolated = IsolatedEnvironment(make_env(), make_env, 4.0)
    with pytest.raises(EnvironmentFailure, match=r"step_timeout_seconds .*\(evaluation episode 0, step 1\)"):
        evaluate(lambda observation: ZEROS[:1], isolated, EnvironmentEpisodes(1))
    isolated.close()


def test_timeout_requires_subprocess_vectorization(tmp_path):
    preset = override(tiny_preset("Pendulum-v1"), {"environment.step_timeout_seconds": 5.0})
    with pytest.raises(ParameterError, match="subprocess"):
        tfsac.train(preset, tmp_path / "run")


def test_endless_evaluation_episode_is_truncated_with_warning(monkeypatch):
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 30)
    for env in (make(BROKEN), DropTruncation(make(BROKEN, max_episode_steps=20))):
        with pytest.warns(RuntimeWarning, match="max_episode_steps"):
            result = evaluate(lambda observation: ZEROS[:1], env, EnvironmentEpisodes(2))
        assert result.lengths.tolist() == [30, 30]
    result = evaluate(lambda observation: ZEROS[:1], make(BROKEN, max_episode_steps=40), EnvironmentEpisodes(1))
    assert result.lengths.tolist() == [40]  # the time limit of the environment applies
