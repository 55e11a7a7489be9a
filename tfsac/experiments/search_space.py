"""What `tfsac tune` searches: Optuna's distributions of parameters, written as text, and one default space for each
kind of agent. No TensorFlow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from tfsac.errors import TfsacError
from tfsac.experiments.grid import split_values
from tfsac.parameters import parse_assignment
from tfsac.parameters.overrides import covers
from tfsac.parameters.steps import STEPS
from tfsac.utils.files import leaves

Describe = Callable[[list[str]], dict[str, Any]]  # what flags of `train` ask for, as JSON values

VALUE_OF_NONE = {"target_entropy_factor": -1.0, "target_entropy_ratio": 0.98}  # what None stands for
DEFAULT = "default"  # stands for the default space among the dimensions of a user

_LEARNING = (
    "agent.networks.*.learning_rate=log(1e-4, 3e-3)",
    "agent.algorithm.discount=1-log(0.003, 0.1)",
    "agent.hidden_layers=choice([64,64], [128,128], [256,256])",
)
_OFF_POLICY = (
    *_LEARNING,
    "agent.networks.*.batch_size=choice(64, 128, 256, 512)",
    "agent.algorithm.rate_for_copying_weights_to_target=log(1e-3, 5e-2)",
    "agent.algorithm.num_consecutive_training_steps=choice(1, 2, 4)",
)
_TEMPERATURE = (
    "agent.algorithm.temperature.alpha=log(0.01, 1)",
    "agent.algorithm.temperature.learning_rate=log(1e-4, 3e-3)",
)
_ACER = (
    *_LEARNING,
    "agent.networks.*.batch_size=choice(8, 16, 32)",
    "agent.algorithm.n_times_replay=choice(2, 4, 8)",
    "agent.algorithm.t_max=choice(10, 20, 40)",
    "agent.algorithm.beta=log(1e-4, 1e-2)",
    "agent.algorithm.trust_region_delta=log(1e-4, 1)",
    "agent.algorithm.trust_region_alpha=1-log(0.001, 0.1)",
)
_TAAC = ("agent.algorithm.alpha_learning_rate=log(1e-4, 3e-3)", "agent.algorithm.min_prob=uniform(0.01, 0.3)")
_FACTOR = "agent.algorithm.temperature.target_entropy_factor=uniform(-2, 0)"
_RATIO = "agent.algorithm.temperature.target_entropy_ratio=uniform(0.2, 0.98)"
# By kind of agent. A preset leaves out what it does not have, such as a fixed temperature, and what it refuses.
DEFAULT_SPACES: dict[str, tuple[str, ...]] = {
    "soft_actor_critic": (*_OFF_POLICY, "environment.filters.reward_rescale_factor=log(0.1, 10)"),
    "twin_soft_actor_critic": (*_OFF_POLICY, *_TEMPERATURE, _FACTOR),
    "discrete_soft_actor_critic": (*_OFF_POLICY, *_TEMPERATURE, _RATIO),
    "temporally_abstract_actor_critic": (*_OFF_POLICY, *_TAAC),
    "discrete_acer": _ACER,
    "gaussian_acer": _ACER,
}


class Dimension(NamedTuple):
    """One parameter that is searched.

    Attributes:
        path: of the parameter, as --set takes it.
        kind: "log" and "uniform" are floats, "1-log" is 1 minus such a float, "int" is a whole number, "choice" one of
            several values.
        values: the two bounds of a range, or the texts of the choices.
    """

    path: str
    kind: str
    values: tuple[Any, ...]

    @property
    def text(self) -> str:
        """As one writes it."""
        shown = (str(int(v) if isinstance(v, float) and v.is_integer() else v) for v in self.values)
        return f"{self.path}={self.kind}({', '.join(shown)})"

    @property
    def distribution(self) -> BaseDistribution:
        """Optuna's."""
        if self.kind == "choice":
            return CategoricalDistribution(self.values)
        if self.kind == "int":
            return IntDistribution(*self.values)
        low, high = self.values
        return FloatDistribution(low, high, log=self.kind != "uniform")

    def value(self, sampled: Any) -> Any:
        """Returns the value of the parameter for a sampled number, or the text of a choice."""
        if self.kind == "1-log":
            return float(f"{1.0 - sampled:.12g}")
        return parse_assignment(f"x={sampled}")[1] if self.kind == "choice" else sampled

    def flag(self, sampled: Any) -> str:
        """Returns the flag of `train` for what was sampled."""
        return f"--set={self.path}={sampled if self.kind == 'choice' else self.value(sampled)}"

    def sampled_value(self, describe: Describe) -> Any:
        """Returns what would have to be sampled for the preset's own value, or None where that lies outside."""
        preset = describe([])["preset"]
        if self.kind == "choice":
            return next((text for text in self.values if describe([self.flag(text)])["preset"] == preset), None)
        values = [value for path, value in leaves(preset) if covers(self.path, path)]
        if not values or any(value != values[0] for value in values):
            return None
        value: Any = VALUE_OF_NONE.get(self.path.rpartition(".")[2]) if values[0] is None else values[0]
        if isinstance(value, str) and (steps := STEPS.fullmatch(value)):
            value = int(steps[2])
        if type(value) not in (int, float):
            return None
        sampled = float(f"{1.0 - value:.12g}") if self.kind == "1-log" else value
        return sampled if self.values[0] <= sampled <= self.values[1] else None


