"""Fetch sessions of followers (KIP-227): a fetch names what changed, a response carries what changed.

Owns: `FetchSession` and its rows. The leader remembers which partitions a follower fetches, so that the cost of a fetch
depends on the partitions that changed and not on the idle ones beside them. A full fetch (session epoch 0) begins
a session if every row of it is valid. Each follower has at most one; its next full fetch replaces it. Consumers have
none.

Rules:

* A row is in `_changed` from the moment when the leader's log end, high watermark or log start of it moves (the
  partition says so through `SessionRow`) until the follower has fetched up to the log end and was sent all
  three. Only these rows are looked at; no fetch, no response and no wake-up walks the idle rows.
* A response has the rows with records, and those whose high watermark or log start is not what was last sent.
* A follower names every row whose fetch offset or log start it has not named yet. Between two fetches the last named
  offset holds.
* An idle row counts as fetched with each fetch of the session, or its follower would leave the ISR with the first
  append after a quiet time: `RemoteReplica.leader_log_grows` takes in `last_fetch_ms` when the log grows, and
  `RemoteReplica.session_ended` when the session ends.
* Rows whose follower is outside the ISR are evaluated with each fetch, because what kept it out (another ISR write
  in progress, a registration that metadata does not have yet) may be over.
* A session serves the steady state only. Any unusual event (another leader or epoch, a failed log, a dropped
  partition, a log start beyond the fetch offset, an earlier registration) ends it, for all rows at once: the answer is
  FETCH_SESSION_ID_NOT_FOUND, the follower sends a full fetch, and its response says which row has which error.
* When a response is full, rows that got records go to the end: no partition starves.

Invariants: no partition stands in a session twice; a row belongs to the present leader epoch of its partition.

Source: Kafka's `FetchSession`, `IncrementalFetchContext`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, StorageError
from ..ids import NodeId, Offset
from ..wire.fetch_response import FetchAnswer
from .fetch_reads import LogFailed, RequestedPartition

if TYPE_CHECKING:
    from ..host.seam import Part
    from ..wire.fetch import FetchPartition, FetchRequest
    from .partition import Partition
    from .remote_replica import RemoteReplica

EPOCH_MOST = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The session epoch of the fetch after that of `epoch`: never 0, which begins a session."""
    return epoch % EPOCH_MOST + 1


class FetchSessionRow:
    """One partition of a session: what the follower last named, and what it was last sent."""

    __slots__ = ("error", "index", "partition", "remote", "row", "sent_high_watermark", "sent_log_start", "session")

    def __init__(
        self, session: FetchSession, index: int, row: FetchPartition, partition: Partition, remote: RemoteReplica
    ) -> None:
        self.session = session
        self.index = index
        self.row = row
        self.partition = partition
        self.remote = remote
        self.error = ErrorCode.none
        self.sent_high_watermark = self.sent_log_start = -1

    def last_fetch_ms(self) -> int:
        """When the follower's last fetch in this session came."""
        return self.session.last_fetch_ms

    def changed(self) -> None:
        """The leader's log end, high watermark or log start moved: evaluate the row with the next response."""
        self.session.changed_rows[self.index] = self

    def isr_changed(self) -> None:
        """Evaluate the row with the next fetch: its follower may have to join the ISR."""
        self.session.rows_outside_isr[self.index] = self

    def end_session(self) -> None:
        """The partition is not led here as it was when the session began."""
        self.session.end()


