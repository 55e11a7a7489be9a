"""What `tfsac tune` searches: ranges and choices of parameters, written as text, and one default for each kind of
agent. No TensorFlow.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tfsac.experiments.grid import short_names, split_values
from tfsac.files import leaves
from tfsac.parameters import ParameterError, parse_assignment
from tfsac.parameters.base import nearest
from tfsac.parameters.overrides import covers
from tfsac.parameters.steps import STEPS

Describe = Callable[[list[str]], dict[str, Any]]  # what flags of `train` ask for, as JSON values

RANGES, LISTS = ("log", "1-log", "uniform", "int"), ("choice", "width")
OPTUNA = {"loguniform": "log", "log_uniform": "log", "categorical": "choice", "float": "uniform", "integer": "int"}
WRITTEN = (
    "A dimension of the search space is written path=log(low, high), 1-log(low, high), uniform(low, high), "
    "int(low, high), choice(value, value, ...) or width(number, number, ...)"
)
WIDTHS = ("scheme", "network_layers_sizes", "width")  # fields that hold widths of layers
WHERE_NONE = {"target_entropy_factor": -1.0, "target_entropy_ratio": 0.98}  # what None stands for
DEFAULT = "default"  # stands for the default space among the dimensions of a user

_LEARNING = (
    "agent.networks.*.learning_rate=log(1e-4, 3e-3)",
    "agent.algorithm.discount=1-log(0.003, 0.1)",
    "agent.networks=width(64, 128, 256)",
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
# By kind of agent. A preset leaves out what it does not have, such as a fixed temperature, and what it refuses.
DEFAULT_SPACES: dict[str, tuple[str, ...]] = {
    "soft_actor_critic": (*_OFF_POLICY, "environment.filters.reward_rescale_factor=log(0.1, 10)"),
    "twin_soft_actor_critic": (
        *_OFF_POLICY,
        *_TEMPERATURE,
        "agent.algorithm.temperature.target_entropy_factor=uniform(-2, 0)",
    ),
    "discrete_soft_actor_critic": (
        *_OFF_POLICY,
        *_TEMPERATURE,
        "agent.algorithm.temperature.target_entropy_ratio=uniform(0.2, 0.98)",
    ),
    "temporally_abstract_actor_critic": (
        *_OFF_POLICY,
        "agent.algorithm.alpha_learning_rate=log(1e-4, 3e-3)",
        "agent.algorithm.min_prob=uniform(0.01, 0.3)",
    ),
    "discrete_acer": _ACER,
    "gaussian_acer": _ACER,
}


class Dimension(NamedTuple):
    """One parameter that is searched, or the widths of all layers below a path.

    Attributes:
        path: of the parameter, as --set takes it.
        kind: "log" and "uniform" are floats, "1-log" is 1 minus such a float, "int" is a whole number, "choice" one of
            several values, "width" one number for all layers.
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
    def is_range(self) -> bool:
        """Whether it has two bounds."""
        return self.kind in RANGES

    def value(self, sampled: Any) -> Any:
        """Returns the value of the parameter.

        Args:
            sampled: a number between the bounds, or the text of a choice.
        """
        if self.kind == "1-log":
            return float(f"{1.0 - sampled:.12g}")
        return sampled if self.is_range else parse_assignment(f"x={sampled}")[1]

    def assignments(self, sampled: Any, preset: dict[str, Any]) -> list[str]:
        """Returns flags of `train` for a sampled number or choice.

        Args:
            sampled: as for `value`.
            preset: as JSON values.

        Raises:
            ParameterError: there are no layers whose width could be set.
        """
        if self.kind != "width":
            return [f"--set={self.path}={self.value(sampled) if self.is_range else sampled}"]
        found = list(_widths(preset, self.path))
        if not found:
            raise ParameterError(f"There are no layers below this path whose widths are set. Received: {self.path!r}")
        width = self.value(sampled)
        return [
            f"--set={path}={json.dumps([width] * len(old) if isinstance(old, list) else width, separators=(',', ':'))}"
            for path, old in found
        ]

    def of_preset(self, preset: dict[str, Any]) -> Any:
        """Returns what would have to be sampled for the preset's own value, or None where that lies outside.

        Args:
            preset: as JSON values.
        """
        if self.kind == "width":
            widths = {number for _, old in _widths(preset, self.path) for number in _listed(old)}
            return next((text for text in self.values if widths == {self.value(text)}), None)
        values = [_number(*found) for found in _at(preset, self.path.split("."))]
        if not values or any(value != values[0] for value in values):
            return None
        if not self.is_range:
            return next((text for text in self.values if self.value(text) == values[0]), None)
        if isinstance(values[0], bool) or not isinstance(values[0], int | float):
            return None
        sampled = float(f"{1.0 - values[0]:.12g}") if self.kind == "1-log" else values[0]
        low, high = self.values
        return sampled if low <= sampled <= high else None


