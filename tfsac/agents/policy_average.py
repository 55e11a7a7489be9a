"""A running average of a policy's weights, which evaluations rate and which runs save and export."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.network import Networks
from tfsac.networks.optimizers import move_towards
from tfsac.policies import BasePolicy


class PolicyAverage(tf.Module):
    """A running average of the weights and running statistics that a policy acts with (Polyak and Juditsky 1992;
    Nikishin et al. 2018).

    After the t-th update since the start or the last reset, `average += max(rate, 1 / t) * (weights - average)`: at
    first the mean over all updates, then an exponential average. Updates that a policy delay leaves out also count.
    Training does not read the average.

    Args:
        policy: the policy.
        networks: the agent's networks. One that shares its encoder with the policy is averaged, too, so that saved
            critics fit the saved encoder.
        encoders: maps networks without their own embedders to the network that provides them.
        rate: between 0 and 1, exclusive.
        updates: int64 variable, the number of updates so far.
    """

    def __init__(
        self, policy: BasePolicy, networks: Networks, encoders: Mapping[str, str], rate: float, updates: tf.Variable
    ):
        super().__init__()
        self.policy, self.rate, self.updates = policy, rate, updates
        names = {*policy.acts_through, *(encoders[name] for name in policy.acts_through if name in encoders)}
        variables = [v.value for name in sorted(names) for v in networks[name].variables]
        # The policy's own variables, such as a temperature of its choice.
        variables += [v for v in policy.variables.values() if not isinstance(v, keras.Variable)]
        unique = {id(variable): variable for variable in variables if variable.dtype.is_floating}
        self.newest = list(unique.values())
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.average = [tf.Variable(v.numpy(), trainable=False, aggregation=once, name="average") for v in self.newest]
        self.start = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=once, name="start")

    def update(self) -> None:
        """Adds the weights of this update, which `updates` does not count yet. Runs in a graph, on every replica."""
        rate = tf.maximum(self.rate, 1.0 / tf.cast(self.updates + 1 - self.start, tf.float32))
        move_towards(list(zip(self.average, self.newest, strict=True)), rate)

    def restart(self) -> None:
        """Begins a new average, after a reset of the weights."""
        self.start.assign(self.updates)

    def load(self) -> None:
        """Loads the average into the policy, once there is one."""
        if self.updates.numpy() > self.start.numpy():
            self._assign([variable.numpy() for variable in self.average])

    @contextlib.contextmanager
    def loaded(self) -> Iterator[None]:
        """Loads the average into the policy within the block."""
        newest = [variable.numpy() for variable in self.newest]
        try:
            self.load()
            yield
        finally:
            self._assign(newest)

    def _assign(self, values: list[np.ndarray]) -> None:
        for variable, value in zip(self.newest, values, strict=True):
            variable.assign(value)
        self.policy.refresh()
