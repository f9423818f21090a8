"""Fetch sessions of consumers (KIP-227): a consumer names what changed, a response carries what changed.

Owns: `ConsumerSessions`, the sessions of one broker with the rule for who gets a slot, and `ConsumerFetch`, one
fetch as its session sees it. Followers have sessions of another kind (`fetch_session.py`).

    session epoch   meaning
    0               a full fetch, which asks for a session; it ends the session that it names
    -1              a full fetch without a session; it ends the session that it names
    n               the next fetch of a session: it adds, changes and forgets partitions

Rules:

* A response within a session carries the partitions with records, a new high watermark or log start, an error, a
  diverging epoch or a preferred read replica. After an error the partition is sent again when the error has gone.
* Partitions that were sent with records are read last by the next fetch: no partition starves behind others.
* A session without partitions ends. A session uses topic names or topic ids, for its whole life.
* `max.incremental.fetch.session.cache.slots` bounds the sessions. When all slots are taken, a new session replaces the
  least recently used one if that is unused for two minutes, else the smallest that has existed for two minutes if
  the new one is larger. Otherwise the consumer gets session id 0 and goes on with full fetches.

Invariants: session ids are drawn at random, so a consumer that survives a restart of the broker does not continue a
session of another consumer; the epoch of a session rises by one with each fetch that it accepts.

Source: Kafka's `FetchSession`, `FetchManager`, `FetchSessionCacheShard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode
from ..wire.fetch import FULL_EPOCH, FetchPartition, FetchRequest
from .fetch_session import next_epoch

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..wire.fetch_response import FetchAnswer
    from ..wire.topic_ids import UUID

EVICTION_MS = 120_000
_ID_BITS = 31

Key = tuple["str | UUID", int]


class _Row:
    """One partition of a session: what the consumer last named, and what it was last sent."""

    __slots__ = ("high_watermark", "log_start", "row")

    def __init__(self, row: FetchPartition, high_watermark: int = -1, log_start: int = -1) -> None:
        self.row = row
        self.high_watermark: int = high_watermark
        self.log_start: int = log_start

    def must_send(self, answer: FetchAnswer) -> bool:
        """True when the response has to carry `answer`, which is remembered as sent."""
        failed = answer.error != 0 or answer.diverging is not None
        changed = (
            failed
            or bool(answer.records)
            or answer.preferred_read_replica >= 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start
        )
        self.high_watermark = -1 if failed else answer.high_watermark
        self.log_start = answer.log_start_offset
        return changed


class ConsumerSession:
    """The partitions that one consumer fetches here."""

    __slots__ = ("by_id", "created_ms", "epoch", "rows", "session_id", "used_ms")

    def __init__(self, session_id: int, rows: dict[Key, _Row], now_ms: int, *, by_id: bool) -> None:
        self.session_id = session_id
        self.rows = rows
        self.by_id = by_id
        self.epoch = 1
        self.created_ms = self.used_ms = now_ms

    def update(self, fetch: FetchRequest) -> None:
        """Take in what the next fetch names and forgets."""
        for row in fetch.partitions:
            known = self.rows.get((row.topic, row.partition))
            if known is None:
                self.rows[row.topic, row.partition] = _Row(row)
            else:
                known.row = row
        for key in fetch.forgotten:
            self.rows.pop(key, None)

    def changed(self, answers: Sequence[FetchAnswer]) -> list[FetchAnswer]:
        """The answers that the response has to carry; those with records move to the end of the session."""
        sent: list[FetchAnswer] = []
        for answer in answers:
            key = (answer.topic, answer.partition)
            row = self.rows.get(key)
            if row is not None and row.must_send(answer):
                sent.append(answer)
                if answer.records:
                    self.rows[key] = self.rows.pop(key)
        return sent


class ConsumerFetch:
    """One fetch of a consumer: the partitions to read, and the response that its session asks for."""

    __slots__ = ("_begins", "_epoch", "_session", "rows")

    def __init__(
        self,
        rows: Sequence[FetchPartition],
        *,
        session: ConsumerSession | None = None,
        begins: tuple[ConsumerSessions, bool] | None = None,
    ) -> None:
        self.rows = rows
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._begins = begins

    def response(self, answers: Sequence[FetchAnswer]) -> tuple[ErrorCode, int, Sequence[FetchAnswer]]:
        """`(error, session id, answers)` of the response; the session remembers them as sent."""
        if self._begins is not None:
            sessions, by_id = self._begins
            return ErrorCode.none, sessions.begin(self.rows, answers, by_id=by_id), answers
        session = self._session
        if session is None:
            return ErrorCode.none, 0, answers
        if session.epoch != self._epoch:  # a later fetch of the session came while this one waited
            return ErrorCode.invalid_fetch_session_epoch, session.session_id, ()
        return ErrorCode.none, session.session_id, session.changed(answers)


class ConsumerSessions:
    """The fetch sessions of consumers on one broker."""

    def __init__(self, host: Host, slots: int) -> None:
        self._host = host
        self._slots = slots
        self._sessions: dict[int, ConsumerSession] = {}
        """By id, the least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions(self, session_id: int) -> Sequence[Key]:
        """The partitions of a session; none for one that is not known."""
        session = self._sessions.get(session_id)
        return () if session is None else tuple(session.rows)

    def fetch(self, fetch: FetchRequest, *, by_id: bool) -> ConsumerFetch | ErrorCode:
        """The partitions that `fetch` reads; an error when it names a session that it cannot continue."""
        if not fetch.continues_session:
            self._sessions.pop(fetch.session_id, None)
            begins = (self, by_id) if fetch.session_epoch == FULL_EPOCH else None
            return ConsumerFetch(_once_each(fetch.partitions), begins=begins)
        session = self._sessions.get(fetch.session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != fetch.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.by_id is not by_id:
            return ErrorCode.fetch_session_topic_id_error
        session.update(fetch)
        del self._sessions[session.session_id]
        if not session.rows:
            return ConsumerFetch(())
        self._sessions[session.session_id] = session
        session.epoch = next_epoch(session.epoch)
        session.used_ms = self._host.clock.monotonic_ms()
        return ConsumerFetch([known.row for known in session.rows.values()], session=session)

    def begin(self, rows: Sequence[FetchPartition], answers: Sequence[FetchAnswer], *, by_id: bool) -> int:
        """Begin a session with the response to its full fetch; its id, or 0 when there is no slot for it."""
        now_ms = self._host.clock.monotonic_ms()
        known = {
            (row.topic, row.partition): _Row(row, answer.high_watermark, answer.log_start_offset)
            for row, answer in zip(rows, answers, strict=True)
        }
        if len(self._sessions) >= self._slots and not self._make_room(len(known), now_ms):
            return 0
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._host.random.getrandbits(_ID_BITS)
        self._sessions[session_id] = ConsumerSession(session_id, known, now_ms, by_id=by_id)
        assert len(self._sessions) <= self._slots, f"{len(self._sessions)} sessions in {self._slots} slots"
        return session_id

    def _make_room(self, size: int, now_ms: int) -> bool:
        """End the session that a new one with `size` partitions may replace; False when there is none."""
        if not self._sessions:
            return False
        least = next(iter(self._sessions.values()))
        if now_ms - least.used_ms <= EVICTION_MS:
            old = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTION_MS]
            if not old:
                return False
            least = min(old, key=lambda session: (len(session.rows), session.session_id))
            if len(least.rows) >= size:
                return False
        del self._sessions[least.session_id]
        return True


def _once_each(rows: Sequence[FetchPartition]) -> Sequence[FetchPartition]:
    """`rows` with the last row of a partition that is named twice, as in Kafka."""
    if len(rows) < 2:
        return rows
    last = {(row.topic, row.partition): row for row in rows}
    return rows if len(last) == len(rows) else list(last.values())
