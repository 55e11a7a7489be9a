"""Collecting on a Ray cluster: what an actor does there, and the learner's end of it.

An actor is a `Collector` in a process of its own. It gets the learner's weights and returns rollouts of steps.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.distributed.partition import environment_of_actor
from tfsac.distributed.ray_environments import RayEnvironments, RolloutRequest, Weights, merge_steps
from tfsac.environments import Environments, Filters
from tfsac.networks import ModelMaker
from tfsac.parameters import Preset, RunParameters
from tfsac.policies import BasePolicy
from tfsac.random_streams import Stream
from tfsac.training.build import build_policy
from tfsac.training.collection import Collector
from tfsac.training.devices import configure
from tfsac.types import Spec, Step


class RolloutActor:
    """Collects rollouts in its part of a run's environments, in a process that Ray starts."""

    def __init__(
        self,
        index: int,
        preset: Preset,
        settings: RunParameters,
        env_fn: Callable[[], gym.Env] | None,
        models: ModelMaker | None,
    ):
        self.index, self.preset, self.settings, self.env_fn, self.models = index, preset, settings, env_fn, models
        self.collector: Collector | None = None

    def start_episodes(self, state: dict[str, Any], env_steps: int) -> tuple[Spec, dict[str, np.ndarray]]:
        """Starts an episode in each environment after those in `state`; the first time, makes policy and environments.
        Returns spec and observations.
        """
        # Not in the constructor: what that raises looks as if the process had ended.
        self.collector = self.collector or self._collector()
        self.collector.start_episodes(state)
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

    def rollout(self, request: RolloutRequest, weights: Weights | None) -> Step:
        """Returns the requested steps, arrays `[T, E / actors, ...]`; weights of None keep those before."""
        collector = self.collector
        assert collector is not None
        if weights is not None:
            collector.policy.load_acting_weights(weights)
        collector.filters.restore(request.filters)
        steps = [
            collector.step(request.random_action_steps, request.env_steps + i * request.num_envs)._replace(info=[])
            for i in range(request.steps)
        ]
        return merge_steps(steps, np.stack)


class RayCollector(Collector):
    """Hands out the steps of rollouts of `actor_steps` that actors on a Ray cluster collect, one after the other.

    The newest step that was received is kept back until the next ones are there, because the loss of an actor truncates
    its episodes.

    Attributes:
        requested: environment steps of the run after the rollouts that were requested; None before the first ones.
    """

    environments: RayEnvironments  # type: ignore[assignment]

    def __init__(self, policy: BasePolicy, filters: Filters, environments: RayEnvironments, actor_steps: int):
        super().__init__(policy, filters, environments)  # type: ignore[arg-type]
        self.actor_steps = actor_steps
        self.received: deque[Step] = deque()
        self.requested: int | None = None
        self.weights_changed = True  # since the actors got them

    def step(self, random_until: float, env_steps: int) -> Step:
        """Returns the next step of all environments, waiting for it where none is left; see `Collector.step`."""
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
        envs, weights = self.environments.num_envs, None
        if self.weights_changed:
            weights, self.weights_changed = self.policy.actor_weights(self.actor_weights or None), False
        self.environments.send(
            RolloutRequest(self.actor_steps, random_until, self.requested, envs, self.filters.state()), weights
        )
        self.requested += self.actor_steps * envs

    def sync_from(self, learned: BasePolicy, actor_weights: Weights | None = None) -> None:
        """Has the actors act with the agent's policy from the next request on; see `Collector.sync_from`."""
        self.weights_changed, self.actor_weights = True, actor_weights or []

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns nothing: a resumed run starts new episodes."""
        return {}

    def restore(
        self, state: dict[str, Any], arrays: Mapping[str, np.ndarray], actions: np.ndarray | None, learned: BasePolicy
    ) -> bool:
        """Starts the episodes after those of a checkpoint, and returns that the running ones are not continued."""
        self.policy.rng.bit_generator.state = state["rng"]
        self.sync_from(learned)
        self.environments.start_episodes(state["environments"])
        return False
