"""The soft actor-critic family in TensorFlow 2 and Keras 3.

    preset = tfsac.load_preset("pendulum_sac")
    result = tfsac.train(preset, "runs/pendulum")
    policy = tfsac.load_policy("runs/pendulum")
    action = policy.act(observation)
    tfsac.export(policy, "exported")

Names are imported when they are first used, so that parameters and the command line answer without TensorFlow.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from tfsac.utils.tensorflow_start import QuietImport

# TensorFlow's C++ start-up messages hide the program's own output; set the variable yourself to see them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "keras" not in sys.modules:
    os.environ["KERAS_BACKEND"] = "tensorflow"  # whatever Keras is set to elsewhere
if "tensorflow" not in sys.modules:
    sys.meta_path.insert(0, QuietImport())

__version__ = "0.1.0"

_HOMES = {
    "load_preset": "tfsac.catalog",
    "preset_names": "tfsac.catalog",
    "show": "tfsac.catalog",
    "override": "tfsac.parameters",
    "ParameterError": "tfsac.parameters",
    "TfsacError": "tfsac.errors",
    "Preset": "tfsac.parameters",
    "RunParameters": "tfsac.parameters",
    "train": "tfsac.api",
    "load_policy": "tfsac.exporting.loading",
    "evaluate": "tfsac.api",
    "plot": "tfsac.api",
    "record": "tfsac.api",
    "demonstrate": "tfsac.api",
    "check_environment": "tfsac.environments",
    "save_demonstrations": "tfsac.memories",
    "sac": "tfsac.spinning_up.sac_function",
    "mlp_actor_critic": "tfsac.spinning_up.actor_critic",
    "test_policy": "tfsac.spinning_up.policy_testing",
    "Policy": "tfsac.training",
    "Trainer": "tfsac.training",
    "Callback": "tfsac.training",
    "export": "tfsac.exporting.saving",
    "load_exported": "tfsac.exporting.exported",
    "verify": "tfsac.exporting.saving",
    "write_card": "tfsac.cards.writing",
    "load_card": "tfsac.cards.card",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from tfsac.api import demonstrate, evaluate, plot, record, train
    from tfsac.cards.card import load_card
    from tfsac.cards.writing import write_card
    from tfsac.catalog import load_preset, preset_names, show
    from tfsac.environments import check_environment
    from tfsac.errors import TfsacError
    from tfsac.exporting.exported import load_exported
    from tfsac.exporting.loading import load_policy
    from tfsac.exporting.saving import export, verify
    from tfsac.memories import save_demonstrations
    from tfsac.parameters import ParameterError, Preset, RunParameters, override
    from tfsac.spinning_up.actor_critic import mlp_actor_critic
    from tfsac.spinning_up.policy_testing import test_policy
    from tfsac.spinning_up.sac_function import sac
    from tfsac.training import Callback, Policy, Trainer


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tfsac' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
