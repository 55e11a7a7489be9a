"""The workers of a run, as TF_CONFIG lists them. No TensorFlow, so that mistakes are found before it loads.

TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping

from tfsac.errors import TfsacError
from tfsac.parameters import RunParameters

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'


@dataclasses.dataclass(frozen=True)
class WorkerTask:
    """Which worker of a run this process is. The first worker is the chief, and the only one that writes files.

    Attributes:
        index: of this worker, from 0.
        num_workers: of the run.
        addresses: HOST:PORT of every worker; empty where there is one.
    """

    index: int = 0
    num_workers: int = 1
    addresses: tuple[str, ...] = ()

    @property
    def is_chief(self) -> bool:
        """Whether this is the first worker."""
        return self.index == 0


def worker_task(run: RunParameters, environ: Mapping[str, str] = os.environ) -> WorkerTask:
    """Returns the task of this process: that of the only worker, unless the strategy is "multi_worker"; raises
    TfsacError where TF_CONFIG is missing or malformed then.
    """
    if run.strategy != "multi_worker":
        return WorkerTask()
    try:
        config = json.loads(environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        names = [(kind, index) for kind in ("chief", "worker") for index in range(len(cluster.get(kind, ())))]
        addresses = tuple(str(address) for kind in ("chief", "worker") for address in cluster.get(kind, ()))
        index = names.index((task["type"], task["index"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = environ.get("TF_CONFIG", "")
        raise TfsacError(f"TF_CONFIG must name this worker and all workers, such as {EXAMPLE}, got {text!r}") from error
    return WorkerTask(index, len(names), addresses)
