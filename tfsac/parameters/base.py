"""The `@parameters` decorator: validated, immutable dataclasses that read and write JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import html
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args

import numpy as np
import pydantic
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from tfsac.errors import TfsacError
from tfsac.parameters.other_names import PATHS, normalized

T = TypeVar("T")
# Whole floats are integers, because 1e5 is how people write 100 000.
Integer = Annotated[int, BeforeValidator(lambda x: int(x) if isinstance(x, float) and x.is_integer() else x)]
# Arrays of 2**40 of the largest images can still be counted.
PositiveInt = Annotated[Integer, Field(gt=0, lt=2**40)]
NonNegativeInt = Annotated[Integer, Field(ge=0, lt=2**40)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
_earlier: dict[str, Callable[[dict[str, Any]], Any]] = {}  # by a kind of earlier versions; see `translate_kinds`
USER_CLASSES: dict[str, type] = {}  # decorated classes of users, by their kind "MODULE:CLASS"


class ParameterError(TfsacError):
    """A parameter is unknown, has the wrong type or a value out of range."""


def _rising(bounds: Any) -> Any:
    low, high = bounds
    if low is not None and high is not None and low >= high:
        raise ValueError("the lower bound must be below the upper one")
    return bounds


Rising = AfterValidator(_rising)  # of (low, high)


class UnusedIf:
    """Annotates a field that has no effect where another field has one of some values.

    Example:
        >>> loss: Annotated[Literal["log", "alpha"], UnusedIf("log_space", False)] = "log"
    """

    def __init__(self, other: str, *values: Any):
        self.other, self.values = other, values

    def applies(self, value: Any) -> bool:
        """Returns whether this value of the other field leaves the annotated one without effect."""
        return value in self.values


class UnusedUnless(UnusedIf):
    """Annotates a field that has an effect only where another field has one of some values."""

    def applies(self, value: Any) -> bool:
        """As that of `UnusedIf`."""
        return value not in self.values


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the candidate closest to `name`, or an empty string."""
    by_lower_case = {str(c).lower(): str(c) for c in candidates}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.5)
    return f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""


def descriptions(cls: type) -> dict[str, str]:
    """Returns what the section "Attributes" of a class's docstring says of each attribute, in one line, by its name."""
    section = (inspect.getdoc(cls) or "").partition("\nAttributes:\n")[2]
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", re.split(r"\n(?=\S)", section)[0], re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def explain(error: ValidationError, cls: type) -> ParameterError:
    """Turns Pydantic's error into one line: which field, what is allowed, what it got."""
    unknown = ("unexpected_keyword_argument", "extra_forbidden")
    # An unknown name explains others that are missing; of a union's branches the one that got furthest says most.
    entries = error.errors(include_url=False)
    first = max(entries, key=lambda entry: (entry["type"] in unknown, len(entry["loc"])))
    kind, location = first["type"], list(first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ParameterError):  # of a `__post_init__`
        return cause
    if location and isinstance(location[0], int):  # a positional argument
        names = [field.name for field in dataclasses.fields(cls) if not field.kw_only]
        location[:1] = names[location[0] : location[0] + 1]
    if kind in unknown:
        owner, path = _follow(cls, location[:-1])
        fields = [field.name for field in dataclasses.fields(owner)]
        return ParameterError(
            f"{owner.__name__} has no parameter {location[-1]!r}.{suggestion(str(location[-1]), fields)}"
        )
    _, path = _follow(cls, location)
    branches = [entry["msg"] for entry in entries if list(entry["loc"][:-1]) == list(first["loc"][:-1])]
    message = str(cause or (" or ".join(branches) if len(location) > len(path) else first["msg"]))
    got = "" if kind in ("missing", "missing_argument") else f", got {shortened(first['input'])}"
    return ParameterError(f"{'.'.join([cls.__name__, *path])}: {message}{got}")


def suggestion(unknown: str, fields: list[str]) -> str:
    """Returns which of some fields is meant by an unknown name, or all of them."""
    if (known := PATHS.get(normalized(unknown), "").rpartition(".")[2]) in fields:
        return f" Did you mean {known!r}?"
    return nearest(unknown, fields) or f" Its parameters are {', '.join(fields)}."


def shortened(value: Any, longest: int = 300) -> str:
    """Returns a value for a message, and of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}..."


def python_numbers(value: Any) -> Any:
    """Returns a value with NumPy's scalars, also those in lists, tuples and dicts, as Python's numbers."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        return value.item()
    if type(value) is dict:
        return {key: python_numbers(each) for key, each in value.items()}
    return type(value)(map(python_numbers, value)) if type(value) in (list, tuple) else value


def _follow(cls: type, location: list[int | str]) -> tuple[type, list[str]]:
    """Returns the parameter class at a place inside `cls`, as far as it can be followed, and the path to it.

    Pydantic puts the names of a union's branches into the place, which are no part of the path.
    """
    owners, path = list(classes_in(cls)) or [cls], []
    for part in location:
        of_this_kind = [owner for owner in owners if part in (getattr(owner, "kind", None), owner.__name__)]
        fields = [getattr(owner, "__pydantic_fields__", {}).get(str(part)) for owner in owners]
        inner = [one for field in fields if field for one in classes_in(field.annotation)]
        owners = of_this_kind or inner or owners
        if not of_this_kind and (isinstance(part, int) or part.isidentifier()):
            path.append(str(part))
    return owners[0], path


