"""Calls the hooks of callbacks; what one of them raises ends the run where its state can be saved."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfsac.parameters import ParameterError
from tfsac.training.callbacks import Callback
from tfsac.user_code import UserCodeError, calling

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


class Hooks:
    """The callbacks of a run.

    An error of a hook is kept until `raise_error`, so that the step in which it occurred is completed first.

    Args:
        callbacks: in the order in which they are called.

    Attributes:
        error: the first error of a hook.

    Raises:
        ParameterError: names of metrics that are no names, or two metrics of one name.
    """

    def __init__(self, callbacks: Sequence[Callback]):
        self.callbacks = list(callbacks)
        self.error: Exception | None = None
        for callback in self.callbacks:
            names = callback.metric_names
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise ParameterError(f"metric_names is a list or tuple of names. Received: {names!r}")
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
            return _checked(returned, callback.metric_names, what) if hook == "metrics" else returned
        except KeyboardInterrupt:
            if trainer.signals.received:  # the second one
                raise
            trainer.signals.received = signal.SIGINT
        except Exception as error:
            self.error = self.error or error
        return None

    def raise_error(self) -> None:
        """Raises the first error of a hook, if there was one."""
        if self.error is not None:
            raise self.error


def _checked(returned: Any, names: Sequence[str], what: str) -> dict[str, float]:
    if not isinstance(returned, dict) or not returned.keys() <= set(names):
        raise UserCodeError(f"{what} returns a dict with its metric_names {', '.join(names)}. Received: {returned!r}")
    try:
        return {name: float(value) for name, value in returned.items()}
    except (TypeError, ValueError) as error:
        raise UserCodeError(f"{what} returns a number for each name. Received: {returned!r}") from error
