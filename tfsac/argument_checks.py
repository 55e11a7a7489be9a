"""Checks of what Python callers pass, which say in one line what is wanted and what came."""

from __future__ import annotations

import errno
import operator
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST = 200  # characters of a value in a message


def shown(value: Any) -> str:
    """Returns a value for a message: in one line, and not the whole of a large array or dict."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def path(name: str, value: Any, what: str = "the path of a folder, a str or a pathlib.Path") -> pathlib.Path:
    """Returns a path.

    Raises:
        TypeError: anything but a str or a path; ValueError: an empty one, or one with a null character; OSError: a name
            that is too long.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} is {what}. Received: {shown(value)}")
    if not os.fspath(value):
        raise ValueError(f"{name} is {what}. Received: {shown(value)}")
    try:
        os.lstat(value)
    except ValueError as error:
        raise ValueError(
            f"{name} is {what}; no file system takes this one ({error}). Received: {shown(value)}"
        ) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise OSError(f"{name} is {what}, and this name is too long. Received: {shown(value)}") from error
    return pathlib.Path(value)


def whole(name: str, value: Any, least: int) -> int:
    """Returns a whole number.

    Raises:
        TypeError: no whole number; ValueError: less than the least.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} is a whole number of at least {least}. Received: {shown(value)}")
    if number < least:
        raise ValueError(f"{name} is at least {least}. Received: {shown(value)}")
    return number


def flag(name: str, value: Any) -> None:
    """Refuses anything but True and False."""
    if not isinstance(value, bool) and str(getattr(value, "dtype", "")) != "bool":
        raise TypeError(f"{name} is True or False. Received: {shown(value)}")


def function(name: str, value: Any, what: str) -> None:
    """Refuses what cannot be called.

    Args:
        name, value: of the argument.
        what: it is, for the message: "a function that ...".
    """
    if not callable(value):
        raise TypeError(f"{name} is {what}. Received: {shown(value)}")


def instance(name: str, value: Any, cls: type[T] | tuple[type, ...], what: str) -> Any:
    """Returns the value, if it is of the class.

    Args:
        name, value, cls: of the argument.
        what: it is, for the message: "a Policy, as tfsac.load_policy returns it".
    """
    if not isinstance(value, cls):
        raise TypeError(f"{name} is {what}. Received: {shown(value)}")
    return value


def instances(name: str, values: Any, cls: type[T], what: str, example: Callable[[type], str]) -> list[T]:
    """Returns a list of objects of a class.

    Args:
        name, values, cls: of the argument.
        what: it is, for the message: "a list of Callback objects".
        example: the correction where a class stands in the place of its object.

    Raises:
        TypeError: no list, or something else in it.
    """
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} is {what}. Received: {shown(values)}")
    for value in values:
        if isinstance(value, type) and issubclass(value, cls):
            raise TypeError(
                f"{name} is {what}, not of classes: write {example(value)}. Received: the class {value.__name__}"
            )
        if not isinstance(value, cls):
            raise TypeError(f"{name} is {what}. Received: {shown(value)}")
    return list(values)
