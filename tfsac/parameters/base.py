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
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from tfsac.errors import TfsacError
from tfsac.parameters.other_names import meant_field
from tfsac.user_code import load

T = TypeVar("T")
# Whole floats are integers, because 1e5 is how people write 100 000.
Integer = Annotated[int, BeforeValidator(lambda x: int(x) if isinstance(x, float) and x.is_integer() else x)]
# Arrays of 2**40 of the largest images can still be counted.
PositiveInt = Annotated[Integer, Field(gt=0, lt=2**40)]
NonNegativeInt = Annotated[Integer, Field(ge=0, lt=2**40)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
CUSTOM = "MODULE:CLASS"  # what the kind of a user's own parameter class looks like
TFSAC = ""  # the tag of a class of tfsac's, where a field may hold a user's; no part of a path
_custom: dict[str, type] = {}  # such classes by kind
_earlier: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # by a kind of earlier versions, see below
_having: dict[str, list[str]] = {}  # names of tfsac's classes by the name of a field


class Extensible:
    """Base of the parameter classes below which users write their own."""


class ParameterError(TfsacError):
    """A parameter is unknown, has the wrong type or a value out of range."""


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
    """Turns pydantic's error into one line: which field, what was expected, what was received."""
    # Where a union was tried, the branch that got furthest says most.
    tried = error.errors(include_url=False)
    first = max(tried, key=lambda entry: len(entry["loc"]))
    kind, place, received = first["type"], list(first["loc"]), first["input"]
    names = _names(cls)
    if kind == "unexpected_positional_argument":
        return ParameterError(f"{cls.__name__} has only the parameters {', '.join(names)}. Received: {received!r} more")
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        unknown = str(place.pop())
        owner, _ = _follow(cls, place)
        fields = _names(owner)
        meant, having = meant_field(unknown, fields), _having.get(unknown, [])
        hint = f" It belongs to {having[0]}." if not meant and len(having) == 1 else nearest(meant or unknown, fields)
        return ParameterError(
            f"{owner.__name__} has no parameter {unknown!r}.{hint} Its parameters are {', '.join(fields)}. "
            f"Received: {unknown}={received!r}"
        )
    if kind == "json_invalid":
        return ParameterError(f"{cls.__name__}: Invalid JSON: {first['ctx']['error']}. Received: {shortened(received)}")
    if kind == "missing" and isinstance(place[-1], int):  # of a tuple
        path = ".".join(map(str, [cls.__name__, *_follow(cls, place[:-1])[1]]))
        return ParameterError(f"{path}: a list with more entries is needed. Received: {received!r}")
    if kind in ("missing", "missing_argument"):
        owner, _ = _follow(cls, place[:-1])
        return ParameterError(f"{owner.__name__} needs the parameter {place[-1]!r}. Received: nothing for it")
    if kind == "kind" and isinstance(received, dict):  # the rest of a large object says nothing
        received = received["kind"]
    if place and isinstance(place[0], int):  # a positional argument
        place[0] = [field.name for field in dataclasses.fields(cls) if not field.kw_only][place[0]]
    # Pydantic names branches of unions by their type or kind, which is no part of a path.
    _, parts = _follow(cls, place)
    names = [str(part) for part in parts if isinstance(part, int) or str(part).isidentifier()]
    path = ".".join([cls.__name__, *names] if dataclasses.is_dataclass(cls) else names)  # a union has no name
    message = first["msg"].removeprefix("Value error, ").removesuffix(".")
    if kind == "enum" and any(entry["type"] == "tuple_type" for entry in tried):
        close = nearest(str(received), re.findall(r"'(\w+)'", message))
        return ParameterError(
            f"{path}: {message}, or a list of layers such as [256, 256].{close} Received: {received!r}"
        )
    return ParameterError(
        message
        if "Received: " in message
        else f"{path}{': ' if path else ''}{message}. Received: {shortened(received)}"
    )


def python_numbers(value: Any) -> Any:
    """Returns a value with NumPy's scalars, also those in lists, tuples and dicts, as Python's numbers."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        return value.item()
    if type(value) is dict:
        return {key: python_numbers(each) for key, each in value.items()}
    return type(value)(map(python_numbers, value)) if type(value) in (list, tuple) else value


def shortened(value: Any, longest: int = 300) -> str:
    """Returns a value for a message, and of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


def _follow(cls: type, place: list[int | str]) -> tuple[type, list[int | str]]:
    """Returns the parameter class at a place inside `cls`, as far as it can be followed, and the place without
    kinds.
    """
    candidates, path = list(classes_in(cls)) or [cls], []
    for part in place:
        of_this_kind = [c for c in candidates if _kind(c) == part]
        in_this_field = [
            inner for c in candidates for inner in classes_in(getattr(_fields(c).get(str(part)), "annotation", None))
        ]
        candidates = of_this_kind or in_this_field or candidates  # the key of a dict changes nothing
        path += [] if of_this_kind or part == TFSAC else [part]
    return candidates[0], path


def _fields(cls: Any) -> dict[str, Any]:
    """Returns Pydantic's fields of a parameter class; a module that was not imported resolves no type hints itself."""
    return getattr(cls, "__pydantic_fields__", {})


def classes_in(hint: Any) -> Iterator[type]:
    """Yields the parameter classes inside a type hint, such as `dict[str, A | B]`."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for inner in get_args(hint):
        yield from classes_in(inner)


def _names(cls: Any) -> list[str]:
    """Returns the names of a parameter class's fields; none of a union."""
    return [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []


def _kind(cls: type) -> Any:
    field = getattr(cls, "__dataclass_fields__", {}).get("kind")
    return None if field is None else field.default


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(Field, dataclasses.field))
def parameters(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass that checks the type and range of every field when it is made.

    Construction raises `ParameterError` for an unknown parameter (naming the nearest one), a wrong type or a value
    out of range; the message ends with what was received. So does a class outside tfsac that inherits from one that is
    not `Extensible`.
    """
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
        _refuse_other_classes(self, made)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            "Parameters stay as they are: tfsac.override(preset, {path: value}) returns a changed preset, and "
            f"dataclasses.replace a changed "
            f"object.{'' if name in _names(made) else nearest(name, _names(made))} Received: "
            f"{name}={value!r}"
        )

    def _repr_html_(self: Any) -> str:
        """Returns a table of all parameters, which a notebook shows."""
        from tfsac.parameters.overrides import parameter_texts

        cells = [(html.escape(path), html.escape(text)) for path, text in parameter_texts(self).items()]
        rows = "".join(f"<tr><td>{path}</td><td>{text}</td></tr>" for path, text in cells)
        return f"<table><tr><th>parameter</th><th>value</th></tr>{rows}</table>"

    def __init_subclass__(subclass: type, /, **kwargs: Any) -> None:
        if subclass.__module__.partition(".")[0] != "tfsac":
            raise ParameterError(
                f"Parameter classes are used as they are, because a run's config has no place for more fields: write "
                f"{cls.__name__}(...), or change an object with tfsac.override or dataclasses.replace. Received: the "
                f"class {subclass.__name__}({cls.__name__})"
            )
        super(made, subclass).__init_subclass__(**kwargs)

    made.__setattr__, made._repr_html_ = __setattr__, _repr_html_
    if not issubclass(cls, Extensible):
        made.__init_subclass__ = classmethod(__init_subclass__)
    __init__.__doc__ = f"Raises: ParameterError: unknown parameter, wrong type or range of {cls.__name__}."
    made.__init__ = __init__
    if cls.__module__.startswith("tfsac."):
        for name in _names(made):
            _having.setdefault(name, []).append(cls.__name__)
    if ":" in (kind := str(getattr(made, "kind", ""))):
        _custom[kind] = made
    return made


def _refuse_other_classes(made: Any, cls: Any) -> None:
    """Refuses parts of a user's class in a field that is declared for another one, which would be read back as that."""
    for name, field in cls.__pydantic_fields__.items():  # with types resolved, also those of a function's classes
        value, classes = getattr(made, name), list(classes_in(field.annotation))
        custom = ":" in str(getattr(value, "kind", ""))  # the config keeps its class
        if isinstance(value, Extensible) and classes and not custom and type(value) not in classes:
            raise ParameterError(
                f"The field {name} of {cls.__name__} holds {classes[0].__name__}: write a subclass of "
                f"{cls.__name__}, with the field {name}: {type(value).__name__}. Received: a {type(value).__name__}"
            )


def refuse_ineffective(made: Any, names: Iterable[str], because: str, advice: str) -> None:
    """Refuses fields that were set although another field leaves them without effect.

    Args:
        made: a parameter object.
        names: fields that then have no effect.
        because: the other field, as it is.
        advice: what gives them an effect.

    Raises:
        ParameterError: one of them is not what it is where nobody sets it.
    """
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if field.name in names and value != field.default:
            raise ParameterError(
                f"{field.name} has no effect with {because}: {advice}, or leave {field.name} at {field.default!r}. "
                f"Received: {field.name}={value!r} with {because}"
            )


def custom_class(kind: str) -> type:
    """Returns the user's parameter class of a kind "MODULE:CLASS", whose module is imported where that was not yet
    done.

    Raises:
        ImportError: there is no such module, or no such class in it.
        ParameterError: it is no parameter class.
        UserCodeError: the module raises.
    """
    found: type = _custom.get(kind) or load(kind)
    if _custom.get(kind) is not found:
        raise ParameterError(
            f"A kind {CUSTOM} names a class that @tfsac.parameters.parameters decorates. Received: {kind!r}"
        )
    return found


def by_kind(usual: str, *others: str, custom: bool = False) -> pydantic.Discriminator:
    """Returns what chooses one of a union's members by its `kind`, which JSON may leave out for the usual one.

    Args:
        usual, others: kinds of tfsac.
        custom: whether `OrOwn` adds the classes of users.
    """
    kinds = [repr(kind) for kind in (usual, *others)]
    return pydantic.Discriminator(
        lambda value: value.get("kind", usual) if isinstance(value, dict) else getattr(value, "kind", None),
        custom_error_type="kind",
        custom_error_message=f"Input should be an object of kind {', '.join(kinds[:-1])} or {kinds[-1]}"
        + (f", or {CUSTOM} of your own" if custom else "")
        + f', such as {{"kind": "{usual}"}}',
    )


def to_json(value: Any) -> Any:
    """Returns a parameter object as plain dicts, lists, numbers and strings.

    Raises:
        ParameterError: a dict inside was given something that JSON has no word for.
    """
    try:  # without Pydantic's warnings of wrong types: who reads the result tells them
        return TypeAdapter(type(value)).dump_python(value, mode="json", warnings=False)
    except ValueError as error:
        raise ParameterError(
            f"Parameters are kept in the run's config, so their values are JSON: numbers, texts, lists, dicts. "
            f"Received: {error}"
        ) from error


def from_json(cls: type[T], text: str) -> T:
    """Reads a parameter object back from JSON text.

    Raises:
        ParameterError: unknown fields, wrong types, values out of range.
    """
    if any(f'"{kind}"' in text for kind in _earlier):
        with contextlib.suppress(ValueError):  # which Pydantic explains
            text = json.dumps(_translated(json.loads(text)))
    try:
        return TypeAdapter(cls).validate_json(text)
    except ValidationError as error:
        raise explain(error, cls) from None


def translate_kinds(kinds: Iterable[str], translate: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
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
