"""States of share-partitions: batches that overlap, records and their replay, epochs that are fenced (KIP-932)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import UUID

import pytest
from harrow.cluster.coordinators import RecordFormatError
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.share_coordinator.merging import merged
from harrow.cluster.share_coordinator.records import Snapshot, StoredRecord, Update, decode, encode
from harrow.cluster.share_coordinator.stored_shares import StoredShares
from harrow.cluster.share_coordinator.values import DeliveryState, SharePartition, StateBatch
from harrow.cluster.wire.batches import decode_records, headers
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parents[2] / "conformance" / "kafka_files" / "kafka_share_groups" / "share_group_state.log"
SHARE = SharePartition("billing", UUID(int=7, version=4), 3)
STORED = [state for state in DeliveryState if state is not DeliveryState.ACQUIRED]


def batch(first: int, last: int, state: DeliveryState = DeliveryState.AVAILABLE, count: int = 1) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, count)


def sized(first: int, size: int, state: DeliveryState, count: int) -> StateBatch:
    return batch(first, first + size, state, count)


batches = st.builds(
    sized,
    st.integers(0, 30),
    st.integers(0, 12),
    st.sampled_from(STORED),
    st.integers(1, 5),
)


def records_of(rows: tuple[StateBatch, ...]) -> dict[int, tuple[int, DeliveryState]]:
    """Each offset with its count and state: the plain model."""
    found: dict[int, tuple[int, DeliveryState]] = {}
    for row in rows:
        for offset in range(row.first_offset, row.last_offset + 1):
            found[offset] = max((row.delivery_count, row.state), found.get(offset, (0, DeliveryState.AVAILABLE)))
    return found


@given(rows=st.lists(batches, max_size=12), start=st.integers(-1, 35))
def test_merged_batches_say_of_each_offset_what_the_furthest_batch_says(rows: list[StateBatch], start: int) -> None:
    found = merged(rows, Offset(start))
    expected = {offset: value for offset, value in records_of(tuple(rows)).items() if offset >= start}
    assert records_of(found) == expected
    for before, after in itertools.pairwise(found):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:], "neighbours are one batch"


# -------------------------------------------------------------------------------------- records

snapshots = st.builds(
    Snapshot,
    snapshot_epoch=st.integers(0, 2**31 - 1),
    state_epoch=st.integers(-1, 2**31 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1).map(LeaderEpoch),
    start_offset=st.integers(-1, 2**63 - 1).map(Offset),
    completed=st.integers(-1, 2**31 - 1),
    created_ms=st.integers(0, 2**62),
    written_ms=st.integers(0, 2**62),
    batches=st.lists(batches, max_size=3).map(tuple),
)
updates = st.builds(
    Update,
    snapshot_epoch=st.integers(0, 2**31 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1).map(LeaderEpoch),
    start_offset=st.integers(-1, 2**63 - 1).map(Offset),
    completed=st.integers(-1, 2**31 - 1),
    batches=st.lists(batches, max_size=3).map(tuple),
)


@given(value=snapshots | updates | st.none())
def test_a_record_is_read_as_it_was_written(value: Snapshot | Update | None) -> None:
    key, data = encode(SHARE, value)
    assert decode(key, data) == (SHARE, value)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_record_that_is_cut_is_refused(cut: int) -> None:
    key, data = encode(SHARE, StoredShares(500).initialized(SHARE, 0, Offset(5), 1))
    assert data is not None
    with pytest.raises(RecordFormatError):
        decode(key, data[:-cut])


def test_records_of_other_types_are_left_out() -> None:
    assert decode(b"\x00\x63whatever", b"") is None


def test_records_of_kafka_are_read_and_written_with_the_same_bytes() -> None:
    """A share consumer accepted, released and rejected records of two partitions; then the group was deleted."""
    data = GOLDEN.read_bytes()
    rows = [row for at, size, _ in headers(data) for row in decode_records(data[at : at + size])]
    found: list[StoredRecord] = []
    for row in rows:
        assert row.key is not None
        decoded = decode(row.key, row.value)
        assert decoded is not None
        assert encode(*decoded) == (bytes(row.key), None if row.value is None else bytes(row.value))
        found.append(decoded)
    assert [type(value) for _, value in found] == [Snapshot] * 2 + [Update] * 4 + [type(None)] * 2
    assert {(share.group_id, share.partition) for share, _ in found} == {("workers", 0), ("workers", 1)}
    first = found[2][1]
    assert isinstance(first, Update)
    assert (first.completed, first.start_offset) == (19, 0)
    assert {row.state for row in first.batches} == {
        DeliveryState.AVAILABLE,
        DeliveryState.ACKNOWLEDGED,
        DeliveryState.ARCHIVED,
    }


# --------------------------------------------------------------------------------------- states


def applied(shares: StoredShares, log: list[StoredRecord], record: StoredRecord) -> None:
    shares.apply(record, Offset(len(log)))
    log.append(record)


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as found:
        call()
    return found.value.code


Step = tuple[str, list[StateBatch], int, int, int]
steps_of_a_coordinator = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "read", "initialize", "delete", "cold"]),
        st.lists(batches, max_size=3),
        st.integers(-1, 20),
        st.integers(-1, 4),
        st.integers(-1, 3),
    ),
    max_size=30,
)


def decided(shares: StoredShares, step: Step, now_ms: int) -> Iterable[StoredRecord]:
    """The records that an operation writes; KafkaError."""
    kind, rows, start, leader_epoch, state_epoch = step
    epoch = LeaderEpoch(leader_epoch)
    if kind == "initialize":
        return [(SHARE, shares.initialized(SHARE, state_epoch, Offset(start), now_ms))]
    if kind == "write":
        update = Update(
            snapshot_epoch=0, leader_epoch=epoch, start_offset=Offset(start), completed=1, batches=tuple(rows)
        )
        return [(SHARE, shares.written(SHARE, update, state_epoch, now_ms))]
    if kind == "read":
        _, record = shares.read(SHARE, epoch, now_ms)
        return [] if record is None else [(SHARE, record)]
    return [(SHARE, None)] if kind == "delete" else shares.cold(now_ms, 2)


def is_initial(shares: StoredShares) -> bool:
    """Whether no leader has stored its epoch since the last initialization."""
    state = shares.get(SHARE)
    return state is not None and state.leader_epoch == 0


@given(steps=steps_of_a_coordinator, most=st.integers(0, 3))
def test_a_replay_of_the_log_gives_the_states_and_their_fences(steps: list[Step], most: int) -> None:
    shares, log = StoredShares(most), list[StoredRecord]()
    for now_ms, step in enumerate(steps, 1):
        with contextlib.suppress(KafkaError):
            for record in decided(shares, step, now_ms):
                applied(shares, log, record)
    again, kept = StoredShares(most), StoredShares(most)
    for offset, record in enumerate(log):
        again.apply(record, Offset(offset))
        if offset >= shares.redundant_below:
            kept.apply(record, Offset(offset))
    for other in (again, kept):
        assert other.get(SHARE) == shares.get(SHARE)
        for epoch in range(-1, 5):
            outcomes = [outcome(tried, LeaderEpoch(epoch)) for tried in (shares, other)]
            # A new initialization stores leader epoch 0, as in Kafka. Without the records before it the fence of the
            # leader epoch is gone; that of the state epoch holds a former leader back.
            fence_removed = other is kept and outcomes[0] is ErrorCode.fenced_leader_epoch and is_initial(shares)
            assert fence_removed or outcomes[0] == outcomes[1]


def outcome(shares: StoredShares, epoch: LeaderEpoch) -> object:
    try:
        return shares.read(SHARE, epoch, 1)[0]
    except KafkaError as error:
        return error.code


def test_old_epochs_are_fenced() -> None:
    shares, log = StoredShares(500), list[StoredRecord]()
    update = Update(
        snapshot_epoch=0, leader_epoch=LeaderEpoch(3), start_offset=Offset(-1), completed=0, batches=(batch(0, 1),)
    )
    assert refused(lambda: shares.written(SHARE, update, 0, 1)) is ErrorCode.invalid_request
    assert refused(lambda: shares.read(SHARE, LeaderEpoch(0), 1)) is ErrorCode.invalid_request
    applied(shares, log, (SHARE, shares.initialized(SHARE, 2, Offset(0), 1)))
    _, record = shares.read(SHARE, LeaderEpoch(4), 1)
    assert record is not None
    applied(shares, log, (SHARE, record))
    assert refused(lambda: shares.written(SHARE, update, 2, 1)) is ErrorCode.fenced_leader_epoch
    assert refused(lambda: shares.read(SHARE, LeaderEpoch(3), 1)) is ErrorCode.fenced_leader_epoch
    assert refused(lambda: shares.initialized(SHARE, 1, Offset(0), 1)) is ErrorCode.fenced_state_epoch
    assert shares.read(SHARE, LeaderEpoch(4), 1)[1] is None, "the epoch is stored"


def test_a_repeated_write_that_a_later_one_has_overtaken_changes_nothing() -> None:
    shares, log = StoredShares(500), list[StoredRecord]()
    applied(shares, log, (SHARE, shares.initialized(SHARE, 1, Offset(0), 1)))

    def write(start: int, completed: int, *batches: StateBatch) -> None:
        update = Update(
            snapshot_epoch=0,
            leader_epoch=LeaderEpoch(0),
            start_offset=Offset(start),
            completed=completed,
            batches=batches,
        )
        applied(shares, log, (SHARE, shares.written(SHARE, update, 1, 1)))

    write(0, 2, batch(1, 2, DeliveryState.ACKNOWLEDGED))
    write(3, 0, batch(3, 3, DeliveryState.AVAILABLE))
    before = shares.summary(SHARE), outcome(shares, LeaderEpoch(0))
    write(0, 2, batch(1, 2, DeliveryState.ACKNOWLEDGED))
    assert (shares.summary(SHARE), outcome(shares, LeaderEpoch(0))) == before
