"""What clients asked the brokers: rows of `tap.requests`, and the counts of all requests (J6).

Owns: `read_requests` (one `ClientRequest` for each row, with its times), `read_connections` and `count_requests` (one
`RequestCount` for each client, API, error and broker). Layout and meaning of the rows, and which successes are counted
only: `harrow.cluster.tap.layouts`. Harrow's own clients and the brokers are left out. Names are Kafka's:
API `FindCoordinator`, error `NOT_COORDINATOR`, "" for none.

A simulation has no such rows: the results are then empty, and `RequestRows.recorded` is false. May fail: HarrowError
for a file of another schema version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.broker_folder import TAP_NAMES, TAP_REQUEST_COUNTS, TAP_REQUESTS, broker_files, node_id_of
from harrow.cluster.errors import HarrowError, error_name
from harrow.cluster.host.seam import CONNECTION_CLOSED, CONNECTION_OPENED, REQUEST_HIT, REQUEST_LOST, REQUEST_UNANSWERED

from .. import run_folder
from .coordinator_rows import map_rows
from .format import read_names
from .tap import REPLICA_CLIENT

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

HARROWS_NAME, HARROWS_PREFIX = "harrow", "harrow-"
PRODUCE = 0
"""The taps of records have a row for each batch."""
OTHERS_NAME = "(others)"
"""The client of the last counter of a full table."""


KEYS_MOST = 128
"""Above every key of an API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request of a client; times in nanoseconds of the monotonic clock."""

    client: str
    api: str
    error: str
    """The first error in the response; "" where there was none."""
    broker: int
    invoked_ns: int
    completed_ns: int
    """When the response left, or when the connection ended without one."""
    subject: str
    """The group, transactional id or coordinator key that it names; "" without one."""
    lost: bool = False
    """A fault dropped the response."""
    unanswered: bool = False
    """No response left."""
    hit: bool = False
    """A fault of requests acted on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """One connection of a client to a broker that carried a request."""

    client: str
    broker: int
    opened_ns: int
    closed_ns: int | None
    """None where no end is recorded: it was open when the broker was killed or the run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCount:
    """How many requests of an API a client sent to a broker with one result."""

    client: str
    api: str
    error: str
    broker: int
    count: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRows:
    """The requests of a run that have rows, by the time of their responses."""

    rows: Sequence[ClientRequest] = ()
    recorded: bool = False
    """Whether a broker wrote requests at all."""
    cut: Sequence[int] = ()
    """Brokers whose file reached its bound: what they saw later is only counted."""


def read_requests(run: Path, apis: Collection[str] | None = None) -> RequestRows:
    """Return the requests of the run's clients that have rows; `apis`: only these."""
    found: list[ClientRequest] = []
    cut: list[int] = []
    recorded = False
    for path, rows, names in _files(run, TAP_REQUESTS):
        from harrow.cluster.tap.layouts import REQUEST_BYTES_MOST

        broker, recorded = node_id_of(path.parent), True
        if path.stat().st_size >= REQUEST_BYTES_MOST:
            cut.append(broker)
        chosen = rows[(rows["api"] >= 0) & _of_apis(rows, apis) & of_users(rows["client"], names)]
        for row in chosen:
            flags, subject = int(row["flags"]), int(row["subject"])
            found.append(
                ClientRequest(
                    client=names[int(row["client"])],
                    api=api_name(int(row["api"])),
                    error=_error(int(row["error"])),
                    broker=broker,
                    invoked_ns=int(row["invoked_ns"]),
                    completed_ns=int(row["completed_ns"]),
                    subject=names[subject] if subject < len(names) else "",
                    lost=bool(flags & REQUEST_LOST),
                    unanswered=bool(flags & REQUEST_UNANSWERED),
                    hit=bool(flags & REQUEST_HIT),
                )
            )
    found.sort(key=lambda row: row.completed_ns)
    return RequestRows(rows=found, recorded=recorded, cut=cut)


def read_connections(run: Path) -> list[ClientConnection]:
    """Return the connections of the run's clients, by their beginning."""
    found: list[ClientConnection] = []
    for path, rows, names in _files(run, TAP_REQUESTS):
        own = rows[of_users(rows["client"], names)]
        ends: dict[tuple[int, int], list[int]] = {}
        for row in own[own["api"] == CONNECTION_CLOSED]:
            key = int(row["client"]), int(row["invoked_ns"])
            ends.setdefault(key, []).append(int(row["completed_ns"]))
        for row in own[own["api"] == CONNECTION_OPENED]:
            ended = ends.get((int(row["client"]), int(row["invoked_ns"])))
            found.append(
                ClientConnection(
                    client=names[int(row["client"])],
                    broker=node_id_of(path.parent),
                    opened_ns=int(row["invoked_ns"]),
                    closed_ns=ended.pop(0) if ended else None,
                )
            )
    return sorted(found, key=lambda row: row.opened_ns)


