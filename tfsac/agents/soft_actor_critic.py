"""Soft actor-critic with a value network: Coach's agent (Haarnoja et al. 2018, arXiv 1801.01290).

Networks: `policy`, twin `q` in one head, `v` and its slow copy `v_target`. The temperature is 1: it is the inverse of the
reward scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.agents.base import Agent, Mode
from tfsac.distributions import LOG_SCALE_MAX, LOG_SCALE_MIN, SquashedGaussian
from tfsac.losses import soft_actor_critic as losses
from tfsac.networks import NumpyForward
from tfsac.parameters import SoftActorCriticAgentParameters
from tfsac.types import ActResult, Metrics, Spec, Transition


class SoftActorCriticAgent(Agent):
    """Policy, then value, then critic, then target: one update.

    Args:
        parameters: algorithm, networks, exploration.
        spec: what the agent sees and does.
        seed: of weights, noise and acting.
        eager: run updates without compiling them.

    Raises:
        ValueError: see `Agent`.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = SoftActorCriticAgent(SoftActorCriticAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.act({"observation": np.zeros((1, 3), "float32")}, mode="greedy").action.shape
        (1, 1)
    """

    def __init__(self, parameters: SoftActorCriticAgentParameters, spec: Spec, seed: int = 0, eager: bool = False):
        super().__init__(parameters.networks, spec, parameters.batch_size, seed, eager)
        self.algorithm, self.exploration = parameters.algorithm, parameters.exploration
        self.target = "v_target" if "v_target" in self.networks else "v"
        self.forward = NumpyForward(self.networks["policy"]) if NumpyForward.supports(self.networks["policy"]) else None
        self._policy = tf.function(
            lambda observation: self.networks["policy"](observation),
            input_signature=[{k: tf.TensorSpec([None, *a.shape], a.dtype) for k, a in spec.observation.items()}],
        )

    def update_once(self, batch: Transition) -> Metrics:
        """One update in the order policy, value, critic, target, with one draw of noise."""
        noise = self.noise("policy", [self.batch_size, *self.spec.action.shape])
        log_prob_B, q_min_B, policy_metrics = self.policy_step(batch, noise)
        value_metrics = self.value_step(batch, log_prob_B, q_min_B)
        critic_metrics = self.critic_step(batch)
        self.target_step()
        rates = {f"learning_rate/{name}": optimizer.learning_rate for name, optimizer in self.optimizers.items()}
        return {**policy_metrics, **value_metrics, **critic_metrics, **rates}

    def policy_step(self, batch: Transition, noise_BA: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Metrics]:
        """Moves the policy towards actions of high Q and high entropy (equation 12).

        Returns:
            log pi(a~|s) `[B]` and min_i Q_i(s, a~) `[B]` of the policy before it moved, and metrics.
        """
        with self.watch("policy") as tape:
            policy = SquashedGaussian(*self.networks["policy"](batch.observation))
            action_BA, log_prob_B = policy.sample_and_log_prob(noise_BA)
            q_BN = self.networks["q"](batch.observation, action_BA)
            q_min_B = tf.reduce_min(q_BN, axis=-1)
            loss = self.weighted("policy", losses.policy_loss(log_prob_B, q_min_B))
        gradients, norm = self.minimize("policy", loss, tape)
        metrics = {
            "loss/policy": loss,
            "policy/mean": tf.reduce_mean(policy.loc),
            "policy/log_std": tf.reduce_mean(policy.log_scale),
            "policy/log_prob": tf.reduce_mean(log_prob_B),
            "policy/action": tf.reduce_mean(action_BA),
            "policy/gradient_sum_abs": tf.add_n([tf.reduce_sum(tf.abs(gradient)) for gradient in gradients]),
            "policy/gradient_norm": norm,
            "q/q1": tf.reduce_mean(q_BN[:, 0]),
            "q/q2": tf.reduce_mean(q_BN[:, 1]),
        }
        return log_prob_B, q_min_B, metrics

    def value_step(self, batch: Transition, log_prob_B: tf.Tensor, q_min_B: tf.Tensor) -> Metrics:
        """Regresses V(s) on `q_min - log_prob` of the policy step's draw (equation 5)."""
        target_B = losses.value_target(log_prob_B, q_min_B)
        with self.watch("v") as tape:
            v_B = self.networks["v"](batch.observation)
            huber = self.parameters["v"].replace_mse_with_huber_loss
            loss = self.weighted("v", losses.regression_loss(v_B, target_B, huber))
        _, norm = self.minimize("v", loss, tape)
        return {
            "loss/v": loss,
            "v/value": tf.reduce_mean(v_B),
            "v/target": tf.reduce_mean(target_B),
            "v/gradient_norm": norm,
        }

    def critic_step(self, batch: Transition) -> Metrics:
        """Regresses both Q(s, a) on `r + discount * V_target(s')` (equations 7 and 8)."""
        next_v_B = self.networks[self.target](batch.next_observation)
        target_B = losses.critic_target(batch.reward, batch.discount, next_v_B)
        with self.watch("q") as tape:
            q_BN = self.networks["q"](batch.observation, batch.action)
            huber = self.parameters["q"].replace_mse_with_huber_loss
            loss_BN = losses.regression_loss(q_BN, target_B, huber)
            loss = self.weighted("q", loss_BN)
        _, norm = self.minimize("q", loss, tape)
        loss_N, error_N = tf.reduce_mean(loss_BN, axis=0), tf.reduce_mean(tf.abs(q_BN - target_B[:, None]), axis=0)
        return {
            "loss/q1": loss_N[0],
            "loss/q2": loss_N[1],
            "q/td_error1": error_N[0],
            "q/td_error2": error_N[1],
            "v/next_target_value": tf.reduce_mean(next_v_B),
            "q/target": tf.reduce_mean(target_B),
            "q/gradient_norm": norm,
        }

    def target_step(self) -> None:
        """Moves V_target towards V."""
        if self.target == "v_target":
            period = self.algorithm.updates_between_target_copies()
            self.soft_update("v", self.algorithm.rate_for_copying_weights_to_target, period)

    def act(self, observation: Mapping[str, np.ndarray], state: Any = (), is_first: Any = None, mode: Mode = "sample") -> ActResult:
        """Chooses actions for observations `[N, ...]`.

        Args:
            observation: arrays by key, filtered as in training.
            state: of the policy; this one has none.
            is_first: `[N]`, unused by a policy without state.
            mode: "random" is uniform, "sample" draws from the policy, "explore" adds the exploration noise to a sample,
                "greedy" is tanh(mean).

        Returns:
            actions `[N, A]` in [-1, 1].

        Raises:
            ValueError: an unknown mode.
        """
        rows = len(next(iter(observation.values())))
        shape = (rows, *self.spec.action.shape)
        if mode == "random":
            return ActResult(self.rng.uniform(-1.0, 1.0, shape).astype(np.float32))
        if mode not in ("explore", "sample", "greedy"):
            raise ValueError(f"mode is 'random', 'explore', 'sample' or 'greedy'. Received: {mode!r}")
        loc, log_scale = self.policy_output(observation)
        if mode == "greedy":
            return ActResult(np.tanh(loc))
        scale = np.exp(np.clip(log_scale, LOG_SCALE_MIN, LOG_SCALE_MAX))
        action = np.tanh(loc + scale * self.rng.standard_normal(shape, np.float32))
        if mode == "explore" and self.exploration is not None:
            noise = self.rng.standard_normal(shape, np.float32) * np.float32(self.exploration.noise_std)
            action = np.clip(action + noise, -1.0, 1.0)
        return ActResult(action)

    def policy_output(self, observation: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Returns loc and unclipped log scale `[N, A]` of the policy."""
        if self.forward is not None:
            return self.forward(dict(observation))
        loc, log_scale = self._policy(dict(observation))
        return loc.numpy(), log_scale.numpy()

    def action_tensor(self, observation: Mapping[str, tf.Tensor], noise_BA: tf.Tensor | None = None) -> tf.Tensor:
        """Returns what `act` does as tensors, to be exported: actions `[B, A]` in [-1, 1].

        Args:
            observation: filtered, `[B, ...]` by key.
            noise_BA: standard normal, for a sample; None for the mode.
        """
        policy = SquashedGaussian(*self.networks["policy"](observation))
        return policy.mode() if noise_BA is None else policy.sample_and_log_prob(noise_BA)[0]

    def value_tensors(self, observation: Mapping[str, tf.Tensor], action_BA: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns V(s) and min_i Q_i(s, a), `[B]`, in units of the filtered reward."""
        q_BN = self.networks["q"](observation, action_BA)
        return {"v": self.networks["v"](observation), "q": tf.reduce_min(q_BN, axis=-1)}

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the policy's weights where acting computes in NumPy."""
        return [tf.identity(v.value) for v in self.networks["policy"].trainable_variables] if self.forward else []

    def refresh(self, outputs: list[np.ndarray] | None = None) -> None:
        """Hands the policy's weights to the NumPy forward pass."""
        if self.forward is not None:
            self.forward.load([w.numpy() for w in self.acting_weights()] if outputs is None else outputs)
