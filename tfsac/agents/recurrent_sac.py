"""Recurrent soft actor-critic, for continuous and for discrete actions (Ni et al. 2021, arXiv 2110.05038), with burn-in
(R2D2, Kapturowski et al. 2019).

Networks: `policy`, `q` with N critics in one head and its target network `q_target`, each with an LSTM that reads
observation, previous action and previous reward. An update uses sequences of T + 1 rows, `[T + 1, B]`. The first b rows
are the LSTMs' burn-in, the next ones are entries `[R]`, R = (T - b) * B, and the last one is for bootstrapping.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import tensorflow as tf

from tfsac.agents.batches import sequence_spec
from tfsac.agents.discrete_sac import entropy_target
from tfsac.agents.learner import Agent, Step, flat
from tfsac.errors import TfsacError
from tfsac.losses import soft_actor_critic as losses
from tfsac.losses.temperature import check_target_entropy
from tfsac.networks.network import Network
from tfsac.parameters import (
    FixedAlphaParameters,
    RecurrentDiscreteSoftActorCriticAgentParameters,
    RecurrentSoftActorCriticAgentParameters,
)
from tfsac.policies import RecurrentSACCategoricalPolicy, RecurrentSACGaussianPolicy
from tfsac.policies.distributions import MaskedCategorical, SquashedGaussian
from tfsac.types import (
    EMPTY,
    FIRST,
    LAST,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    STATE,
    Metrics,
    Sequence,
    Spec,
    Update,
)


class Value(NamedTuple):
    """The policy's value in each entry, estimated by critics.

    Attributes:
        soft_R: `red_i Q_i - alpha log pi`, for a sampled action, or its expectation over discrete ones.
        q_R: its first term.
        log_prob_R: log density of the action, or minus the exact entropy.
    """

    soft_R: tf.Tensor
    q_R: tf.Tensor
    log_prob_R: tf.Tensor


class RecurrentAgent(Agent):
    """Recurrent soft actor-critic. An update steps the critics, then policy and temperature, then the target network.
    Losses are means over the steps after the burn-in.

    Attributes:
        steps, burn_in: T and b.
        temperature: fixed or learned.
    """

    batch_axis = 1
    policy: RecurrentSACGaussianPolicy | RecurrentSACCategoricalPolicy

    def __init__(
        self,
        parameters: RecurrentSoftActorCriticAgentParameters | RecurrentDiscreteSoftActorCriticAgentParameters,
        spec: Spec,
        *args: Any,
        **kwargs: Any,
    ):
        self.steps, self.burn_in = parameters.memory.sequence_length - 1, parameters.algorithm.burn_in
        super().__init__(parameters, spec, *args, **kwargs)
        self.temperature = self.make_temperature(parameters.algorithm.temperature)

    @abstractmethod
    def value(self, name: str, policy: Any, critics: Network, features_RF: tf.Tensor) -> Value:
        """Returns the value of a policy; `name` is that of the noise for its samples."""

    @abstractmethod
    def q_taken(self, features_RF: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Returns every critic's Q of the actions that were taken, `[R, N]`."""

    @abstractmethod
    def entropy_target(self, policy: Any) -> Any:
        """Returns the entropy to which a learned temperature brings the policy's, in nats."""

    @abstractmethod
    def policy_metrics(self, policy: Any, value: Value, weight_R: tf.Tensor) -> Metrics:
        """Returns the policy's metrics."""

    def batch_spec(self) -> Sequence:
        """Returns shapes and dtypes of a batch, `[T + 1, B]`."""
        return sequence_spec(self.spec, self.steps + 1, self.local_batch_size, self.policy.recurrent_state)

    def update_once(self, batch: Sequence) -> Update:
        """Makes one update in the order critic, policy, temperature, target."""
        weight_R = self.weights(batch)
        with self.watch("policy") as tape:  # the steps, and the rows after them for the critics' targets
            outputs = self.policy_outputs(batch)
        critic = self.critic_step(batch, outputs, weight_R)
        self.apply(*critic.gradients)
        policy = self.policy_step(batch, outputs, weight_R, tape)
        self.apply(*policy.gradients)
        self.update_target("q")
        return Update(critic.metrics | policy.metrics, tf.zeros([0]))

    def update_critics_once(self, batch: Sequence) -> Update:
        """Makes one update of the critics, then the target."""
        critic = self.critic_step(batch, self.policy_outputs(batch), self.weights(batch))
        self.apply(*critic.gradients)
        self.update_target("q")
        return Update(critic.metrics, tf.zeros([0]))

    def weights(self, batch: Sequence) -> tf.Tensor:
        """Returns weights `[R]` that make the mean over this replica's entries its part of the mean over all replicas'
        steps: zero for rows without a step, otherwise entries / steps.
        """
        is_step_R = tf.cast(flat(batch.step_type[self.burn_in : -1]) < LAST, tf.float32)
        mean_steps = self.mean_over_replicas(tf.reduce_sum(is_step_R))  # replicas have unequal numbers of them
        return is_step_R * (float(is_step_R.shape[0]) / tf.maximum(mean_steps, 1.0 / self.replicas))

    def features(self, network: Network, batch: Sequence) -> tf.Tensor:
        """Returns the inputs of a network's head in the rows after the burn-in, `[T + 1 - b, B, F]`."""
        previous = {name: batch.extras[STATE + name] for name in (PREVIOUS_ACTION, PREVIOUS_REWARD)}
        # Target critics start from the stored state of the critics.
        name = "policy" if network is self.networks["policy"] else "q"
        fields = {field: self.policy.field_name(name, field) for field in network.lstm_state}
        if batch.initial_state:
            state = {field: batch.initial_state[stored] for field, stored in fields.items()}
        else:
            columns = batch.step_type.shape[1]
            state = {field: tf.zeros([columns, *array.shape]) for field, array in network.lstm_state.items()}
        return network.features(
            self.policy.network_inputs(batch.observation, previous),
            state,
            tf.cast(batch.step_type == FIRST, tf.float32),
            batch.step_type != EMPTY,
            self.burn_in,
        )

    def policy_outputs(self, batch: Sequence) -> list[tf.Tensor]:
        """Returns the outputs of the policy's head in the rows after the burn-in, `[T + 1 - b, B, ...]` each."""
        features_TBF = self.features(self.networks["policy"], batch)
        outputs = tf.nest.flatten(self.networks["policy"].head_model(flat(features_TBF)))
        return [tf.reshape(x, [*features_TBF.shape[:2], -1]) for x in outputs]

    def distribution(self, outputs: list[tf.Tensor], batch: Sequence, rows: slice) -> Any:
        """Returns the policy in some of the rows after the burn-in."""
        observation = {key: flat(x[self.burn_in :][rows]) for key, x in batch.observation.items()}
        return self.policy.distribution([flat(x[rows]) for x in outputs], observation)

    def critic_step(self, batch: Sequence, outputs: list[tf.Tensor], weight_R: tf.Tensor) -> Step:
        """Computes the step that regresses every Q(h, a) on `r + gamma * nonterminal * V(h')`, with target critics."""
        now, following = slice(0, -1), slice(1, None)
        target_features_RF = flat(self.features(self.targets["q"], batch)[following])
        policy = self.distribution([tf.stop_gradient(x) for x in outputs], batch, following)
        next_value_R = self.value("next", policy, self.targets["q"], target_features_RF).soft_R
        reward_R, nonterminal_R = (flat(x[self.burn_in :][now]) for x in (batch.reward, batch.nonterminal))
        target_R = losses.bootstrap_target(reward_R, self.algorithm.discount * nonterminal_R, next_value_R)
        with self.watch("q") as tape:
            features_RF = flat(self.features(self.networks["q"], batch)[now])
            q_RN = self.q_taken(features_RF, flat(batch.action[self.burn_in :][now]))
            huber = self.network_parameters["q"].replace_mse_with_huber_loss
            loss_RN = weight_R[:, None] * losses.regression_loss(q_RN, target_R, huber)
            loss = self.mean_loss("q", loss_RN)
        gradients = self.gradients(loss, tape, "q")
        return self.critic_result(batch, weight_R[:, None] * q_RN, weight_R * target_R, loss_RN, gradients)

    def policy_step(
        self, batch: Sequence, outputs: list[tf.Tensor], weight_R: tf.Tensor, tape: tf.GradientTape
    ) -> Step:
        """Computes the step of the policy, whose outputs are on the tape, towards high Q and entropy, and alpha's."""
        now = slice(0, -1)
        features_RF = flat(self.features(self.networks["q"], batch)[now])
        with tape:
            policy = self.distribution(outputs, batch, now)
            value = self.value("policy", policy, self.networks["q"], features_RF)
            loss = self.mean_loss("policy", -weight_R * value.soft_R)
        gradients = self.gradients(loss, tape, "policy")
        temperature = self.temperature_step(
            self.temperature, value.log_prob_R, self.entropy_target(policy), mask_B=weight_R
        )
        metrics = {
            "loss/policy": loss,
            **self.policy_metrics(policy, value, weight_R),
            "policy/q": tf.reduce_mean(weight_R * value.q_R),
            "policy/gradient_norm": gradients[0].norm,
            "temperature/alpha": self.temperature.value(),
            **temperature.metrics,
        }
        return Step(gradients + temperature.gradients, metrics)

    @property
    def values_through(self) -> list[str]:
        """Raises TfsacError: the state of the critics' LSTM is not part of the policy's."""
        raise TfsacError("values need critics without an LSTM of their own, which recurrent soft actor-critic lacks")


