"""Fetch sessions of followers (KIP-227): a fetch names what changed, an answer carries what changed.

Owns: what each follower broker asks of this leader again and again, so that fifty idle partitions cost a
scan and not fifty rows a fetch. A session is begun by a full fetch (epoch 0) of which every row is sound,
one for each follower; the next full fetch of that follower replaces it. Consumers get none.

Rules:

* A session is the fast way of the steady state only. Whatever is unusual (another leader or epoch, a failed
  log, a divergence, an offset out of range, a stale registration) voids it: the answer is
  FETCH_SESSION_ID_NOT_FOUND, the follower asks in full again, and the full fetch says what is wrong with which row.
* Between two fetches a row's offset is the follower's word as before: a follower names every row whose offset
  or log start is another than it last named.
* An idle row counts as fetched too, or its follower would fall out of the ISR with the first append after a
  quiet time: all rows are taken in again with the first fetch after `TOUCH_MS`.
* An answer has the rows with bytes, and those whose HW or log start is another than was last sent.
* When an answer is full, who got bytes goes to the end: nobody starves.

Source: Kafka's `FetchSession`, `IncrementalFetchContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, StorageError
from ..ids import Offset
from ..wire.fetch_response import FetchAnswer

if TYPE_CHECKING:
    from ..host.seam import Part
    from ..wire.fetch import FetchPartition, FetchRequest
    from .fetch_reads import Asked
    from .partition import Partition

TOUCH_MS = 10
EPOCH_MOST = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The epoch of the fetch after that of `epoch`: never 0, which begins a session."""
    return epoch % EPOCH_MOST + 1


class FetchSession:
    """What one follower fetches here."""

    __slots__ = ("_log_failed", "_rows", "_touched_ms", "broker_epoch", "epoch", "session_id")

    def __init__(
        self,
        session_id: int,
        fetch: FetchRequest,
        asked: Iterable[Asked],
        now_ms: int,
        log_failed: Callable[[Partition, StorageError], None],
    ) -> None:
        """`log_failed` is told of a log that could not be read."""
        self._log_failed = log_failed
        self.session_id = session_id
        self.broker_epoch = fetch.replica_epoch
        self.epoch = 1
        self._rows = {(one.row.topic, one.row.partition): one for one in asked}
        self._touched_ms = now_ms

    def __len__(self) -> int:
        return len(self._rows)

    def refuse(self, fetch: FetchRequest) -> ErrorCode:
        """`none` when `fetch` is the next one of this session."""
        if fetch.session_id != self.session_id or fetch.replica_epoch != self.broker_epoch:
            return ErrorCode.fetch_session_id_not_found
        if fetch.session_epoch != self.epoch:
            return ErrorCode.invalid_fetch_session_epoch
        return ErrorCode.none

    def update(self, rows: Iterable[FetchPartition], now_ms: int) -> list[Asked] | None:
        """Take in what the next fetch names; what is to be judged now, None when the session is void."""
        self.epoch = next_epoch(self.epoch)
        named: list[Asked] = []
        for row in rows:
            one = self._rows.get((row.topic, row.partition))
            if one is None or row.current_leader_epoch != one.row.current_leader_epoch:
                return None
            one.row = row
            named.append(one)
        if not self.sound():
            return None
        if now_ms - self._touched_ms < TOUCH_MS:
            return named
        self._touched_ms = now_ms
        return list(self._rows.values())

    def sound(self) -> bool:
        """True while every partition is led as when the session was begun."""
        for one in self._rows.values():
            partition = one.partition
            if (
                partition is None
                or partition.leader_epoch != one.leader_epoch
                or partition.generation != one.generation
                or not partition.is_leader
                or partition.failed
            ):
                return False
        return True

    def has_data(self) -> bool:
        """True when at least one byte could be read."""
        for one in self._rows.values():
            if (
                one.partition is not None
                and one.partition.log.log_end_offset > one.row.fetch_offset
            ):
                return True
        return False

    def read(self, max_bytes: int, *, told: bool = True) -> list[FetchAnswer] | None:
        """The answer as of now of a sound session; None when a read failed: then it is void.

        With `told` it is remembered as what the follower knows. Only the log start is judged again, for it may have
        passed a row by: in the generation in which a follower's log was found to be a prefix of the leader's they
        never part.
        """
        answers: list[FetchAnswer] = []
        filled: list[Asked] = []
        left = max_bytes
        for one in self._rows.values():
            row, partition = one.row, one.partition
            assert partition is not None, "a session has sound rows only"
            log, high = partition.log, partition.high_watermark
            start, end = log.log_start_offset, log.log_end_offset
            if start > row.fetch_offset:
                return None
            parts: Sequence[Part] = ()
            if end > row.fetch_offset:
                if left > 0 or not filled:
                    limit = max(0, min(row.max_bytes, left))
                    try:
                        data = log.read_to_send(
                            Offset(row.fetch_offset), limit, end, at_least_one=not filled
                        )
                    except KafkaError:
                        return None
                    except StorageError as failed:
                        self._log_failed(partition, failed)
                        return None
                    parts = data.parts
                    left -= data.size
                    if data.size:
                        filled.append(one)
            elif high == one.sent_high and start == one.sent_start:
                continue
            if told:
                one.sent_high, one.sent_start = high, start
            answers.append(FetchAnswer(row.topic, row.partition, 0, high, high, start, parts))
        if told and filled and left < filled[-1].row.max_bytes:
            for one in filled:
                key = (one.row.topic, one.row.partition)
                self._rows[key] = self._rows.pop(key)
        return answers


def note_sent(asked: Iterable[Asked], answers: Iterable[FetchAnswer]) -> None:
    """Remember what the follower is told now."""
    for one, answer in zip(asked, answers, strict=True):
        one.sent_high = answer.high_watermark
        one.sent_start = answer.log_start_offset
