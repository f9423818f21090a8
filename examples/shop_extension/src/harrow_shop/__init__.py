"""What a shop adds to Harrow: `kill_service(service("billing"))`, `guarantee="billed-once"`, `relation="billed"`.

The entry point of the distribution names this module. Harrow calls the hooks when a test first needs an extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harrow import RecordCheck, RecordRelation, hookimpl
from harrow.faults import Fault, Role

from .checks import BilledOnce
from .faults import SERVICE, KillService, kill_service, service
from .relations import Billed, bill_of
from .services import Service
from .workload import ShopWorkload

__all__ = ["BilledOnce", "KillService", "Service", "bill_of", "kill_service", "service"]

HARROW_INTERFACE = 1


@hookimpl
def harrow_faults() -> Iterable[type[Fault]]:
    """Return the faults, which are known by their `kind`."""
    return [KillService]


@hookimpl
def harrow_targets() -> Iterable[Role]:
    """Return the roles of targets."""
    return [Role(name=SERVICE)]


@hookimpl
def harrow_checks() -> Iterable[RecordCheck]:
    """Return the checks, which are known by their guarantees."""
    return [BilledOnce()]


@hookimpl
def harrow_relations() -> Mapping[str, RecordRelation]:
    """Return the relations by name."""
    return {"billed": Billed()}


@hookimpl
def harrow_workloads() -> Mapping[str, Callable[..., Any]]:
    """Return the workloads by name."""
    return {"shop": ShopWorkload}
