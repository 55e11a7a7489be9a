"""The base class of agents: networks, optimizers, noise, losses, gradients, optimizer steps, target networks.

`CompiledUpdates` calls `update_once` in a graph, or `update_critics_once` when a policy delay leaves out the policy. It
selects this replica's entries of the batch, folds the team axis into the batch, and counts updates.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import keras
import tensorflow as tf

from tfsac.agents.batches import transition_spec
from tfsac.agents.compiled_updates import CompiledUpdates
from tfsac.agents.policy_average import PolicyAverage
from tfsac.agents.sqil_diagnostics import EXTRAS, critic_diagnostics
from tfsac.errors import TfsacError
from tfsac.losses.ensembles import draw_critics
from tfsac.losses.temperature import temperature_loss
from tfsac.networks import ModelMaker, make_networks
from tfsac.networks.optimizers import (
    FusedAdam,
    apply_on_replicas,
    build_optimizer,
    clip_gradients,
    learning_rate_of,
    move_towards,
)
from tfsac.networks.unit_weights import project
from tfsac.parameters import (
    AgentParameters,
    FixedAlphaParameters,
    LearnedAlphaParameters,
    PrioritizedExperienceReplayParameters,
    SQILExperienceReplayParameters,
)
from tfsac.policies import BasePolicy
from tfsac.policies.team_axis import fold, unfold
from tfsac.types import TARGET, Batch, Batches, Metrics, Spec, Tensors, Update, UpdateResult


class Gradients(NamedTuple):
    """Gradients of the variables trained under a name, and the global norm for clipping them."""

    name: str
    values: list[tf.Tensor]
    norm: tf.Tensor


class Step(NamedTuple):
    """A step that is computed but not yet applied: gradients for `apply`, metrics, and for each batch entry, `[B]`, the
    policy's loss or the critics' absolute TD error (mean over the critics).
    """

    gradients: list[Gradients]
    metrics: Metrics
    values_B: Any = None


class FixedTemperature:
    """A constant temperature."""

    def __init__(self, alpha: float):
        self.alpha = alpha

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar."""
        return tf.constant(self.alpha, tf.float32)


