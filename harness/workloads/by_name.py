"""The workloads of `harrow chaos`, Harrow's own and those of extensions (J4).

    orders          one producer of orders and one consumer                          `workload.py`
    exactly-once    a consume-transform-produce job in three processes               `exactly_once/`
    others          of extensions: `harrow chaos --workload NAME`

A workload works while it is entered. The faults begin and end meanwhile. Then `judge` makes the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from harrow.cluster.errors import ConfigError
from harrow.faults.extensions import EXTENSIONS
from harrow.faults.runs import EXACTLY_ONCE, ORDERS, WORKLOADS

from ..extensions import added_by_name
from ..run_settings import RunSettings

if TYPE_CHECKING:
    from ..checks import Verdict
    from ..run.harrow import Harrow
    from ..topics import Topic

METHODS = ("__enter__", "__exit__", "judge")


class ChaosWorkload(Protocol):
    """Clients that work while it is entered."""

    @property
    def problems(self) -> list[str]:
        """What it left unfinished although every fault was healed: the run is then invalid. Read after `judge`."""
        ...

    def __enter__(self) -> object:
        """Begin to work."""
        ...

    def __exit__(self, *error: object) -> None:
        """Stop, when everything that was begun is done."""
        ...

    def judge(self, guarantee: str) -> Verdict:
        """Judge the run; VerdictError unless the verdict is valid."""
        ...


def check_workload(name: str) -> None:
    """Raise ConfigError for a workload that does not exist."""
    if name in WORKLOADS:
        return
    known = [*WORKLOADS, *added_workloads()]
    if name not in known:
        raise ConfigError(
            f"workload {name!r}: expected one of {', '.join(known)}; a workload of an extension needs its distribution"
        )


def added_workloads() -> Mapping[str, Callable[..., ChaosWorkload]]:
    """Return the workloads of extensions by name."""
    return added_by_name("harrow_workloads", callable, "a function of the Harrow and the topic", WORKLOADS)


def new_workload(
    name: str, harrow: Harrow, topic: Topic, producer: Mapping[str, Any], settings: RunSettings | None = None
) -> ChaosWorkload:
    """Return a workload on `topic`. `producer`: settings of its producer, by confluent-kafka's names.

    `settings`: what else a schedule says of the clients, for Harrow's own workloads; None: the defaults.
    """
    settings = RunSettings() if settings is None else settings
    check_workload(name)
    if name == ORDERS:
        return _orders(harrow, topic, producer, settings)
    if name == EXACTLY_ONCE:
        return _exactly_once(harrow, topic, producer, settings)
    from ..run.harrow import run_of

    run_of(harrow).workload = name
    workload: Any = added_workloads()[name](harrow, topic, producer)
    lacking = [method for method in METHODS if not callable(getattr(workload, method, None))]
    if lacking:
        raise ConfigError(
            f"the workload {name!r} of {EXTENSIONS.owner('harrow_workloads', name)} is {workload!r:.80}, which has no "
            f"{', '.join(lacking)}; see harrow.harness.workloads.by_name.ChaosWorkload"
        )
    made: ChaosWorkload = workload
    return made


def _orders(harrow: Harrow, topic: Topic, producer: Mapping[str, Any], settings: RunSettings) -> ChaosWorkload:
    from .orders import ResendingWorkload, Workload

    kind = ResendingWorkload if settings.resends else Workload
    return kind(harrow, topic, producer=dict(producer))


def _exactly_once(harrow: Harrow, topic: Topic, producer: Mapping[str, Any], settings: RunSettings) -> ChaosWorkload:
    from .exactly_once import TransformWorkload

    return TransformWorkload(harrow, topic, producer, settings)
