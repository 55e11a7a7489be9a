"""Flags that are made from the fields of a parameter class, so that each is written once."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Collection
from typing import Any

from absl import flags
from pydantic.fields import FieldInfo

from tfsac.parameters.base import descriptions


def define_fields(f: flags.FlagValues, cls: type, without: Collection[str] = (), only: Collection[str] = ()) -> None:
    """Defines a flag for each field of a parameter class: its name, type, lower bound, default and description.

    Args:
        f: gets the flags.
        cls: a class of `@parameters` whose fields are switches, numbers, texts or one of several names.
        without: fields that get no flag.
        only: the fields that get one; empty for all.

    Raises:
        TypeError: a field whose type no flag has.

    Example:
        >>> define_fields(f := flags.FlagValues(), RunParameters, only=("seed",))
        >>> f["seed"].default
        0
    """
    hints, described = typing.get_type_hints(cls, include_extras=True), descriptions(cls)
    for field in dataclasses.fields(cls):
        if field.name in without or (only and field.name not in only):
            continue
        # The other sentences of a description are for the pages.
        text = described[field.name].partition(". ")[0].removesuffix(".")
        text = re.sub(r"`(\w+)`", lambda match: f"--{match[1]}" if match[1] in hints else match[0], text)
        _define(f, field.name, field.default, text, hints[field.name])


def given_fields(f: flags.FlagValues, cls: type) -> dict[str, Any]:
    """Returns the values of the flags that were given, by the name of the field."""
    names = [field.name for field in dataclasses.fields(cls) if field.name in f]
    return {name: f[name].value for name in names if f[name].present}


def _define(f: flags.FlagValues, name: str, default: Any, text: str, hint: Any) -> None:
    extra: list[Any] = []
    while typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Annotated):  # of a type and None
        hint, *more = [inner for inner in typing.get_args(hint) if inner is not type(None)]
        extra += more
    limits = [limit for entry in extra if isinstance(entry, FieldInfo) for limit in entry.metadata]
    above = [limit.gt + 1 for limit in limits if hasattr(limit, "gt") and hint is int]
    bound = next(iter(above + [limit.ge for limit in limits if hasattr(limit, "ge")]), None)
    if typing.get_origin(hint) is typing.Literal:
        flags.DEFINE_enum(name, default, list(typing.get_args(hint)), text, flag_values=f)
    elif hint is bool:
        flags.DEFINE_bool(name, default, f"{text}; --no{name} turns it off" if default else text, flag_values=f)
    elif hint is int:
        flags.DEFINE_integer(name, default, text, lower_bound=bound, flag_values=f)
    elif hint is float:
        flags.DEFINE_float(name, default, text, lower_bound=bound, flag_values=f)
    elif hint is str:
        flags.DEFINE_string(name, default, text, flag_values=f)
    else:
        raise TypeError(f"A flag is a switch, a number, a text or one of several names. Received: {name}: {hint}")
