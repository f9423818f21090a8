"""What extensions add to the harness: checks, relations, backends and workloads (J4).

`faults/extensions.py` loads the extensions.

Each table is read at the first need. Backends, relations and workloads are looked up only for a name that Harrow does
not have; checks before the first verdict of a process, because a check may judge every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harrow.faults.extensions import EXTENSIONS, hookspec

if TYPE_CHECKING:
    from .backends.kinds import BackendKind
    from .chaos_workloads import ChaosWorkload
    from .checks.anomaly_kinds import AnomalyKind
    from .promises.record_check import RecordCheck
    from .promises.relations import Relation


class HarnessHooks:
    """The hooks of this layer."""

    @hookspec
    def harrow_checks(self) -> Iterable[RecordCheck]:  # type: ignore[empty-body]
        """Return checks of records; each judges the runs that ask for its guarantee, or every run."""

    @hookspec
    def harrow_relations(self) -> Mapping[str, Relation]:  # type: ignore[empty-body]
        """Return relations of pipelines by name: `verify_pipeline(…, relation=NAME)`."""

    @hookspec
    def harrow_backends(self) -> Mapping[str, BackendKind]:  # type: ignore[empty-body]
        """Return backends by name: `--harrow-backend NAME`."""

    @hookspec
    def harrow_workloads(self) -> Mapping[str, Callable[..., ChaosWorkload]]:  # type: ignore[empty-body]
        """Return workloads by name: `harrow chaos --workload NAME`; each is called with the `Harrow` and the topic."""


EXTENSIONS.add_hooks(HarnessHooks)


def added_checks() -> Mapping[str, RecordCheck]:
    """Return the checks of extensions by the names of their guarantees."""
    from .checks.anomaly_kinds import SEVERITY
    from .checks.guarantees import FORBIDDEN
    from .promises.record_check import check_problem

    own = {kind.name for kind in SEVERITY}
    seen: dict[str, str] = {}

    def read(found: Any) -> Iterable[tuple[str, RecordCheck]]:
        for check in found:
            if problem := check_problem(check, own):
                raise TypeError(problem)
            for kind in check.anomalies:
                if (other := seen.setdefault(kind.name, check.guarantee)) != check.guarantee:
                    raise TypeError(f"the anomaly {kind.name!r} is also found by the check {other!r}: rename it")
            yield check.guarantee, check

    EXTENSIONS.check_hooks()
    return EXTENSIONS.table("harrow_checks", read, FORBIDDEN)


def checks_for(guarantee: str | None) -> dict[str, RecordCheck]:
    """Return the checks that a verdict judges; the first call of a process loads all extensions."""
    from .checks.guarantees import parse

    asked = () if guarantee is None else parse(guarantee)
    return {name: check for name, check in added_checks().items() if check.always or name in asked}


def added_kinds() -> dict[str, AnomalyKind]:
    """Return the kinds of anomaly that checks of extensions find, by name."""
    return {kind.name: kind for check in added_checks().values() for kind in check.anomalies}


def added_relations() -> Mapping[str, Relation]:
    """Return the relations of extensions by name."""
    from .promises.relations import OWN_RELATIONS, Relation

    return EXTENSIONS.table("harrow_relations", _mapping_of(_is_a(Relation), "a Relation"), OWN_RELATIONS)


def added_backends() -> Mapping[str, BackendKind]:
    """Return the backends of extensions by name."""
    from .backends.kinds import KINDS, BackendKind

    return EXTENSIONS.table("harrow_backends", _mapping_of(_is_a(BackendKind), "a BackendKind"), KINDS)


def added_workloads() -> Mapping[str, Callable[..., ChaosWorkload]]:
    """Return the workloads of extensions by name."""
    from .run_settings import WORKLOADS

    return EXTENSIONS.table(
        "harrow_workloads", _mapping_of(callable, "a function of the Harrow and the topic"), WORKLOADS
    )


def _is_a(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _mapping_of(suits: Callable[[object], bool], expected: str) -> Callable[[Any], Iterable[tuple[str, Any]]]:
    """Return a reader of mappings whose values are of one type."""

    def read(found: Any) -> Iterable[tuple[str, Any]]:
        if not isinstance(found, Mapping):
            raise TypeError(f"it returned {found!r:.80}, expected a mapping of names")
        for name, value in found.items():  # pyright: ignore[reportUnknownVariableType] - an extension's
            if not isinstance(name, str) or not name:
                raise TypeError(f"{name!r} is no name")
            if not suits(value):  # pyright: ignore[reportUnknownArgumentType]
                raise TypeError(f"{name!r} is {value!r:.80}, expected {expected}")
            yield name, value

    return read
