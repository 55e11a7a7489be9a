"""Flags that are made from the fields of a parameter class, so that each is written once."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Collection
from typing import Any

from absl import flags

from tfsac.parameters.base import descriptions


def define_fields(f: flags.FlagValues, cls: type, without: Collection[str] = (), only: Collection[str] = ()) -> None:
    """Defines a flag for each field of a parameter class, but for those without, or for some fields only."""
    hints, help_texts = typing.get_type_hints(cls), descriptions(cls)
    for field in dataclasses.fields(cls):
        if field.name in without or (only and field.name not in only):
            continue
        # The other sentences of a description are for the pages.
        text = help_texts[field.name].partition(". ")[0].removesuffix(".")
        text = re.sub(r"`(\w+)`", lambda match: f"--{match[1]}" if match[1] in hints else match[0], text)
        _define(f, field.name, field.default, text, hints[field.name])


def present_fields(f: flags.FlagValues, cls: type) -> dict[str, Any]:
    """Returns the values of the flags that were given, by the name of the field."""
    names = [field.name for field in dataclasses.fields(cls) if field.name in f]
    return {name: f[name].value for name in names if f[name].present}


def _define(f: flags.FlagValues, name: str, default: Any, text: str, hint: Any) -> None:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):  # of a type and None
        hint = next(inner for inner in typing.get_args(hint) if inner is not type(None))
    if typing.get_origin(hint) is typing.Literal:
        flags.DEFINE_enum(name, default, list(typing.get_args(hint)), text, flag_values=f)
    elif hint is bool:
        flags.DEFINE_bool(name, default, f"{text}; --no{name} turns it off" if default else text, flag_values=f)
    elif hint is int:
        flags.DEFINE_integer(name, default, text, flag_values=f)
    elif hint is float:
        flags.DEFINE_float(name, default, text, flag_values=f)
    else:
        flags.DEFINE_string(name, default, text, flag_values=f)