class LearnedTemperature(keras.layers.Layer):
    """A temperature that is learned to bring the policy's entropy to a target."""

    def __init__(self, parameters: LearnedAlphaParameters, name: str = "temperature"):
        super().__init__(name=name)
        self.parameters, self.log_space = parameters, parameters.log_space
        first = math.log(parameters.initial_alpha) if self.log_space else parameters.initial_alpha
        self.variable = self.add_weight(
            name="log_alpha" if self.log_space else "alpha",
            initializer=keras.initializers.Constant(first),
            constraint=None if self.log_space else keras.constraints.NonNeg(),
            aggregation="mean",  # the constraint assigns on every replica
        )

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar, without gradient."""
        value = self.variable.value
        return tf.stop_gradient(tf.exp(value) if self.log_space else tf.convert_to_tensor(value))

    def loss(self, log_prob_B: tf.Tensor, target_entropy: Any) -> tf.Tensor:
        """Returns the loss of each entry, `[B]`; see `temperature_loss`."""
        value = tf.convert_to_tensor(self.variable.value)
        learned = tf.exp(value) if self.parameters.loss == "alpha" else value
        return temperature_loss(learned, log_prob_B, target_entropy)


class Agent(tf.Module, ABC):
    """Base class of the agents. A subclass defines `policy_class`, its losses in `update_once` (and, for a policy
    delay, in `update_critics_once`), and `values`; it takes the same arguments.

    Create it in the scope of a `tf.distribute` strategy to train on several devices: every replica then runs
    `update_once` on its share of the batch. With several workers, each process has an agent that gets only its worker's
    share; all of them create the same agents and make the same updates in the same order. One
    `tf.train.Checkpoint(agent=agent)` holds networks, target networks, optimizers, counters and the seed of the noise;
    restore it before the agent's first update.

    Team members share all networks: if the spec has P of them, batches are `[B, P, ...]`, folded to `[B * P, ...]`
    before `update_once`. Rewards, discounts and weights apply to all P; priorities are means over them.

    Args:
        parameters: algorithm, memory and networks.
        spec: observations and actions of the agent, or of P team members together.
        seed: seed of weights, noise and acting.
        eager: run updates without compiling them, for debugging.
        models: returns a Keras model for each network, by name, replacing its parameters' layers; see `make_networks`.
        jit_compile: compile updates with XLA, on one device. XLA draws different noise.

    Attributes:
        policy: acts with some of the networks.
        spec: as given, with the extras that the memory stores.
        networks: by name, including target networks `<name>_target`.
        targets: by name, the target network, or the network itself if it has none.
        trained, optimizers: trained variables and their optimizer, by name of the network (or "temperature").
        algorithm, network_parameters, loss_weights: the agent's parameters; those of networks by name.
        prioritized, imitates: whether batches have importance weights, or demonstrated entries (`extras["expert"]`).
        replicas: number of devices, over all workers, that share a batch.
        batch_size, local_batch_size, entries: size of the global batch, of this worker's share, of the folded batch.
        updates, resets: int64 variables: number of updates, and (only with `reset_steps`) of the last reset.
        policy_average: the average of the policy's weights, None without `rate_for_averaging_policy`.
        compiled: runs the updates; `compiled.traces` counts their traces.
        full_metrics: whether the update being computed or traced reports all metrics, not only its losses.

    Raises:
        TfsacError: errors of the policy and of `make_networks`, a batch that the replicas cannot share equally, or XLA
            for updates that run eagerly or on several replicas.
    """

    policy_class: ClassVar[type[BasePolicy]]
    policy: Any
    algorithm: Any
    critic_step: Any
    num_critics: int
    full_metrics: bool = True
    batch_axis: ClassVar[int] = 0  # axis of the batch in what `update_once` gets; 1 for sequences

    def __init__(
        self,
        parameters: AgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        self.policy_class.check(parameters, spec, models is not None)
        super().__init__(name=None)
        self.algorithm, self.network_parameters = parameters.algorithm, dict(parameters.networks)
        self.prioritized = isinstance(parameters.memory, PrioritizedExperienceReplayParameters)
        self.imitates = isinstance(parameters.memory, SQILExperienceReplayParameters)
        self.strategy = tf.distribute.get_strategy()
        self.replicas = self.strategy.num_replicas_in_sync
        self.local_replicas = len(self.strategy.extended.worker_devices) if self.replicas > 1 else 1
        parameters.check_batch(self.replicas)
        self.batch_size = parameters.batch_size
        self.local_batch_size = self.batch_size // self.replicas * self.local_replicas
        self.entries = self.batch_size * (spec.num_agents or 1)
        if jit_compile and (eager or self.replicas > 1):
            raise TfsacError(f"jit_compile needs compiled updates on one device, got {eager=} and {self.replicas=}")
        self.networks = make_networks(
            parameters,
            lambda name, networks: self.policy_class.spec_of_network(name, parameters, spec, networks),
            seed,
            models,
        )
        self.targets = {name: self.networks.get(name + TARGET, self.networks[name]) for name in self.network_parameters}
        self.trained = {name: self.networks[name].own_variables for name in self.network_parameters}
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=once, name="updates")
        if getattr(self.algorithm, "reset_steps", ()):  # checkpoints of other runs lack it
            self.resets = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=once, name="resets")
        self.optimizers = {
            name: build_optimizer(network, self.trained[name], self.updates)
            for name, network in self.network_parameters.items()
        }
        self.loss_weights = {name: network.loss_weight for name, network in self.network_parameters.items()}
        self.policy = self.policy_class(parameters, spec, self.networks, seed)
        self.spec = self.policy.spec
        rate = getattr(self.algorithm, "rate_for_averaging_policy", None)
        self.policy_average = (
            PolicyAverage(self.policy, self.networks, parameters.encoders, rate, self.updates) if rate else None
        )
        if self.imitates:
            self.spec = self.spec._replace(extras=EXTRAS)
        self.noise_seed = tf.Variable(seed, dtype=tf.int64, trainable=False, aggregation=once, name="noise_seed")
        self.target_rate = self.algorithm.rate_for_copying_weights_to_target
        has_target = any(name.endswith(TARGET) for name in self.networks)
        self.target_period = self.algorithm.updates_between_target_copies() if has_target else 1
        self.compiled = CompiledUpdates(self, eager, jit_compile)

    @property
    def notes(self) -> list[str]:
        """Choices that the networks' parameters left open, one line each."""
        return list(dict.fromkeys(network.note for network in self.networks.values() if network.note))

    @property
    def metric_names(self) -> list[str]:
        """Names of the columns of metrics that `update` returns, known after `trace` or the first call."""
        return self.compiled.metric_names

    def trace(self, single: bool = False) -> list[str]:
        """Traces the update without running it, and returns the names of its metrics.

        Args:
            single: for calls of exactly one update, which then need no loop in the graph; else for any number.
        """
        return self.compiled.trace(single)

    def update(self, stacked: Batches) -> UpdateResult:
        """Makes U updates in one call of a compiled graph.

        Args:
            stacked: U batches, `[U, B, ...]` or `[U, T, B, ...]`, B being `local_batch_size`; with importance weights
                if the memory is prioritised.

        Returns:
            metrics `[U, M]` of the global batch, whose columns `metric_names` names, and priorities of these entries.

        Raises:
            ValueError: a batch that does not match the agent's batch size.
        """
        return self.compiled(stacked)

    def averaged_policy(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which the policy has its averaged weights, if the algorithm averages them."""
        return self.policy_average.loaded() if self.policy_average else contextlib.nullcontext()

    # -- for subclasses ------------------------------------------------------------------------------------------------

    @abstractmethod
    def update_once(self, batch: Any) -> Update:
        """Makes one update: losses, gradients, optimizer steps, target networks. `CompiledUpdates` calls it.

        Args:
            batch: this replica's entries, a `Transition` `[B, ...]`, or a `Sequence` or `Segments` `[T, B, ...]`.
        """

    def update_critics_once(self, batch: Any) -> Update:
        """Makes an update without policy and temperature: the critics, then the target. Its metrics are a subset of
        those of `update_once`.
        """
        critic = self.critic_step(batch)
        self.apply(*critic.gradients)
        self.update_target("q")
        return Update(critic.metrics, critic.values_B)

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns the values of observations and actions (in a policy's state) by name, `[B]`, for exports."""
        raise NotImplementedError(f"{type(self).__name__}.values(observation, action, state)")

    def value_tensors(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, Any]:
        """Returns `values` for a single agent, `[E]`, or for a team, `[E, P]`, by name."""
        if self.spec.num_agents is None:
            return self.values(observation, action, state)
        return unfold(self.values(fold(dict(observation)), fold(action)), tf.shape(action)[1])

    @property
    def values_through(self) -> list[str]:
        """Names of the networks that `values` needs."""
        return [name for name in self.network_parameters if name != "policy"]

    def batch_spec(self) -> Batch:
        """Returns shapes and dtypes of the batches that the agent learns from, as `tf.TensorSpec`."""
        return transition_spec(self.spec, self.local_batch_size, self.prioritized)

    # -- parts of updates ----------------------------------------------------------------------------------------------

    def noise(self, name: str, shape: list[int], draw: Any = tf.random.stateless_normal) -> tf.Tensor:
        """Returns noise for this replica's entries in this update, standard normal unless `draw` is another function.

        It depends on seed, update and `name`, and is drawn for the global batch, `shape`, on any number of replicas.
        """
        seed = tf.stack([self.noise_seed + zlib.crc32(name.encode()), self.updates])
        sample = draw(shape, seed)
        return sample if self.replicas == 1 else self.replica_slice(sample, self.replicas)

    def subset(self) -> tf.Tensor | None:
        """Returns the indices of the critics in this update's target, `[M]`, equal on all replicas; None for all."""
        if self.algorithm.critic_subset is None:
            return None
        seed = tf.stack([self.noise_seed + zlib.crc32(b"subset"), self.updates])
        return draw_critics(tf.random.stateless_uniform([self.num_critics], seed), self.algorithm.critic_subset)

    def watch(self, *names: str) -> tf.GradientTape:
        """Returns a tape that watches only the variables trained under these names."""
        # Agents that imitate compute more than one gradient.
        tape = tf.GradientTape(persistent=self.imitates, watch_accessed_variables=False)
        with tape:
            tape.watch([variable.value for name in names for variable in self.trained[name]])
        return tape

    def mean_loss(self, name: str, loss: tf.Tensor) -> tf.Tensor:
        """Returns the weighted mean of losses `[B]` (for critics `[B, N]`, the sum of means), plus the penalty."""
        loss = self.loss_weights[name] * tf.reduce_sum(tf.reduce_mean(loss, axis=0))
        return loss + self.l2_penalty(name) if self.network_parameters[name].l2_regularization else loss

    def l2_penalty(self, name: str) -> tf.Tensor:
        """Returns half the sum of a network's squared kernels times its `l2_regularization`."""
        kernels = [tf.nn.l2_loss(v.value) for v in self.trained[name] if v.name.endswith("kernel")]
        return self.network_parameters[name].l2_regularization * tf.add_n(kernels)

    def gradients(self, loss: tf.Tensor, tape: tf.GradientTape, *names: str) -> list[Gradients]:
        """Returns the global batch's gradients for this replica's mean loss, before clipping, with their joint norm."""
        values = tape.gradient(loss, [[variable.value for variable in self.trained[name]] for name in names])
        if self.replicas > 1:
            values = self.mean_over_replicas(values)
        norm = tf.linalg.global_norm(tf.nest.flatten(values))
        return [Gradients(name, gradient, norm) for name, gradient in zip(names, values, strict=True)]

    def critic_result(
        self, batch: Any, q_BN: tf.Tensor, target: tf.Tensor, loss_BN: tf.Tensor, gradients: list[Gradients]
    ) -> Step:
        """Returns the step of critics with one target `[B]` or one each `[B, N]`, with the metrics of all agents."""
        td_error_BN = tf.abs(q_BN - (target[:, None] if target.shape.rank == 1 else target))
        td_error_B = tf.reduce_mean(td_error_BN, axis=-1)
        of_critics = {"q/q": q_BN, "loss/q": self.loss_weights["q"] * loss_BN, "q/td_error": td_error_BN}
        means = {name: tf.unstack(tf.reduce_mean(x_BN, axis=0)) for name, x_BN in of_critics.items()}
        metrics = {
            **{f"{name}{i + 1}": mean for name, values in means.items() for i, mean in enumerate(values)},
            "q/target": tf.reduce_mean(target),
            "q/gradient_norm": gradients[0].norm,
            **(critic_diagnostics(td_error_B, batch) if self.imitates else {}),
        }
        return Step(gradients, metrics, td_error_B)

    def apply(self, *steps: Gradients) -> None:
        """Takes optimizer steps in order, with the clipping and unit weights of each network's parameters."""
        for name, values, norm in steps:
            network = self.network_parameters.get(name)  # None for a temperature
            if network and network.clip_gradients is not None:
                values = clip_gradients(values, network.clip_gradients, network.gradients_clipping_method, norm)
            if self.replicas == 1:
                self.optimizers[name].apply(values, self.trained[name])
            else:
                apply_on_replicas(self.optimizers[name], values, self.trained[name])
            if network and network.unit_weights != "none":
                project(self.networks[name], network.unit_weights)

    def make_temperature(
        self, parameters: FixedAlphaParameters | LearnedAlphaParameters, name: str = "temperature"
    ) -> FixedTemperature | LearnedTemperature:
        """Returns a fixed temperature, or a learned one, whose variable and Adam are registered under its name."""
        if isinstance(parameters, FixedAlphaParameters):
            return FixedTemperature(parameters.alpha)
        temperature = LearnedTemperature(parameters, name)
        self.trained[name] = temperature.trainable_variables
        self.optimizers[name] = FusedAdam(learning_rate_of(parameters, self.updates))
        self.optimizers[name].build(temperature.trainable_variables)
        return temperature

    def temperature_step(
        self,
        temperature: FixedTemperature | LearnedTemperature,
        log_prob_B: tf.Tensor,
        target_entropy: Any,
        mask_B: Any = 1.0,
    ) -> Step:
        """Computes the step that brings the entropy to its target (1812.05905, equation 18), if alpha is learned; the
        mask is 0 for padding. See `losses.temperature`.
        """
        if isinstance(temperature, FixedTemperature):
            return Step([], {})
        with self.watch(temperature.name) as tape:
            loss = tf.reduce_mean(mask_B * temperature.loss(log_prob_B, target_entropy))
        return Step(self.gradients(loss, tape, temperature.name), {f"loss/{temperature.name}": loss})

    def update_target(self, name: str) -> None:
        """Applies Polyak averaging once per period of updates: `target <- (1 - rate) * target + rate * online`."""
        if name + TARGET not in self.networks:
            return
        rate: float | tf.Tensor = self.target_rate
        if self.target_period > 1:
            rate = rate * tf.cast((self.updates + 1) % self.target_period == 0, tf.float32)
        targets = self.targets[name].model.trainable_variables
        move_towards([(t.value, online.value) for t, online in zip(targets, self.trained[name], strict=True)], rate)

    # -- several replicas ----------------------------------------------------------------------------------------------

    def replica_batch(self, batch: Any) -> Any:
        """Returns this replica's entries of its worker's batch."""
        initial_state = getattr(batch, "initial_state", ())
        if initial_state:  # `[B, ...]`, without the axis of time that the other fields begin with
            batch = batch._replace(initial_state=tf.nest.map_structure(lambda x: x[None], initial_state))
        part = tf.nest.map_structure(lambda x: self.replica_slice(x, self.local_replicas), batch)
        if initial_state:
            part = part._replace(initial_state=tf.nest.map_structure(lambda x: x[0], part.initial_state))
        return part

    def replica_slice(self, x: tf.Tensor, replicas: int) -> tf.Tensor:
        """Returns this replica's part of a tensor shared by `replicas`, `[B, ...]` or folded `[B * P, ...]`."""
        if replicas == 1:
            return x
        begin, size = [0] * x.shape.rank, x.shape.as_list()
        size[self.batch_axis] //= replicas
        # The replicas of a worker have consecutive ids.
        index = tf.distribute.get_replica_context().replica_id_in_sync_group % replicas
        begin[self.batch_axis] = index * size[self.batch_axis]
        return tf.slice(x, begin, size)

    def mean_over_replicas(self, values: Any) -> Any:
        """Returns tensors (in any structure) averaged over the replicas."""
        if self.replicas == 1:
            return values
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, values)


def flat(x_TB: tf.Tensor) -> tf.Tensor:
    """Returns `[T, B, ...]` as `[T * B, ...]`."""
    return tf.reshape(x_TB, [-1, *x_TB.shape[2:]])