def parse_dimension(text: str) -> Dimension:
    """Reads a dimension.

    Args:
        text: such as ``agent.algorithm.discount=uniform(0.95, 0.999)``.

    Raises:
        ParameterError: it is not written so, its bounds are no range, or there are fewer than two choices.
    """
    path, equals, after = text.partition("=")
    match = re.fullmatch(r"\s*([\w-]+)\s*\((.*)\)\s*", after, re.DOTALL)
    if not (path.strip() and equals and match):
        raise ParameterError(f"{WRITTEN}. Received: {text!r}")
    kind, values = match[1], split_values(match[2])
    if kind not in (*RANGES, *LISTS):
        meant = nearest(OPTUNA.get(kind, kind), (*RANGES, *LISTS))
        raise ParameterError(f"{WRITTEN}.{meant} Received: {text!r}")
    if kind in LISTS:
        return Dimension(path.strip(), kind, _choices(kind, values, text))
    return Dimension(path.strip(), kind, _bounds(kind, values, text))


def _bounds(kind: str, values: Sequence[str], text: str) -> tuple[Any, ...]:
    numbers = [parse_assignment(f"x={value}")[1] for value in values]
    whole = kind == "int"
    fitting = [type(n) is int if whole else type(n) in (int, float) and math.isfinite(n) for n in numbers]
    if len(numbers) != 2 or not all(fitting):
        said = "whole numbers" if whole else "finite numbers"
        raise ParameterError(f"The bounds of {kind}(low, high) are two {said}. Received: {text!r}")
    low, high = numbers
    if low >= high:
        raise ParameterError(f"The lower bound is below the upper one. Received: {text!r}")
    if kind in ("log", "1-log") and low <= 0:
        raise ParameterError(f"The logarithm needs bounds above 0. Received: {text!r}")
    return (low, high) if whole else (float(low), float(high))


def _choices(kind: str, values: Sequence[str], text: str) -> tuple[str, ...]:
    parsed = [parse_assignment(f"x={value}")[1] for value in values]
    if not all(values) or len(values) < 2 or len({json.dumps(value) for value in parsed}) < len(parsed):
        raise ParameterError(f"A choice has two values or more, which differ. Received: {text!r}")
    if kind == "width" and not all(type(value) is int and value > 0 for value in parsed):
        raise ParameterError(f"The width of a layer is a whole number above 0. Received: {text!r}")
    return tuple(values)


