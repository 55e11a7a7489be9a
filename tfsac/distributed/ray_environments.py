"""The environments of a run on a Ray cluster: actors step them, while the learner updates in this process.

An actor returns a rollout of T steps at a time. When the rollouts of all actors have come, the next ones are
requested at once, so that actors collect while the learner updates; no actor is ever more than one rollout ahead. What
an actor does stands in `tfsac.training.ray_collector`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfsac.distributed.partition import environment_of_actor
from tfsac.distributed.ray_cluster import connect
from tfsac.environments import EnvironmentFailure
from tfsac.errors import TfsacError
from tfsac.parameters import Preset, RunParameters
from tfsac.types import Spec, Step

ATTEMPTS = 3  # to get the same rollout, each by another actor
STARTING_SECONDS = 300.0  # for an actor to load TensorFlow, make its environments and reset them

Weights = list[np.ndarray]


class ActorsLost(EnvironmentFailure):
    """An actor and its replacements ended before they had returned a rollout."""


class RolloutRequest(NamedTuple):
    """What every actor gets in one message.

    Attributes:
        steps: T, of every environment.
        random_action_steps: environment steps of the run before which actions are random.
        env_steps: of the run before the first of them.
        num_envs: E, of the run.
        filters: the state of the observation and reward statistics.
    """

    steps: int
    random_action_steps: float
    env_steps: int
    num_envs: int
    filters: dict[str, Any]


class RayEnvironments:
    """The environments of a run, divided among actors on a Ray cluster. A lost actor is replaced.

    Args:
        preset: of the run.
        settings: with `ray_address`, `num_actors`.
        actor_class: of the actors, such as `RolloutActor`; its first argument is the index of the actor.
        actor_arguments: its other arguments.
        report: gets a line for each actor that was replaced.

    Attributes:
        spec: of one environment.
        observation: `[E, ...]` by key, the first ones.
        replaced: number of actors that were lost and replaced.

    Raises:
        TfsacError: from `connect`, or the environments cannot be divided among the actors, or a cluster with fewer CPU
            cores than actors, which would wait for more.
        Exception: of an actor's environments.
    """

    def __init__(
        self,
        preset: Preset,
        settings: RunParameters,
        actor_class: type[Any],
        actor_arguments: Sequence[Any],
        report: Callable[[str], None],
    ):
        assert settings.ray_address is not None
        self.num_envs = preset.environment.num_envs
        self.envs_per_actor = environment_of_actor(preset, settings).num_envs
        self.step_timeout, self.report, self.replaced = preset.environment.step_timeout_seconds, report, 0
        # Of the running episodes, and of the run, as far as `count` has counted.
        self.episode, self.length, self.steps = np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, np.int64), 0
        self.request: RolloutRequest | None = None
        self.weights: Any = None  # the newest, in Ray's store
        self.connected = contextlib.ExitStack()
        self.ray = self.connected.enter_context(connect(settings.ray_address))
        self.actors: list[Any] = []
        try:
            cores = int(self.ray.cluster_resources().get("CPU", 0))
            if cores < settings.num_actors:
                raise TfsacError(f"num_actors must be <= {cores}, the cores of the cluster, got {settings.num_actors}")
            remote = self.ray.remote(num_cpus=1)(actor_class).remote
            self.make: Callable[[int], Any] = lambda index: remote(index, *actor_arguments)
            for index in range(settings.num_actors):
                self.actors.append(self.make(index))
            self.start_episodes(self.state())
        except BaseException:
            self.close()
            raise

    def start_episodes(self, state: dict[str, Any]) -> None:
        """Has every actor reset its environments to the episodes after those of a state that had started."""
        self.episode = np.array(state["episode"], np.int64) + (np.array(state["length"]) > 0)
        self.length[:], self.steps = 0, state["steps"]
        self.limit: float | None = STARTING_SECONDS
        self.underway = [self._start_episodes(k, self.episode) for k in range(len(self.actors))]
        specs, observations = zip(*(self._answer(k, None) for k in range(len(self.actors))), strict=True)
        self.spec: Spec = specs[0]
        self.observation = {key: np.concatenate([x[key] for x in observations]) for key in self.spec.observation}

    def _start_episodes(self, k: int, episode: np.ndarray) -> Any:
        """Requests of actor k to reset its environments to their columns of the given episodes `[E]`."""
        env_steps = self.steps if self.request is None else self.request.env_steps
        state = {
            "episode": episode[self._columns(k)].tolist(),
            "length": [0] * self.envs_per_actor,
            "steps": env_steps // len(self.actors),
        }
        return self.actors[k].start_episodes.remote(state, env_steps)

    def _columns(self, k: int) -> slice:
        return slice(k * self.envs_per_actor, (k + 1) * self.envs_per_actor)

    def send(self, request: RolloutRequest, weights: Weights | None) -> None:
        """Requests a rollout from every actor, with these weights of the policy; None keeps those before."""
        self.request, new = request, None
        self.limit = None if self.step_timeout is None else request.steps * self.step_timeout
        if weights is not None:
            self.weights = new = self.ray.put(weights)
        self.underway = [actor.rollout.remote(request, new) for actor in self.actors]

    def receive(self, newest: Step | None) -> list[Step]:
        """Waits for the rollouts that were requested last.

        Args:
            newest: the step before, or None; where an actor was lost its episodes are marked as truncated there.

        Returns:
            T steps of all environments.

        Raises:
            EnvironmentFailure: an environment raised, or takes longer than `step_timeout_seconds`.
            ActorsLost: an actor and its replacements were lost.
        """
        parts = [self._answer(k, newest) for k in range(len(self.actors))]
        return [merge_steps(parts, functools.partial(_side_by_side, t=t)) for t in range(len(parts[0].reward))]

    def _answer(self, k: int, newest: Step | None) -> Any:
        """Returns what was last requested of actor k, if need be from a replacement."""
        failure: Exception | None = None
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    self._replace(k, newest)
                return self._wait(self.underway[k], k, self.limit)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except self.ray.exceptions.RayError as error:  # its process, its machine, or what it had answered
                failure = error
        reason = str(failure).splitlines()[0]
        raise ActorsLost(f"Actor {k} was lost {ATTEMPTS} times before it had returned a rollout: {reason}") from failure

    def _wait(self, reference: Any, k: int, seconds: float | None) -> Any:
        """Returns the answer of actor k when it is there; None for no limit."""
        ready, _ = self.ray.wait([reference], timeout=seconds)
        if not ready:
            raise EnvironmentFailure(f"The environments of actor {k} have not answered for {seconds:g} seconds")
        answer = self.ray.get(reference)
        # A copy, because what Ray gives lies in its object store.
        return merge_steps([answer], lambda arrays: arrays[0].copy()) if isinstance(answer, Step) else answer

    def _replace(self, k: int, newest: Step | None) -> None:
        self.ray.kill(self.actors[k])
        self.actors[k] = self.make(k)
        if self.request is None:
            self.underway[k] = self._start_episodes(k, self.episode)
            return
        self._wait(self._start_episodes(k, self.episode + (newest is not None)), k, STARTING_SECONDS)
        self.underway[k] = self.actors[k].rollout.remote(self.request, self.weights)
        if newest is not None:
            columns = self._columns(k)
            newest.truncated[columns] |= ~newest.terminated[columns]
        self.replaced += 1
        self.report(f"Actor {k} was lost; its replacement continues with new episodes.")

    def count(self, step: Step) -> None:
        """Counts a step, once the run has used it."""
        self.episode += step.ended
        self.length = np.where(step.ended, 0, step.length)
        self.steps += self.num_envs

    def state(self) -> dict[str, Any]:
        """Returns where each environment is, as plain numbers, for `start_episodes`."""
        return {"episode": self.episode.tolist(), "length": self.length.tolist(), "steps": self.steps}

    def close(self) -> None:
        """Ends the actors and leaves the cluster."""
        with self.connected:
            while self.actors:
                self.ray.kill(self.actors.pop())


def merge_steps(steps: Sequence[Step], merge: Callable[[list[np.ndarray]], np.ndarray]) -> Step:
    """Merges several steps into one: `merge` returns one array for those of all steps, by field and key."""

    def merged(values: Sequence[Any]) -> Any:
        if isinstance(values[0], dict):
            return {key: merge([value[key] for value in values]) for key in values[0]}
        return merge(list(values))

    return Step(*map(merged, zip(*steps, strict=True)))


def _side_by_side(arrays: list[np.ndarray], t: int) -> np.ndarray:
    return np.concatenate([array[t] for array in arrays])
