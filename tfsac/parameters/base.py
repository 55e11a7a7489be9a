"""The `@parameters` decorator: validated, immutable dataclasses that read and write JSON, including users' own."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import html
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, TypeVar, cast, dataclass_transform, get_args

import pydantic
from pydantic import AfterValidator, ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs, CoreSchema, ErrorDetails, core_schema

from tfsac.errors import TfsacError
from tfsac.parameters.other_names import PATHS, normalized
from tfsac.utils.imports import load

_T = TypeVar("_T")
# The byte count of 2**40 of the largest images still fits int64.
PositiveInt = Annotated[int, Field(gt=0, lt=2**40)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**40)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
UnitInterval = Annotated[float, Field(ge=0, le=1)]
USER_CLASS = "MODULE:CLASS"  # format of the kind of a user's parameter class
USER_CLASSES: dict[str, type] = {}  # decorated classes by kind


class ParameterError(TfsacError):
    """A parameter is unknown, has the wrong type or a value out of range."""


def _rising(bounds: Any) -> Any:
    low, high = bounds
    if low is not None and high is not None and low >= high:
        raise ValueError("the lower bound must be below the upper one")
    return bounds


Rising = AfterValidator(_rising)  # of (low, high)


class UnusedIf:
    """Annotates a field that has no effect when another field has one of the given values.

    Example:
        >>> loss: Annotated[Literal["log", "alpha"], UnusedIf("log_space", False)] = "log"
    """

    def __init__(self, other: str, *values: Any, inverted: bool = False):
        self.other, self.values, self.inverted = other, values, inverted

    def applies(self, value: Any) -> bool:
        """Returns whether the annotated field has no effect when the other field has this value."""
        return (value in self.values) != self.inverted


UnusedUnless = functools.partial(UnusedIf, inverted=True)  # no effect unless the other field has one of the values


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the candidate closest to `name`, or an empty string."""
    by_lower_case = {str(c).lower(): str(c) for c in candidates}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.5)
    return f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""


def suggestion(unknown: str, fields: Iterable[str]) -> str:
    """Returns a hint that names the field closest to an unknown name, or lists all fields."""
    if (field := PATHS.get(normalized(unknown), "").rpartition(".")[2]) in fields:
        return f" Did you mean {field!r}?"
    return nearest(unknown, fields) or f" Its parameters are {', '.join(fields)}."


def descriptions(cls: type) -> dict[str, str]:
    """Returns the description of each attribute from the "Attributes" section of a class's docstring, on one line."""
    section = (inspect.getdoc(cls) or "").partition("\nAttributes:\n")[2]
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", re.split(r"\n(?=\S)", section)[0], re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


@contextlib.contextmanager
def wrap_validation_errors(name: str) -> Iterator[None]:
    """Turns Pydantic's error into one line with the field, the allowed values and the value received."""
    try:
        yield
    except ValidationError as error:
        raise _one_line(error.errors(include_url=False), name) from None


def _one_line(entries: list[ErrorDetails], name: str) -> ParameterError:
    causes = [entry.get("ctx", {}).get("error") for entry in entries]
    if parameter_errors := [cause for cause in causes if isinstance(cause, ParameterError)]:
        return parameter_errors[0]
    entry = max(entries, key=lambda candidate: len(candidate["loc"]))  # the union branch that got furthest
    path = _path(entry)
    messages = dict.fromkeys(str(c or e["msg"]) for c, e in zip(causes, entries, strict=True) if _path(e) == path)
    got = "" if entry["type"].startswith("missing") else f", got {entry['input']!r:.300}"
    return ParameterError(f"{'.'.join([name, *path])}: {' or '.join(messages)}{got}")


def _path(entry: ErrorDetails) -> list[str]:
    """Returns the path of an error, without the type names that Pydantic adds for union branches."""
    return [str(part) for part in entry["loc"] if isinstance(part, int) or re.fullmatch("[a-z]\\w*", part)]


def _check(cls: Any, value: Any, validate: Callable[[Any], Any]) -> Any:
    """Rejects unknown parameters, fields that have no effect, and instances of a subclass of the declared class."""
    fields = value.kwargs or {} if isinstance(value, ArgsKwargs) else value
    if isinstance(fields, dict):
        if hasattr(cls, "with_current_names"):
            fields = cls.with_current_names(fields)
        field_names = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in field_names:
                raise ParameterError(f"{cls.__name__} has no parameter {name!r}.{suggestion(str(name), field_names)}")
        value = ArgsKwargs(value.args, fields) if isinstance(value, ArgsKwargs) else fields
    result = validate(value)
    if type(result) is not cls:
        error = f"must be {cls.__name__}; a config would lose the fields of its subclass {type(result).__name__}"
        raise ParameterError(f"{error}: use @tfsac.parameters.parameters and a subclass with the field")
    for name, field in cls.__pydantic_fields__.items():
        for rule in field.metadata:
            if isinstance(rule, UnusedIf) and rule.applies(other_value := getattr(result, rule.other)):
                reject_unused_fields(result, [name], f"{rule.other}={other_value!r}")
    return result


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(Field, dataclasses.field))
def parameters(cls: type[_T]) -> type[_T]:
    """Makes `cls` a frozen dataclass that checks the type and range of every field on construction.

    Construction raises `ParameterError` for an unknown parameter (naming the nearest one), a wrong type, a value out of
    range, and a field that is set although another field disables it; see `UnusedIf`.
    """
    named, wrap = cast(Any, cls), cast(Any, pydantic.model_validator(mode="wrap"))
    named._check = wrap(classmethod(_check))
    # tfsac's own fields must be finite; the kwargs of environments and optimizers may hold any number.
    config = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants")
    dataclass: Any = pydantic.dataclasses.dataclass(frozen=True, config=config)(cls)
    construct: Callable[..., None] = dataclass.__init__
    positional = [field.name for field in dataclasses.fields(dataclass) if not field.kw_only]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        with wrap_validation_errors(dataclass.__name__):
            # Pass arguments by name, so that errors include the name.
            construct(self, *args[len(positional) :], **dict(zip(positional, args, strict=False)), **kwargs)

    def _repr_html_(self: Any) -> str:
        """Returns an HTML table of all parameters, for notebooks."""
        from tfsac.parameters.overrides import parameter_texts

        cells = [(html.escape(path), html.escape(text)) for path, text in parameter_texts(self).items()]
        rows = "".join(f"<tr><td>{path}</td><td>{text}</td></tr>" for path, text in cells)
        return f"<table><tr><th>parameter</th><th>value</th></tr>{rows}</table>"

    dataclass.__init__, dataclass._repr_html_ = __init__, _repr_html_
    if ":" in (kind := str(getattr(dataclass, "kind", ""))):
        USER_CLASSES[kind] = dataclass
    return dataclass


