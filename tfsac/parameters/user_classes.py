"""Parameters that name the class which is built from them, and users' classes in the place of tfsac's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar

from pydantic_core import CoreSchema, core_schema

from tfsac.parameters.base import (
    CUSTOM,
    TFSAC,
    Extensible,
    ParameterError,
    classes_in,
    custom_class,
    from_json,
    to_json,
)
from tfsac.user_code import load

T = TypeVar("T")


class ClassParameters(Extensible):
    """Parameters of an agent, a memory, an exploration or a head. Each class names what is built from it.

    A subclass of one of tfsac's classes takes its place in a preset. Its kind is "MODULE:CLASS": a run's config
    finds it by that.

    Attributes:
        path: of the class that is built, as "MODULE:CLASS".
    """

    path: ClassVar[str]

    @property
    def class_path(self) -> str:
        """Path of the class that is built for these parameters."""
        return self.path

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if is_of_tfsac(cls):
            return
        kind, own = f"{cls.__module__}:{cls.__qualname__}", vars(cls)
        if "kind" in own or "kind" in own.get("__annotations__", {}):
            raise ParameterError(
                f"A parameter class of your own has the kind {kind!r}, by which a run's config finds it: leave the "
                f"field out. Received: kind={own.get('kind')!r}"
            )
        named: Any = cls
        named.kind = kind
        named.__annotations__ = {**own.get("__annotations__", {}), "kind": Literal[kind]}


def class_of(made: ClassParameters, base: type[T]) -> type[T]:
    """Returns the class that parameters name in their `path`, tfsac's or the user's.

    Args:
        made: the parameters.
        base: the class of which it is a subclass.

    Raises:
        ImportError: there is no such module, or nothing of this name in it.
        ParameterError: what is there is no subclass of `base`.
        UserCodeError: its module raised.
    """
    found = load(made.class_path)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ParameterError(
            f"The path of {type(made).__name__} names a subclass of {base.__module__.rpartition('.')[0]}."
            f"{base.__name__}, such as 'my_module:MyClass'. Received: {made.class_path!r}"
        )
    return found


def is_of_kind(made: Any, kind: str) -> bool:
    """Returns whether parameters are of a class of tfsac of this kind, or of a user's subclass of it."""
    return any(getattr(cls, "kind", None) == kind for cls in type(made).__mro__)


class OrOwn:
    """Annotates the type of a field that also holds parameters of users' classes.

    Args:
        bases: of which these are subclasses; without any, the classes of the type.

    Example:
        >>> memory: Annotated[SequenceReplayParameters, OrOwn()]
    """

    def __init__(self, *bases: type):
        self.bases = bases

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        """Returns Pydantic's description of the type with users' classes beside it."""
        bases = self.bases or tuple(classes_in(source))
        own = core_schema.no_info_plain_validator_function(
            lambda value: _own(value, bases), serialization=core_schema.plain_serializer_function_ser_schema(to_json)
        )
        return core_schema.tagged_union_schema({TFSAC: handler(source), CUSTOM: own}, discriminator=_tag)


def _tag(value: Any) -> str:
    if isinstance(value, dict):
        kind = value.get("kind")
        return CUSTOM if isinstance(kind, str) and ":" in kind else TFSAC
    return CUSTOM if hasattr(value, "kind") and not is_of_tfsac(type(value)) else TFSAC


def is_of_tfsac(cls: type) -> bool:
    """Returns whether a class is tfsac's, and not a user's."""
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _own(value: Any, bases: tuple[type, ...]) -> Any:
    """Returns an object of a user's class, which JSON names by its kind."""
    cls: Any = custom_class(value["kind"]) if isinstance(value, dict) else type(value)
    wrong = ""
    if not issubclass(cls, bases):
        names = " or ".join(f"tfsac.parameters.{base.__name__}" for base in bases)
        wrong = f"A class of your own is here a subclass of {names}"
    elif "__dataclass_fields__" not in vars(cls):
        wrong = f"The class {cls.__name__} is decorated with @tfsac.parameters.parameters"
    elif not re.fullmatch(r"[\w.]+:\w+", str(getattr(cls, "path", ""))):
        wrong = f'The class {cls.__name__} names what is built, as in path: ClassVar[str] = "my_module:MyClass"'
    elif cls.__module__ != "__main__" and not all(map(str.isidentifier, re.split("[:.]", cls.kind))):
        wrong = (
            f"A run's config finds the class {cls.__name__} in its file, so the file has a name that Python imports, "
            "without hyphens and spaces, and the class is not made inside a function"
        )
    if wrong:
        raise ParameterError(f"{wrong}. Received: {value!r}")
    return from_json(cls, json.dumps(value)) if isinstance(value, dict) else value
