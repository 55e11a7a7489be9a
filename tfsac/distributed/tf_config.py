"""The workers of a run, as TF_CONFIG lists them. No TensorFlow, so that mistakes are found before it loads.

TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping

from tfsac.parameters import ParameterError, RunParameters

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
    """Returns the task of this process: that of the only worker, unless the strategy is "multi_worker".

    Args:
        run: with `strategy`.
        environ: has TF_CONFIG.

    Raises:
        ParameterError: TF_CONFIG is missing or malformed, or its task is none of its workers.
    """
    if run.strategy != "multi_worker":
        return WorkerTask()
    text = environ.get("TF_CONFIG", "")
    if not text:
        raise ParameterError(f"Every worker needs TF_CONFIG, such as {EXAMPLE}. Received: no TF_CONFIG")
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        names = [(kind, index) for kind in ("chief", "worker") for index in range(len(cluster.get(kind, ())))]
        addresses = [address for kind in ("chief", "worker") for address in cluster.get(kind, ())]
        own = (task["type"], int(task["index"]))
        if isinstance(task["index"], float):
            raise ValueError("index is a whole number")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParameterError(
            f"TF_CONFIG is JSON like {EXAMPLE} ({type(error).__name__}: {error}). Received: {text!r}"
        ) from error
    for kind in cluster.keys() - {"chief", "worker"}:
        raise ParameterError(f"The cluster of TF_CONFIG has workers, and a chief if one is named. Received: {kind!r}")
    wrong = [address for address in addresses if not _is_address(address)]
    if wrong or len(set(addresses)) < len(addresses) or not addresses:
        raise ParameterError(f"Each worker of TF_CONFIG has an address HOST:PORT of its own. Received: {addresses}")
    if own not in names:
        raise ParameterError(f"The task of TF_CONFIG is one of its cluster's {len(names)} workers. Received: {task}")
    return WorkerTask(names.index(own), len(names), tuple(addresses))


def _is_address(address: object) -> bool:
    host, _, port = str(address).rpartition(":")
    return isinstance(address, str) and bool(host) and port.isdigit() and 0 < int(port) < 2**16