def search_space(given: Sequence[str], describe: Describe) -> tuple[list[Dimension], list[str]]:
    """Returns the dimensions to search, checked.

    The bounds of each range, the number between them and all choices are tried with the preset, one at a time.

    Args:
        given: a dimension each, or `DEFAULT`; without any, the default space of the kind of agent.
        describe: returns what flags of `train` ask for, or raises a ValueError.

    Returns:
        the dimensions, and a line for each default one of which the preset refuses a value.

    Raises:
        ParameterError: a text that is no dimension, two that set the same parameter, a value that the preset refuses,
            no default for this kind of agent.
    """
    preset = describe([])["preset"]
    dimensions = [parse_dimension(text) for text in given if text != DEFAULT]
    for dimension in dimensions:
        try:
            _try(dimension, preset, describe)
        except ValueError as error:
            raise ParameterError(f"The preset refuses a value of {dimension.text}. {error}") from error
    for one, other in itertools.combinations(dimensions, 2):
        if _overlap(one, other, preset):
            raise ParameterError(f"A parameter is searched once. Received: {one.text!r} and {other.text!r}")
    named, left_out = tuple(dimensions), []
    if DEFAULT in given or not given:
        kind = preset["agent"]["kind"]
        if kind not in DEFAULT_SPACES:
            raise ParameterError(
                f"This kind of agent has no default search space; name one with --space. Received: {kind!r}"
            )
        for dimension in map(parse_dimension, DEFAULT_SPACES[kind]):
            if not list(_places(preset, dimension.path.split("."))):
                continue
            if of_users := [one for one in named if _overlap(one, dimension, preset)]:
                if all(one.path != dimension.path for one in of_users):
                    left_out.append(f"not searched: {dimension.text}: it sets what {of_users[0].text} sets")
                continue
            try:
                _try(dimension, preset, describe)
                dimensions.append(dimension)
            except ValueError as error:
                left_out.append(f"not searched: {dimension.text}: {error}")
    if not dimensions:
        raise ParameterError(f"There is nothing to search; name it with --space. Received: {list(given)}")
    return dimensions, left_out


def names_of(space: Sequence[Dimension]) -> dict[str, str]:
    """Returns a short name of each dimension, by path."""
    names = short_names([dimension.path for dimension in space])
    return {d.path: names[d.path] + (" width" if d.kind == "width" else "") for d in space}


def _overlap(one: Dimension, other: Dimension, preset: dict[str, Any]) -> bool:
    """Returns whether two dimensions set the same parameter."""
    of_one, of_other = (
        [
            ".".join([*place, key])  # the preset may not have this key yet, as in environment.kwargs.gravity
            for flag in dimension.assignments(dimension.values[0], preset)
            for *parents, key in [parse_assignment(flag.removeprefix("--set="))[0].split(".")]
            for place in _places(preset, parents)
        ]
        for dimension in (one, other)
    )
    return any(covers(a, b) or covers(b, a) for a in of_one for b in of_other)


def _try(dimension: Dimension, preset: dict[str, Any], describe: Describe) -> None:
    low, high = dimension.values[0], dimension.values[-1]
    inner = [(low + high) // 2] if dimension.kind == "int" else []
    if dimension.is_range and not inner:  # no whole number, which a field of integers would take
        inner = [low + (high - low) / math.pi]
    for sampled in (*dimension.values, *inner):
        describe(dimension.assignments(sampled, preset))


def _widths(preset: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yields the paths and values of the fields with widths of layers below a path."""
    for place in _places(preset, path.split(".")):
        for leaf, value in leaves(_under(preset, place), ".".join(place)):
            numbers = _listed(value)
            if leaf.rpartition(".")[2] in WIDTHS and numbers and all(type(number) is int for number in numbers):
                yield leaf, value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _places(node: Any, parts: Sequence[str]) -> Iterator[list[str]]:
    """Yields the places that a path names in nested dicts, each as its keys."""
    if not parts:
        yield []
        return
    if isinstance(node, dict):
        for key in list(node) if parts[0] == "*" else [parts[0]] if parts[0] in node else []:
            for rest in _places(node[key], parts[1:]):
                yield [key, *rest]


def _under(node: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        node = node[key]
    return node


def _at(node: Any, parts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for place in _places(node, parts):
        yield place[-1], _under(node, place)


def _number(name: str, value: Any) -> Any:
    """Returns a parameter's value as one samples it: steps as their number, and what None stands for."""
    if isinstance(value, str) and (steps := STEPS.fullmatch(value)):
        return int(steps[2])
    return WHERE_NONE.get(name) if value is None else value
