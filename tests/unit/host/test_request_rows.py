"""The rows of `tap.requests` and `tap.request_counts`: written at once, bounded, continued by the next process (J6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.broker_folder import TAP_REQUEST_COUNTS, TAP_REQUESTS
from harrow.cluster.errors import ErrorCode, HarrowError
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.seam import (
    CONNECTION_CLOSED,
    CONNECTION_OPENED,
    REQUEST_HIT,
    REQUEST_LOST,
    REQUEST_UNANSWERED,
    NoTap,
    TappedRequest,
)
from harrow.cluster.tap import layouts
from harrow.cluster.tap import requests as request_tap
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.tap.requests import ROW_BYTES
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.histories.request_rows import (
    OTHERS_NAME,
    ClientConnection,
    ClientRequest,
    RequestCount,
    count_requests,
    read_connections,
    read_requests,
)

NOT_COORDINATOR = int(ErrorCode.not_coordinator)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    broker_of(tmp_path).mkdir(parents=True)
    return tmp_path


def broker_of(run: Path) -> Path:
    return run / "cluster" / "broker-2"


def asked(
    api: int, at: int, *, client: str = "app", error: int = 0, flags: int = 0, subject: str | None = None
) -> TappedRequest:
    return TappedRequest(client, int(api), error, at, at + 5, flags, subject)


def write(run: Path, *rows: TappedRequest) -> FileTap:
    """Write rows; the tap stays open, as that of a process that is killed."""
    tap = FileTap(str(broker_of(run)), RealClock())
    for row in rows:
        tap.requested(row)
    return tap


def test_a_request_has_its_row_and_its_count_at_once(run: Path) -> None:
    tap = write(
        run,
        asked(ApiKey.FIND_COORDINATOR, 10, subject="billing"),
        asked(ApiKey.OFFSET_FETCH, 20, error=NOT_COORDINATOR, subject="billing"),
    )
    found = read_requests(run)
    wanted = ClientRequest(
        client="app",
        api="OffsetFetch",
        error="NOT_COORDINATOR",
        broker=2,
        invoked_ns=20,
        completed_ns=25,
        subject="billing",
    )
    assert found.recorded and not found.cut
    assert [row.api for row in found.rows] == ["FindCoordinator", "OffsetFetch"]
    assert found.rows[1] == wanted
    assert read_requests(run, {"OffsetFetch"}).rows == [wanted]
    assert count_requests(run)[1] == RequestCount(
        client="app", api="OffsetFetch", error="NOT_COORDINATOR", broker=2, count=1, first_ns=20, last_ns=25
    )
    tap.close()


def test_successes_of_hot_requests_are_counted_and_their_errors_have_rows(run: Path) -> None:
    error = int(ErrorCode.offset_out_of_range)
    rows = [asked(ApiKey.FETCH, at) for at in range(0, 50, 10)]
    write(run, *rows, asked(ApiKey.FETCH, 60, error=error)).close()
    assert [(row.api, row.error) for row in read_requests(run).rows] == [("Fetch", "OFFSET_OUT_OF_RANGE")]
    counts = {(row.api, row.error): row for row in count_requests(run)}
    assert counts["Fetch", ""].count == 5
    assert (counts["Fetch", ""].first_ns, counts["Fetch", ""].last_ns) == (0, 45)
    assert counts["Fetch", "OFFSET_OUT_OF_RANGE"].count == 1


def test_flags_say_what_became_of_the_response(run: Path) -> None:
    flags = (REQUEST_LOST, REQUEST_UNANSWERED, REQUEST_UNANSWERED | REQUEST_HIT)
    write(run, *(asked(ApiKey.FETCH, at, flags=flag) for at, flag in enumerate(flags))).close()
    rows = read_requests(run).rows
    assert [(row.lost, row.unanswered, row.hit) for row in rows] == [
        (True, False, False),
        (False, True, False),
        (False, True, True),
    ]


def test_the_next_process_of_the_broker_continues_the_counts(run: Path) -> None:
    write(run, *(asked(ApiKey.METADATA, at) for at in range(3)))
    write(run, *(asked(ApiKey.METADATA, at) for at in range(100, 104))).close()
    (count,) = count_requests(run)
    assert (count.count, count.first_ns, count.last_ns) == (7, 0, 108)
    assert len(read_requests(run).rows) == 7


def test_a_connection_has_a_beginning_and_an_end(run: Path) -> None:
    opened = TappedRequest("app", CONNECTION_OPENED, 0, 10, 11)
    still = TappedRequest("app", CONNECTION_OPENED, 0, 20, 21)
    closed = TappedRequest("app", CONNECTION_CLOSED, 0, 10, 90)
    write(run, opened, still, closed).close()
    assert read_connections(run) == [
        ClientConnection(client="app", broker=2, opened_ns=10, closed_ns=90),
        ClientConnection(client="app", broker=2, opened_ns=20, closed_ns=None),
    ]
    assert not read_requests(run).rows and not count_requests(run)


def test_clients_of_the_harness_are_left_out(run: Path) -> None:
    names = ("harrow", "harrow-drain", "broker-1", "app")
    write(run, *(asked(ApiKey.METADATA, 5, client=name) for name in names)).close()
    assert [row.client for row in read_requests(run).rows] == ["app"]
    assert [row.client for row in count_requests(run)] == ["app"]


def test_at_the_bound_rows_end_and_counts_go_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layouts, request_tap):  # the writer's and the reader's
        monkeypatch.setattr(module, "REQUEST_BYTES_MOST", 5 * ROW_BYTES)
    write(run, *(asked(ApiKey.METADATA, at) for at in range(10))).close()
    assert (broker_of(run) / TAP_REQUESTS).stat().st_size == 5 * ROW_BYTES
    found = read_requests(run)
    assert len(found.rows) == 4 and list(found.cut) == [2]
    assert count_requests(run)[0].count == 10


def test_a_full_table_counts_the_rest_together(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_tap, "COUNTERS_MOST", 3)
    clients = ("a", "b", "c", "d", "a", "e")
    write(run, *(asked(ApiKey.METADATA, at, client=name) for at, name in enumerate(clients)))
    write(run, asked(ApiKey.METADATA, 50, client="e"), asked(ApiKey.METADATA, 60, client="a")).close()
    counts = {row.client: row for row in count_requests(run)}
    assert {name: row.count for name, row in counts.items()} == {"a": 3, "b": 1, OTHERS_NAME: 4}
    assert counts[OTHERS_NAME].last_ns == 55


def test_a_file_of_another_version_is_refused_with_a_remedy(run: Path) -> None:
    write(run, asked(ApiKey.METADATA, 1)).close()
    path = broker_of(run) / TAP_REQUEST_COUNTS
    content = bytearray(path.read_bytes())
    content[4] = 99
    path.write_bytes(content)
    with pytest.raises(HarrowError, match=r"version 99.*run the test again"):
        count_requests(run)


def test_a_host_without_tap_writes_nothing(run: Path) -> None:
    NoTap().requested(asked(ApiKey.METADATA, 1))
    assert not read_requests(run).recorded
