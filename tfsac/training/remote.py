"""Acting in environments on a Ray cluster, while this process learns.

Actors play stretches of steps, one for each message. When the stretches of all actors have come, the next ones are ordered at once,
to be played while the updates due for those that came are made; so no actor is ever more than one message ahead.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.agents import Agent, ModelMaker
from tfsac.cluster import share_of_actor
from tfsac.environments import EnvironmentFailure, Environments, Filters, maker
from tfsac.parameters import Preset, RunParameters
from tfsac.ray_cluster import ClusterWatch, connect
from tfsac.training.collection import Collector, Step
from tfsac.training.weights import acting_weights, take_over
from tfsac.types import Spec
from tfsac.user_code import calling

ACTORS = 5  # stream of random numbers beside those of a run
ATTEMPTS = 3  # to have the same steps played, each by another actor
BEGINNING_SECONDS = 300.0  # for an actor to load TensorFlow, make its environments and begin their episodes
SECONDS_OF_A_WAIT = 2.0  # for an answer, until the head of the cluster is asked whether it is there

Weights = list[np.ndarray]


class ActorsLost(EnvironmentFailure):
    """An actor, and those in its place, ended before they had played anything; or the cluster is lost."""

    what = "The Ray cluster, or an actor on it, was lost"


class Order(NamedTuple):
    """What actors play for one message.

    Attributes:
        steps: T, of every environment.
        random_until: environment steps of the run before which actions are random.
        env_steps: of the run before the first of them.
        num_envs: E, of the run.
        filters: their statistics.
    """

    steps: int
    random_until: float
    env_steps: int
    num_envs: int
    filters: dict[str, Any]


class Player:
    """An agent in an actor's share of the environments.

    Args:
        preset, settings: of the run.
        index: of the actor.
        env_fn, models: as the run's.
    """

    def __init__(
        self, preset: Preset, settings: RunParameters, index: int, env_fn: Callable[[], gym.Env] | None, models: ModelMaker | None
    ):
        self.preset, self.settings, self.index, self.env_fn, self.models = preset, settings, index, env_fn, models
        self.collector: Collector | None = None

    def begin(self, state: dict[str, Any], env_steps: int) -> tuple[Spec, dict[str, np.ndarray]]:
        """Begins an episode in each environment; at first, makes agent and environments.

        Args:
            state: of the environments, with the episodes to begin.
            env_steps: of the run so far.

        Returns:
            spec and observations of the environments.
        """
        # What an actor's constructor raises would look as if its process had ended.
        with calling(f"Actor {self.index}"):
            self.collector = self.collector or self._collector()
            self.collector.restore(state, {}, None)
        self.collector.agent.rng = np.random.default_rng([self.settings.seed, ACTORS, self.index, env_steps])
        return self.collector.environments.spec, self.collector.environments.observation

    def _collector(self) -> Collector:
        from tfsac.training.build import build_agent
        from tfsac.training.devices import configure

        for kind in ("INTEROP", "INTRAOP"):
            os.environ.setdefault(f"TF_NUM_{kind}_THREADS", "1")
        configure(use_cpu=True)
        share = share_of_actor(self.preset, self.settings)
        environments = Environments(share, self.settings.seed, maker(share, self.env_fn), self.index * share.num_envs)
        agent = build_agent(self.preset, self.settings, environments.spec, self.models)
        return Collector(agent, Filters(share.filters, agent.spec), environments)

    def play(self, order: Order, weights: Weights | None) -> Step:
        """Plays what is ordered.

        Args:
            order: how far.
            weights: to act with from now on; None for those before.

        Returns:
            the steps, arrays `[T, E / actors, ...]`.
        """
        collector = self.collector
        assert collector is not None
        if weights is not None:
            take_over(collector.agent, weights)
        collector.filters.restore(order.filters)
        with calling(f"Actor {self.index}"):
            steps = [collector.play(order.random_until, order.env_steps + i * order.num_envs) for i in range(order.steps)]
        return _stacked(steps, np.stack)


class RemoteEnvironments:
    """The environments of a run, divided among actors on a Ray cluster. An actor that is lost is replaced.

    Args:
        preset: of the run.
        settings: with `ray_address`, `num_actors`.
        env_fn: makes one environment, instead of the preset's level.
        models: makes Keras models, instead of the preset's networks.
        tell: gets a line for each actor that was replaced.

    Attributes:
        spec: of one environment.
        observation: `[E, ...]` by key, the first ones.
        replaced: number of actors that were lost and replaced.

    Raises:
        ParameterError: environments that cannot be divided among the actors.
        ValueError, ImportError, ConnectionError: from `connect`, or a cluster with fewer CPU cores than actors.
        EnvironmentFailure, ValueError, ImportError: from an actor's environments.
    """

    def __init__(
        self,
        preset: Preset,
        settings: RunParameters,
        env_fn: Callable[[], gym.Env] | None,
        models: ModelMaker | None,
        tell: Callable[[str], None],
    ):
        share = share_of_actor(preset, settings).num_envs
        maker(preset.environment, env_fn)().close()  # errors of a wrong level are clearer from this process
        assert settings.ray_address is not None
        self.preset, self.settings, self.env_fn, self.models, self.tell = preset, settings, env_fn, models, tell
        self.num_envs, self.share, self.replaced = preset.environment.num_envs, share, 0
        # Of the running episodes, and of the run, as far as `passed` was told.
        self.episode, self.length, self.steps = np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, np.int64), 0
        self.order: Order | None = None
        self.weights: Any = None  # the newest, in Ray's store
        self.connected = contextlib.ExitStack()
        self.ray = self.connected.enter_context(connect(settings.ray_address))
        self.actors: list[Any] = []
        try:
            self.watch = ClusterWatch(self.ray)
            cores = int(self.ray.cluster_resources().get("CPU", 0))
            if cores < settings.num_actors:
                raise ValueError(f"Each actor takes a CPU core of the Ray cluster, which has {cores}. Received: {settings.num_actors} actors")
            self.make = self.ray.remote(num_cpus=1)(Player).remote
            for index in range(settings.num_actors):
                self.actors.append(self.make(preset, settings, index, env_fn, models))
            self.begin(self.state())
        except BaseException:
            self.close()
            raise

    def begin(self, state: dict[str, Any]) -> None:
        """Has every actor begin an episode in each environment, after those that had begun.

        Args:
            state: of all environments, as `state` returned it.
        """
        self.episode = np.array(state["episode"], np.int64) + (np.array(state["length"]) > 0)
        self.length[:], self.steps, self.limit = 0, state["steps"], BEGINNING_SECONDS
        self.underway = [self._begin(k, self.episode) for k in range(len(self.actors))]
        specs, observations = zip(*(self._answer(k, None) for k in range(len(self.actors))), strict=True)
        self.spec: Spec = specs[0]
        self.observation = {key: np.concatenate([each[key] for each in observations]) for key in self.spec.observation}

    def _begin(self, k: int, episode: np.ndarray) -> Any:
        """Asks actor k to begin its part of the given episodes `[E]`."""
        env_steps = self.steps if self.order is None else self.order.env_steps
        state = {"episode": episode[self._columns(k)].tolist(), "length": [0] * self.share, "steps": env_steps // len(self.actors)}
        return self.actors[k].begin.remote(state, env_steps)

    def _columns(self, k: int) -> slice:
        return slice(k * self.share, (k + 1) * self.share)

    def send(self, order: Order, weights: Weights | None) -> None:
        """Has all actors play.

        Args:
            order: how far.
            weights: to act with from now on; None for those before.
        """
        self._check()
        self.order, fresh = order, None
        self.limit = order.steps * (self.preset.environment.step_timeout_seconds or 0.0)
        if weights is not None:
            self.weights = fresh = self.ray.put(weights)
        self.underway = [actor.play.remote(order, fresh) for actor in self.actors]

    def receive(self, newest: Step | None) -> list[Step]:
        """Waits for what was ordered last.

        Args:
            newest: the step before, or None; where an actor was lost its episodes are marked as cut off there.

        Returns:
            T steps of all environments.

        Raises:
            EnvironmentFailure: an environment raised.
            ActorsLost: an actor and those in its place were lost, or the cluster.
        """
        parts = [self._answer(k, newest) for k in range(len(self.actors))]
        return [_stacked(parts, functools.partial(_side_by_side, t=t)) for t in range(len(parts[0].reward))]

    def _answer(self, k: int, newest: Step | None) -> Any:
        """Returns what actor k was asked for last, or another one in its place."""
        ray, lost = self.ray, None
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    self._replace(k, newest)
                return self._wait(self.underway[k], k, self.limit)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:  # its process, its machine, or what it had answered
                lost = error
        reason = str(lost).splitlines()[0]
        raise ActorsLost(f"Actor {k} was lost {ATTEMPTS} times before it had played anything. Received: {reason}") from lost

    def _wait(self, reference: Any, k: int, limit: float) -> Any:
        """Returns the answer of actor k when it is there; without `step_timeout_seconds` there is no limit."""
        ready: list[Any] = []
        began, step = time.monotonic(), self.preset.environment.step_timeout_seconds
        while not ready:
            ready, _ = self.ray.wait([reference], timeout=SECONDS_OF_A_WAIT)
            self._check()
            if not ready and step is not None and time.monotonic() - began > limit:
                raise EnvironmentFailure(
                    f"The environments of actor {k} did not answer within step_timeout_seconds for each of a message's steps. "
                    f"Received: {limit:g} seconds without an answer"
                )
        answer = self.ray.get(reference)
        # A copy, for what Ray gives lies in its object store, and could not be given back to one that is lost.
        return _stacked([answer], lambda arrays: arrays[0].copy()) if isinstance(answer, Step) else answer

    def _check(self) -> None:
        try:
            self.watch.check()
        except ConnectionError as error:
            raise ActorsLost(str(error)) from error

    def _replace(self, k: int, newest: Step | None) -> None:
        self.ray.kill(self.actors[k])
        self.actors[k] = self.make(self.preset, self.settings, k, self.env_fn, self.models)
        if self.order is None:
            self.underway[k] = self._begin(k, self.episode)
            return
        self._wait(self._begin(k, self.episode + (newest is not None)), k, BEGINNING_SECONDS)
        self.underway[k] = self.actors[k].play.remote(self.order, self.weights)
        if newest is not None:
            columns = self._columns(k)
            newest.truncated[columns] |= ~newest.terminated[columns]
        self.replaced += 1
        self.tell(f"Actor {k} was lost; another one goes on with new episodes.")

    def passed(self, step: Step) -> None:
        """Notes a step that the run counts from now on."""
        self.episode += step.ended
        self.length = np.where(step.ended, 0, step.length)
        self.steps += self.num_envs

    def state(self) -> dict[str, Any]:
        """Returns where each environment is, as plain numbers, for `begin`."""
        return {"episode": self.episode.tolist(), "length": self.length.tolist(), "steps": self.steps}

    def close(self) -> None:
        """Ends the actors and leaves the cluster."""
        with self.connected:
            while self.actors:
                self.ray.kill(self.actors.pop())


class RemoteCollector:
    """An agent in environments on a Ray cluster: hands out one step after the other of what actors play.

    The newest step that was received is kept back until the next ones are there, because the loss of an actor ends its episodes.

    Args:
        agent: that learns, and whose weights the actors get.
        filters: through which it sees.
        environments: in which its copies act.
        actor_steps: T, steps of each environment in one message.
    """

    def __init__(self, agent: Agent, filters: Filters, environments: RemoteEnvironments, actor_steps: int):
        self.agent, self.filters, self.environments, self.actor_steps = agent, filters, environments, actor_steps
        self.received: deque[Step] = deque()
        self.ordered: int | None = None  # environment steps of the run when all is played that was ordered
        self.fresh = True  # whether the agent has learned since the actors got its weights
        self.acting: Weights | None = None  # what its last update returned

    def play(self, random_until: float, env_steps: int) -> Step:
        """Returns the next step of all environments; waits for it where none is left.

        Args:
            random_until: environment steps before which actions are random; exact, also in the middle of a message.
            env_steps: of the run so far.

        Raises:
            EnvironmentFailure: an environment raised.
            ActorsLost: see `RemoteEnvironments.receive`.
        """
        if self.ordered is None:
            self.ordered = env_steps
            self._order(random_until)
        while len(self.received) < 2:
            self.received += self.environments.receive(self.received[-1] if self.received else None)
            self._order(random_until)
        step = self.received.popleft()
        self.environments.passed(step)
        return step

    def _order(self, random_until: float) -> None:
        assert self.ordered is not None
        envs, weights = self.environments.num_envs, None
        if self.fresh:
            weights, self.fresh = acting_weights(self.agent, self.acting), False
        self.environments.send(Order(self.actor_steps, random_until, self.ordered, envs, self.filters.state()), weights)
        self.ordered += self.actor_steps * envs

    def hand_over(self, learner: Agent, acting: Weights | None = None) -> None:
        """Has the actors act with the agent's weights from the next order on.

        Args:
            learner: the agent.
            acting: what its last update returned.
        """
        self.fresh, self.acting = True, acting

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns nothing: running episodes begin anew where a checkpoint is continued."""
        return {}

    def restore(self, state: dict[str, Any], arrays: dict[str, np.ndarray], actions: np.ndarray | None) -> bool:
        """Begins new episodes after those of a checkpoint, and returns that the running ones do not go on.

        Args:
            state: of the environments.
            arrays, actions: not needed.
        """
        self.environments.begin(state)
        return False


def _stacked(steps: list[Step], join: Callable[[list[np.ndarray]], np.ndarray]) -> Step:
    """Returns what a function makes of the arrays of several steps, field by field and key by key."""
    fields: list[Any] = []
    for values in zip(*steps, strict=True):
        by_key = isinstance(values[0], dict)
        fields.append({key: join([value[key] for value in values]) for key in values[0]} if by_key else join(list(values)))
    return Step(*fields)


def _side_by_side(arrays: list[np.ndarray], t: int) -> np.ndarray:
    return np.concatenate([array[t] for array in arrays])
