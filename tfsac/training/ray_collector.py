"""Collect on a Ray cluster: actors step the environments of a run while the learner updates in this process.

An actor is a `Collector` in a separate process. It returns one rollout of T steps at a time. When the rollouts of all
actors have arrived, the next ones are requested at once, with the newest weights; no actor is ever more than one
rollout ahead. If an actor's process or machine is lost, Ray restarts it and sends the same request again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfsac.distributed.partition import environment_of_actor
from tfsac.distributed.ray_cluster import connect
from tfsac.environments import EnvFn, EnvironmentFailure, Environments, Filters
from tfsac.errors import TfsacError
from tfsac.networks import ModelMaker
from tfsac.parameters import Preset, RunParameters
from tfsac.policies import BasePolicy
from tfsac.random_streams import Stream
from tfsac.training.build import build_policy
from tfsac.training.collection import Collector
from tfsac.training.devices import configure
from tfsac.types import Spec, Step

MAX_RETRIES = 2  # of a request after its actor was lost
START_TIMEOUT = 300.0  # seconds for actors to load TensorFlow, and to create and reset their environments

Weights = list[np.ndarray]


class RolloutRequest(NamedTuple):
    """A message to all actors.

    Attributes:
        steps: T, number of steps in every environment.
        random_action_steps: environment steps of the run before which actions are random.
        env_steps: environment steps of the run before the rollout.
        episode: `[E]`, index of the episode that each environment of the run starts with if its actor was restarted.
        filters: the state of the observation and reward statistics.
    """

    steps: int
    random_action_steps: float
    env_steps: int
    episode: np.ndarray
    filters: dict[str, Any]


class RolloutActor:
    """Collects rollouts in its share of a run's environments, in a process that Ray starts."""

    def __init__(
        self,
        index: int,
        preset: Preset,
        settings: RunParameters,
        env_fn: EnvFn | None,
        models: ModelMaker | None,
    ):
        self.index, self.preset, self.settings, self.env_fn, self.models = index, preset, settings, env_fn, models
        self.collector: Collector | None = None
        self.requested: int | None = None

    def start_episodes(self, episode: np.ndarray, env_steps: int) -> tuple[Spec, dict[str, np.ndarray]]:
        """Starts the episodes with these indices `[E]`, one per environment of the run; the first call also creates
        policy and environments. Returns spec and observations.
        """
        # Not in the constructor, because Ray reports an exception there as a dead process.
        self.collector = self.collector or self._collector()
        num_envs, num_actors = self.collector.environments.num_envs, self.settings.num_actors
        own = episode[self.index * num_envs :][:num_envs].tolist()
        state = {"episode": own, "length": [0] * num_envs, "steps": env_steps // num_actors}
        self.collector.environments.restore(state, None, {})
        self.collector.policy_state = {}
        self.collector.reseed([self.settings.seed, Stream.ROLLOUT_ACTORS, self.index, env_steps])
        return self.collector.environments.spec, self.collector.environments.observation

    def _collector(self) -> Collector:
        for kind in ("INTEROP", "INTRAOP"):
            os.environ.setdefault(f"TF_NUM_{kind}_THREADS", "1")
        configure(use_cpu=True)
        parameters = environment_of_actor(self.preset, self.settings)
        first = self.index * parameters.num_envs
        environments = Environments(parameters, self.settings.seed, self.env_fn, first, begin=False)
        policy = build_policy(self.preset, self.settings, environments.spec, self.models, collecting=True)
        return Collector(policy, Filters(parameters.filters, policy.spec), environments)

    def rollout(self, request: RolloutRequest, weights: Weights) -> tuple[bool, Step]:
        """Returns whether the rollout starts with new episodes, and its steps, arrays `[T, E / actors, ...]`. New
        episodes start if Ray has restarted this actor, or lost its answer and sends the same request again.
        """
        restarted = self.collector is None or self.requested == request.env_steps
        self.requested = request.env_steps
        if restarted:
            self.start_episodes(request.episode, request.env_steps)
        collector = self.collector
        assert collector is not None
        collector.policy.load_acting_weights(weights)
        collector.filters.restore(request.filters)
        steps = [
            collector.step(request.random_action_steps, request.env_steps + i * len(request.episode))._replace(info=[])
            for i in range(request.steps)
        ]
        return restarted, merge_steps(steps, np.stack)


class RayEnvironments:
    """The environments of a run, divided among actors on a Ray cluster. `report` prints a line when an actor restarts.

    Attributes:
        spec: spec of one environment.
        observation: `[E, ...]` by key, the initial observations.
        episode, length, steps: index and length of the running episodes, `[E]`, and steps of the run, from `count`.
    """

    def __init__(
        self,
        preset: Preset,
        settings: RunParameters,
        env_fn: EnvFn | None,
        models: ModelMaker | None,
        report: Callable[[str], None],
        actor_class: type[Any] = RolloutActor,
    ):
        assert settings.ray_address is not None
        self.num_envs, self.report = preset.environment.num_envs, report
        self.envs_per_actor = environment_of_actor(preset, settings).num_envs  # raises
        self.connected, self.actors = contextlib.ExitStack(), list[Any]()
        self.ray = self.connected.enter_context(connect(settings.ray_address))
        try:
            cores = int(self.ray.cluster_resources().get("CPU", 0))
            if cores < settings.num_actors:  # Ray would wait for more
                raise TfsacError(f"num_actors must be <= {cores}, the cores of the cluster, got {settings.num_actors}")
            remote = self.ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=MAX_RETRIES)(actor_class)
            for index in range(settings.num_actors):
                self.actors.append(remote.remote(index, preset, settings, env_fn, models))
            self.start_episodes({"episode": [0] * self.num_envs, "length": [0] * self.num_envs, "steps": 0})
        except BaseException:
            self.close()
            raise

    def start_episodes(self, state: dict[str, Any]) -> None:
        """Makes every actor reset its environments to the episodes after those that had started in a state."""
        self.episode = np.array(state["episode"], np.int64) + (np.array(state["length"]) > 0)
        self.length, self.steps = np.zeros(self.num_envs, np.int64), state["steps"]
        self._request("start_episodes", self.episode, self.steps)
        specs, observations = zip(*self._results(START_TIMEOUT), strict=True)
        self.spec: Spec = specs[0]
        self.observation = {key: np.concatenate([each[key] for each in observations]) for key in self.spec.observation}

    def send(self, request: RolloutRequest, weights: Weights) -> None:
        """Requests a rollout from every actor, with these policy weights."""
        self._request("rollout", request, self.ray.put(weights))

    def _request(self, method: str, *arguments: Any) -> None:
        self.request = lambda actor: getattr(actor, method).remote(*arguments)
        self.pending = [self.request(actor) for actor in self.actors]

    def receive(self, newest: Step | None) -> list[Step]:
        """Waits for the requested rollouts, and returns T steps of all environments. Marks the episodes of lost actors
        as truncated in `newest`, the previous step.
        """
        restarted, rollouts = zip(*self._results(None), strict=True)
        for k in np.flatnonzero(restarted).tolist():
            self.report(f"Actor {k} was lost; it continues with new episodes.")
            if newest is not None:
                columns = slice(k * self.envs_per_actor, (k + 1) * self.envs_per_actor)
                newest.truncated[columns] |= ~newest.terminated[columns]
        return [merge_steps(rollouts, functools.partial(_side_by_side, t=t)) for t in range(len(rollouts[0].reward))]

    def _results(self, timeout: float | None) -> list[Any]:
        """Returns the results of the last request from all actors."""
        return [self._result(k, timeout) for k in range(len(self.actors))]

    def _result(self, k: int, timeout: float | None) -> Any:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                return self.ray.get([self.pending[k]], timeout=timeout)[0]
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except self.ray.exceptions.RayError as error:
                # Ray takes some seconds to notice that a machine is lost, and restarts its actors only then.
                if not isinstance(error, self.ray.exceptions.ActorUnavailableError) or time.monotonic() > deadline:
                    reason = f"An actor on the Ray cluster was lost, or does not start: {str(error).splitlines()[0]}"
                    raise EnvironmentFailure(reason) from error
            time.sleep(1.0)
            self.pending[k] = self.request(self.actors[k])

    def count(self, step: Step) -> None:
        """Counts a step that the run has used."""
        self.episode += step.ended
        self.length = np.where(step.ended, 0, step.length)
        self.steps += self.num_envs

    def state(self) -> dict[str, Any]:
        """Returns the position of each environment as plain numbers, for `start_episodes`."""
        return {"episode": self.episode.tolist(), "length": self.length.tolist(), "steps": self.steps}

    def close(self) -> None:
        """Stops the actors and disconnects from the cluster."""
        with self.connected:
            while self.actors:
                self.ray.kill(self.actors.pop())


