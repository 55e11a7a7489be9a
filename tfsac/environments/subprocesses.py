"""Groups of environments, each stepped sequentially, in this process or in other processes on several cores.

One process per environment, as in Gymnasium's AsyncVectorEnv, costs more in messages than it gains if there are fewer
cores than environments.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tfsac.environments.checked_env import VECTOR_REWARD, EnvironmentFailure, format_error, time_limit_of
from tfsac.environments.spaces import name_of_environment, spec_of
from tfsac.errors import TfsacError
from tfsac.types import Spec
from tfsac.utils.machine import ENDING

SPIN_SECONDS = 0.001
CLOSE_SECONDS = 5.0  # time for processes to close their environments


class Group:
    """G environments in this process.

    Args:
        make_env: creates one environment.
        members: indices of the G environments in the run, for error messages.
        buffer: bytes for the observations; None allocates them.

    Attributes:
        envs: the environments.
        spec: spec of one environment.
        observation: the newest observations, `[G, ...]` by key, overwritten in every step.
    """

    def __init__(self, make_env: Callable[[], gym.Env], members: Sequence[int], buffer: Any = None):
        self.envs, self.members, self.result = list[gym.Env](), members, None
        with contextlib.ExitStack() as failed:  # on failure, close those created so far: they may hold a port
            failed.callback(self.close)
            for _ in members:
                self.envs.append(make_env())
            failed.pop_all()
        self.spec = spec_of(self.envs[0])
        self.several_keys = isinstance(self.envs[0].observation_space, gym.spaces.Dict)
        self.observation = _observation(self.spec, len(members), buffer)

    def send(self, method: str, argument: Any) -> None:
        """Calls "reset" or "step"; `receive` returns the result."""
        self.result = getattr(self, method)(argument)

    def receive(self) -> Any:
        """Returns the result of the last call."""
        return self.result

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Starts an episode in each environment that has a seed."""
        for i, seed in enumerate(seeds):
            if seed is not None:
                self._store(i, self._call(i, self.envs[i].reset, seed=seed)[0])

    def step(self, action: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Steps all environments with actions `[G, ...]`; returns rewards, terminated, truncated `[G]`, and infos."""
        steps = []
        for i, env in enumerate(self.envs):
            step = self._call(i, env.step, action[i])
            self._store(i, step[0])
            steps.append(step)
        _, rewards, terminated, truncated, infos = zip(*steps, strict=True)
        several = self.spec.num_rewards is not None
        reward = np.array([info[VECTOR_REWARD] for info in infos] if several else rewards, np.float64)
        return reward, np.array(terminated, bool), np.array(truncated, bool), list(infos)

    def _call(self, i: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # games call sys.exit() when their window is closed
            raise EnvironmentFailure(format_error(error), self.members[i]) from error

    def _store(self, i: int, observation: Any) -> None:
        if not self.several_keys:
            self.observation["observation"][i] = observation
            return
        for key, array in self.observation.items():
            array[i] = observation[key]

    def close(self) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()


def _record(spec: Spec) -> np.dtype:
    return np.dtype([(key, array.dtype, array.shape) for key, array in spec.observation.items()], align=True)


def _observation(spec: Spec, size: int, buffer: Any) -> dict[str, np.ndarray]:
    records = np.zeros(size, _record(spec)) if buffer is None else np.frombuffer(buffer, _record(spec))
    return {key: records[key] for key in spec.observation}


class RemoteGroup:
    """A `Group` in another process, which can be killed if it hangs.

    Args:
        make_env, members: see `Group`.
        spec: spec of one environment.
        timeout: seconds for a step or reset of one environment, or None.

    Attributes:
        observation: like `Group.observation`, in shared memory.
    """

    def __init__(
        self, make_env: Callable[[], gym.Env], members: Sequence[int], spec: Spec, timeout: float | None = None
    ):
        # Forking a process in which TensorFlow runs threads can hang.
        context: Any = multiprocessing.get_context("spawn")
        buffer = context.RawArray("B", len(members) * _record(spec).itemsize)
        self.observation = _observation(spec, len(members), buffer)
        self.members, self.timeout = members, timeout and timeout * len(members)
        self.deadline: float | None = None
        self.pipe, child_pipe = context.Pipe()
        self.spin = self.started = self.unanswered = False
        arguments = serialize(make_env), child_pipe, members, buffer
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        child_pipe.close()

    def send(self, method: str, argument: Any) -> None:
        """Requests "reset" with seeds or "step" with actions, `[G]`; `receive` returns the result."""
        if self.unanswered:  # another group failed before this answer was received
            with contextlib.suppress(EnvironmentFailure):
                self.receive()
        if not self.started:  # the first answer has no timeout, because creating the environments may take long
            self.receive()
        self.deadline = self.timeout and time.monotonic() + self.timeout
        self.started = self.unanswered = True
        with contextlib.suppress(OSError):  # the process has ended; `receive` will raise
            self.pipe.send((method, argument))

    def receive(self) -> Any:
        """Returns the result of the request.

        Raises:
            EnvironmentFailure: an environment raised, or the process ended or did not answer in time.
        """
        first, last = self.members[0], self.members[-1]
        name = f"the process of environments {first} to {last}"
        try:
            if self.deadline is not None and not self.pipe.poll(max(self.deadline - time.monotonic(), 0.0)):
                self.process.kill()
                limit = f"step_timeout_seconds ({self.timeout:g} s)"
                raise EnvironmentFailure(f"{name} was killed, without an answer within {limit}", first)
            self.spin, result = _receive(self.pipe, self.spin)
        except (EOFError, OSError) as error:
            self.process.join(CLOSE_SECONDS)
            code = self.process.exitcode
            status = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
            raise EnvironmentFailure(f"{name} ended with {status}; it printed why, or memory ran out", first) from error
        self.unanswered = False
        if isinstance(result, EnvironmentFailure):
            raise result
        return result and (*result[:3], [convert(info, pickle.loads) for info in result[3]])

    def close(self) -> None:
        """Ends the process; kills it if it does not close its environments within seconds."""
        self.pipe.close()
        self.process.join(CLOSE_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _receive(pipe: Any, spin: bool) -> tuple[bool, Any]:
    """Returns whether messages arrive in quick succession, and the next message. If `spin`, polls before it sleeps,
    because waking a core takes as long as a step.
    """
    began = time.perf_counter()
    while spin and not pipe.poll() and time.perf_counter() - began < SPIN_SECONDS:
        pass
    message = pipe.recv()
    return time.perf_counter() - began < SPIN_SECONDS, message


def _work(maker: bytes, pipe: Any, members: Sequence[int], buffer: Any) -> None:
    """Serves a `Group` until the pipe is closed; ignores Ctrl-C and a closed terminal."""
    for number in {*ENDING} - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    multiprocessing.current_process().daemon = False  # an environment may start its own processes
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    group: Group | None = None
    spin, (method, argument) = False, ("make", None)
    with contextlib.suppress(EOFError, OSError):  # the run closed the pipe
        while True:
            try:
                group = group or Group(pickle.loads(maker), members, buffer)
                result = None if method == "make" else getattr(group, method)(argument)
                if result is not None:  # result of a step
                    result = *result[:3], [convert(info, pickle.dumps) for info in result[3]]
            except BaseException as error:  # also SystemExit
                result = EnvironmentFailure(format_error(error), getattr(error, "environment", None))
                result.add_note(traceback.format_exc())
            pipe.send(result)
            spin, (method, argument) = _receive(pipe, spin)
    if group is not None:
        group.close()


def _exit_with_parent() -> None:
    run = multiprocessing.parent_process()
    if run is not None:
        run.join()
        os._exit(1)


def serialize(value: Any) -> bytes:
    """Serialises a value for `pickle.loads` in another process."""
    try:
        return cloudpickle.dumps(value)
    except Exception as error:  # a user's object may raise anything
        advice = "create the objects that it uses inside the function"
        raise TfsacError(f"env_fn cannot be sent to another process ({error}); {advice}") from error


def convert(info: Mapping[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    """Applies a function to each value of an info, and drops entries for which it raises."""
    converted = {}
    for key, value in info.items():
        with contextlib.suppress(Exception):  # an info may contain anything
            converted[key] = function(value)
    return converted


class IsolatedEnvironment(gym.Env):
    """Steps an environment in another process, which is killed if it does not answer in time.

    Args:
        env: an environment with the same spaces; it is closed.
        make_env: creates the environment.
        timeout: seconds within which it must answer, or None.
    """

    def __init__(self, env: gym.Env, make_env: Callable[[], gym.Env], timeout: float | None):
        self.observation_space, self.action_space, self.metadata = env.observation_space, env.action_space, env.metadata
        self.spec = EnvSpec(name_of_environment(env), max_episode_steps=time_limit_of(env))
        env.close()
        self.group = RemoteGroup(make_env, [0], spec_of(env), timeout)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; needs a seed and ignores options."""
        return self._call("reset", [seed])[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step; the info omits values that cannot be sent between processes."""
        observation, (reward, terminated, truncated, info) = self._call("step", [action])
        return observation, float(reward[0].sum()), bool(terminated[0]), bool(truncated[0]), info[0]

    def _call(self, method: str, argument: Any) -> tuple[Any, Any]:
        self.group.send(method, argument)
        result = self.group.receive()
        observation = {key: array[0].copy() for key, array in self.group.observation.items()}
        several_keys = isinstance(self.observation_space, gym.spaces.Dict)
        return observation if several_keys else observation["observation"], result

    def close(self) -> None:
        """Closes the environment and ends its process."""
        self.group.close()
