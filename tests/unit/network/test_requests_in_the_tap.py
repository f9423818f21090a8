"""What a listener for clients writes about requests: served, refused, dropped, lost, and connections (J6, I9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.api_table import ApiRow
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.request import Request
from harrow.harness.histories.request_rows import ClientRequest, count_requests, read_connections, read_requests
from served_listener import HEARTBEAT, Raw, answer, frame, next_turn, run, serving

SYNC = int(ApiKey.SYNC_GROUP)


def sync_frame(correlation_id: int, client: str = "app") -> bytes:
    request = client_request(SYNC, 3, group_id="billing", generation_id=1, member_id="m")
    return request.frame(correlation_id, client)


def synced(request: Request) -> None:
    request.respond(messages.response(request).SyncGroupResponse())


def in_rebalance(request: Request) -> None:
    answer(request, ErrorCode.rebalance_in_progress)


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "cluster" / "broker-1"
    folder.mkdir(parents=True)
    return folder


def listening(tmp_path: Path, **options: Any) -> Any:
    rows = (ApiRow(SYNC, 0, 3, synced),)
    return serving(folder_of(tmp_path), listener="CLIENTS", rows=rows, tap=True, **options)


async def closed(tmp_path: Path, count: int = 1) -> None:
    while sum(row.closed_ns is not None for row in read_connections(tmp_path)) < count:
        await next_turn()


def said(row: ClientRequest) -> tuple[object, ...]:
    return (row.api, row.error, row.subject, *(name for name in ("lost", "unanswered", "hit") if getattr(row, name)))


def test_a_served_request_has_a_row_with_its_times_before_the_response(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path) as s, Raw(s.port) as raw:
            raw.writer.write(sync_frame(1))
            await raw.frame()
            (row,) = read_requests(tmp_path).rows
            assert said(row) == ("SyncGroup", "", "billing")
            assert (row.client, row.broker) == ("app", 1)
            assert 0 < row.invoked_ns <= row.completed_ns

    run(main())


def test_heartbeats_are_counted_and_a_refused_one_has_a_row(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path) as s, Raw(s.port) as raw:
            s.handler = answer
            for number in range(3):
                await raw.answered(number)
            s.handler = in_rebalance
            await raw.answered(4)
            assert [said(row) for row in read_requests(tmp_path).rows] == [("Heartbeat", "REBALANCE_IN_PROGRESS", "x")]
            assert {(row.error, row.count) for row in count_requests(tmp_path)} == {
                ("", 3),
                ("REBALANCE_IN_PROGRESS", 1),
            }

    run(main())


@pytest.mark.parametrize(
    ("kind", "action", "fields", "wanted"),
    [
        ("request", "refuse", {"error": int(ErrorCode.not_coordinator)}, ("NOT_COORDINATOR", "hit")),
        ("request", "lose", {}, ("", "unanswered", "hit")),
        ("request", "drop", {}, ("", "unanswered", "hit")),
        ("request", "delay", {"delay_ms": 1}, ("", "hit")),
        ("request", "duplicate", {}, ("", "hit")),
        ("response", "lose", {}, ("", "lost")),
        ("response", "hold", {}, ("", "lost")),
    ],
)
def test_a_fault_of_a_request_is_in_its_row(
    tmp_path: Path, kind: str, action: str, fields: dict[str, object], wanted: tuple[str, ...]
) -> None:
    async def main() -> None:
        async with listening(tmp_path) as s, Raw(s.port) as raw:
            await s.op("rules.add", kind=kind, action=action, api_key=SYNC, nth=1, client="*", **fields)
            raw.writer.write(sync_frame(1))
            if action == "lose":
                with pytest.raises(ConnectionResetError):
                    await raw.reader.read()
            elif action not in ("drop", "hold"):
                await raw.frame()
            while not (rows := read_requests(tmp_path).rows):
                await next_turn()
            error, *flags = wanted
            assert [said(row) for row in rows] == [("SyncGroup", error, "billing", *flags)]

    run(main())


def test_a_request_behind_a_dropped_one_has_a_row(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path) as s, Raw(s.port) as raw:
            await s.op("rules.add", kind="request", action="drop", api_key=SYNC, nth=1, client="*")
            raw.writer.write(sync_frame(1) + frame(0, 2, "y"))
            while len(read_requests(tmp_path).rows) < 2:
                await next_turn()
            assert [said(row) for row in read_requests(tmp_path).rows] == [
                ("SyncGroup", "", "billing", "unanswered", "hit"),
                ("Heartbeat", "", "y", "unanswered", "hit"),
            ]

    run(main())


def test_requests_behind_a_held_response_have_rows_that_name_the_fault(tmp_path: Path) -> None:
    """Two requests fill the connection: the third is read because the fault has ended them."""

    async def main() -> None:
        async with listening(tmp_path, unanswered_most=2) as s, Raw(s.port) as raw:
            await s.op("rules.add", kind="response", action="hold", api_key=HEARTBEAT, nth=1, client="*")
            raw.writer.write(frame(0, 1, "x") + frame(0, 2, "y"))
            held, behind = [await s.requests.get() for _ in range(2)]
            answer(held)
            raw.writer.write(frame(0, 3, "z"))
            while len(rows := read_requests(tmp_path).rows) < 3:
                await next_turn()
            answer(behind)  # it has no place any more
            assert [said(row) for row in rows] == [
                ("Heartbeat", "", "x", "lost"),
                ("Heartbeat", "", "y", "unanswered", "hit"),
                ("Heartbeat", "", "z", "unanswered", "hit"),
            ]

    run(main())


def test_requests_of_a_connection_that_ends_are_unanswered(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path) as s:
            async with Raw(s.port) as raw:
                raw.writer.write(frame(0, 1, "a") + frame(0, 2, "b"))
                assert await s.requests.get() and await s.requests.get()
            await closed(tmp_path)
            assert [said(row) for row in read_requests(tmp_path).rows] == [
                ("Heartbeat", "", "a", "unanswered"),
                ("Heartbeat", "", "b", "unanswered"),
            ]

    run(main())


def test_a_connection_has_its_client_and_its_times(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path) as s:
            s.handler = answer
            async with Raw(s.port) as raw:
                await raw.answered()
                (row,) = read_connections(tmp_path)
                assert (row.client, row.broker, row.closed_ns) == ("app", 1, None)
            async with Raw(s.port):
                pass  # it says nothing, so no client is known
            await closed(tmp_path)
            (row,) = read_connections(tmp_path)
            assert row.closed_ns is not None and row.opened_ns < row.closed_ns

    run(main())


def test_requests_of_brokers_have_no_rows(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(folder_of(tmp_path), listener="BROKERS", tap=True) as s:
            s.handler = answer
            async with Raw(s.port) as raw:
                await raw.answered()
        assert not count_requests(tmp_path) and not read_connections(tmp_path)

    run(main())


def test_a_response_whose_row_cannot_be_written_is_withheld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with listening(tmp_path) as s, Raw(s.port) as raw:

            def full(_row: object) -> None:
                raise OSError(28, "no space left on device")

            monkeypatch.setattr(s.host.tap, "requested", full)
            raw.writer.write(sync_frame(1))
            assert await raw.reader.read() == b""

    run(main())
