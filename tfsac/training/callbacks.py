"""Hooks into the training loop; what one of them raises ends the run where its state can be saved."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfsac.parameters import ParameterError
from tfsac.parameters.base import nearest
from tfsac.training.signals import StopSignals
from tfsac.user_code import UserCodeError, calling

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


class Callback:
    """Subclass it and override what you need; `trainer.stop("why")` ends the run after the current step.

    A hook that raises ends the run: the step is completed and the state is saved first. A callback is also the way to
    send metrics to a place of your own. docs/callbacks.md has examples.

    Attributes:
        metric_names: names of the metrics that `metrics` adds to each row of metrics.csv, the terminal and TensorBoard.

    Example:
        >>> class Printer(Callback):
        ...     def on_evaluation(self, trainer, row):
        ...         print(row["env_steps"], row["evaluation/return_mean"])
    """

    metric_names: Sequence[str] = ()

    def on_training_begin(self, trainer: Trainer) -> None:
        """Called once, before the first step (of a resumed run too)."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after every step of all environments and the updates that follow it."""

    def on_updates(self, trainer: Trainer, metrics: np.ndarray) -> None:
        """Called after the updates of one compiled call.

        Args:
            trainer: of the run.
            metrics: `[U, M]` of U updates; `trainer.update_metrics` names the columns. NaN where an update reports
                losses alone.
        """

    def metrics(self, trainer: Trainer) -> Mapping[str, float]:
        """Returns values of `metric_names` for the row of the evaluation that was just made; a missing one leaves
        its cell empty.
        """
        return {}

    def on_evaluation(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Called with every row of metrics, after it was written.

        Args:
            trainer: of the run.
            row: a number for every column of metrics.csv, NaN where its cell is empty.
        """

    def on_checkpoint(self, trainer: Trainer) -> None:
        """Called after a checkpoint was written: what metrics.csv has by now stays when the run is killed."""

    def on_training_end(self, trainer: Trainer) -> None:
        """Called once, after the last checkpoint, also after an interruption or a failure, which `trainer.error` then
        is.

        It is not called where `on_training_begin` of this callback failed.
        """


# Each hook with what it is called with.
HOOKS = {
    "on_training_begin": ("trainer",),
    "on_step": ("trainer",),
    "on_updates": ("trainer", "metrics"),
    "metrics": ("trainer",),
    "on_evaluation": ("trainer", "row"),
    "on_checkpoint": ("trainer",),
    "on_training_end": ("trainer",),
}

STABLE_BASELINES3 = {
    "_on_step": "on_step(trainer), in which trainer.stop('why') ends a run",
    "_on_training_start": "on_training_begin(trainer)",
    "_on_rollout_end": "on_updates(trainer, metrics)",
    "_on_training_end": "on_training_end(trainer)",
}


class Hooks:
    """The callbacks of a run.

    An error of a hook is kept until `raise_error`, so that the step in which it occurred is completed first.

    Args:
        callbacks: in the order in which they are called.
        signals: of the run, to which Ctrl-C inside a hook belongs.

    Attributes:
        error: the first error of a hook.
        begun: callbacks whose `on_training_begin` returned, and whose `on_training_end` is to be called.

    Raises:
        ParameterError: a hook that does not exist or takes other arguments, names of metrics that are no names, or two
            metrics of one name.
    """

    def __init__(self, callbacks: Sequence[Callback], signals: StopSignals):
        self.callbacks, self.signals = list(callbacks), signals
        self.error: Exception | None = None
        self.begun: list[Callback] = []
        for callback in self.callbacks:
            _check(callback)
        twice = [name for name, count in Counter(self.metric_names()).items() if count > 1]
        if twice:
            raise ParameterError(f"Each metric of a callback has a name of its own. Received: {twice[0]!r} twice")

    def metric_names(self) -> list[str]:
        """Returns the metrics that callbacks add to the rows of metrics."""
        return [name for callback in self.callbacks for name in callback.metric_names]

    def call(self, hook: str, trainer: Trainer, *arguments: Any) -> None:
        """Calls a hook of every callback, `on_checkpoint` of those that have begun; Ctrl-C inside ends the run as it
        does elsewhere.

        Args:
            hook: its name.
            trainer: of the run.
            arguments: what the hook gets beside the trainer.
        """
        for callback in self.begun if hook == "on_checkpoint" else self.callbacks:
            self._call(callback, hook, trainer, *arguments)

    def end(self, trainer: Trainer) -> None:
        """Calls `on_training_end` of every callback that has begun, once, also where the run failed."""
        begun, self.begun = self.begun, []
        for callback in begun:
            self._call(callback, "on_training_end", trainer)

    def metrics(self, trainer: Trainer) -> dict[str, float]:
        """Returns the values of the callbacks' metrics; one that failed leaves its cells empty.

        Args:
            trainer: of the run.
        """
        row: dict[str, float] = {}
        for callback in self.callbacks:
            if callback.metric_names:
                row |= self._call(callback, "metrics", trainer) or {}
        return row

    def _call(self, callback: Callback, hook: str, trainer: Trainer, *arguments: Any) -> Any:
        what = f"The callback {type(callback).__name__} in {hook}"
        try:
            with calling(what):
                returned = getattr(callback, hook)(trainer, *arguments)
            if hook == "on_step" and returned is False:  # as callbacks of Stable-Baselines3 end a run
                raise ParameterError(f"{what} ends the run by trainer.stop('why'). Received: False, which it returned")
            if hook == "on_training_begin":
                self.begun.append(callback)
            return _checked(returned, callback.metric_names, what) if hook == "metrics" else returned
        except KeyboardInterrupt:
            self.signals.interrupt()
        except Exception as error:
            if hook == "on_training_end" and (
                trainer.error or self.error
            ):  # which ends the run, and must not hide this one
                trainer.print(str(error))
            self.error = self.error or error
        return None

    def raise_error(self) -> None:
        """Raises the first error of a hook, if there was one."""
        if self.error is not None:
            raise self.error


def _check(callback: Callback) -> None:
    """Refuses a callback of which a hook could not be called, or never would be."""
    kind, names = type(callback).__name__, callback.metric_names
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise ParameterError(f"metric_names is a list or tuple of names. Received: {names!r}")
    if theirs := [name for name in STABLE_BASELINES3 if hasattr(callback, name)]:
        raise ParameterError(
            f"{theirs[0]} is a hook of Stable-Baselines3; here it is {STABLE_BASELINES3[theirs[0]]}. "
            f"Received: {kind}.{theirs[0]}"
        )
    for name in dir(callback):
        if name.startswith("on_") and name not in HOOKS and callable(getattr(callback, name)):
            raise ParameterError(
                f"There is no such hook.{nearest(name, HOOKS)} A callback has {', '.join(HOOKS)}; other methods begin "
                f"with something else than on_. Received: {kind}.{name}"
            )
    if names and type(callback).metrics is Callback.metrics and "metrics" not in vars(callback):
        raise ParameterError(
            f"metrics returns the values of metric_names. Received: {kind} with metric_names {names!r} and no metrics"
        )
    for name, arguments in HOOKS.items():
        hook = getattr(callback, name)
        if name == "metrics" and not names:
            continue  # whatever it is, it is never called
        takes = f"{name} is a method with the arguments {', '.join(arguments)} after self."
        if not callable(hook):
            raise ParameterError(f"{takes} Received: {kind}.{name} = {hook!r}")
        if inspect.iscoroutinefunction(hook) or inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
            raise ParameterError(f"{takes} It runs at once: without async and yield. Received: {kind}.{name}")
        try:
            signature = inspect.signature(hook)
            signature.bind(*arguments)
        except ValueError:  # a function of C has none
            continue
        except TypeError as error:
            raise ParameterError(f"{takes} Received: {kind}.{name}{signature}") from error


def _checked(returned: Any, names: Sequence[str], what: str) -> dict[str, float]:
    if not isinstance(returned, dict) or not returned.keys() <= set(names):
        raise UserCodeError(f"{what} returns a dict with its metric_names {', '.join(names)}. Received: {returned!r}")
    try:
        return {name: float(value) for name, value in returned.items()}
    except (TypeError, ValueError) as error:
        raise UserCodeError(f"{what} returns a number for each name. Received: {returned!r}") from error
