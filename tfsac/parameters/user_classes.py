"""Parameters that name the class which is built from them, and users' classes in the place of tfsac's."""

from __future__ import annotations

import json
from typing import Any, ClassVar, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tfsac.parameters.base import USER_CLASSES, ParameterError, classes_in, from_json, to_json
from tfsac.utils.imports import load

T = TypeVar("T")
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


def class_of(made: ClassParameters, base: type[T]) -> type[T]:
    """Returns the class that parameters name in their `path`, tfsac's or the user's, a subclass of `base`."""
    found = load(made.class_path)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ParameterError(f"{type(made).__name__}.path must name a subclass of {base.__name__}, got {made.path!r}")
    return found


def is_of_kind(made: Any, kind: str) -> bool:
    """Returns whether parameters are of a class of tfsac of this kind, or of a user's subclass of it."""
    return any(getattr(cls, "kind", None) == kind for cls in type(made).__mro__)


def is_of_tfsac(cls: type) -> bool:
    """Returns whether a class is tfsac's, and not a user's."""
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


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
        classes = {getattr(cls, "kind", cls.__name__): cls for cls in classes_in(source)}
        usual, *_ = classes
        bases = (self.base,) if self.base else tuple(classes.values())
        choices: dict[Any, CoreSchema] = {kind: handler.generate_schema(cls) for kind, cls in classes.items()}
        if issubclass(bases[0], ClassParameters):
            choices[USER_CLASS] = core_schema.no_info_plain_validator_function(
                lambda value: _user_object(value, bases),
                serialization=core_schema.plain_serializer_function_ser_schema(to_json),
            )

        def tag(value: Any) -> Any:
            kind = value.get("kind", usual) if isinstance(value, dict) else getattr(value, "kind", usual)
            return USER_CLASS if USER_CLASS in choices and ":" in str(kind) else kind

        return core_schema.tagged_union_schema(
            choices,
            discriminator=tag,
            custom_error_type="kind",
            custom_error_message=f"the kind must be one of {', '.join(choices)}",
        )


def _user_object(value: Any, bases: tuple[type, ...]) -> Any:
    """Returns an object of a user's class, which JSON names by its kind."""
    kind = value["kind"] if isinstance(value, dict) else value.kind
    cls: Any = USER_CLASSES.get(kind) or load(kind)
    if not (isinstance(cls, type) and issubclass(cls, bases) and USER_CLASSES.get(kind) is cls):
        names = " or ".join(base.__name__ for base in bases)
        raise ParameterError(f"{kind} must be a subclass of {names}, decorated with @tfsac.parameters.parameters")
    if cls.__module__ != "__main__" and not all(map(str.isidentifier, kind.replace(":", ".").split("."))):
        raise ParameterError(f"{kind} must be at the top level of a module, from which a resume imports it")
    return from_json(cls, json.dumps(value)) if isinstance(value, dict) else value