def parse_dimension(text: str) -> Dimension:
    """Reads a dimension such as ``agent.algorithm.discount=uniform(0.95, 0.999)``."""
    match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(log|1-log|uniform|int|choice)\s*\((.*)\)\s*", text, re.DOTALL)
    try:
        path, kind, inside = match.groups()  # type: ignore[union-attr]
        read: Callable[[str], Any] = {"choice": str, "int": int}.get(kind, float)
        dimension = Dimension(path, kind, tuple(map(read, split_values(inside))))
        assert dimension.distribution
        return dimension
    except (AttributeError, TypeError, ValueError) as error:
        raise TfsacError(
            "--space must be PATH=log(low, high), 1-log(low, high), uniform(low, high), int(low, high) or "
            f"choice(value, value, ...), got {text!r} ({error})"
        ) from error


def search_space(
    dimensions: Sequence[str], describe: Describe, fixed: Sequence[str] = ()
) -> tuple[list[Dimension], list[str]]:
    """Returns the dimensions to search, checked: the bounds of each range, a number between them and all choices are
    tried with the preset, one at a time.

    Args:
        dimensions: a dimension each, or `DEFAULT`; without any, the default space of the kind of agent.
        describe: returns what flags of `train` ask for, or raises a ValueError.
        fixed: paths that are set, and so not searched by default.

    Returns:
        the dimensions, and a line for each default one that is left out.

    Raises:
        TfsacError: a text that is no dimension, a value that the preset refuses, no default for this kind of agent.
    """
    space, left_out = [parse_dimension(text) for text in dimensions if text != DEFAULT], list[str]()
    changed_paths = {dimension.text: _changed_paths(dimension, describe) for dimension in space}
    if dimensions and DEFAULT not in dimensions:
        return space, left_out
    changed_paths |= {path: [path] for path in fixed}
    kind = describe([])["preset"]["agent"]["kind"]
    if kind not in DEFAULT_SPACES:
        raise TfsacError(f"{kind} has no default search space; name dimensions with --space")
    for dimension in map(parse_dimension, DEFAULT_SPACES[kind]):
        try:
            changed = _changed_paths(dimension, describe)
            for text, paths in changed_paths.items():
                if any(covers(a, b) or covers(b, a) for a in paths for b in changed):
                    raise TfsacError(f"{text} sets it")
            space.append(dimension)
        except ValueError as error:
            left_out.append(f"not searched: {dimension.text}: {error}")
    return space, left_out


def _changed_paths(dimension: Dimension, describe: Describe) -> list[str]:
    """Tries the bounds and a number between them, or the choices, with the preset; returns what they change in it."""
    low, high = dimension.values[0], dimension.values[-1]
    # A field of whole numbers refuses the one between.
    inner = [low + (high - low) / math.pi] if dimension.kind in ("log", "1-log", "uniform") else []
    first, *others = [
        dict(leaves(describe([dimension.flag(sampled)])["preset"])) for sampled in (*dimension.values, *inner)
    ]
    return [dimension.path, *(path for path in first if any(first[path] != other.get(path) for other in others))]
