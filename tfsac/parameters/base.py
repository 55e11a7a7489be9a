"""The `@parameters` decorator: validated, immutable dataclasses that read and write JSON."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, dataclass_transform

import pydantic
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

T = TypeVar("T")


class ParameterError(ValueError):
    """A parameter is unknown, has the wrong type or a value out of range."""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the candidate closest to `name`, or an empty string."""
    close = difflib.get_close_matches(name, [str(c) for c in candidates], n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def explain(error: ValidationError, cls: type) -> ParameterError:
    """Turns pydantic's error into one line: which field, what was expected, what was received."""
    first = error.errors(include_url=False)[0]
    names = list(getattr(cls, "__dataclass_fields__", {}))
    path = ".".join(str(part) for part in first["loc"])
    if first["loc"] and isinstance(first["loc"][0], int):  # a positional argument
        path = names[first["loc"][0]]
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        unknown = str(first["loc"][-1])
        owner = _owner(cls, first["loc"][:-1])
        names = [field for field in getattr(owner, "__dataclass_fields__", {})]
        return ParameterError(
            f"{owner.__name__} has no parameter {unknown!r}.{nearest(unknown, names)} "
            f"Its parameters are {', '.join(names)}. Received: {unknown}={first['input']!r}"
        )
    if first["type"] == "unexpected_positional_argument":
        return ParameterError(f"{cls.__name__} takes fewer positional arguments. Received: {first['input']!r}")
    message = first["msg"].removeprefix("Value error, ").removesuffix(".")
    if "Received: " in message:
        return ParameterError(message)
    return ParameterError(f"{cls.__name__}{'.' if path else ''}{path}: {message}. Received: {first['input']!r}")


def _owner(cls: type, path: tuple[int | str, ...]) -> type:
    """Follows field names from `cls` to the dataclass in which a nested error happened, as far as it can."""
    for part in path:
        field = getattr(cls, "__dataclass_fields__", {}).get(part)
        default = None if field is None else field.default if not callable(field.default_factory) else field.default_factory()
        cls = type(default) if hasattr(type(default), "__dataclass_fields__") else cls
    return cls


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(Field,))
def parameters(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass that checks the type and range of every field when it is made.

    Construction raises `ParameterError` for an unknown parameter (naming the nearest one), a wrong type or a value
    out of range; the message ends with what was received.
    """
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    made: Any = pydantic.dataclasses.dataclass(frozen=True, config=config)(cls)
    construct: Callable[..., None] = made.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            construct(self, *args, **kwargs)
        except ValidationError as error:
            raise explain(error, made) from None

    __init__.__doc__ = f"Raises: ParameterError: unknown parameter, wrong type or range of {cls.__name__}."
    made.__init__ = __init__
    return made


def to_json(value: Any) -> Any:
    """Returns a parameter object as plain dicts, lists, numbers and strings."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def from_json(cls: type[T], text: str) -> T:
    """Reads a parameter object back from JSON text.

    Raises:
        ParameterError: unknown fields, wrong types, values out of range.
    """
    try:
        return TypeAdapter(cls).validate_json(text)
    except ValidationError as error:
        raise explain(error, cls) from None
