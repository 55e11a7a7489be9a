"""Stepping environments on several cores, in processes that each have a group of environments.

Each process steps a group of environments as if they were one, and so does this process meanwhile: with a process for
each environment the messages cost more than the stepping gains where there are fewer cores than environments.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import (
    CloudpickleWrapper,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from tfsac.environments.check import EnvironmentFailure
from tfsac.environments.checked_returns import Notes
from tfsac.environments.make import Maker
from tfsac.environments.spaces import spaces_by_key
from tfsac.machine import ENDING
from tfsac.user_code import described

AWAKE = 0.001  # seconds
GOODBYE = 5.0  # seconds that processes get to close their environments
UNSENT = "env_fn cannot be sent to other processes: make what it holds inside it, or set environment.vectorization=sync"
MAIN = '; a script that trains with processes does so below `if __name__ == "__main__":`'


class Group:
    """G environments, stepped one after the other; everything has a leading dimension G.

    Args:
        makers: of each environment.
        first: number of the first one among all, which a failure gets.

    Attributes:
        envs: the environments.
        observation_space: of all of them together.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]], first: int = 0):
        self.envs, self.first = list[gym.Env](), first
        try:
            for make in makers:
                self.envs.append(make())
        except BaseException:  # those that were made may hold a simulator or a port
            self.close()
            raise
        single = self.envs[0].observation_space
        self.observation_space = gym.vector.utils.batch_space(single, len(self.envs))
        self.arrays = {
            key: np.zeros((len(self.envs), *(space.shape or ())), space.dtype)
            for key, space in spaces_by_key(single).items()
        }
        self.several_keys = isinstance(single, gym.spaces.Dict)

    @property
    def seen(self) -> Any:
        """The newest observations, rewritten in every step."""
        return self.arrays if self.several_keys else self.arrays["observation"]

    def reset(self, seeds: Sequence[int | None]) -> Any:
        """Begins an episode in each environment that has a seed, and returns the observations of all."""
        for i, (env, seed) in enumerate(zip(self.envs, seeds, strict=True)):
            if seed is not None:
                try:
                    self._see(i, env.reset(seed=seed)[0])
                except EnvironmentFailure as error:
                    error.environment = self.first + i
                    raise
        return self.seen

    def step(self, action: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Steps all environments; returns what a vector environment does, with a list of infos."""
        rewards, terminated, truncated, infos = [], [], [], []
        for i, env in enumerate(self.envs):
            try:
                observation, reward, ends, cut, info = env.step(action[i])
            except EnvironmentFailure as error:
                error.environment = self.first + i
                raise
            self._see(i, observation)
            rewards.append(reward)
            terminated.append(ends)
            truncated.append(cut)
            infos.append(dict(info))  # the environment may change its own in the reset that follows
        return self.seen, np.array(rewards, np.float64), np.array(terminated, bool), np.array(truncated, bool), infos

    def _see(self, i: int, observation: Any) -> None:
        if self.several_keys:
            for key, array in self.arrays.items():
                array[i] = observation[key]
        else:
            self.arrays["observation"][i] = observation

    def close(self) -> None:
        """Ends the environments."""
        for env in self.envs:
            env.close()


class WakefulPipe:
    """A pipe whose reader stays awake for a moment where messages follow each other closely: waking a core takes as
    long as a step.

    Args:
        pipe: to read from and to write to.
    """

    def __init__(self, pipe: Connection):
        self.pipe, self.close_by = pipe, False

    def recv(self) -> Any:
        """Returns the next message."""
        began = time.perf_counter()
        while self.close_by and not self.pipe.poll() and time.perf_counter() - began < AWAKE:
            pass
        message = self.pipe.recv()
        self.close_by = time.perf_counter() - began < AWAKE
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)


class Done(NamedTuple):
    """What a process answers: results beside the observations, or a failure's environment and message; and notes."""

    result: Any = None
    failure: tuple[int | None, str] | None = None
    notes: Sequence[str] = ()


def work(makers: Any, pipe: Connection, memory: Any, index: int, first: int) -> None:
    """Steps a group of environments in a process of its own, as messages ask, until the pipe is closed.

    Ctrl-C and a closed terminal do not reach it, because the run ends as it sees fit; it does not outlive the run.

    Args:
        makers: of each environment, in gymnasium's `CloudpickleWrapper`.
        pipe: for messages ("make", None), then ("reset", seeds) and ("step", actions), each answered by `Done`.
        memory: for the observations of all processes.
        index: of this process among them.
        first: number of its first environment.
    """
    for number in {*ENDING} - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    multiprocessing.current_process().daemon = False  # an environment may have processes of its own
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    wakeful = WakefulPipe(pipe)
    group: Group | None = None
    notes: list[str] = []
    for make in makers.fn:
        make.notes.write = notes.append

    def answered(name: str, content: Any) -> Done:
        nonlocal group
        try:
            if group is None:
                group = Group(makers.fn, first)
                return Done()
            if name == "reset":
                seen, result = group.reset(content), None
                write_to_shared_memory(group.observation_space, index, seen, memory)
            else:
                seen, *numbers, infos = group.step(content)
                result = [*numbers, [convert(info, pickle.dumps) for info in infos]]
                write_to_shared_memory(group.observation_space, index, seen, memory)
            return Done(result)
        except BaseException as error:  # Ctrl-C does not reach this process
            message = str(error) if "Received: " in str(error) else f"it raised. Received: {described(error)}"
            return Done(failure=(getattr(error, "environment", None), message))

    with contextlib.suppress(EOFError, OSError):  # nobody asks any more
        while True:
            wakeful.send(answered(*wakeful.recv())._replace(notes=tuple(notes)))
            notes.clear()
    if group is not None:
        group.close()
    for note in notes:  # nobody else says them any more
        Notes().write(note)


def convert(info: dict[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns an info with a function of each value, without the entries for which it raises."""
    converted = {}
    for key, value in info.items():
        with contextlib.suppress(Exception):  # anything may be in there
            converted[key] = function(value)
    return converted


def _end_with_the_run() -> None:
    run = multiprocessing.parent_process()
    if run is not None:
        run.join()
        os._exit(1)


class Processes:
    """P groups of G environments, each in a process of its own.

    Args:
        makers: of every environment, P * G of them; the first says what their notes are.
        size: G.
        single: the observation space of one environment.
        timeout: seconds for a step or reset of an environment, of which a process makes one after the other; or None.

    Raises:
        EnvironmentFailure: from `wait_for_all`: an environment failed, or its process ended or did not answer.
    """

    def __init__(self, makers: Sequence[Maker], size: int, single: gym.Space[Any], timeout: float | None):
        # Forking a process in which TensorFlow runs threads can hang.
        context: Any = multiprocessing.get_context("spawn")
        self.size, self.pipes, self.processes = size, list[Any](), list[Any]()
        self.notes = makers[0].notes
        self.asked, self.timeout, self.begun = list[int](), None, False  # starting may take as long as it takes
        space, number = gym.vector.utils.batch_space(single, size), len(makers) // size
        # Kept: a process may not have opened it yet.
        self.memory = memory = create_shared_memory(space, number, context)
        # `[P, G, ...]`, rewritten in every step.
        self.observations: Any = read_from_shared_memory(space, memory, number)
        try:
            for i in range(number):
                ours, theirs = context.Pipe()
                group = CloudpickleWrapper(list(makers[i * size : (i + 1) * size]))  # type: ignore[arg-type]
                process = context.Process(target=work, args=(group, theirs, memory, i, i * size), daemon=True)
                self.pipes.append(WakefulPipe(ours))
                _start(process)
                self.processes.append(process)
                theirs.close()
            for i in range(number):
                self.ask(i, "make", None)
            self.wait_for_all()
        except BaseException:
            self.close()
            raise
        self.timeout, self.begun = None if timeout is None else timeout * size, True

    def ask(self, i: int, name: str, content: Any) -> None:
        """Sends a message to a process."""
        self.asked.append(i)
        with contextlib.suppress(OSError):  # it has ended, as its missing answer will say
            self.pipes[i].send((name, content))

    def wait_for_all(self) -> list[Any]:
        """Returns what the processes answer that were asked."""
        asked, self.asked = self.asked, []
        failure, results = None, []
        until = None if self.timeout is None else time.monotonic() + self.timeout
        for i in asked:
            try:
                results.append(self._answer(i, until))
            except EnvironmentFailure as error:  # the others answer too: the next message must not get their answer
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def _answer(self, i: int, until: float | None) -> Any:
        pipe, ended = self.pipes[i], ""
        try:
            if until is not None and not pipe.poll(max(until - time.monotonic(), 0.0)):
                self.processes[i].kill()
                ended = (
                    f"did not answer within step_timeout_seconds and was ended. "
                    f"Received: {self.timeout:g} seconds without an answer"
                )
            else:
                answer = pipe.recv()
                for note in answer.notes:
                    self.notes(note)
        except (EOFError, OSError):
            self.processes[i].join(GOODBYE)
            code = self.processes[i].exitcode
            reason = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
            hint = "" if self.begun else MAIN
            ended = f"ended by itself or was killed, perhaps for its memory{hint}. Received: {reason}"
        if ended:
            which = range(i * self.size, (i + 1) * self.size)
            raise EnvironmentFailure(f"the process of {_named(which)} {ended}", which[0])
        if answer.failure is not None:
            environment, message = answer.failure
            raise EnvironmentFailure(message, environment)
        return answer.result

    def close(self) -> None:
        """Ends the processes; those that do not end within seconds are killed."""
        for pipe in self.pipes:
            pipe.close()
        until = time.monotonic() + GOODBYE
        for process in self.processes:
            process.join(max(until - time.monotonic(), 0.0))
            if process.is_alive():
                process.kill()
                process.join()


def _start(process: Any) -> None:
    """Starts a process, or raises EnvironmentFailure where what makes its environments cannot be sent to it."""
    try:
        process.start()
    except OSError:
        raise
    except Exception as error:
        again = isinstance(error, RuntimeError) and "bootstrapping" in str(error)
        problem = f"a process that is started runs the script again{MAIN}" if again else UNSENT
        raise EnvironmentFailure(f"{problem}. Received: {described(error)}") from error


def _named(environments: range) -> str:
    first, last = environments[0], environments[-1]
    return f"environment {first}" if first == last else f"environments {first} to {last}"


class Groups:
    """E environments in groups of equal size, one of them (the last, which may be smaller) in this process.

    Args:
        one: makes an environment.
        num_envs: E.
        cores: most groups.
        single: the observation space of one environment, where there are several groups.
        timeout: seconds for a step or reset of an environment. With a timeout all groups are in processes of their own.
    """

    def __init__(
        self,
        one: Maker,
        num_envs: int,
        cores: int,
        single: gym.Space[Any] | None = None,
        timeout: float | None = None,
    ):
        makers = [one] * num_envs
        size = -(-num_envs // cores)
        if timeout is not None:
            while num_envs % size:  # groups of equal size, as this process has none that may be smaller
                size -= 1
        self.others = (num_envs if timeout is not None else num_envs - 1) // size  # groups in processes of their own
        self.beside = self.others * size  # environments in these
        self.here = Group(makers[self.beside :], self.beside) if self.beside < num_envs else None
        self.processes: Processes | None = None
        if self.others:
            assert single is not None
            try:
                self.processes = Processes(makers[: self.beside], size, single, timeout)
            except BaseException:
                self.close()
                raise

    def reset(self, seeds: list[int | None]) -> Any:
        """Begins an episode in each environment that has a seed, and returns the observations of all."""
        if self.processes is not None:
            size = self.processes.size
            for i in range(self.others):
                group = seeds[i * size : (i + 1) * size]
                if any(seed is not None for seed in group):
                    self.processes.ask(i, "reset", group)
        try:
            own = self.here.reset(seeds[self.beside :]) if self.here else None
        finally:
            if self.processes is not None:
                self.processes.wait_for_all()
        return _joined(self.processes.observations if self.processes else None, own)

    def step(self, action: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Steps all environments with actions `[E, ...]`; returns what `Group.step` does."""
        if self.processes is None:
            assert self.here is not None
            return self.here.step(action)
        size = self.processes.size
        for i in range(self.others):
            self.processes.ask(i, "step", action[i * size : (i + 1) * size])
        try:
            own = self.here.step(action[self.beside :]) if self.here else None
        finally:
            answers = self.processes.wait_for_all()
        theirs = [np.array(each) for each in zip(*(answer[:3] for answer in answers), strict=True)]
        seen = _joined(self.processes.observations, own and own[0])
        ends = [_joined(each, own and own[1 + i]) for i, each in enumerate(theirs)]
        infos = [convert(info, pickle.loads) for answer in answers for info in answer[3]]
        return seen, *ends, infos + (own[4] if own else [])

    def close(self) -> None:
        """Ends the environments and the processes."""
        if self.here:
            self.here.close()
        if self.processes:
            self.processes.close()


def _joined(theirs: Any, own: Any) -> Any:
    """Returns arrays `[P, G, ...]` of processes and `[H, ...]` of this one as `[P * G + H, ...]`, also in dicts;
    either may be None.
    """
    if isinstance(own if theirs is None else theirs, dict):
        return {key: _joined(theirs and theirs[key], own and own[key]) for key in (theirs or own)}
    if theirs is None:
        return own
    joined = theirs.reshape(-1, *theirs.shape[2:])
    return joined if own is None else np.concatenate([joined, own])