def spans_of_clients(run: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return when each request of the run's clients began and ended, as arrays of nanoseconds.

    A connection counts twice, when it is opened and when it is closed. Of polls and heartbeats whose success has no row
    (`request_tap.COUNTED_ONLY`), one span for each client and broker is from the first to the last.
    """
    import numpy as np
    from harrow.cluster.tap.layouts import COUNTED_ONLY

    began, ended = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for _, rows, names in _files(run, TAP_REQUESTS):
        own = rows[of_users(rows["client"], names)]
        closed, opened = own["api"] == CONNECTION_CLOSED, own["api"] == CONNECTION_OPENED
        began.append(np.where(closed, own["completed_ns"], own["invoked_ns"]))
        ended.append(np.where(opened, own["invoked_ns"], own["completed_ns"]))
    for _, rows, names in _files(run, TAP_REQUEST_COUNTS):
        polls = (rows["count"] > 0) & np.isin(rows["api"], [*COUNTED_ONLY - {PRODUCE}])
        own = rows[polls & of_users(rows["client"], names)]
        began.append(own["first_ns"].astype(np.int64))
        ended.append(own["last_ns"].astype(np.int64))
    return np.concatenate(began), np.concatenate(ended)


def count_requests(run: Path) -> list[RequestCount]:
    """Return how often each client asked which API with which result, from the first time on."""
    found: list[RequestCount] = []
    for path, rows, names in _files(run, TAP_REQUEST_COUNTS):
        from harrow.cluster.tap.layouts import OTHERS

        for row in rows[(rows["count"] > 0) & ((rows["api"] >= 0) | (rows["api"] == OTHERS))]:
            client, api = int(row["client"]), int(row["api"])
            name = names[client] if client < len(names) else OTHERS_NAME
            if not is_harrows(name):
                found.append(
                    RequestCount(
                        client=name,
                        api=OTHERS_NAME if api == OTHERS else api_name(api),
                        error=_error(int(row["error"])),
                        broker=node_id_of(path.parent),
                        count=int(row["count"]),
                        first_ns=int(row["first_ns"]),
                        last_ns=int(row["last_ns"]),
                    )
                )
    return sorted(found, key=lambda row: row.first_ns)


def brokers_that_always_responded(run: Path, api: str) -> set[int]:
    """Return the brokers that sent a response to each request of an API, also of Harrow's clients, while they lived."""
    from harrow.cluster.tap.layouts import REQUEST_BYTES_MOST

    found: set[int] = set()
    for path, rows, _ in _files(run, TAP_REQUESTS):
        ended = (rows["flags"] & REQUEST_UNANSWERED) != 0
        if not (ended & _of_apis(rows, [api])).any() and path.stat().st_size < REQUEST_BYTES_MOST:
            found.add(node_id_of(path.parent))
    return found


def is_harrows(client: str) -> bool:
    """Whether a client is Harrow's own (topics, final read, questions of the harness) or a broker."""
    own = client == HARROWS_NAME or client.startswith(HARROWS_PREFIX)
    return own or REPLICA_CLIENT.fullmatch(client) is not None


def api_name(key: int) -> str:
    """Return Kafka's name of an API: "FindCoordinator"; "API 99" for an unknown key."""
    from harrow.cluster.wire.api_keys import ApiKey

    try:
        return "".join(part.title() for part in ApiKey(key).name.split("_"))
    except ValueError:
        return f"API {key}"


def _error(code: int) -> str:
    return error_name(code) if code else ""


def _files(run: Path, name: str) -> Iterator[tuple[Path, npt.NDArray[np.void], list[str]]]:
    """Yield the rows of each broker's file behind its head, and the names."""
    import numpy as np
    from harrow.cluster.tap.layouts import COUNT_DTYPE, REQUEST_DTYPE, REQUEST_HEAD, request_head

    for path in broker_files(run / run_folder.CLUSTER, name):
        rows = map_rows(path, np.dtype(COUNT_DTYPE if name == TAP_REQUEST_COUNTS else REQUEST_DTYPE))
        if not len(rows):
            continue
        if rows[0].tobytes() != request_head():
            _, version, _ = REQUEST_HEAD.unpack(rows[0].tobytes())
            raise HarrowError(
                f"{path} has schema version {version}, which this Harrow does not read: run the test again"
            )
        yield path, rows[1:], read_names(path.with_name(TAP_NAMES))


def _of_apis(rows: npt.NDArray[np.void], apis: Collection[str] | None) -> npt.NDArray[np.bool_]:
    import numpy as np

    if apis is None:
        return np.ones(len(rows), bool)
    return np.isin(rows["api"], [key for key in range(KEYS_MOST) if api_name(key) in apis])


def of_users(clients: npt.NDArray[np.uint32], names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which numbers are of clients of the run; a number whose name is not on disk is of none."""
    import numpy as np

    return np.isin(clients, [number for number, name in enumerate(names) if not is_harrows(name)])
