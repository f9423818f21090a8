"""The hooks of the harness for extensions: checks, relations, backends and workloads (J4).

`faults/extensions.py` loads the extensions. What a hook returns is read and checked in the module of its table, at the
first need: backends, relations and workloads only for a name that Harrow does not have (`backends/kinds.py`,
`promises/relations.py`, `workloads/by_name.py`); checks before the first verdict of a process, because a check may
judge every run (`checks/guarantees.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from harrow.faults.extensions import EXTENSIONS, hookspec

T = TypeVar("T")


class HarnessHooks:
    """The hooks of this layer."""

    @hookspec
    def harrow_checks(self) -> Iterable[object]:  # type: ignore[empty-body]
        """Return values of `RecordCheck`; each judges the runs that ask for its guarantee, or every run."""

    @hookspec
    def harrow_relations(self) -> Mapping[str, object]:  # type: ignore[empty-body]
        """Return values of `Relation` by name: `verify_pipeline(…, relation=NAME)`."""

    @hookspec
    def harrow_backends(self) -> Mapping[str, object]:  # type: ignore[empty-body]
        """Return values of `BackendKind` by name: `--harrow-backend NAME`."""

    @hookspec
    def harrow_workloads(self) -> Mapping[str, object]:  # type: ignore[empty-body]
        """Return functions by name: `harrow chaos --workload NAME` calls one with the `Harrow` and the topic."""


EXTENSIONS.add_hooks(HarnessHooks)


def checked_table(hook: str, read: Callable[[Any], Iterable[tuple[str, T]]], own: Iterable[str]) -> Mapping[str, T]:
    """Return what extensions add by `hook`; ConfigError for an extension with a hook that nothing calls."""
    EXTENSIONS.check_hooks()
    return EXTENSIONS.table(hook, read, own)


def added_by_name(hook: str, suits: Callable[[object], bool], expected: str, own: Iterable[str]) -> Mapping[str, Any]:
    """Return what extensions add by `hook`, by name. `suits` checks a value; `expected`: what it must be, in words."""

    def read(found: Any) -> Iterable[tuple[str, Any]]:
        if not isinstance(found, Mapping):
            raise TypeError(f"it returned {found!r:.80}, expected a mapping of names")
        for name, value in found.items():  # pyright: ignore[reportUnknownVariableType] - an extension's
            if not isinstance(name, str) or not name:
                raise TypeError(f"{name!r} is no name")
            if not suits(value):  # pyright: ignore[reportUnknownArgumentType]
                raise TypeError(f"{name!r} is {value!r:.80}, expected {expected}")
            yield name, value

    return EXTENSIONS.table(hook, read, own)
