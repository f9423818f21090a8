"""The rows of the tap: the acknowledged and the delivered batches."""

from __future__ import annotations

import itertools
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.seam import GROUP_STATES, OFFSET_COMMITTED, OFFSET_SENT, Committer, TappedGroup
from harrow.cluster.ids import TopicPartition
from harrow.cluster.tap.layouts import (
    COMMIT_DTYPE,
    COMMIT_ROW,
    FETCHED,
    FLAG_FILTERED,
    FLAG_LOST,
    FLAG_READ_COMMITTED,
    GROUP_DTYPE,
    GROUP_ROW,
    MEMBER_DTYPE,
    MEMBER_OWNS,
    MEMBER_RELEASED,
    MEMBER_ROW,
    PRODUCED,
    TAP_DTYPE,
    TAP_ROW,
    TRANSACTION_DTYPE,
    TRANSACTION_ROW,
)
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.wire.batch_header import headers_in
from hypothesis import given
from hypothesis import strategies as st


def batch(
    base: int,
    count: int,
    *,
    crc: int = 7,
    attributes: int = 0,
    body: bytes = b"r" * 20,
    base_timestamp: int = 1,
    max_timestamp: int = 2,
) -> bytes:
    tail = struct.pack(">hiqqqhii", attributes, count - 1, base_timestamp, max_timestamp, 900, 3, 50, count) + body
    return struct.pack(">qiibI", base, 4 + 1 + 4 + len(tail), 0, 2, crc) + tail


def read(folder: Path) -> Any:
    rows: Any = np.frombuffer((folder / "tap.bin").read_bytes(), dtype=TAP_DTYPE)
    return rows


def names(folder: Path) -> dict[int, str]:
    lines = (folder / "tap.names").read_text().splitlines()
    return {int(line.split("\t")[0]): line.split("\t")[1] for line in lines}


def tap(folder: Path) -> FileTap:
    return FileTap(str(folder), RealClock())


def test_struct_and_dtype_have_the_same_size() -> None:
    assert np.dtype(TAP_DTYPE).itemsize == TAP_ROW.size == 96
    assert np.dtype(COMMIT_DTYPE).itemsize == COMMIT_ROW.size == 64
    assert np.dtype(TRANSACTION_DTYPE).itemsize == TRANSACTION_ROW.size == 40
    assert np.dtype(MEMBER_DTYPE).itemsize == MEMBER_ROW.size == 44


def test_produced_batches_have_offsets_from_the_responses_base_offset(tmp_path: Path) -> None:
    t = tap(tmp_path)
    sent = batch(0, 3, crc=11) + batch(0, 2, crc=0xFFFF_FFFF)
    t.produced("app", "orders", 4, base_offset=100, error=0, acks=-1, invoked_ns=5, batches=sent, lost=True)
    t.close()
    rows = read(tmp_path)
    assert rows["kind"].tolist() == [PRODUCED] * 2
    assert rows["flags"].tolist() == [FLAG_LOST] * 2
    assert list(zip(rows["base_offset"].tolist(), rows["last_offset"].tolist(), strict=True)) == [
        (100, 102),
        (103, 104),
    ]
    assert rows["crc"].tolist() == [11, 0xFFFF_FFFF]
    assert rows["count"].tolist() == [3, 2]
    first = rows[0]
    fields = ("producer_id", "producer_epoch", "base_sequence", "acks", "partition", "invoked_ns")
    assert [int(first[name]) for name in fields] == [900, 3, 50, -1, 4, 5]
    assert first["completed_ns"] > 5
    known = names(tmp_path)
    assert (known[int(first["client"])], known[int(first["topic"])]) == ("app", "orders")


def test_produced_batch_is_created_at_its_base_timestamp(tmp_path: Path) -> None:
    now_ns, now_ms = RealClock().monotonic_ns(), RealClock().wall_ms()
    t = tap(tmp_path)
    common: dict[str, Any] = {"base_offset": 0, "error": 0, "acks": 1, "lost": False}
    for timestamp in (now_ms - 4_000, now_ms + 10**9, -(2**63), 2**63 - 1):
        t.produced("app", "orders", 0, invoked_ns=now_ns, batches=batch(0, 1, base_timestamp=timestamp), **common)
    t.close()
    waited, ahead, ancient, absurd = read(tmp_path)
    assert waited["created_ns"] == pytest.approx(now_ns - 4 * 10**9, abs=2 * 10**9)
    assert ahead["created_ns"] == ahead["completed_ns"]
    assert ancient["created_ns"] == 0
    assert absurd["created_ns"] == absurd["completed_ns"]


