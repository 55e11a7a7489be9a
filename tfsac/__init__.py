"""The soft actor-critic family in TensorFlow 2 and Keras 3.

    preset = tfsac.load_preset("pendulum_sac")
    result = tfsac.train(preset, "runs/pendulum")
    policy = tfsac.load_policy("runs/pendulum")
    action = policy.act(observation)
    tfsac.export(policy, "exported")

Names are imported on first use, so parameters and the command line work without loading TensorFlow.
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
    os.environ["KERAS_BACKEND"] = "tensorflow"  # overrides keras.json and the environment
if "tensorflow" not in sys.modules:
    sys.meta_path.insert(0, QuietImport())

__version__ = "0.1.0"

_NAMES = {  # by module
    "tfsac.api": ("demonstrate", "evaluate", "plot", "record", "train"),
    "tfsac.cards.card": ("load_card", "write_card"),
    "tfsac.preset_lookup": ("load_preset", "preset_names", "show"),
    "tfsac.environments": ("check_environment",),
    "tfsac.errors": ("TfsacError",),
    "tfsac.exporting": ("export", "load_exported", "load_policy", "verify"),
    "tfsac.memories": ("save_demonstrations",),
    "tfsac.parameters": ("ParameterError", "Preset", "RunParameters", "override"),
    "tfsac.spinning_up.functions": ("mlp_actor_critic", "sac", "test_policy"),
    "tfsac.training": ("Callback", "Policy", "Trainer"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from tfsac.api import demonstrate, evaluate, plot, record, train
    from tfsac.cards.card import load_card, write_card
    from tfsac.environments import check_environment
    from tfsac.errors import TfsacError
    from tfsac.exporting import export, load_exported, load_policy, verify
    from tfsac.memories import save_demonstrations
    from tfsac.parameters import ParameterError, Preset, RunParameters, override
    from tfsac.preset_lookup import load_preset, preset_names, show
    from tfsac.spinning_up.functions import mlp_actor_critic, sac, test_policy
    from tfsac.training import Callback, Policy, Trainer


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tfsac' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
