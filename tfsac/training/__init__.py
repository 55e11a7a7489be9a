"""Training: the loop, evaluation, checkpoints, callbacks, devices."""

from tfsac.training.callbacks import Callback
from tfsac.training.checkpoints import CheckpointError
from tfsac.training.evaluation import Evaluation, evaluate
from tfsac.training.non_finite import NonFiniteError
from tfsac.training.run_directory import RunDirectory
from tfsac.training.trained_policy import Policy
from tfsac.training.trainer import Result, Trainer

__all__ = [
    "Callback",
    "CheckpointError",
    "Evaluation",
    "NonFiniteError",
    "Policy",
    "Result",
    "RunDirectory",
    "Trainer",
    "evaluate",
]