class RecurrentSoftActorCriticAgent(RecurrentAgent):
    """Recurrent soft actor-critic for continuous actions, with one sampled action per entry.

    Attributes:
        target_entropy: in nats, to which a learned temperature brings the policy's entropy.

    Raises:
        TfsacError: see `Agent`; a target entropy that cannot be reached.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> parameters = RecurrentSoftActorCriticAgentParameters()
        >>> agent = RecurrentSoftActorCriticAgent(parameters, tfsac.environments.spec_of(env))
        >>> sorted(agent.policy.act({"observation": np.zeros((1, 3), "float32")}).state)
        ['cell', 'hidden', 'previous_action', 'previous_reward']
    """

    policy_class = RecurrentSACGaussianPolicy

    def __init__(self, parameters: RecurrentSoftActorCriticAgentParameters, spec: Spec, *args: Any, **kwargs: Any):
        super().__init__(parameters, spec, *args, **kwargs)
        temperature, size = parameters.algorithm.temperature, self.policy.action_size
        self.target_entropy = (
            float(-size) if isinstance(temperature, FixedAlphaParameters) else temperature.target(size)
        )
        check_target_entropy(self.target_entropy, size)

    def value(self, name: str, policy: SquashedGaussian, critics: Network, features_RF: tf.Tensor) -> Value:
        """Returns the value of one action in each entry, through which the policy's gradient flows."""
        shape = [self.steps - self.burn_in, self.batch_size, self.policy.action_size]
        action_RA, log_prob_R = policy.sample_and_log_prob(flat(self.noise(name, shape)))
        q_RN = critics.head_model([features_RF, action_RA])
        soft_R = losses.soft_value(q_RN, log_prob_R, self.temperature.value())
        return Value(soft_R, tf.reduce_min(q_RN, axis=-1), log_prob_R)

    def q_taken(self, features_RF: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Returns every critic's Q of the actions that were taken, `[R, N]`."""
        return self.networks["q"].head_model([features_RF, action])

    def entropy_target(self, policy: SquashedGaussian) -> float:
        """Returns the target entropy, the same for all entries."""
        return self.target_entropy

    def policy_metrics(self, policy: SquashedGaussian, value: Value, weight_R: tf.Tensor) -> Metrics:
        """Returns the means of location, log scale and log density."""
        return {
            "policy/mean": tf.reduce_mean(weight_R[:, None] * policy.loc),
            "policy/log_std": tf.reduce_mean(weight_R[:, None] * policy.log_scale),
            "policy/log_prob": tf.reduce_mean(weight_R * value.log_prob_R),
        }


class RecurrentDiscreteSoftActorCriticAgent(RecurrentAgent):
    """Recurrent soft actor-critic for discrete actions, with exact expectations.

    Attributes:
        target_entropy, target_entropy_ratio: see `DiscreteSoftActorCriticAgent`.

    Raises:
        TfsacError: see `Agent`; a target entropy that this many actions cannot have.

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> parameters = RecurrentDiscreteSoftActorCriticAgentParameters()
        >>> agent = RecurrentDiscreteSoftActorCriticAgent(parameters, tfsac.environments.spec_of(env))
        >>> agent.policy.act({"observation": np.zeros((1, 4), "float32")}, mode="greedy").action.shape
        (1,)
    """

    policy_class = RecurrentSACCategoricalPolicy

    def __init__(
        self, parameters: RecurrentDiscreteSoftActorCriticAgentParameters, spec: Spec, *args: Any, **kwargs: Any
    ):
        super().__init__(parameters, spec, *args, **kwargs)
        temperature = parameters.algorithm.temperature
        self.target_entropy, self.target_entropy_ratio = entropy_target(temperature, self.policy.num_actions)

    def value(self, name: str, policy: MaskedCategorical, critics: Network, features_RF: tf.Tensor) -> Value:
        """Returns the expected value over all actions; Q does not depend on the policy's weights."""
        q_RNA = critics.head_model(features_RF)
        soft_R = losses.expected_soft_value(q_RNA, policy.prob, policy.log_prob, self.temperature.value())
        return Value(soft_R, losses.expectation(policy.prob, tf.reduce_min(q_RNA, axis=1)), -policy.entropy())

    def q_taken(self, features_RF: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Returns every critic's Q of the actions that were taken, `[R, N]`."""
        return losses.q_of_actions(self.networks["q"].head_model(features_RF), action)

    def entropy_target(self, policy: MaskedCategorical) -> Any:
        """Returns the target entropy, or the ratio of the largest one in each entry."""
        return self.target_entropy_ratio * policy.max_entropy() if self.target_entropy is None else self.target_entropy

    def policy_metrics(self, policy: MaskedCategorical, value: Value, weight_R: tf.Tensor) -> Metrics:
        """Returns the mean entropy, and its target."""
        ones_R = tf.ones_like(weight_R)
        return {
            "policy/entropy": -tf.reduce_mean(weight_R * value.log_prob_R),
            "policy/target_entropy": tf.reduce_mean(weight_R * ones_R * self.entropy_target(policy)),
        }