def test_rows_keep_the_headers_timestamps_and_when_the_request_was_read(tmp_path: Path) -> None:
    t = tap(tmp_path)
    sent = batch(0, 2, base_timestamp=4, max_timestamp=9)
    t.produced("app", "orders", 0, base_offset=0, error=0, acks=1, invoked_ns=5, batches=sent, lost=False)
    t.fetched("app", "orders", 0, offset=0, invoked_ns=7, batches=[sent])
    t.close()
    produced, fetched = read(tmp_path)
    for row in (produced, fetched):
        assert (row["base_timestamp_ms"], row["max_timestamp_ms"]) == (4, 9)
    assert fetched["invoked_ns"] == fetched["created_ns"] == 7
    assert fetched["completed_ns"] > 7


def test_refused_batch_has_no_offsets(tmp_path: Path) -> None:
    t = tap(tmp_path)
    common: dict[str, Any] = {"base_offset": -1, "acks": 1, "invoked_ns": 1, "lost": False}
    t.produced("app", "orders", 0, error=6, batches=batch(0, 3), **common)
    t.produced("app", "orders", 0, error=87, batches=b"garbage", **common)
    t.close()
    rows = read(tmp_path)
    assert rows["error"].tolist() == [6, 87]
    assert rows["base_offset"].tolist() == rows["last_offset"].tolist() == [-1, -1]
    assert rows["count"].tolist() == [3, 0]


def test_fetched_rows_exclude_control_and_partial_batches_and_earlier_records(tmp_path: Path) -> None:
    t = tap(tmp_path)
    control = batch(14, 1, attributes=0x20)
    whole = [batch(5, 5), batch(10, 4), control, batch(15, 1)]
    t.fetched("app", "orders", 0, offset=12, invoked_ns=1, batches=[*whole, batch(16, 9)[:-1]])
    t.close()
    rows = read(tmp_path)
    assert rows["kind"].tolist() == [FETCHED, FETCHED]
    assert list(zip(rows["base_offset"].tolist(), rows["last_offset"].tolist(), strict=True)) == [(12, 13), (15, 15)]


def test_restart_continues_names_and_rows(tmp_path: Path) -> None:
    for client in ("a\tb", "c", "a\tb"):
        t = tap(tmp_path)
        t.fetched(client, "orders", 0, offset=0, invoked_ns=1, batches=[batch(0, 1)])
        t.close()
        with (tmp_path / "tap.bin").open("ab") as file:
            file.write(b"torn row")
    tap(tmp_path).close()
    rows = read(tmp_path)
    assert rows["client"].tolist() == [0, 2, 0]
    assert names(tmp_path) == {0: "a\\tb", 1: "orders", 2: "c"}


def test_committed_offsets_have_a_row_for_each_partition(tmp_path: Path) -> None:
    for error in (0, 16):
        t = tap(tmp_path)
        offsets = [(TopicPartition("orders", 1), 7), (TopicPartition("returns", 0), 2**40)]
        t.committed("billing", offsets, error=error, invoked_ns=5)
        t.close()
        with (tmp_path / "tap.commits").open("ab") as file:
            file.write(b"torn row")
    tap(tmp_path).close()
    rows: Any = np.frombuffer((tmp_path / "tap.commits").read_bytes(), dtype=COMMIT_DTYPE)
    text = names(tmp_path)
    shown = [(text[row["group"]], text[row["topic"]], row["partition"], row["offset"], row["error"]) for row in rows]
    orders, returns = ("billing", "orders", 1, 7), ("billing", "returns", 0, 2**40)
    assert shown == [(*orders, 0), (*returns, 0), (*orders, 16), (*returns, 16)]
    assert (rows["invoked_ns"] == 5).all()
    assert (rows["completed_ns"] > 5).all()


def coordinator_rows(folder: Path, name: str, dtype: Any) -> Any:
    return np.frombuffer((folder / name).read_bytes(), dtype=dtype)


def test_an_offset_of_a_transaction_has_its_member_and_its_producer(tmp_path: Path) -> None:
    t = tap(tmp_path)
    by = Committer("app", "app-1", 4, 900, 7)
    common: dict[str, Any] = {"error": 0, "invoked_ns": 5}
    offsets = [(TopicPartition("orders", 1), 7)]
    t.committed("billing", offsets, by=by, kind=OFFSET_SENT, **common)
    t.committed("billing", offsets, by=Committer(producer_id=900), **common)
    t.close()
    rows = coordinator_rows(tmp_path, "tap.commits", COMMIT_DTYPE)
    assert rows["kind"].tolist() == [OFFSET_SENT, OFFSET_COMMITTED]
    assert rows["generation"].tolist() == [4, -1]
    assert rows["producer_id"].tolist() == [900, 900]
    assert names(tmp_path)[int(rows[0]["member"])] == "app-1"