def reject_unused_fields(instance: Any, names: Iterable[str], because: str) -> None:
    """Raises ParameterError if a named field differs from its default although `because`, such as "alpha=0.0", disables
    it.
    """
    for field in dataclasses.fields(instance):
        if field.name in names and (value := getattr(instance, field.name)) != field.default:
            default = f"leave it at {field.default!r}"
            raise ParameterError(f"{field.name} has no effect with {because}: {default}, got {value!r}")


def to_json(value: Any) -> Any:
    """Returns a parameter object as plain dicts, lists, numbers and strings."""
    return TypeAdapter(type(value)).dump_python(value, mode="json", warnings=False)


def from_json(cls: type[_T], content: Any) -> _T:
    """Returns the parameter object for a JSON text or an equivalent dict.

    Raises:
        ParameterError: the content is not valid for the class.
    """
    with wrap_validation_errors(getattr(cls, "__name__", "parameters")):
        return TypeAdapter(cls).validate_python(json.loads(content) if isinstance(content, str) else content)


class ClassParameters:
    """Parameters of an agent, a memory, an exploration or a head. Their `path` names the class to build.

    A preset accepts a user's subclass in place of tfsac's class. A run's config stores its kind as "MODULE:CLASS".
    """

    path: ClassVar[str]

    @property
    def class_path(self) -> str:
        """Path of the class to build from these parameters."""
        return self.path

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not is_of_tfsac(cls):
            named: Any = cls
            named.kind = f"{cls.__module__}:{cls.__qualname__}"
            named.__annotations__ = {**vars(cls).get("__annotations__", {}), "kind": "str"}


def class_of(parameters: ClassParameters, base: type[_T]) -> type[_T]:
    """Returns the class that `path` names, from tfsac or from the user. It must be a subclass of `base`."""
    loaded, name = load(parameters.class_path), type(parameters).__name__
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise ParameterError(f"{name}.path must name a subclass of {base.__name__}, got {parameters.path!r}")
    return loaded


def is_of_tfsac(cls: type) -> bool:
    """Returns whether a class belongs to tfsac rather than to a user."""
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _classes_in(hint: Any) -> Iterator[type]:
    """Yields the parameter classes inside a type hint, such as `A | B`."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for inner in get_args(hint):
        yield from _classes_in(inner)


class ByKind:
    """Annotates one parameter class or a union of them. JSON selects the class by `kind`; the first is the default.

    Users' subclasses of classes with a `path`, or of `base`, are also accepted.

    Example:
        >>> memory: Annotated[SequenceReplayParameters, ByKind()]
    """

    def __init__(self, base: type | None = None):
        self.base = base

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Returns the Pydantic schema of the union."""
        classes: dict[str, Any] = {getattr(cls, "kind", cls.__name__): cls for cls in _classes_in(source)}
        usual, *_ = classes
        kinds = [kind if hasattr(cls, "kind") else f"none ({kind})" for kind, cls in classes.items()]
        bases = (self.base,) if self.base else tuple(classes.values())
        choices: dict[Any, CoreSchema] = {}
        for kind, cls in classes.items():
            # Error paths contain these tags, which must not look like field names.
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
    """Returns an instance of a user's class; JSON names the class in `kind`."""
    kind = value["kind"] if isinstance(value, dict) else type(value).kind
    cls: Any = (USER_CLASSES.get(kind) or load(kind)) if isinstance(value, dict) else type(value)
    fits = isinstance(cls, type) and issubclass(cls, bases) and USER_CLASSES.get(kind) is cls
    if not fits or not (cls.__module__ == "__main__" or all(map(str.isidentifier, kind.replace(":", ".").split(".")))):
        names = " or ".join(base.__name__ for base in bases)
        location = "at the top level of a module that can be imported"
        raise ParameterError(
            f"{kind} must be a subclass of {names}, decorated with @tfsac.parameters.parameters, {location}"
        )
    return from_json(cls, value) if isinstance(value, dict) else value