class FetchSession:
    """The partitions that one follower fetches here."""

    __slots__ = (
        "_log_failed",
        "_rows",
        "broker_epoch",
        "changed_rows",
        "ended",
        "epoch",
        "last_fetch_ms",
        "node_id",
        "rows_outside_isr",
        "session_id",
    )

    def __init__(self, session_id: int, fetch: FetchRequest, now_ms: int, log_failed: LogFailed) -> None:
        self._log_failed = log_failed
        self.session_id = session_id
        self.node_id = NodeId(fetch.replica_id)
        self.broker_epoch = fetch.replica_epoch
        self.epoch = 1
        self.last_fetch_ms = now_ms
        self.ended = False
        """True once any row is not as it was when the session began."""
        self._rows: dict[tuple[object, int], FetchSessionRow] = {}
        self.changed_rows: dict[int, FetchSessionRow] = {}
        """By the row's index; in the order in which they changed, which is the order of a response."""
        self.rows_outside_isr: dict[int, FetchSessionRow] = {}
        """Rows whose follower is not in the ISR, or may not be since the ISR changed."""

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, requested: Sequence[RequestedPartition]) -> bool:
        """Watch all partitions of a full fetch; False when a row is not valid or stands in it twice."""
        for index, candidate in enumerate(requested):
            row, partition = candidate.row, candidate.partition
            remote = None if partition is None else partition.remote(self.node_id)
            if partition is None or remote is None or candidate.role_changed():
                return False
            key = (row.topic, row.partition)
            if key in self._rows:
                return False
            self._rows[key] = FetchSessionRow(self, index, row, partition, remote)
        for session_row in self._rows.values():
            previous = session_row.remote.session_row
            assert previous is None, "the follower's previous session has ended before"
            session_row.remote.session_row = session_row
            session_row.changed()
            session_row.isr_changed()
        return True

    def end(self) -> None:
        """The next fetch of this session is refused, and no partition refers to it any more."""
        if self.ended:
            return
        self.ended = True
        for row in self._rows.values():
            if row.remote.session_row is row:
                row.remote.session_ended(row.partition.log.log_end_offset)

    def refusal(self, fetch: FetchRequest) -> ErrorCode:
        """`none` when `fetch` is the next one of this session."""
        if fetch.session_id != self.session_id or fetch.replica_epoch != self.broker_epoch:
            return ErrorCode.fetch_session_id_not_found
        if fetch.session_epoch != self.epoch:
            return ErrorCode.invalid_fetch_session_epoch
        return ErrorCode.none

    def update(self, rows: Iterable[FetchPartition], now_ms: int) -> list[FetchSessionRow] | None:
        """Take in what the next fetch names; the rows to evaluate, or None when the session has to end."""
        assert now_ms >= self.last_fetch_ms, "the clock went back"
        self.epoch = next_epoch(self.epoch)
        named: list[FetchSessionRow] = []
        for row in rows:
            known = self._rows.get((row.topic, row.partition))
            if known is None or row.current_leader_epoch != known.row.current_leader_epoch:
                return None
            known.row = row
            self.changed_rows[known.index] = known
            named.append(known)
        if self.ended:
            return None
        self.last_fetch_ms = now_ms
        return self._with_rows_outside_isr(named) if self.rows_outside_isr else named

    def _with_rows_outside_isr(self, named: list[FetchSessionRow]) -> list[FetchSessionRow]:
        outside = [row for row in self.rows_outside_isr.values() if not self._in_isr(row)]
        self.rows_outside_isr = {row.index: row for row in outside}
        already = {row.index for row in named}
        return named + [row for row in outside if row.index not in already]

    def _in_isr(self, row: FetchSessionRow) -> bool:
        return self.node_id in row.partition.isr

    def has_data(self) -> bool:
        """True when at least one byte could be read."""
        for row in self.changed_rows.values():  # noqa: SIM110 - a generator costs more on this path
            if row.partition.log.log_end_offset > row.row.fetch_offset:
                return True
        return False

    def read(self, max_bytes: int, *, record_sent: bool = True) -> list[FetchAnswer] | None:
        """The response of a session that has not ended; None when it has to end, because a read failed, for example.

        With `record_sent` the response is remembered as sent. Rechecks only the log start, which may have moved past
        the fetch offset: within one leadership generation a follower that was validated as a prefix cannot diverge.
        """
        assert not self.ended, "a session that has ended is not read"
        answers: list[FetchAnswer] = []
        filled: list[FetchSessionRow] = []
        done: list[int] = []
        left = max_bytes
        for index, session_row in self.changed_rows.items():
            row, partition = session_row.row, session_row.partition
            log, high = partition.log, partition.high_watermark
            start, end = log.log_start_offset, log.log_end_offset
            if start > row.fetch_offset:
                return None
            parts: Sequence[Part] = ()
            if end > row.fetch_offset:
                if left > 0 or not filled:
                    limit = max(0, min(row.max_bytes, left))
                    try:
                        data = log.read_to_send(Offset(row.fetch_offset), limit, end, at_least_one=not filled)
                    except KafkaError:
                        return None
                    except StorageError as failed:
                        self._log_failed(partition, failed)
                        return None
                    parts = data.parts
                    left -= data.size
                    if data.size:
                        filled.append(session_row)
            else:
                done.append(index)
                if high == session_row.sent_high_watermark and start == session_row.sent_log_start:
                    continue
            if record_sent:
                session_row.sent_high_watermark, session_row.sent_log_start = high, start
            answers.append(FetchAnswer(row.topic, row.partition, 0, high, high, start, parts))
        if record_sent:
            self._after_sending(done, filled, left)
        return answers

    def _after_sending(self, done: list[int], filled: list[FetchSessionRow], left: int) -> None:
        """Forget rows with nothing left to send; after a full response, move those that got records to the end."""
        for index in done:
            del self.changed_rows[index]
        if filled and left < filled[-1].row.max_bytes:
            for row in filled:
                self.changed_rows[row.index] = self.changed_rows.pop(row.index)

    def record_sent(self, answers: Iterable[FetchAnswer]) -> None:
        """Remember what the response to the session's full fetch carries."""
        for row, answer in zip(self._rows.values(), answers, strict=True):
            row.sent_high_watermark = answer.high_watermark
            row.sent_log_start = answer.log_start_offset
