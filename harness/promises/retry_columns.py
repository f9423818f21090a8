"""The columns that a pipeline's mapper adds where it has retry topics or dead letters (L5): `RetryColumns`.

    topic        the number of a retry topic, else -1
    attempts     what the header says, else -1
    due          when the next attempt is due by the header, in ms since 1970, else -1
    sent         when a record of a retry topic or a dead letter was written, in ms since 1970 by the wall clock
    key_hash     of the record key, of inputs and dead letters
    value_hash   of the value
    reason       whether a dead letter has its reason
    producer     the producer id of a record in a retry topic that counts the first attempt, else -1
    reads        how often an input was delivered to clients, else -1

`sent` is the time at which a broker acknowledged the record, by the tap, on the wall clock of the machine that judges:
a producer whose clock is wrong does not hide what it did. Without a row of a tap it is Kafka's timestamp.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..histories.task_files import is_url, read_bytes
from .chunk_records import ChunkRows
from .output_times import producers_of
from .retries import RetryPromise, reason_of

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import polars as pl

    from .join import Columns

CONTENT_SEED = 4
NS_PER_MS = 1_000_000
FIRST_ATTEMPTS_MOST = 2
"""The highest number in a header that may count the first attempt (`attempt_rules.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryColumns:
    """Makes the columns of the records of a chunk."""

    promise: RetryPromise
    wall_ns: int = 0
    """What a monotonic time and this are together is the time since 1970."""

    def of_inputs(self, records: ChunkRows, reads: npt.NDArray[np.int64] | None) -> Columns:
        """Return the columns of inputs. `reads`: how often each was delivered, where that is known."""
        import numpy as np

        size = len(records)
        known = np.full(size, -1, np.int32) if reads is None else reads.astype(np.int32)
        return {**self._none(size), **_contents(records), "reads": known}

    def of_outputs(self, size: int) -> Columns:
        """Return the columns of outputs, which say nothing."""
        return self._none(size)

    def of_retries(self, topic: str, records: ChunkRows, times: npt.NDArray[np.int64], path: str) -> Columns:
        """Return the columns of records of a retry topic or of dead letters.

        `times`: when they were acknowledged. `path`: the file with the times of the topic (`output_times.py`), or "".
        """
        import numpy as np

        promise, size = self.promise, len(records)
        attempts, due, sent = (np.full(size, -1, np.int64) for _ in range(3))
        reasons = np.zeros(size, np.bool_)
        for row, record in enumerate(records.records()):
            sent[row] = record.timestamp_ms
            if record.headers:
                attempts[row] = _known(promise.attempts_of(record.headers))
                due[row] = _known(promise.due_ms_of(record.headers))
                reasons[row] = bool(reason_of(record.headers))
        sent = np.where(times > 0, (times + self.wall_ns) // NS_PER_MS, sent)
        number = promise.topics.index(topic) if topic in promise.topics else -1
        producers = np.full(size, -1, np.int64)
        if path and number >= 0:
            first = attempts <= FIRST_ATTEMPTS_MOST  # the others are not compared
            producers[first] = producers_of(path, records.partition[first], records.offset[first])
        return {
            **self._none(size),
            **_contents(records),
            "topic": np.full(size, number, np.int16),
            "attempts": attempts.clip(-1, 2**31 - 1).astype(np.int32),
            "due": due,
            "sent": sent,
            "reason": reasons,
            "producer": producers,
        }

    def counts_of(self, records: ChunkRows) -> dict[str, int]:
        """Return how many records of a retry topic say their number of attempts, and when they are due."""
        promise, headers = self.promise, [record.headers for record in records.records()]
        return {
            "retries_with_attempts": sum(promise.attempts_of(own) is not None for own in headers),
            "retries_with_due": sum(promise.due_ms_of(own) is not None for own in headers),
        }

    def _none(self, size: int) -> Columns:
        import numpy as np

        return {
            "topic": np.full(size, -1, np.int16),
            "attempts": np.full(size, -1, np.int32),
            "due": np.full(size, -1, np.int64),
            "sent": np.full(size, -1, np.int64),
            "key_hash": np.zeros(size, np.int64),
            "value_hash": np.zeros(size, np.int64),
            "producer": np.full(size, -1, np.int64),
            "reason": np.zeros(size, np.bool_),
            "reads": np.full(size, -1, np.int32),
        }


def _known(number: int | None) -> int:
    return -1 if number is None or not 0 <= number < 2**62 else number


def _contents(records: ChunkRows) -> Columns:
    return {"key_hash": _hashes(records.keys), "value_hash": _hashes(records.values)}


def _hashes(given: Sequence[bytes | None]) -> pl.Series:
    """Return a hash of each text of bytes; 0 where there is none."""
    import polars as pl

    series = pl.Series(given, dtype=pl.Binary)
    hashes = series.hash(CONTENT_SEED).reinterpret(signed=True)
    return pl.select(pl.when(series.is_null()).then(0).otherwise(hashes)).to_series()


def deliveries(taps: list[Path], topic: str, until_ns: int) -> npt.NDArray[np.int64]:
    """Return what clients were delivered of a topic until a time: rows of partition, first and last offset."""
    import numpy as np
    from harrow.cluster.tap.layouts import FETCHED

    from ..histories.tap import read_tap

    found: list[Any] = [np.empty((0, 3), np.int64)]
    for path in taps:
        tap = read_tap(path)
        if topic not in tap.names or not len(tap.rows):
            continue
        rows = tap.rows[(tap.rows["kind"] == FETCHED) & (tap.rows["topic"] == tap.names.index(topic))]
        rows = rows[rows["completed_ns"] < until_ns]
        names = ("partition", "base_offset", "last_offset")
        found.append(np.stack([rows[name].astype(np.int64) for name in names], axis=1))
    return np.concatenate(found)


def reads_of(path: str, partition: npt.NDArray[np.int32], offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how often each record was delivered, by a file of `deliveries`."""
    import numpy as np

    whole: Any = np.load(io.BytesIO(read_bytes(path))) if is_url(path) else np.load(path, mmap_mode="r")
    counts = np.zeros(len(offset), np.int64)
    for number in np.unique(partition).tolist():
        chosen = np.flatnonzero(partition == number)
        rows = np.asarray(whole[whole[:, 0] == number])
        begun = np.searchsorted(np.sort(rows[:, 1]), offset[chosen], side="right")
        ended = np.searchsorted(np.sort(rows[:, 2]), offset[chosen], side="left")
        counts[chosen] = begun - ended
    return counts
