"""Communication among the workers of a run: collective calls that all workers make at the same point of the loop."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.distributed.partition import WorkerTask
from tfsac.errors import TfsacError
from tfsac.utils.files import differences


class Workers:
    """The workers of a run. A single worker sends nothing: `gather` returns its argument.

    Args:
        strategy: connects the workers, with one collective operation for each message.
        task: task of this worker.
    """

    def __init__(self, strategy: tf.distribute.Strategy, task: WorkerTask):
        self.strategy, self.task = strategy, task
        self.replicas_per_worker = strategy.num_replicas_in_sync // task.num_workers
        self._sum = tf.function(self._add, reduce_retracing=True)

    def _add(self, values: tf.Tensor) -> tf.Tensor:
        def sum_replicas(values: tf.Tensor) -> tf.Tensor:
            # Only the first replica of a worker contributes: bits must not be added up.
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(replica % self.replicas_per_worker == 0, values, tf.zeros_like(values))

        per_replica = self.strategy.run(sum_replicas, args=(values,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

    def gather(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the arrays `[E, ...]` of all workers, concatenated in their order: `[workers * E, ...]`.

        Args:
            arrays: arrays by name, with the same shapes on every worker and values that float64 can represent.
        """
        if self.task.num_workers == 1:
            return arrays
        local_values = np.concatenate([np.asarray(value, np.float64).ravel() for value in arrays.values()])
        all_values = np.zeros((self.task.num_workers, local_values.size))
        all_values[self.task.index] = local_values
        # As bits, which a sum with zeros does not change.
        rows = self._sum(tf.constant(all_values.view(np.int64))).numpy().view(np.float64)
        gathered, start = {}, 0
        for name, value in arrays.items():
            value, stop = np.asarray(value), start + np.size(value)
            part = rows[:, start:stop].reshape(-1, *value.shape[1:])
            gathered[name], start = part.astype(value.dtype), stop
        return gathered

    def gather_objects(self, value: Any) -> list[Any]:
        """Returns the JSON values of all workers, in their order."""
        content = np.frombuffer(json.dumps(value).encode(), np.uint8)
        sizes = self.gather({"size": np.array([content.size])})["size"]
        padded = np.pad(content, (0, int(sizes.max()) - content.size))
        contents = self.gather({"content": padded[None]})["content"]
        return [json.loads(padded[:size].tobytes()) for padded, size in zip(contents, sizes, strict=True)]

    def check_shared(self, shared_config: dict[str, Any]) -> None:
        """Raises TfsacError on every worker if the settings, JSON values by name, differ between workers."""
        configs = self.gather_objects(shared_config)
        for worker, config in enumerate(configs):
            for name, chief_value, value in differences(configs[0], config):
                raise TfsacError(
                    "All workers of a run must have the same preset and flags, "
                    f"got {name}={value!r} at worker {worker}, {chief_value!r} at worker 0"
                )
