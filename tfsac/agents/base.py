"""What all agents share: networks, optimizers, the compiled loop of updates, noise, gradients, slow copies."""

from __future__ import annotations

import types
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from tfsac.agents.packing import Packed, Packing, transition_rows
from tfsac.agents.steps import OptimizerSteps
from tfsac.agents.team import fold_batch, unfold
from tfsac.networks import Network, build_optimizer, check_models, check_settings
from tfsac.parameters import AgentParameters, PrioritizedExperienceReplayParameters, SQILExperienceReplayParameters
from tfsac.types import EXPERT, ActResult, ArraySpec, Batch, Metrics, Spec, UpdateResult
from tfsac.user_code import calling

Mode = Literal["random", "explore", "sample", "greedy"]
ModelMaker = Callable[[], Mapping[str, keras.Model]]
ACTING = 1  # stream of random numbers for acting, beside those of the weights


class Agent(OptimizerSteps):
    """Base class: a subclass has its networks, its `update_once` and the way in which it chooses actions.

    Make it inside the scope of a `tf.distribute` strategy to train on several devices: every replica then runs
    `update_once` on its share of the batch. Where the strategy has several workers, each process has an agent of its own,
    which is given that worker's rows alone; all of them make the same agents and the same updates in the same order. One
    `tf.train.Checkpoint(agent=agent)` holds networks, slow copies, optimizers, counters and the seed of the noise.

    Several agents share all networks: where the spec has N of them, batches come as `[B, N, ...]` and are folded to
    `[B * N, ...]` before `update_once`, and observations before actions are chosen. Rewards, discounts and weights count
    for all N, priorities are means over them.

    Args:
        parameters: algorithm, memory and networks; a network with `create_target_network` gets a slow copy
            `<name>_target`.
        spec: what the agent sees and does, or N agents together.
        seed: of weights, noise and acting.
        eager: run updates without compiling them, to debug.
        models: makes a Keras model for each network, by name, instead of its parameters' layers; called once more for
            slow copies, each time after `keras.utils.set_random_seed(seed)`. See `tfsac.networks.custom`.
        jit_compile: compile updates with XLA, on one device. They compute the same but for rounding, from other draws of
            noise: XLA makes its numbers of the same random bits in its own way.

    Attributes:
        batch_axis: of the rows in what `update_once` gets, 0; 1 in sequences.
        acts_through: names of the networks that choose actions.
        acts_with: names of what else in `trained` acting needs.
        spec: as given, with the extras that the memory stores.
        networks: by name.
        trained, optimizers: variables that learn and their optimizer, by name of the network (or "temperature").
        prioritized: whether batches have importance weights and updates return priorities.
        imitates: whether half of each batch is demonstrated, which `extras["expert"]` says of each row.
        replicas: how many devices share a batch, of all workers.
        batch_size: of the global batch, that of all workers.
        local_batch_size: of this worker's share of it, which `update` takes; the same where there are no workers.
        rows: of the global batch after folding.
        updates: how many updates were made, a variable.
        metric_names: names of the columns that `update` returns, known after `trace` or the first call.
        traces: how often the update was traced.

    Raises:
        ValueError: what `check_settings` says, networks that do not fit the spec, a batch that the replicas cannot share equally, or XLA for updates that
            run eagerly or on several replicas.
    """

    batch_axis = 0
    acts_through: tuple[str, ...] = ("policy",)
    acts_with: tuple[str, ...] = ()

    def __init__(
        self,
        parameters: AgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        check_settings()
        super().__init__(name=None)
        self.strategy = tf.distribute.get_strategy()
        self.replicas = self.strategy.num_replicas_in_sync
        self.local_replicas = len(self.strategy.extended.worker_devices) if self.replicas > 1 else 1
        self.batch_size = parameters.batch_size
        if self.batch_size % self.replicas:
            raise ValueError(f"The batch must divide by the number of replicas, {self.replicas}. Received: {self.batch_size}")
        if jit_compile and (eager or self.replicas > 1):
            raise ValueError(
                f"XLA compiles the updates of one device: jit_compile goes without eager and without a strategy of several "
                f"replicas. Received: eager={eager}, {self.replicas} replica(s)"
            )
        self.local_batch_size = self.batch_size // self.replicas * self.local_replicas
        self.algorithm, self.parameters = parameters.algorithm, dict(parameters.networks)
        self.prioritized = isinstance(parameters.memory, PrioritizedExperienceReplayParameters)
        self.imitates = isinstance(parameters.memory, SQILExperienceReplayParameters)
        self.spec = spec._replace(extras={EXPERT: ArraySpec((), "float32")}) if self.imitates else spec
        if self.imitates and self.batch_size % (2 * self.replicas):
            raise ValueError(
                f"Every replica has as many demonstrated rows as own ones, so the batch divides by twice the number of "
                f"replicas, {self.replicas}. Received: {self.batch_size}"
            )
        self.rows = self.batch_size * (spec.num_agents or 1)
        self.exploration, self.eager = parameters.exploration, eager
        self.rng = np.random.default_rng([seed, ACTING])
        self.networks: dict[str, Network] = {}
        self.trained: dict[str, list[keras.Variable]] = {}
        self.optimizers: dict[str, keras.optimizers.Optimizer] = {}
        self._make_networks(seed, models)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=once, name="updates")
        self.noise_seed = tf.Variable(seed, dtype=tf.int64, trainable=False, aggregation=once, name="noise_seed")
        self.metric_names: list[str] = []
        self.traces = 0
        self._packing = Packing(self.batch_rows())
        self._compiled = tf.function(self._update_stack)
        # The loop over U has no fixed number of passes, so what XLA compiles is inside of it.
        self._each_update = tf.function(self._one_update, jit_compile=True) if jit_compile else self._one_update
        self._traces = types.SimpleNamespace(single=None, several=None)  # a dict would become part of checkpoints

    def _make_networks(self, seed: int, models: ModelMaker | None) -> None:
        made = self._models(models, seed) if models else {}
        slow = self._models(models, seed, [v for model in made.values() for v in model.variables]) if models else {}
        seeds = {name: int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i, name in enumerate(self.parameters)}
        # A network that reads another's embedders is made after it.
        for name in sorted(self.parameters, key=lambda name: self.encoder_of(name) is not None):
            parameters, encoder = self.parameters[name], self.networks.get(self.encoder_of(name) or "")
            one = self.spec_of_network(name)
            self.networks[name] = Network(name, parameters, one, seeds[name], made.get(name), encoder)
            self.trained[name] = self.networks[name].own_variables
            self.optimizers[name] = build_optimizer(parameters, self.trained[name])
            if parameters.create_target_network:
                copy = Network(f"{name}_target", parameters, one, seeds[name], slow.get(name))
                copy.copy_from(self.networks[name])
                self.networks[f"{name}_target"] = copy

    @property
    def notes(self) -> list[str]:
        """What the networks' parameters did not say and was chosen for them, a line each."""
        return list(dict.fromkeys(network.note for network in self.networks.values() if network.note))

    def _models(
        self, models: ModelMaker, seed: int, earlier: Sequence[keras.Variable] = ()
    ) -> dict[str, keras.Model]:
        """Calls the user's function; the run's seed decides the first weights."""
        keras.utils.set_random_seed(seed)
        with calling("models"):
            made = models()
        heads = {name: network.head_parameters for name, network in self.parameters.items()}
        return check_models(made, heads, {name: self.spec_of_network(name) for name in heads}, earlier)

    @abstractmethod
    def update_once(self, batch: Any, train_policy: bool = True) -> tuple[Metrics, tf.Tensor]:
        """Makes one update.

        Args:
            batch: this replica's rows, a `Transition` `[B, ...]`, or a `Sequence` or `Segments` `[T, B, ...]`.
            train_policy: False in the updates that a policy delay leaves out.

        Returns:
            metrics in the order in which they arise, and the absolute TD errors `[B]`, mean over the critics.
        """

    @abstractmethod
    def act(
        self,
        observation: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray] | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions for the observations of E environments.

        Args:
            observation: arrays `[E, ...]` by key, filtered as in training.
            state: what the policy returned with the action before; None or empty at first, and for policies without one.
            is_first: `[E]`, where an episode begins, and with it the state anew.
            mode: "random" is uniform, "sample" draws from the policy, "explore" adds the exploration to that, "greedy" is
                the policy's mode.
            env_steps: so far, for exploration that changes with them.

        Returns:
            actions `[E, A]` in [-1, 1], or choices `[E]` from 0.

        Raises:
            ValueError: an unknown mode.
        """

    def initial_state(self, rows: int) -> dict[str, np.ndarray]:
        """Returns the policy's state at the begin of an episode, `[rows, ...]` by field; empty for policies without one."""
        return {}

    @property
    def recurrent(self) -> dict[str, ArraySpec]:
        """Specs of the states of LSTMs by field, which segments of experience begin with; empty without LSTMs."""
        return {}

    @property
    def values_through(self) -> list[str]:
        """Names of the networks that `value_tensors` needs."""
        return [name for name in self.parameters if name != "policy"]

    def undecided(self, observation: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> bool:
        """Returns whether rounding decides between two different actions that are both the best here, which may be in choices."""
        return False

    @abstractmethod
    def act_tensors(
        self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None = None, state: Mapping[str, tf.Tensor] | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns what `act` does as tensors, to be exported: actions, and the policy's next state.

        Args:
            observation: filtered, `[E, ...]` by key.
            noise: for a sample, as `acting_noise` draws it; None for the mode.
            state: of the policy, as `initial_state` has it; None for policies without one.
        """

    @abstractmethod
    def acting_noise(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Draws the noise with which `act_tensors` samples for these observations, with TensorFlow's own randomness."""

    @abstractmethod
    def value_tensors(
        self, observation: Mapping[str, tf.Tensor], action: tf.Tensor, state: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the agent's values of observations and actions (in a state) by name, `[E]`, to be exported."""

    def encoder_of(self, name: str) -> str | None:
        """Returns the name of the network whose embedders the named one reads, or None where it has its own."""
        return None

    def spec_of_network(self, name: str) -> Spec:
        """Returns what the named network reads: the spec of one agent."""
        return self.spec.of_one_agent()

    def batch_rows(self) -> Batch:
        """Returns shapes and dtypes of the batches that the agent learns from, as `tf.TensorSpec`."""
        return transition_rows(self.spec, self.local_batch_size, self.prioritized)

    def refresh(self, outputs: list[np.ndarray] | None = None) -> None:
        """Brings what acting keeps outside TensorFlow up to date.

        Called after each `update` with what `acting_weights` returned in the graph; call it without arguments after
        variables were changed in another way.
        """

    @property
    def acts_in_graph(self) -> bool:
        """Whether acting reads variables, so that what `acting_weights` returns is not all it needs."""
        return True

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns tensors that leave the compiled call together with the metrics."""
        return []

    def trace(self, single: bool = False) -> list[str]:
        """Traces the update without running it.

        Args:
            single: for calls of exactly one update, which then need no loop in the graph; else for any number.

        Returns:
            `metric_names`.
        """
        name = "single" if single else "several"
        if getattr(self._traces, name) is None:
            setattr(self._traces, name, self._compiled.get_concrete_function(self._packing.signature(1 if single else None)))
        return self.metric_names

    # -- the compiled loop ---------------------------------------------------------------------------------------------

    def update(self, stacked: Batch) -> UpdateResult:
        """Makes U updates in one call of a compiled graph.

        Args:
            stacked: U batches, `[U, B, ...]` or `[U, T, B, ...]`, B being `local_batch_size`; with importance weights where
                the memory is prioritised.

        Returns:
            metrics `[U, M]` of the global batch, whose columns `metric_names` names, and priorities of the given rows.

        Raises:
            ValueError: a batch of another size than the agent was made for.
        """
        wanted = self._packing.batch.reward.shape.as_list()
        if list(stacked.reward.shape[1:]) != wanted:
            raise ValueError(f"Updates need rewards [U, {str(wanted)[1:]}. Received: {stacked.reward.shape}")
        packed = self._packing.pack(stacked)
        if self.eager:
            rows = []
            for i in range(len(stacked.reward)):
                rows.append(self._one_update(self._packing.unpack(packed, i)))
                self.updates.assign_add(1)
            metrics, priority = (tf.stack(column) for column in zip(*rows, strict=True))
            outputs = self.acting_weights()
        else:
            single = len(stacked.reward) == 1 and self._traces.several is None
            self.trace(single)
            # Calling the trace directly, with tensors, saves a millisecond of looking for it.
            metrics, priority, outputs = (self._traces.single if single else self._traces.several)(packed)
        acting = [output.numpy() for output in outputs]
        self.refresh(acting)
        return UpdateResult(metrics.numpy(), priority.numpy(), acting)

    def _update_stack(self, packed: Packed) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        self.traces += 1  # Python runs while tracing only
        if packed[0].shape[0] == 1:
            metrics, priority = self._each_update(self._packing.unpack(packed, 0))
            self.updates.assign_add(1)
            return metrics[None], priority[None], self.acting_weights()
        count = tf.shape(packed[0])[0]
        rows, priorities = tf.TensorArray(tf.float32, size=count), tf.TensorArray(tf.float32, size=count)
        for i in tf.range(count):
            metrics, priority = self._each_update(self._packing.unpack(packed, i))
            rows, priorities = rows.write(i, metrics), priorities.write(i, priority)
            self.updates.assign_add(1)
        return rows.stack(), priorities.stack(), self.acting_weights()

    def _one_update(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        period = self.algorithm.num_updates_between_policy_updates
        if period == 1:
            return self._on_replicas(batch, True)
        due = (self.updates + 1) % period == 0
        return tf.cond(due, lambda: self._on_replicas(batch, True), lambda: self._on_replicas(batch, False))

    def _on_replicas(self, batch: Batch, train_policy: bool) -> tuple[tf.Tensor, tf.Tensor]:
        if self.replicas == 1:
            return self._update_and_stack(batch, train_policy)
        metrics, priority = self.strategy.run(self._update_and_stack, args=(batch, train_policy))
        mean = self.strategy.reduce(tf.distribute.ReduceOp.MEAN, metrics, axis=None)
        return mean, tf.concat(self.strategy.experimental_local_results(priority), axis=0)

    def _update_and_stack(self, batch: Batch, train_policy: bool) -> tuple[tf.Tensor, tf.Tensor]:
        share, agents = self.share(batch), self.spec.num_agents
        metrics, priority_B = self.update_once(share if agents is None else fold_batch(share, agents), train_policy)
        if agents is not None:
            priority_B = tf.reduce_mean(unfold(priority_B, agents), axis=1)
        self.metric_names = list(metrics)
        stacked = tf.stack([tf.cast(value, tf.float32) for value in metrics.values()])
        return stacked, priority_B if self.prioritized else tf.zeros([0])

    def share(self, batch: Any) -> Any:
        """Returns this replica's rows of its worker's batch."""
        return tf.nest.map_structure(lambda rows: self.share_of_replica(rows, self.local_replicas), batch)

    def share_of_replica(self, rows: tf.Tensor, replicas: int) -> tf.Tensor:
        """Returns this replica's rows of a tensor `[B, ...]` (or folded, `[B * N, ...]`).

        Args:
            rows: of the worker's batch or of the global one.
            replicas: how many share them: `local_replicas` or `replicas`.
        """
        if replicas == 1:
            return rows
        begin, size = [0] * rows.shape.rank, rows.shape.as_list()
        size[self.batch_axis] //= replicas
        # The replicas of a worker follow one another.
        place = tf.distribute.get_replica_context().replica_id_in_sync_group % replicas
        begin[self.batch_axis] = place * size[self.batch_axis]
        return tf.slice(rows, begin, size)

    # -- what updates are made of --------------------------------------------------------------------------------------

    def noise(self, name: str, shape: list[int], draw: Callable[..., tf.Tensor] = tf.random.stateless_normal) -> tf.Tensor:
        """Returns noise for this replica's rows.

        The draw is a function of the agent's seed, the update's number and `name`; it is made for the global batch, so
        a run continued on another number of replicas or workers sees the same noise.

        Args:
            name: distinguishes the draws of one update.
            shape: of the global draw, with `rows` in the place of the batch.
            draw: from which distribution, usually standard normal.
        """
        seed = tf.stack([self.noise_seed + zlib.crc32(name.encode()), self.updates])
        return self.share_of_replica(draw(shape, seed), self.replicas)
