"""Twin-target soft actor-critic with automatic temperature as a bare TensorFlow loop: a lower bound for the cost of the
same arithmetic. `speed.py` runs it as its baseline.

No presets, metrics, normalisation or checkpoints; acting in NumPy, and one packed row per transition. The settings are
those of `speed.py`: Stable-Baselines3's defaults.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

BATCH, HIDDEN, CAPACITY, DISCOUNT, RATE, TAU = 256, 256, 100_000, 0.99, 3e-4, 0.005


class Network:
    def __init__(self, inputs: int, outputs: int):
        sizes = [inputs, HIDDEN, HIDDEN, outputs]
        self.variables = []
        for a, b in itertools.pairwise(sizes):
            self.variables += [tf.Variable(tf.random.uniform([a, b], -1, 1) / a**0.5), tf.Variable(tf.zeros([b]))]

    def __call__(self, x: Any) -> Any:
        for i in range(3):
            x = tf.nn.bias_add(tf.matmul(x, self.variables[2 * i]), self.variables[2 * i + 1])
            x = tf.nn.relu(x) if i < 2 else x
        return x


class Adam:
    def __init__(self, variables: list[Any]):
        self.step = tf.Variable(0.0)
        self.slots = [(x, tf.Variable(tf.zeros_like(x)), tf.Variable(tf.zeros_like(x))) for x in variables]

    def apply(self, gradients: list[Any]) -> None:
        t = self.step.assign_add(1.0)
        powers = {"beta1_power": tf.pow(0.9, t), "beta2_power": tf.pow(0.999, t)}
        for gradient, (x, m, v) in zip(gradients, self.slots, strict=True):
            handles = {"var": x.handle, "m": m.handle, "v": v.handle}
            constants = {"lr": RATE, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
            tf.raw_ops.ResourceApplyAdam(**handles, **powers, **constants, grad=gradient)


class BareLoop:
    """Plays and learns.

    Args:
        level: environment id.
        together: updates per call, and environment steps between calls.
    """

    def __init__(self, level: str, together: int):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(os.cpu_count() or 1)
        self.together, self.rng, self.env = together, np.random.default_rng(0), gym.make(level)
        self.size, self.actions = self.env.observation_space.shape[0], self.env.action_space.shape[0]
        width = 2 * self.size + self.actions + 2
        self.policy = Network(self.size, 2 * self.actions)
        self.q1, self.q2, self.target1, self.target2 = (Network(self.size + self.actions, 1) for _ in range(4))
        self.log_alpha = tf.Variable(0.0)
        self.of_q = self.q1.variables + self.q2.variables
        self.of_targets = self.target1.variables + self.target2.variables
        self.adams = Adam(self.policy.variables), Adam(self.of_q), Adam([self.log_alpha])
        self.call = tf.function(self._updates, input_signature=[tf.TensorSpec([together, BATCH, width])])
        self.memory, self.stored = np.empty((CAPACITY, width), np.float32), 0
        self.observation, _ = self.env.reset(seed=0)
        self._take(np.concatenate([x.numpy().ravel() for x in self.policy.variables]))

    def play(self, random: bool = False) -> None:
        """Steps the environment once."""
        n, a = self.size, self.actions
        action = self.rng.uniform(-1, 1, a).astype(np.float32) if random else self._act()
        following, reward, terminated, truncated, _ = self.env.step(action)
        row = self.memory[self.stored % CAPACITY]
        row[:n], row[n : n + a], row[n + a], row[n + a + 1] = self.observation, action, reward, terminated
        row[n + a + 2 :] = following
        self.stored += 1
        self.observation = self.env.reset()[0] if terminated or truncated else following

    def update(self) -> None:
        """Makes the updates of one call."""
        rows = self.memory[self.rng.integers(0, min(self.stored, CAPACITY), (self.together, BATCH))]
        self._take(self.call(tf.constant(rows))[1].numpy())

    def _take(self, flat: np.ndarray) -> None:
        self.weights, i = [], 0
        for x in self.policy.variables:
            size = int(np.prod(x.shape))
            self.weights.append(flat[i : i + size].reshape(x.shape))
            i += size

    def _act(self) -> np.ndarray:
        w, x = self.weights, self.observation.astype(np.float32)[None]
        x = np.maximum(np.maximum(x @ w[0] + w[1], 0) @ w[2] + w[3], 0) @ w[4] + w[5]
        mean, log_std = x[0, : self.actions], np.clip(x[0, self.actions :], -20, 2)
        return np.tanh(mean + np.exp(log_std) * self.rng.standard_normal(self.actions, np.float32))

    def _sample(self, observation: Any) -> tuple[Any, Any]:
        mean, log_std = tf.split(self.policy(observation), 2, -1)
        log_std = tf.clip_by_value(log_std, -20.0, 2.0)
        noise = tf.random.normal(tf.shape(mean))
        u = mean + tf.exp(log_std) * noise
        correction = 2 * (0.6931472 - u - tf.nn.softplus(-2 * u))
        return tf.tanh(u), tf.reduce_sum(-0.5 * noise * noise - log_std - 0.9189385 - correction, -1)

    def _update(self, rows: Any) -> Any:
        n, a = self.size, self.actions
        observation, action, reward = rows[:, :n], rows[:, n : n + a], rows[:, n + a]
        terminated, following = rows[:, n + a + 1], rows[:, n + a + 2 :]
        alpha = tf.exp(self.log_alpha)
        with tf.GradientTape(watch_accessed_variables=False) as policy_tape:
            policy_tape.watch(self.policy.variables)
            sampled, log_prob = self._sample(observation)
            next_action, next_log_prob = (tf.stop_gradient(x) for x in self._sample(following))
            next_q = tf.minimum(*_both(self.target1, self.target2, following, next_action)) - alpha * next_log_prob
            target = tf.stop_gradient(reward + DISCOUNT * (1 - terminated) * next_q)
            with tf.GradientTape(watch_accessed_variables=False) as q_tape:
                q_tape.watch(self.of_q)
                q1, q2 = _both(self.q1, self.q2, observation, action)
                q_loss = 0.5 * (tf.reduce_mean((q1 - target) ** 2) + tf.reduce_mean((q2 - target) ** 2))
            self.adams[1].apply(q_tape.gradient(q_loss, self.of_q))
            q = tf.minimum(*_both(self.q1, self.q2, observation, sampled))
            policy_loss = tf.reduce_mean(alpha * log_prob - q)
        self.adams[0].apply(policy_tape.gradient(policy_loss, self.policy.variables))
        self.adams[2].apply([-tf.reduce_mean(tf.stop_gradient(log_prob) - a)])
        for online, target_variable in zip(self.of_q, self.of_targets, strict=True):
            target_variable.assign_add(TAU * (online - target_variable))
        return q_loss

    def _updates(self, stack: Any) -> tuple[Any, Any]:
        loss = tf.zeros([])
        if self.together == 1:
            loss = self._update(stack[0])
        else:
            for i in tf.range(self.together):
                loss = self._update(stack[i])
        return loss, tf.concat([tf.reshape(x, [-1]) for x in self.policy.variables], 0)


def _both(first: Network, second: Network, observation: Any, action: Any) -> tuple[Any, Any]:
    x = tf.concat([observation, action], -1)
    return first(x)[:, 0], second(x)[:, 0]
