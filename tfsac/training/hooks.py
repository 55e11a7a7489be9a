"""Calls the hooks of callbacks; what one of them raises ends the run where its state can be saved."""

from __future__ import annotations

import inspect
import signal
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfsac.parameters import ParameterError
from tfsac.parameters.base import nearest
from tfsac.training.callbacks import Callback
from tfsac.user_code import UserCodeError, calling

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer

# Each hook with what it is called with.
HOOKS = {
    "on_training_begin": ("trainer",),
    "on_step": ("trainer",),
    "on_updates": ("trainer", "metrics"),
    "metrics": ("trainer",),
    "on_evaluation": ("trainer", "row"),
    "on_training_end": ("trainer",),
}
PARTS = ("agent", "memory", "environments", "filters", "policy", "counters", "preset", "directory")  # of a trainer, for its callbacks


class Hooks:
    """The callbacks of a run.

    An error of a hook is kept until `raise_error`, so that the step in which it occurred is completed first.

    Args:
        callbacks: in the order in which they are called.

    Attributes:
        error: the first error of a hook.
        begun: callbacks whose `on_training_begin` returned, and whose `on_training_end` is to be called.

    Raises:
        ParameterError: a hook that does not exist or takes other arguments, names of metrics that are no names, or two metrics
            of one name.
    """

    def __init__(self, callbacks: Sequence[Callback]):
        self.callbacks = list(callbacks)
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
        """Calls a hook of every callback; Ctrl-C inside ends the run as it does elsewhere.

        Args:
            hook: its name.
            trainer: of the run.
            arguments: what the hook gets beside the trainer.
        """
        for callback in self.callbacks:
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
        parts = [getattr(trainer, name) for name in PARTS]
        try:
            with calling(what):
                returned = getattr(callback, hook)(trainer, *arguments)
            for name, part in zip(PARTS, parts, strict=True):
                if getattr(trainer, name) is not part:
                    setattr(trainer, name, part)
                    raise UserCodeError(f"{what} must not replace a part of the run. Received: another trainer.{name}")
            if hook == "on_training_begin":
                self.begun.append(callback)
            return _checked(returned, callback.metric_names, what) if hook == "metrics" else returned
        except KeyboardInterrupt:
            if trainer.signals.received:  # the second one
                raise
            trainer.signals.received = signal.SIGINT
        except Exception as error:
            if hook == "on_training_end" and (trainer.error or self.error):  # which ends the run, and must not hide this one
                trainer.reporter.terminal.print(str(error))
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
    for name in dir(callback):
        if name.startswith("on_") and name not in HOOKS and callable(getattr(callback, name)):
            raise ParameterError(
                f"There is no such hook.{nearest(name, HOOKS)} A callback has {', '.join(HOOKS)}; other methods begin with something else "
                f"than on_. Received: {kind}.{name}"
            )
    if names and type(callback).metrics is Callback.metrics and "metrics" not in vars(callback):
        raise ParameterError(f"metrics returns the values of metric_names. Received: {kind} with metric_names {names!r} and no metrics")
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