def test_a_transaction_has_a_row_for_each_partition(tmp_path: Path) -> None:
    t = tap(tmp_path)
    partitions = [TopicPartition("orders", 0), TopicPartition("bills", 3)]
    t.transaction("tx", partitions, state=2, producer_id=900, producer_epoch=-1, timeout_ms=60_000)
    t.close()
    rows = coordinator_rows(tmp_path, "tap.transactions", TRANSACTION_DTYPE)
    known = names(tmp_path)
    found = [(known[row["topic"]], row["partition"], row["state"]) for row in rows]
    assert found == [("orders", 0, 2), ("bills", 3, 2)]
    assert [int(rows[0][name]) for name in ("producer_id", "producer_epoch", "timeout_ms")] == [900, -1, 60_000]


def test_a_member_owns_what_it_was_given_until_it_releases_it(tmp_path: Path) -> None:
    t = tap(tmp_path)
    first, second, third = (TopicPartition("orders", number) for number in range(3))
    for generation, owned in ((1, (first, second)), (1, (first, second)), (2, (second, third)), (2, ())):
        t.member("billing", "m", "app", generation=generation, partitions=owned)
    t.close()
    rows = coordinator_rows(tmp_path, "tap.members", MEMBER_DTYPE)
    found = list(zip(*(rows[name].tolist() for name in ("kind", "generation", "partition")), strict=True))
    owns, released = MEMBER_OWNS, MEMBER_RELEASED
    assert found == [
        (owns, 1, 0),
        (owns, 1, 1),
        (released, 1, 0),
        (owns, 2, 1),
        (owns, 2, 2),
        (released, 2, 1),
        (released, 2, 2),
    ]


def test_a_later_coordinator_reports_an_owner_again(tmp_path: Path) -> None:
    t = tap(tmp_path)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    for leader_epoch, instance, owned in (
        (5, None, [first, second]),
        (5, None, [first, second]),
        (7, None, [first]),
        (7, "host-1", []),
    ):
        t.member("billing", "m", "app", generation=3, partitions=owned, leader_epoch=leader_epoch, instance=instance)
    t.close()
    rows = coordinator_rows(tmp_path, "tap.members", MEMBER_DTYPE)
    names_of_fields = ("kind", "leader_epoch", "partition")
    found = list(zip(*(rows[name].tolist() for name in names_of_fields), strict=True))
    owns, released = MEMBER_OWNS, MEMBER_RELEASED
    assert found == [(owns, 5, 0), (owns, 5, 1), (released, 7, 1), (owns, 7, 0), (released, 7, 0)]
    assert rows["instance"].tolist() == [0, 0, 0, 0, zlib.crc32(b"host-1")]


def test_a_group_has_a_row_for_each_change(tmp_path: Path) -> None:
    t = tap(tmp_path)
    for state, members in (("Reconciling", 2), ("Empty", 0)):
        now = TappedGroup(state, 7, members, 45_000)
        t.group("billing", now, partition=3, leader_epoch=5)
    t.close()
    rows = coordinator_rows(tmp_path, "tap.groups", GROUP_DTYPE)
    assert [GROUP_STATES[row["state"]] for row in rows] == ["Reconciling", "Empty"]
    assert rows["members"].tolist() == [2, 0]
    assert [int(rows[0][name]) for name in ("partition", "generation", "leader_epoch", "timeout_ms")] == [
        3,
        7,
        5,
        45_000,
    ]
    assert GROUP_ROW.size == np.dtype(GROUP_DTYPE).itemsize


def test_a_fetch_of_committed_data_marks_what_the_client_drops(tmp_path: Path) -> None:
    t = tap(tmp_path)
    transactional, marker = 0x10, 0x30
    sent = [
        batch(10, 2, attributes=transactional),
        batch(12, 1, attributes=marker),
        batch(13, 2, attributes=transactional),
    ]
    for aborted in (None, [], [(900, 10)]):
        t.fetched("app", "orders", 0, offset=0, invoked_ns=1, batches=sent, aborted=aborted)
    t.close()
    committed, filtered = FLAG_READ_COMMITTED, FLAG_READ_COMMITTED | FLAG_FILTERED
    assert read(tmp_path)["flags"].tolist() == [0, 0, committed, committed, filtered, committed]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_headers_are_read_across_buffer_borders(counts: list[int], data: st.DataObject) -> None:
    whole = b"".join(batch(i * 10, count) for i, count in enumerate(counts))
    borders = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    edges = [0, *borders, len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges)]
    assert [h.record_count for h in headers_in(pieces)] == counts


@given(st.binary(max_size=300))
def test_headers_of_random_bytes_raise_no_error(garbage: bytes) -> None:
    assert sum(1 for _ in headers_in([garbage])) <= 5
