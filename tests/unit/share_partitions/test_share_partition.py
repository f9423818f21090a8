"""The state machine of a share-partition against a model with one entry for each record (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.share_coordinator.merging import merged
from harrow.cluster.share_coordinator.values import DeliveryState, ShareState, StateBatch
from harrow.cluster.share_partitions.acknowledgements import Acknowledgement, AckType
from harrow.cluster.share_partitions.in_flight_records import AcquiredRecords, BatchSpan, Change, DeadLetters
from harrow.cluster.share_partitions.share_partition import SharePartitionState
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

LIMIT, LOCKS, LOCK_MS = 3, 20, 100
MEMBERS = ("a", "b")


def span(first: int, last: int, *, aborted: bool = False) -> BatchSpan:
    return BatchSpan(Offset(first), Offset(last), aborted)


def begun(
    start: int = 0, *batches: StateBatch, limit: int = 5, locks: int = 200, queue: Callable[[], bool] = lambda: False
) -> SharePartitionState:
    stored = ShareState(0, LeaderEpoch(0), Offset(start), batches)
    return SharePartitionState(stored, Offset(start), limit=limit, locks_most=locks, has_dead_letters=queue)


def acquired(
    state: SharePartitionState,
    member: str,
    *spans: BatchSpan,
    most: int = 500,
    size: int = 500,
    exact: bool = False,
    until: int = LOCK_MS,
) -> list[AcquiredRecords]:
    return state.acquire(
        member,
        spans,
        fetch_offset=state.next_fetch_offset,
        records_most=most,
        batch_size=size,
        exact=exact,
        deadline_ms=until,
    )


def said(first: int, last: int, *types: AckType) -> Acknowledgement:
    return Acknowledgement(Offset(first), Offset(last), types)


def acknowledged(state: SharePartitionState, member: str, *rows: Acknowledgement) -> Change:
    change = state.acknowledge(member, rows, renewed_until_ms=LOCK_MS)
    state.commit(change)
    return change


def rows_of(state: SharePartitionState) -> list[tuple[int, int, str, int]]:
    return [(row.first, row.last, row.state.name, row.delivery_count) for row in state]


# ------------------------------------------------------------------------------------- examples


def test_whole_batches_are_acquired_and_parts_follow_the_batch_size() -> None:
    state = begun()
    batches = [span(0, 9), span(10, 19), span(20, 29), span(30, 39)]
    assert acquired(state, "a", *batches, most=15, size=10) == [(0, 9, 1), (10, 19, 1)]
    assert acquired(state, "b", span(20, 29), span(30, 39), most=5, exact=True) == [(20, 24, 1)]
    assert state.next_fetch_offset == 25


def test_records_that_are_accepted_move_the_start_and_released_ones_come_again() -> None:
    state = begun()
    acquired(state, "a", span(0, 9))
    acknowledged(state, "a", said(0, 3, AckType.ACCEPT), said(4, 5, AckType.RELEASE), said(6, 9, AckType.ACCEPT))
    assert (state.start_offset, state.end_offset, state.next_fetch_offset) == (4, 10, 4)
    assert acquired(state, "b", span(0, 9)) == [(4, 5, 2)]
    acknowledged(state, "b", said(4, 5, AckType.GAP, AckType.ACCEPT))
    assert (state.start_offset, rows_of(state)) == (10, [])


def test_records_are_given_up_after_the_last_delivery() -> None:
    state = begun(limit=3)
    for count in (1, 2, 3):
        assert acquired(state, "a", span(0, 0)) == [(0, 0, count)]
        acknowledged(state, "a", said(0, 0, AckType.RELEASE))
    assert (state.start_offset, state.next_fetch_offset) == (1, 1)


def test_a_record_near_the_limit_is_delivered_alone() -> None:
    state = begun(0, StateBatch(Offset(0), Offset(7), DeliveryState.AVAILABLE, 3), limit=5)
    assert acquired(state, "a", span(0, 7)) == [(0, 3, 4)]
    acknowledged(state, "a", said(0, 3, AckType.RELEASE))
    assert acquired(state, "a", span(0, 7)) == [(0, 0, 5)]
    assert acquired(state, "a", span(0, 7)) == [(1, 1, 5)]


def test_a_lock_that_ends_frees_the_records_and_its_member_is_refused() -> None:
    state = begun()
    acquired(state, "a", span(0, 4))
    assert state.next_deadline_ms() == LOCK_MS
    acknowledged(state, "a", said(3, 4, AckType.ACCEPT))
    renewed = state.acknowledge("a", [said(2, 2, AckType.RENEW)], renewed_until_ms=2 * LOCK_MS)
    assert renewed == Change()
    assert state.expire(LOCK_MS).batches == [StateBatch(Offset(0), Offset(1), DeliveryState.AVAILABLE, 1)]
    with pytest.raises(KafkaError) as refused:
        acknowledged(state, "a", said(0, 0, AckType.ACCEPT))
    assert refused.value.code is ErrorCode.invalid_record_state
    acknowledged(state, "a", said(2, 2, AckType.ACCEPT))


def test_an_acknowledgement_in_error_changes_nothing() -> None:
    state = begun()
    acquired(state, "a", span(0, 4))
    acquired(state, "b", span(5, 9))
    for rows in ([said(0, 1, AckType.ACCEPT), said(4, 6, AckType.ACCEPT)], [said(0, 1, AckType.ACCEPT), said(9, 10)]):
        before = rows_of(state)
        with pytest.raises(KafkaError):
            acknowledged(state, "a", *(row if row.types else row._replace(types=(AckType.ACCEPT,)) for row in rows))
        assert [row for row in before if row not in rows_of(state)] in ([], [(0, 4, "ACQUIRED", 1)])
    acknowledged(state, "a", said(0, 4, AckType.ACCEPT))


def test_records_in_transition_are_left_alone_and_a_lock_that_ended_meanwhile_counts() -> None:
    state = begun()
    acquired(state, "a", span(0, 4))
    change = state.acknowledge("a", [said(0, 4, AckType.ACCEPT)], renewed_until_ms=0)
    with pytest.raises(KafkaError, match="not in the acquired state"):
        state.acknowledge("a", [said(1, 2, AckType.ACCEPT)], renewed_until_ms=0)
    assert state.expire(LOCK_MS) == Change()
    assert acquired(state, "b", span(0, 4)) == []
    assert state.roll_back(change, now_ms=LOCK_MS) == list(state)
    assert state.expire(LOCK_MS).batches == [StateBatch(Offset(0), Offset(4), DeliveryState.AVAILABLE, 1)]


def test_the_log_start_goes_beyond_records_in_transition() -> None:
    state = begun()
    acquired(state, "a", span(0, 9))
    change = state.acknowledge("a", [said(0, 9, AckType.ACCEPT)], renewed_until_ms=0)
    assert state.log_start_moved(Offset(4))
    state.commit(change)
    assert (state.start_offset, rows_of(state)) == (10, [])
    assert not state.log_start_moved(Offset(4))


def test_records_that_compaction_removed_and_aborted_ones_are_not_delivered() -> None:
    state = begun(0, StateBatch(Offset(0), Offset(3), DeliveryState.AVAILABLE, 1))
    assert acquired(state, "a", span(2, 5), span(6, 9, aborted=True), span(10, 11)) == [
        (2, 3, 2),
        (4, 5, 1),
        (10, 11, 1),
    ]
    assert state.start_offset == 2
    acknowledged(state, "a", said(2, 5, AckType.ACCEPT), said(10, 11, AckType.ACCEPT))
    assert state.start_offset == 12


def test_stored_records_with_a_gap_are_continued() -> None:
    stored = [
        StateBatch(Offset(5), Offset(6), DeliveryState.ACKNOWLEDGED, 1),
        StateBatch(Offset(9), Offset(9), DeliveryState.AVAILABLE, 2),
    ]
    state = begun(3, *stored)
    assert rows_of(state) == [
        (3, 4, "AVAILABLE", 0),
        (5, 6, "ACKNOWLEDGED", 1),
        (7, 8, "AVAILABLE", 0),
        (9, 9, "AVAILABLE", 2),
    ]
    assert acquired(state, "a", span(0, 12)) == [(3, 4, 1), (7, 8, 1), (9, 9, 3), (10, 12, 1)]


def test_the_most_records_in_flight_bound_new_ones_only() -> None:
    state = begun(locks=10)
    acquired(state, "a", span(0, 9))
    assert not state.may_acquire
    assert acquired(state, "b", span(10, 12)) == []
    acknowledged(state, "a", said(4, 4, AckType.RELEASE))
    assert state.may_acquire
    assert acquired(state, "b", span(0, 12)) == [(4, 4, 2)]


# ---------------------------------------------------------------------------------------- model


def test_rejected_records_wait_for_the_dead_letter_queue() -> None:
    state = begun(queue=lambda: True, limit=2)
    acquired(state, "a", span(0, 9))
    change = acknowledged(state, "a", said(0, 3, AckType.REJECT), said(4, 9, AckType.RELEASE))
    assert change.dead_letters == [(0, 3, 1, True)]
    assert state.start_offset == 0
    acquired(state, "a", span(4, 9), most=1, exact=True)
    assert state.expire(LOCK_MS).dead_letters == [(4, 4, 2, False)]
    with pytest.raises(KafkaError, match="not in the acquired state"):
        state.acknowledge("a", [said(0, 3, AckType.ACCEPT)], renewed_until_ms=LOCK_MS)
    assert state.archive(DeadLetters(Offset(0), Offset(3), 1, rejected=True)).batches == [
        (0, 3, DeliveryState.ARCHIVED, 1)
    ]
    assert state.start_offset == 4
    stored = [StateBatch(row.first, row.last, row.state, row.delivery_count) for row in state if row.delivery_count > 1]
    assert begun(4, *stored, limit=2).dead_letters() == [(4, 4, 2, False)], "another leader goes on"


def test_a_group_may_forbid_renewals() -> None:
    state = begun()
    acquired(state, "a", span(0, 1))
    with pytest.raises(KafkaError, match="not enabled for the group"):
        state.acknowledge("a", [said(0, 0, AckType.ACCEPT), said(1, 1, AckType.RENEW)], renewed_until_ms=None)
    assert rows_of(state) == [(0, 0, "ACQUIRED", 1), (1, 1, "ACQUIRED", 1)], "nothing of the request has an effect"


@dataclass
class Known:
    """What the model has of a record."""

    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    done: bool = False
    accepted: bool = False
    moving: bool = False
    dying: bool = False
    """It is being copied to the dead-letter queue."""


class SharePartitionModel(RuleBasedStateMachine):
    """Any order of fetches, acknowledgements, stored or not, expiries, releases, log starts and new leaders."""

    def __init__(self) -> None:
        super().__init__()
        self.has_queue = False
        self.letters: list[DeadLetters] = []
        self.state = begun(limit=LIMIT, locks=LOCKS, queue=lambda: self.has_queue)
        self.records: dict[int, Known] = {}
        self.stored: tuple[StateBatch, ...] = ()
        self.start = self.stored_start = self.log_start = self.now_ms = 0
        self.moving: list[tuple[Change, dict[int, tuple[bool, bool]]]] = []

    def view(self, offset: int) -> Known:
        return self.records.setdefault(offset, Known())

    def store(self, batches: list[StateBatch], start: int) -> None:
        self.stored = merged((*self.stored, *batches), Offset(start))
        self.stored_start = start

    @rule(
        member=st.sampled_from(MEMBERS),
        sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
        most=st.integers(1, 12),
        exact=st.booleans(),
        aborted=st.integers(-1, 3),
    )
    def fetch(self, member: str, sizes: list[int], most: int, exact: bool, aborted: int) -> None:
        at = self.state.next_fetch_offset
        spans: list[BatchSpan] = []
        for number, size in enumerate(sizes):
            new = at >= self.state.end_offset
            spans.append(span(at, at + size - 1, aborted=new and number == aborted))
            at = Offset(at + size)
        until = self.now_ms + LOCK_MS
        before = self.state.end_offset
        found = acquired(self.state, member, *spans, most=most, size=4, exact=exact, until=until)
        for batch in spans:
            if batch.aborted and batch.first_offset < self.state.end_offset and batch.first_offset >= before:
                for offset in range(batch.first_offset, min(batch.last_offset, self.state.end_offset - 1) + 1):
                    self.view(offset).done = True
        for first, last, count in found:
            for offset in range(first, last + 1):
                row = self.view(offset)
                assert not row.done, f"{offset} was done"
                assert not row.member, f"{offset} is held by {row.member}"
                assert not row.moving
                row.count += 1
                assert row.count == count <= LIMIT
                row.member, row.deadline_ms = member, until

    @precondition(lambda self: any(row.member for row in self.records.values()))
    @rule(data=st.data(), kind=st.sampled_from(AckType), liar=st.booleans())
    def acknowledge(self, data: st.DataObject, kind: AckType, liar: bool) -> None:
        held = [offset for offset, row in self.records.items() if row.member]
        first = data.draw(st.sampled_from(held))
        last = first + data.draw(st.integers(0, 3))
        member = self.records[first].member
        if liar:
            member = next(other for other in MEMBERS if other != member)
        rows = [self.records.get(offset) for offset in range(first, last + 1)]
        allowed = all(row is not None and row.member == member and not row.moving for row in rows)
        try:
            change = self.state.acknowledge(member, [said(first, last, kind)], renewed_until_ms=self.now_ms + LOCK_MS)
        except KafkaError:
            assert not allowed
            return
        assert allowed
        for row in rows:
            assert row is not None
            if kind is AckType.RENEW:
                row.deadline_ms = self.now_ms + LOCK_MS
            else:
                row.moving = True
        if kind is not AckType.RENEW:
            done = kind is not AckType.RELEASE
            self.moving.append((change, dict.fromkeys(range(first, last + 1), (done, kind is AckType.ACCEPT))))

    @rule(member=st.sampled_from(MEMBERS))
    def release(self, member: str) -> None:
        change = self.state.release(member)
        held = {o: (False, False) for o, row in self.records.items() if row.member == member and not row.moving}
        for offset in held:
            self.records[offset].moving = True
        assert bool(change.records) == bool(held)
        if held:
            self.moving.append((change, held))

    @precondition(lambda self: self.moving)
    @rule(stored=st.booleans())
    def settle(self, stored: bool) -> None:
        change, offsets = self.moving.pop(0)
        if stored:
            self.store(change.batches, self.state.start_offset)
            self.state.commit(change)
            self.give_up(change)
        else:
            self.state.roll_back(change, now_ms=self.now_ms)
        for offset, (done, accepted) in offsets.items():
            row = self.records[offset]
            row.moving = False
            if stored:
                row.member = ""
                row.done = row.done or done or row.count >= LIMIT
                row.accepted = accepted

    @rule(passed_ms=st.integers(1, 2 * LOCK_MS))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        change = self.state.expire(self.now_ms)
        self.store(change.batches, self.state.start_offset)
        self.give_up(change)
        for row in self.records.values():
            if row.member and not row.moving and row.deadline_ms <= self.now_ms:
                row.member = ""
                row.done = row.done or row.count >= LIMIT

    @rule()
    def set_or_remove_the_queue(self) -> None:
        self.has_queue = not self.has_queue

    def give_up(self, change: Change) -> None:
        """A change was stored: its dead letters are to be copied."""
        self.letters += change.dead_letters
        for first, last, count, rejected in change.dead_letters:
            for offset in range(first, last + 1):
                row = self.view(offset)
                assert rejected or row.count == count == LIMIT
                row.dying = offset >= self.state.start_offset  # else it was deleted while the change was stored

    @precondition(lambda self: self.letters)
    @rule()
    def copied(self) -> None:
        """The queue has records, or cannot have them."""
        letters = self.letters.pop(0)
        self.store(self.state.archive(letters).batches, self.state.start_offset)
        for offset in range(letters.first_offset, letters.last_offset + 1):
            self.view(offset).dying = False

    @rule(by=st.integers(1, 6))
    def delete_records(self, by: int) -> None:
        offset = min(self.state.start_offset + by, self.state.end_offset)
        self.state.log_start_moved(Offset(offset))
        self.log_start = max(self.log_start, offset)
        for at in range(offset):
            row = self.view(at)
            row.done, row.member, row.dying = True, "", False

    @precondition(lambda self: not self.moving)
    @rule()
    def begin_again(self) -> None:
        """Another leader: it knows what was stored; locks and what was not stored are lost."""
        start = max(self.stored_start, 0)
        stored = ShareState(0, LeaderEpoch(1), Offset(start), self.stored)
        self.state = SharePartitionState(
            stored, Offset(start), limit=LIMIT, locks_most=LOCKS, has_dead_letters=lambda: self.has_queue
        )
        self.state.log_start_moved(Offset(self.log_start))
        self.letters = self.state.dead_letters()
        dying = {o for row in self.letters for o in range(row.first_offset, row.last_offset + 1)}
        assert dying == {offset for offset, row in self.records.items() if row.dying}, "no letter is forgotten"
        self.start = 0
        accepted = {offset for offset, row in self.records.items() if row.accepted}
        self.records = {offset: Known(done=True, accepted=True) for offset in accepted}
        self.records |= {offset: Known(done=True, dying=True) for offset in dying}
        for row in self.state:
            for offset in range(row.first, row.last + 1):
                known = self.view(offset)
                known.count = row.delivery_count
                known.done = known.done or row.state in (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)
        for offset in range(self.state.start_offset):
            self.view(offset).done = True

    @invariant()
    def the_start_offset_rises_over_records_that_are_done(self) -> None:
        assert self.state.start_offset >= self.start
        self.start = self.state.start_offset
        assert all(self.view(offset).done and not self.view(offset).dying for offset in range(self.start))

    @invariant()
    def both_have_the_same_holders(self) -> None:
        for row in self.state:
            for offset in range(row.first, row.last + 1):
                known = self.view(offset)
                assert known.member == row.member, f"{offset} is held by {row.member}"
                assert known.dying == (row.state is DeliveryState.ARCHIVING), f"{offset} is {row.state.name}"


TestSharePartitionModel = SharePartitionModel.TestCase
TestSharePartitionModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("ends", ["its release is stored", "another leader has the state"])
def test_a_record_that_was_deleted_is_no_dead_letter(ends: str) -> None:
    model = SharePartitionModel()
    model.fetch(member="a", sizes=[1], most=1, exact=False, aborted=1)
    model.set_or_remove_the_queue()
    for _ in range(2):
        model.wait(passed_ms=LOCK_MS)
        model.fetch(member="a", sizes=[1], most=1, exact=False, aborted=1)
    if ends == "its release is stored":
        model.release(member="a")
        model.delete_records(by=1)
        model.settle(stored=True)
    else:
        model.wait(passed_ms=LOCK_MS)
        model.delete_records(by=1)
        model.begin_again()
        assert model.letters == []
    model.both_have_the_same_holders()
    model.the_start_offset_rises_over_records_that_are_done()
