"""Types of arguments and of fields, checked by their annotations.

`checked` is for functions and classes, `check_fields` for the values of a dataclass, `json_object` for what a file has.

    @checked
    def throttle_cpu(target: Target | int, *, share: float = 0.1) -> ThrottleCpu: …

    throttle_cpu(one, share="0.2")
    ConfigError: throttle_cpu(share='0.2'): expected a number; write share=0.2

Owns: which values an annotation accepts, and its words. A function keeps its signature, for people and for type
checkers. Annotations are read at the first call. A name that exists for type checkers only means that anything is
accepted, so a module that is checked imports the types of its parameters.

Stricter than Python: True is no number, 1 is no truth value, a text is no list, NaN and infinity are no numbers. More
lenient than the annotation: a list is accepted for a pair, which JSON has not. Bounds are the caller's: this says only
what kind of value is expected. A class says what it is in `IN_WORDS`, such as "a fault such as kill(one)", and a
parameter in `Annotated[str, "a text such as …"]`.

Fails with ConfigError, which names the callable, the parameter, the value and what is expected.
"""

from __future__ import annotations

import builtins
import collections.abc
import contextlib
import difflib
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from .errors import ConfigError

T = TypeVar("T")
SHOWN_CHARACTERS = 200
"""Of a value in a message."""
NUMBER, WHOLE_NUMBER, TEXT, FUNCTION = "a number", "a whole number", "a text", "a function"
WORDS = "IN_WORDS"
"""Attribute of a class: its words."""
MARK = "__harrow_checked__"
"""Attribute of a function that is checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A value that an annotation does not accept."""

    place: str = ""
    """Where it is in the value that was given: `[0]`, `['acks']`."""
    value: object
    expected: str

    def inside(self, place: object) -> Problem:
        """Return the problem as one of the value that has this one at `[place]`."""
        return Problem(place=f"[{place!r}]{self.place}", value=self.value, expected=self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What an annotation accepts."""

    words: str
    find: Callable[[object], Problem | None]
    """Returns what is wrong with a value; None for one that is accepted."""


def _kind(words: str, accepts: Callable[[Any], bool]) -> Kind:
    return Kind(words=words, find=lambda value: None if accepts(value) else Problem(value=value, expected=words))


def is_number(value: object) -> bool:
    """Whether it is a finite int or float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_CALLABLE: Any = collections.abc.Callable
ANYTHING = _kind("anything", lambda _: True)
_PLAIN: Mapping[object, Kind] = {
    Any: ANYTHING,
    object: ANYTHING,
    None: _kind("None", lambda value: value is None),
    type(None): _kind("None", lambda value: value is None),
    bool: _kind("True or False", lambda value: isinstance(value, bool)),
    int: _kind(WHOLE_NUMBER, lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: _kind(NUMBER, is_number),
    str: _kind(TEXT, lambda value: isinstance(value, str)),
    Path: _kind("a path", lambda value: isinstance(value, Path)),
}


@functools.cache
def kind_of(hint: Any) -> Kind:
    """Return what an annotation accepts; `hint` is the evaluated annotation."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        described, words = given
        return Kind(words=words, find=_with_words(kind_of(described), words))
    if origin in (typing.Union, types.UnionType):
        return _union([kind_of(part) for part in given])
    if origin is typing.Literal:
        return _kind(" or ".join(map(repr, given)), lambda value: value in given)
    if isinstance(hint, typing.NewType):
        return kind_of(hint.__supertype__)
    bare: Any = origin or hint
    if bare is _CALLABLE:
        return _kind(FUNCTION, callable)
    if not isinstance(bare, type):
        return ANYTHING
    if bare is tuple and given and given[-1] is not Ellipsis:
        return _of_length([kind_of(part) for part in given])
    if issubclass(bare, Mapping):
        return _mapping(*(kind_of(part) for part in given or (Any, Any)))
    if bare is not str and issubclass(bare, list | tuple | collections.abc.Sequence) and (given or origin):
        return _sequence(kind_of(given[0]))
    if bare in (Iterable, Collection):
        return _kind(
            "a list or another iterable", lambda value: isinstance(value, bare) and not isinstance(value, str | bytes)
        )
    return _instance(cast("Any", bare))


def _with_words(kind: Kind, words: str) -> Callable[[object], Problem | None]:
    return lambda value: None if kind.find(value) is None else Problem(value=value, expected=words)


def _instance(of: type) -> Kind:
    if getattr(of, "_is_protocol", False) and not getattr(of, "_is_runtime_protocol", False):
        return ANYTHING
    article = "an" if of.__name__[0] in "AEIOU" else "a"
    words = str(getattr(of, WORDS, f"{article} {of.__name__}"))
    return _kind(words, lambda value: isinstance(value, of))


def _union(kinds: Sequence[Kind]) -> Kind:
    words = joined([kind.words for kind in kinds])

    def find(value: object) -> Problem | None:
        inner: Problem | None = None
        for kind in kinds:
            problem = kind.find(value)
            if problem is None:
                return None
            inner = problem if problem.place else inner
        return inner or Problem(value=value, expected=words)

    return Kind(words=words, find=find)


def joined(words: Sequence[str]) -> str:
    """Return `a, b or c`, each once."""
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last


def _of_length(kinds: Sequence[Kind]) -> Kind:
    numbers = {kind.words for kind in kinds} <= {NUMBER, WHOLE_NUMBER}
    words = "a (least, most) pair of numbers" if numbers else f"a list of {len(kinds)}"

    def accepts(value: object) -> bool:
        if not isinstance(value, list | tuple):
            return False
        items = cast("Sequence[object]", value)
        return len(items) == len(kinds) and all(
            kind.find(item) is None for kind, item in zip(kinds, items, strict=True)
        )

    return _kind(words, accepts)


def _sequence(items: Kind) -> Kind:
    plural = {TEXT: "texts", NUMBER: "numbers", WHOLE_NUMBER: "whole numbers"}
    words = f"a list of {plural[items.words]}" if items.words in plural else "a list"

    def find(value: object) -> Problem | None:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return Problem(value=value, expected=words)
        found = ((at, items.find(item)) for at, item in enumerate(cast("Sequence[object]", value)))
        return next((problem.inside(at) for at, problem in found if problem is not None), None)

    return Kind(words=words, find=find)


def _mapping(keys: Kind, values: Kind) -> Kind:
    words = "a mapping"

    def find(value: object) -> Problem | None:
        if not isinstance(value, Mapping):
            return Problem(value=value, expected=words)
        for key, item in cast("Mapping[object, object]", value).items():
            if (problem := keys.find(key)) is not None:
                return Problem(place=".keys()", value=problem.value, expected=f"{problem.expected} as key")
            if (problem := values.find(item)) is not None:
                return problem.inside(key)
        return None

    return Kind(words=words, find=find)


# -------------------------------------------------------------------------------------- messages


def shown(value: object) -> str:
    """Return a value as a message shows it; of a function its name."""
    if isinstance(value, types.FunctionType):
        return value.__name__
    try:
        text = str(value) if hasattr(value, WORDS) else repr(value)
    except Exception:  # the user's own __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _remedy(name: str, problem: Problem) -> str:
    value, expected = problem.value, problem.expected
    if isinstance(value, str) and (NUMBER in expected or WHOLE_NUMBER in expected):
        return f"; write {name}{problem.place}={value}" if value.replace(".", "", 1).isdigit() else ""
    if isinstance(value, float) and not math.isfinite(value):
        return "; it must be finite"
    if isinstance(value, types.FunctionType) and FUNCTION not in expected:
        return f"; {value.__name__} is a function: write {value.__name__}(…)"
    if isinstance(value, list | tuple) and TEXT in expected:
        items = cast("Sequence[object]", value)
        return f"; write {name}{problem.place}={items[0]!r}" if len(items) == 1 and isinstance(items[0], str) else ""
    if isinstance(value, str) and "a list" in expected:
        return f"; write {name}{problem.place}=[{value!r}]"
    return ""


def refusal(where: str, name: str, problem: Problem, remedy: str = "") -> ConfigError:
    """Return the error of an argument; `where`: the callable; `remedy`: after the usual one."""
    given = f"{where}({name}{problem.place}={shown(problem.value)})"
    remedy = _remedy(name, problem) or remedy
    return ConfigError(f"{given}: expected {problem.expected}{remedy}")


# ------------------------------------------------------------------------------------ annotations


class _Names(dict[str, Any]):
    """The names that annotations of a module may use; one that exists for type checkers only is anything."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        super().__init__()
        self._module = module

    def __missing__(self, name: str) -> Any:
        for names in (self._module, vars(builtins), vars(collections.abc)):
            if name in names:
                return names[name]
        return Any


def _evaluated(annotation: object, module: Mapping[str, Any]) -> Kind:
    if isinstance(annotation, str):
        annotation = eval(annotation, {}, _Names(module))  # noqa: S307 - the text of our own source
    return kind_of(annotation)


class _Parameters:
    """What a function's parameters accept."""

    def __init__(self, function: Callable[..., Any]) -> None:
        *_, outer, name = ["", *function.__qualname__.split(".")]
        self.name = outer if name == "__init__" else name
        self._function = function
        self._signature = inspect.signature(function)

    @functools.cached_property
    def _kinds(self) -> dict[str, Kind]:
        module = getattr(self._function, "__globals__", {})
        return {
            row.name: _evaluated(row.annotation, module)
            for row in self._signature.parameters.values()
            if row.annotation is not inspect.Parameter.empty
        }

    def check(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Raise ConfigError for an argument that the function does not have, or whose type is wrong."""
        try:
            bound = self._signature.bind(*given, **named)
        except TypeError as error:
            raise ConfigError(f"{self.name}(): {error}{self._nearest(named)}") from None
        for name, value in bound.arguments.items():
            kind = self._kinds.get(name, ANYTHING)
            style = self._signature.parameters[name].kind
            if style is inspect.Parameter.VAR_POSITIONAL:
                kind = _sequence(kind)
            elif style is inspect.Parameter.VAR_KEYWORD:
                continue
            problem = kind.find(value)
            if problem is not None:
                raise refusal(self.name, name, problem, self._taken_by(name, problem))

    def _taken_by(self, name: str, problem: Problem) -> str:
        """Say which other parameter takes a value that is described by its class, such as a target."""
        if isinstance(problem.value, type) or not hasattr(problem.value, WORDS):
            return ""
        found = (other for other, kind in self._kinds.items() if kind is not ANYTHING and other != name)
        taking = [other for other in found if self._kinds[other].find(problem.value) is None]
        return f"; {taking[0]}= takes it" if taking else ""

    def _nearest(self, named: Mapping[str, Any]) -> str:
        known = [name for name in self._signature.parameters if name != "self"]
        near = [difflib.get_close_matches(name, known, n=1) for name in named if name not in known]
        return f"; did you mean {near[0][0]}=?" if near and near[0] else ""


def checked(thing: T) -> T:
    """Let a function check its arguments, or a class those of its constructor and of its public methods.

    The methods that a class inherits from another class of Harrow are checked too, where they are called on it.
    """
    if isinstance(thing, type):
        _check_methods(thing)
        return thing
    return cast("T", _checked_function(cast("Any", thing)))


def _checked_function(function: Any) -> Any:
    if hasattr(function, MARK):
        return function
    parameters = _Parameters(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        __tracebackhide__ = True  # so pytest shows the caller's line
        parameters.check(given, named)
        return function(*given, **named)

    @functools.wraps(function)
    async def await_call(*given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        parameters.check(given, named)
        return await function(*given, **named)

    made = await_call if inspect.iscoroutinefunction(function) else call
    setattr(made, MARK, True)
    return made


def _check_methods(of: type) -> None:
    for name in dir(of):
        found = inspect.getattr_static(of, name)
        function = getattr(found, "__func__", found)
        if not isinstance(function, types.FunctionType) or (name.startswith("_") and name != "__init__"):
            continue
        if not function.__module__.startswith("harrow.") and function.__module__ != of.__module__:
            continue
        if len(inspect.signature(function).parameters) > int(not isinstance(found, staticmethod)):
            made = _checked_function(function)
            setattr(of, name, type(found)(made) if found is not function else made)


@functools.cache
def _field_kinds(of: Any) -> dict[str, Kind]:
    """Return what each field of a dataclass accepts; an annotation is evaluated in the module of its class."""
    found: dict[str, Kind] = {}
    for base in reversed(of.__mro__):
        module = vars(sys.modules[base.__module__])
        for name, annotation in inspect.get_annotations(base).items():
            if not str(annotation).startswith("ClassVar"):
                found[name] = _evaluated(annotation, module)
    return {row.name: found[row.name] for row in fields(of)}


def field_problem(of: type, name: str, value: object) -> Problem | None:
    """Return what is wrong with the value of one field of the dataclass `of`; None for one that it accepts."""
    return _field_kinds(of)[name].find(value)


def check_fields(value: Any, where: str, leave: Collection[str] = ()) -> None:
    """Raise ConfigError for a field of a dataclass whose value has a wrong type; `leave`: fields with own checks."""
    for name, kind in _field_kinds(cast("Any", type(value))).items():
        problem = None if name in leave else kind.find(getattr(value, name))
        if problem is not None:
            raise refusal(where, name, problem)


# ------------------------------------------------------------------------------------------- JSON


def json_object(raw: object, of: type, leave: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON object of a dataclass `of`, its names and the types of its values checked.

    `leave`: fields with checks of their own. ConfigError says what is wrong, and `place_of` where.
    """
    kinds = _field_kinds(cast("Any", of))
    if not isinstance(raw, dict):
        raise ConfigError(f"it is {shown(raw)}: expected an object with {', '.join(kinds)}")
    found = cast("dict[str, Any]", raw)
    for name, value in found.items():
        if name not in kinds:
            near = difflib.get_close_matches(name, list(kinds), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(kinds)}"
            raise ConfigError(f"no field {name!r}{hint}")
        problem = None if name in leave else kinds[name].find(value)
        if problem is not None:
            raise ConfigError(wrong_value(f"{name}{problem.place}", problem))
    return dict(found)


def json_list(raw: object, name: str) -> list[Any]:
    """Return the list of a file; ConfigError for anything else."""
    if isinstance(raw, list):
        return raw  # pyright: ignore[reportUnknownVariableType] - any JSON
    raise ConfigError(f"{name} is {shown(raw)}: expected a list")


def wrong_value(name: str, problem: Problem) -> str:
    """Return the text of a value of a file that has a wrong type."""
    return f"{name} is {shown(problem.value)}: expected {problem.expected}"


@contextlib.contextmanager
def place_of(name: object) -> Generator[None]:
    """Name the part of a file that is read: a ConfigError begins with it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
