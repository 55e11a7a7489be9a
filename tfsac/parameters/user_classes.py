"""Parameters that name the class which is built from them, and users' classes in the place of tfsac's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tfsac.parameters.base import USER_CLASSES, ParameterError, from_json, to_json
from tfsac.utils.imports import load

_T = TypeVar("_T")
USER_CLASS = "MODULE:CLASS"  # what the kind of a user's parameter class looks like


class ClassParameters:
    """Parameters of an agent, a memory, an exploration or a head. Each class names what is built from it.

    A user's subclass of one of tfsac's classes takes its place in a preset. Its kind is "MODULE:CLASS": a run's config
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
        if not is_of_tfsac(cls):
            named: Any = cls
            named.kind = f"{cls.__module__}:{cls.__qualname__}"
            named.__annotations__ = {**vars(cls).get("__annotations__", {}), "kind": "str"}


def class_of(made: ClassParameters, base: type[_T]) -> type[_T]:
    """Returns the class that parameters name in their `path`, tfsac's or the user's, a subclass of `base`."""
    found = load(made.class_path)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ParameterError(f"{type(made).__name__}.path must name a subclass of {base.__name__}, got {made.path!r}")
    return found


def is_of_tfsac(cls: type) -> bool:
    """Returns whether a class is tfsac's, and not a user's."""
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _classes_in(hint: Any) -> Iterator[type]:
    """Yields the parameter classes inside a type hint, such as `A | B`."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for inner in get_args(hint):
        yield from _classes_in(inner)


class ByKind:
    """Annotates a union of parameter classes, or one class: JSON chooses by `kind`, which the first may leave out.

    Users' subclasses of classes with a `path` are allowed too; their kind is "MODULE:CLASS".

    Args:
        base: of which a user's class is a subclass; None for the classes of the union.

    Example:
        >>> memory: Annotated[SequenceReplayParameters, ByKind()]
    """

    def __init__(self, base: type | None = None):
        self.base = base

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Returns Pydantic's description of the union."""
        classes: dict[str, Any] = {getattr(cls, "kind", cls.__name__): cls for cls in _classes_in(source)}
        usual, *_ = kinds = [*classes]
        bases = (self.base,) if self.base else tuple(classes.values())
        choices: dict[Any, CoreSchema] = {}
        for kind, cls in classes.items():
            # Errors have these names in their path, where they must not look like a field's.
            choices |= dict.fromkeys(
                map(_tag, (kind, *getattr(cls, "earlier_kinds", ()))), handler.generate_schema(cls)
            )
        if issubclass(bases[0], ClassParameters):
            kinds.append(USER_CLASS)
            choices[_tag(USER_CLASS)] = core_schema.no_info_plain_validator_function(
                lambda value: _user_object(value, bases),
                serialization=core_schema.plain_serializer_function_ser_schema(to_json),
            )

        def choose(value: Any) -> str:
            kind = value.get("kind", usual) if isinstance(value, dict) else getattr(type(value), "kind", usual)
            return _tag(USER_CLASS if USER_CLASS in kinds and ":" in str(kind) else kind)

        return core_schema.tagged_union_schema(
            choices,
            discriminator=choose,
            custom_error_type="kind",
            custom_error_message=f"the kind must be one of {', '.join(kinds)}",
        )


def _tag(kind: str) -> str:
    return f"kind={kind}"


def _user_object(value: Any, bases: tuple[type, ...]) -> Any:
    """Returns an object of a user's class, which JSON names by its kind."""
    kind = value["kind"] if isinstance(value, dict) else type(value).kind
    cls: Any = (USER_CLASSES.get(kind) or load(kind)) if isinstance(value, dict) else type(value)
    found = isinstance(cls, type) and issubclass(cls, bases) and USER_CLASSES.get(kind) is cls
    if not found or not (cls.__module__ == "__main__" or all(map(str.isidentifier, kind.replace(":", ".").split(".")))):
        names = " or ".join(base.__name__ for base in bases)
        where = "at the top level of a module that can be imported"
        raise ParameterError(
            f"{kind} must be a subclass of {names}, decorated with @tfsac.parameters.parameters, {where}"
        )
    return from_json(cls, value) if isinstance(value, dict) else value
