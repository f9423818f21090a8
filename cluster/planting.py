"""Planted bugs: a module that replaces named rules of the broker before the broker starts.

A planted bug shows that a test suite, a checker or a fault schedule finds this kind of bug. The broker's code has
no switch for it. A plant is an importable module with

    TITLE: str                           one line: the bug and where it happened (`KIP-101, first case: …`)
    def plant(planter: Planter) -> None  replaces methods or strategy objects

and is chosen by its name (`--plant harrow.faults.zoo.kip_101`, `Cluster(plants=[…])`).

    name        replaced in a real cluster                    replaced in a simulation
    when        in each broker process, before `Broker()`     before the first `Broker()` of the cluster
    undone      never: the process ends                       when the simulated cluster is closed

Every output of a planted run names its plants: each broker emits the trace event `broker.planted`, and the
harness reads it from there.

Invariants: only an existing attribute or key is replaced, by a value of the same kind (a method by a function with
the same parameters, a strategy by an object with the same attributes). The author of a plant gets an error
instead of a plant without effect.

What may fail: ConfigError for a module that cannot be imported, that is no plant, or that names nothing.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from .errors import ConfigError

_WRAPPERS: tuple[type[Any], ...] = (property, staticmethod, classmethod)


class Planter:
    """Replaces attributes and keys, remembers what was there, and puts it back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace_method(self, owner: type, name: str, replacement: Callable[..., Any]) -> None:
        """Replace a method or property getter that `owner` itself defines; ConfigError where the parameters differ."""
        present = owner.__dict__.get(name)
        if present is None:
            raise _missing(f"{owner.__module__}.{owner.__qualname__}", name, owner.__dict__)
        kind = next((kind for kind in _WRAPPERS if isinstance(present, kind)), None)
        before = present if kind is None else inspect.unwrap(_function_of(present))
        _check_parameters(f"{owner.__qualname__}.{name}", before, replacement)
        setattr(owner, name, replacement if kind is None else kind(replacement))
        self._undo.append(lambda: setattr(owner, name, present))

    def replace_entry(self, table: MutableMapping[str, Any], key: str, replacement: object) -> None:
        """Replace the strategy object under `key`; ConfigError where it lacks a public attribute of the present one."""
        if key not in table:
            raise _missing("the table of strategies", key, table)
        present = table[key]
        lacking = [
            attribute
            for attribute in dir(present)
            if not attribute.startswith("_") and not hasattr(replacement, attribute)
        ]
        if lacking:
            raise ConfigError(
                f"plant: {type(replacement).__name__} has no {', '.join(lacking)}; "
                f"{type(present).__name__}, which it replaces, has"
            )
        table[key] = replacement
        self._undo.append(lambda: table.__setitem__(key, present))

    @property
    def replacements(self) -> int:
        """How many attributes and keys are replaced now."""
        return len(self._undo)

    def undo(self) -> None:
        """Put everything back, in reverse order."""
        while self._undo:
            self._undo.pop()()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One plant: the module and its title."""

    module: str
    title: str
    plant: Callable[[Planter], None]

    def __str__(self) -> str:
        return f"{self.module}: {self.title}"

    def to_json(self) -> dict[str, str]:
        """Return `{"module", "title"}`."""
        return {"module": self.module, "title": self.title}


def load_plants(names: Iterable[str]) -> tuple[Plant, ...]:
    """Import the modules `names`, in order; ConfigError for a module that is no plant."""
    return tuple(_load(name) for name in dict.fromkeys(names))


def apply_plants(plants: Sequence[Plant]) -> Planter:
    """Apply all plants; ConfigError for a plant that replaced nothing (and nothing stays replaced)."""
    planter = Planter()
    try:
        for plant in plants:
            _apply(plant, planter)
    except BaseException:
        planter.undo()
        raise
    return planter


def _apply(plant: Plant, planter: Planter) -> None:
    before = planter.replacements
    plant.plant(planter)
    if planter.replacements == before:
        raise ConfigError(f"plant {plant.module}: plant() replaced nothing")


def import_paths() -> list[str]:
    """Return the folders in which this process finds modules: a broker process finds the user's plants there too."""
    return [path for path in sys.path if path]


def add_import_paths(paths: Iterable[str]) -> None:
    """Let this process find modules in `paths`, after the folders that it has."""
    sys.path.extend(path for path in paths if path not in sys.path)


def _load(name: str) -> Plant:
    try:
        module = import_module(name)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"plant {name!r} cannot be imported: {error}; give a module's dotted name, "
            "such as harrow.faults.zoo.kip_101"
        ) from error
    title: object = getattr(module, "TITLE", None)
    plant: Any = getattr(module, "plant", None)
    if not isinstance(title, str) or not title or not callable(plant):
        raise ConfigError(f"plant {name!r}: the module needs TITLE (a line that names the bug) and plant(planter)")
    return Plant(module=name, title=title, plant=cast("Callable[[Planter], None]", plant))


def _missing(owner: str, name: str, known: Iterable[str]) -> ConfigError:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ConfigError(f"plant: {owner} has no {name!r}{hint}")


def _function_of(wrapper: Any) -> Any:
    return wrapper.fget if isinstance(wrapper, property) else wrapper.__func__


def _check_parameters(where: str, before: object, after: Callable[..., Any]) -> None:
    if not callable(before):
        raise ConfigError(f"plant: {where} is a {type(before).__name__}, not a method")
    expected, given = (list(inspect.signature(before).parameters), list(inspect.signature(after).parameters))
    if expected != given:
        raise ConfigError(f"plant: {where} takes ({', '.join(expected)}), the replacement ({', '.join(given)})")