def classes_in(hint: Any) -> Iterator[type]:
    """Yields the parameter classes inside a type hint, such as `dict[str, A | B]`."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for inner in get_args(hint):
        yield from classes_in(inner)


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(Field, dataclasses.field))
def parameters(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass that checks the type and range of every field when it is made.

    Construction raises `ParameterError` for an unknown parameter (naming the nearest one), a wrong type, a value out of
    range, and a field that is set although another one leaves it without effect; see `UnusedIf`.
    """
    check: Callable[[Any], None] | None = getattr(cls, "__post_init__", None)

    def __post_init__(self: Any) -> None:
        for name, field in type(self).__pydantic_fields__.items():
            for rule in field.metadata:
                if isinstance(rule, UnusedIf) and rule.applies(other := getattr(self, rule.other)):
                    reject_unused_fields(self, [name], f"{rule.other}={other!r}")
        if check:
            check(self)

    named: Any = cls
    named.__post_init__ = __post_init__
    # Numbers of tfsac's own fields are finite; infinities in what an environment or an optimizer is given stay as they
    # are.
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="constants")
    made: Any = pydantic.dataclasses.dataclass(frozen=True, config=config)(cls)
    construct: Callable[..., None] = made.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if rename := getattr(cls, "with_current_names", None):
            kwargs = rename(kwargs)
        try:
            construct(self, *python_numbers(args), **python_numbers(kwargs))
        except ValidationError as error:
            raise explain(error, made) from None
        _reject_other_classes(self)

    def _repr_html_(self: Any) -> str:
        """Returns a table of all parameters, which a notebook shows."""
        from tfsac.parameters.overrides import parameter_texts

        cells = [(html.escape(path), html.escape(text)) for path, text in parameter_texts(self).items()]
        rows = "".join(f"<tr><td>{path}</td><td>{text}</td></tr>" for path, text in cells)
        return f"<table><tr><th>parameter</th><th>value</th></tr>{rows}</table>"

    __init__.__doc__ = f"Raises: ParameterError: unknown parameter, wrong type or range of {cls.__name__}."
    made.__init__, made._repr_html_ = __init__, _repr_html_
    if ":" in (kind := str(getattr(made, "kind", ""))):
        USER_CLASSES[kind] = made
    return made


def _reject_other_classes(made: Any) -> None:
    """Rejects parts of a subclass of the declared class, whose own fields a run's config would lose."""
    for name, field in type(made).__pydantic_fields__.items():
        value, classes = getattr(made, name), list(classes_in(field.annotation))
        for part in value.values() if isinstance(value, dict) and classes else [value]:
            user_class = ":" in str(getattr(part, "kind", ""))  # the config keeps its class
            if dataclasses.is_dataclass(part) and classes and not user_class and type(part) not in classes:
                holds = f"{type(made).__name__}.{name} holds {classes[0].__name__}, got {type(part).__name__}"
                raise ParameterError(f"{holds}: use @tfsac.parameters.parameters and a subclass with the field")


def reject_unused_fields(instance: Any, names: Iterable[str], because: str) -> None:
    """Raises ParameterError where a field of these names was set although something, such as "alpha=0.0", leaves it
    without effect.
    """
    for field in dataclasses.fields(instance):
        if field.name in names and (value := getattr(instance, field.name)) != field.default:
            default = f"leave it at {field.default!r}"
            raise ParameterError(f"{field.name} has no effect with {because}: {default}, got {value!r}")


def to_json(value: Any) -> Any:
    """Returns a parameter object as plain dicts, lists, numbers and strings."""
    return TypeAdapter(type(value)).dump_python(value, mode="json", warnings=False)


def from_json(cls: type[T], text: str) -> T:
    """Reads a parameter object back from JSON text; raises ParameterError for what it does not take."""
    if any(f'"{kind}"' in text for kind in _earlier):
        with contextlib.suppress(ValueError):  # which Pydantic explains
            text = json.dumps(_translated(json.loads(text)))
    try:
        return TypeAdapter(cls).validate_json(text)
    except ValidationError as error:
        raise explain(error, cls) from None


def translate_kinds(kinds: Iterable[str], translate: Callable[[dict[str, Any]], Any]) -> None:
    """Has `from_json` read objects of kinds of earlier versions as what a function returns for their fields."""
    _earlier.update(dict.fromkeys(kinds, translate))


def _translated(value: Any) -> Any:
    """Returns JSON values with today's kinds and names."""
    if isinstance(value, list):
        return [_translated(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _translated(each) for key, each in value.items()}
    kind = found.get("kind")
    return to_json(_earlier[kind](found)) if isinstance(kind, str) and kind in _earlier else found
