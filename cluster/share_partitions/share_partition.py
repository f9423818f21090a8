"""The records of one share-partition on the leader of its topic-partition: a state machine without I/O (KIP-932).

Owns: the state of each record from the start offset to the end offset, as ranges that are split where needed.

    AVAILABLE ──acquire──► ACQUIRED ──accept──► ACKNOWLEDGED
        ▲                     │  │
        └─release, expiry─────┘  └─reject, gap, aborted, the delivery limit──► ARCHIVED
                                 └─reject, the delivery limit──► ARCHIVING ──copied──► ARCHIVED

A record that is released, or whose lock expires, becomes ARCHIVED when it was delivered as often as the limit allows.
A group with a dead-letter queue (KIP-1191) has ARCHIVING between: no member gets the record any more, and the start
offset stays below it, until `archive` says that the queue has it or cannot have it.

A *change* (acknowledgement, release of a member) takes effect in three steps: `begun` here, stored by the persister,
then `commit`ted or `rolled_back`. Meanwhile the records are in transition: nothing else may change them.

Invariants: a record is acquired by at most one member; a record that was accepted is never delivered again; the
delivery count of a record never exceeds the limit; the start offset only rises; ranges follow each other without gap
and overlap.

Below the start offset nothing is known: an acknowledgement of such records has no effect and no error.

May fail: KafkaError(invalid_record_state) for records that the member does not hold; KafkaError(invalid_request) for
offsets that were never delivered.

Source: Kafka's SharePartition, InFlightBatch, InFlightState.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..errors import ErrorCode, KafkaError
from ..ids import Offset
from ..share_coordinator.values import DeliveryState, ShareState, StateBatch
from .acknowledgements import STATE_AFTER, Acknowledgement, AckType, runs_of
from .in_flight_records import NO_MEMBER, AcquiredRecords, BatchSpan, Change, DeadLetters, Records

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVING = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVING
ARCHIVED = DeliveryState.ARCHIVED
DONE = frozenset((ACKNOWLEDGED, ARCHIVED))
LEAST_THROTTLED = 2
"""From this delivery count on, or half of the limit, records are delivered in smaller and smaller numbers, so that one
bad record does not take its neighbours beyond the limit."""


class SharePartitionState:
    """The records of one share-partition."""

    def __init__(
        self,
        stored: ShareState,
        start_offset: Offset,
        *,
        limit: int,
        locks_most: int,
        has_dead_letters: Callable[[], bool] = lambda: False,
    ) -> None:
        """`start_offset`: that of `stored`, or where a group without one begins.

        `has_dead_letters`: whether the group has a dead-letter queue now.
        """
        self.start_offset = start_offset
        self.state_epoch = stored.state_epoch
        self.deliveries_most = limit
        self._locks_most = locks_most
        self._has_dead_letters = has_dead_letters
        self._throttled_from = max(LEAST_THROTTLED, -(-limit // 2))
        self._rows: list[Records] = []
        for batch in stored.batches:
            assert batch.state is not ACQUIRED, f"a lock was stored: {batch}"
            if batch.last_offset >= start_offset:
                self._add(max(batch.first_offset, start_offset), batch)
        self._move_start()
        self._check()

    def _add(self, first: Offset, batch: StateBatch) -> None:
        """Add stored records; those before them that were not stored were never delivered."""
        if first > self.end_offset:
            gap_end = Offset(first - 1)
            self._rows.append(Records(first=self.end_offset, last=gap_end, state=AVAILABLE, delivery_count=0))
        self._rows.append(
            Records(first=first, last=batch.last_offset, state=batch.state, delivery_count=batch.delivery_count)
        )

    # ---- what it is --------------------------------------------------------------------------------

    @property
    def end_offset(self) -> Offset:
        """First offset that was never delivered and has no state."""
        return Offset(self._rows[-1].last + 1) if self._rows else self.start_offset

    @property
    def delivery_complete_count(self) -> int:
        """Records from the start offset on that are done, once what is being stored is stored."""
        return sum(len(row) for row in self._rows if (row.next_state or row.state) in DONE)

    def __iter__(self) -> Iterator[Records]:
        return iter(self._rows)

    @property
    def next_fetch_offset(self) -> Offset:
        """The first offset that a member may acquire."""
        return next((row.first for row in self._rows if row.is_free), self.end_offset)

    @property
    def may_acquire(self) -> bool:
        """False while the most records are in flight and none of them is free."""
        end = self.end_offset
        return self.next_fetch_offset < end or end - self.start_offset < self._locks_most

    def next_deadline_ms(self) -> int | None:
        """When the next lock ends."""
        held = (row.deadline_ms for row in self._rows if row.state is ACQUIRED and row.next_state is None)
        return min(held, default=None)

    def dead_letters(self) -> list[DeadLetters]:
        """Records that are to be copied to the dead-letter queue, as they were stored by an earlier leader."""
        return [
            DeadLetters(row.first, row.last, row.delivery_count, row.delivery_count < self.deliveries_most)
            for row in self._rows
            if row.state is ARCHIVING
        ]

    # ---- acquire -----------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        batches: Sequence[BatchSpan],
        *,
        fetch_offset: Offset,
        records_most: int,
        batch_size: int,
        exact: bool,
        deadline_ms: int,
    ) -> list[AcquiredRecords]:
        """Give free records of `batches`, which were read from `fetch_offset` on, to a member until `deadline_ms`.

        About `records_most` records: without `exact`, whole batches. New records are returned in parts of about
        `batch_size`, each of whole batches. Offsets before the first batch have no record any more: they are archived.
        """
        assert member, "records are acquired by a member"
        if records_most <= 0 or not batches:
            return []
        end = self.end_offset
        room = self._locks_most - (end - self.start_offset)
        last = batches[-1].last_offset
        most = min(records_most, room)
        if most <= 0:
            if fetch_offset >= end:
                return []
            most, last = min(records_most, end - fetch_offset), min(last, Offset(end - 1))
        first = max(batches[0].first_offset, self.start_offset)
        self._archive_missing(fetch_offset, first)
        found = self._acquire_known(member, first, last, most, exact=exact, deadline_ms=deadline_ms)
        got = sum(row.last_offset - row.first_offset + 1 for row in found)
        if last >= self.end_offset and got < most and not self._held_back(found):
            found += self._acquire_new(
                member, batches, first, last, most - got, batch_size, exact=exact, deadline_ms=deadline_ms
            )
        for batch in batches:
            if batch.aborted:
                found = self._without_aborted(found, batch, member)
        self._check()
        return found

    def _archive_missing(self, start: Offset, end: Offset) -> None:
        """Archive free records of [start, end): the log has none of them."""
        for row in self._overlapping(start, Offset(end - 1)):
            if row.is_free:
                self._cut(max(row.first, start), min(row.last, Offset(end - 1))).state = ARCHIVED
        self._move_start()

    def _acquire_known(
        self, member: str, first: Offset, last: Offset, most: int, *, exact: bool, deadline_ms: int
    ) -> list[AcquiredRecords]:
        found: list[AcquiredRecords] = []
        got = 0
        at = self._index(first)
        while at < len(self._rows) and got < most:
            row = self._rows[at]
            if row.first > last:
                break
            if row.is_free and row.last >= first:
                throttled = row.delivery_count >= self._throttled_from
                if throttled and got:
                    break
                lower, upper = max(row.first, first), min(row.last, last)
                if throttled:
                    upper = min(upper, Offset(lower + self._few(row) - 1))
                elif exact:
                    upper = min(upper, Offset(lower + most - got - 1))
                row = self._cut(lower, upper)
                self._lock(row, member, deadline_ms)
                found.append(AcquiredRecords(row.first, row.last, row.delivery_count))
                got += len(row)
                if throttled:
                    break
                at = self._index(row.first)
            at += 1
        return found

    def _few(self, row: Records) -> int:
        """How many records are delivered together that are near the limit; the last time each alone."""
        if row.delivery_count >= self.deliveries_most - 1:
            return 1
        return max(1, len(row) >> (row.delivery_count - self._throttled_from + 1))

    def _held_back(self, found: Sequence[AcquiredRecords]) -> bool:
        return any(row.delivery_count > self._throttled_from for row in found)

    def _lock(self, row: Records, member: str, deadline_ms: int) -> None:
        assert row.is_free, f"{row} is not free"
        assert row.delivery_count < self.deliveries_most, f"{row} was delivered as often as is allowed"
        row.state, row.member, row.deadline_ms = ACQUIRED, member, deadline_ms
        row.delivery_count += 1

    def _acquire_new(
        self,
        member: str,
        batches: Sequence[BatchSpan],
        first: Offset,
        last: Offset,
        most: int,
        batch_size: int,
        *,
        exact: bool,
        deadline_ms: int,
    ) -> list[AcquiredRecords]:
        """Acquire records that have no state yet."""
        lower = max(first, self.end_offset)
        if not self._rows:
            self.start_offset = lower
        wanted = Offset(lower + most - 1)
        upper = last
        if wanted < last:
            upper = wanted if exact else next(b.last_offset for b in batches if b.last_offset >= wanted)
        bounds = [lower]
        if not exact and upper - lower + 1 > batch_size:
            for batch in batches:
                if lower < batch.first_offset <= upper and batch.first_offset - bounds[-1] >= batch_size:
                    bounds.append(batch.first_offset)
        found: list[AcquiredRecords] = []
        for start, after in zip(bounds, [*bounds[1:], Offset(upper + 1)], strict=True):
            row = Records(first=start, last=Offset(after - 1), state=AVAILABLE, delivery_count=0)
            if start > self.end_offset:
                self._rows.append(
                    Records(first=self.end_offset, last=Offset(start - 1), state=ARCHIVED, delivery_count=0)
                )
            self._rows.append(row)
            self._lock(row, member, deadline_ms)
            found.append(AcquiredRecords(row.first, row.last, row.delivery_count))
        return found

    def _without_aborted(
        self, found: Iterable[AcquiredRecords], batch: BatchSpan, member: str
    ) -> list[AcquiredRecords]:
        """Archive the acquired records of an aborted batch; the member does not get them."""
        for row in self._split(batch.first_offset, batch.last_offset):
            if row.state is ACQUIRED and row.member == member and row.next_state is None:
                row.state, row.member = ARCHIVED, NO_MEMBER
        kept: list[AcquiredRecords] = []
        for part in found:
            if part.first_offset < batch.first_offset:
                kept.append(part._replace(last_offset=min(part.last_offset, Offset(batch.first_offset - 1))))
            if part.last_offset > batch.last_offset:
                kept.append(part._replace(first_offset=max(part.first_offset, Offset(batch.last_offset + 1))))
        self._move_start()
        return kept

    # ---- changes that members ask for ----------------------------------------------------------------

    def acknowledge(self, member: str, said: Iterable[Acknowledgement], *, renewed_until_ms: int | None) -> Change:
        """Begin what a member says of its records; nothing of it remains after an error. KafkaError.

        Records that the member renews stay acquired until `renewed_until_ms`; None: the group lets nothing be renewed.
        """
        change = Change()
        try:
            for row in said:
                self._acknowledge(member, row, change, renewed_until_ms)
        except KafkaError:
            self.roll_back(change, now_ms=0)
            raise
        self._check()
        return change

    def _acknowledge(self, member: str, said: Acknowledgement, change: Change, renewed_until_ms: int | None) -> None:
        first, last, types = said
        assert first <= last, f"{said} ends before it begins"
        assert len(types) in (1, last - first + 1), f"{said} has {len(types)} types"
        if last < self.start_offset:
            return
        if last >= self.end_offset:
            which = "first" if first >= self.end_offset else "last"
            text = f"Batch record not found. The {which} offset in request is past acquired records."
            raise KafkaError(ErrorCode.invalid_request, text)
        lower = max(first, self.start_offset)
        for kind, start, end in runs_of(types, first, last):
            if end < lower:
                continue
            begin = max(start, lower)
            for row in self._overlapping(begin, end):
                _check_held(row, member)
            rows = self._split(begin, end)
            if kind is not AckType.RENEW:
                for row in rows:
                    self._begin(row, STATE_AFTER[kind], change, rejected=kind is AckType.REJECT)
            elif renewed_until_ms is None:
                text = "Renewing acquisition locks is not enabled for the group."
                raise KafkaError(ErrorCode.invalid_record_state, text)
            else:
                for row in rows:
                    row.deadline_ms = renewed_until_ms

    def release(self, member: str) -> Change:
        """Begin to release everything that a member holds: its session has ended."""
        change = Change()
        for row in self._rows:
            if row.state is ACQUIRED and row.member == member and row.next_state is None:
                self._begin(row, AVAILABLE, change)
        return change

    def _begin(self, row: Records, state: DeliveryState, change: Change, *, rejected: bool = False) -> None:
        assert row.next_state is None, f"{row} is in transition"
        row.next_state = self._after(row, state, rejected=rejected)
        change.add(row, row.next_state, rejected=rejected)

    def _after(self, row: Records, state: DeliveryState, *, rejected: bool = False) -> DeliveryState:
        """Records that were delivered as often as is allowed are given up instead of being available again."""
        if rejected or (state is AVAILABLE and row.delivery_count >= self.deliveries_most):
            return ARCHIVING if self._has_dead_letters() else ARCHIVED
        return state

    def commit(self, change: Change) -> None:
        """The persister has the change."""
        for row in change.records:
            assert row.next_state is not None, f"{row} is not in transition"
            if row.last < self.start_offset:
                continue  # the log start went beyond it
            row.state, row.next_state, row.member = row.next_state, None, NO_MEMBER
        self._move_start()
        self._check()

    def roll_back(self, change: Change, *, now_ms: int) -> list[Records]:
        """The change was not stored; returns the records whose lock ended meanwhile, which are released now."""
        late: list[Records] = []
        for row in change.records:
            assert row.next_state is not None, f"{row} is not in transition"
            row.next_state = None
            if row.last >= self.start_offset and row.deadline_ms <= now_ms:
                late.append(row)
        return late

    # ---- changes without a request --------------------------------------------------------------

    def expire(self, now_ms: int) -> Change:
        """Release the records whose lock has ended; the change has taken effect, and need only be stored."""
        change = Change()
        for row in self._rows:
            if row.state is ACQUIRED and row.next_state is None and row.deadline_ms <= now_ms:
                row.state, row.member = self._after(row, AVAILABLE), NO_MEMBER
                change.add(row, row.state)
        if change.records:
            self._move_start()
            self._check()
        return change

    def archive(self, letters: DeadLetters) -> Change:
        """The dead-letter queue has these records, or cannot have them; the change has taken effect."""
        change = Change()
        for row in self._split(letters.first_offset, letters.last_offset):
            if row.state is ARCHIVING:
                row.state = ARCHIVED
                change.add(row, ARCHIVED)
        if change.records:
            self._move_start()
            self._check()
        return change

    def log_start_moved(self, offset: Offset) -> bool:
        """The log begins at `offset`: what is below is gone; True when that moved the start offset."""
        if offset <= self.start_offset:
            return False
        self._rows = [row for row in self._rows if row.last >= offset]
        if self._rows:
            self._rows[0].first = max(self._rows[0].first, offset)
        self.start_offset = offset
        self._move_start()
        self._check()
        return True

    # ---- ranges ------------------------------------------------------------------------------------

    def _index(self, offset: Offset) -> int:
        """The place of the row with this offset; of the first row for an offset before it."""
        return max(0, bisect_right(self._rows, offset, key=lambda row: row.first) - 1)

    def _overlapping(self, first: Offset, last: Offset) -> list[Records]:
        """The rows that have a record of [first, last]."""
        return [row for row in self._rows[self._index(first) :] if row.first <= last and row.last >= first]

    def _split(self, first: Offset, last: Offset) -> list[Records]:
        """The rows of [first, last], cut so that none goes beyond; empty where there is no state."""
        first, last = max(first, self.start_offset), min(last, Offset(self.end_offset - 1))
        if first > last:
            return []
        self._cut_before(first)
        self._cut_before(Offset(last + 1))
        at = self._index(first)
        found: list[Records] = []
        while at < len(self._rows) and self._rows[at].first <= last:
            found.append(self._rows[at])
            at += 1
        return found

    def _cut(self, first: Offset, last: Offset) -> Records:
        """The row of exactly these records, which are part of one row."""
        rows = self._split(first, last)
        assert len(rows) == 1, f"{first} to {last} are {len(rows)} rows"
        return rows[0]

    def _cut_before(self, offset: Offset) -> None:
        if not self._rows:
            return
        at = self._index(offset)
        row = self._rows[at]
        if row.first < offset <= row.last:
            assert row.next_state is None, f"{row} is cut while it is in transition"
            rest = Records(
                first=offset,
                last=row.last,
                state=row.state,
                delivery_count=row.delivery_count,
                member=row.member,
                deadline_ms=row.deadline_ms,
            )
            row.last = Offset(offset - 1)
            self._rows.insert(at + 1, rest)

    def _move_start(self) -> None:
        """Records at the start that are done are not remembered."""
        done = 0
        for row in self._rows:
            if row.state not in DONE or row.next_state is not None:
                break
            done += 1
        if done:
            self.start_offset = Offset(self._rows[done - 1].last + 1)
            del self._rows[:done]

    def _check(self) -> None:
        at = self.start_offset
        for row in self._rows:
            assert row.first == at, f"{row} does not begin at {at}"
            assert row.last >= row.first, f"{row} is empty"
            assert row.delivery_count <= self.deliveries_most, f"{row} was delivered too often"
            assert (row.state is ACQUIRED) == bool(row.member), f"{row}: who holds it?"
            at = Offset(row.last + 1)


def _check_held(row: Records, member: str) -> None:
    if row.state is not ACQUIRED or row.next_state is not None:
        text = "The batch cannot be acknowledged. The batch is not in the acquired state."
    elif row.member != member:
        text = "Member is not the owner of batch record"
    else:
        return
    raise KafkaError(ErrorCode.invalid_record_state, text)