class RayCollector(Collector):
    """Returns the steps of rollouts of length `actor_steps` from actors on a Ray cluster, one after the other.

    The newest received step is held back until the next ones arrive, because the loss of an actor truncates its
    episodes.

    Attributes:
        requested: environment steps of the run after the requested rollouts; None before the first request.
    """

    environments: RayEnvironments  # type: ignore[assignment]

    def __init__(self, policy: BasePolicy, filters: Filters, environments: RayEnvironments, actor_steps: int):
        super().__init__(policy, filters, environments)  # type: ignore[arg-type]
        self.actor_steps = actor_steps
        self.received: deque[Step] = deque()
        self.requested: int | None = None

    def step(self, random_until: float, env_steps: int) -> Step:
        """Returns the next step of all environments, waiting for it if necessary; see `Collector.step`."""
        if self.requested is None:
            self.requested = env_steps
            self._request(random_until)
        while len(self.received) < 2:
            self.received += self.environments.receive(self.received[-1] if self.received else None)
            self._request(random_until)
        step = self.received.popleft()
        self.environments.count(step)
        return step

    def _request(self, random_until: float) -> None:
        assert self.requested is not None
        # Skip the episodes that end in, or continue after, the received steps.
        episode = self.environments.episode + sum(step.ended for step in self.received) + bool(self.received)
        request = RolloutRequest(self.actor_steps, random_until, self.requested, episode, self.filters.state())
        self.environments.send(request, self.policy.actor_weights(self.actor_weights or None))
        self.requested += self.actor_steps * self.environments.num_envs

    def sync_from(self, learned: BasePolicy, actor_weights: Weights | None = None) -> None:
        """Sends the weights of the agent's policy to the actors with the next request; see `Collector.sync_from`."""
        self.actor_weights = actor_weights or []

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns an empty dict, because a resumed run starts new episodes."""
        return {}

    def restore(
        self, state: dict[str, Any], arrays: Mapping[str, np.ndarray], episode: Any, learned: BasePolicy
    ) -> bool:
        """Starts the episodes after those of a checkpoint; returns False, as running episodes do not continue."""
        self.policy.rng.bit_generator.state = state["rng"]
        self.sync_from(learned)
        self.environments.start_episodes(state["environments"])
        return False


def merge_steps(steps: Sequence[Step], merge: Callable[[list[np.ndarray]], np.ndarray]) -> Step:
    """Merges several steps into one; `merge` combines the arrays of all steps for each field and key."""

    def merged(values: Sequence[Any]) -> Any:
        if isinstance(values[0], dict):
            return {key: merge([value[key] for value in values]) for key in values[0]}
        return merge(list(values))

    return Step(*map(merged, zip(*steps, strict=True)))


def _side_by_side(arrays: list[np.ndarray], t: int) -> np.ndarray:
    return np.concatenate([array[t] for array in arrays])
