"""A run folder as recorders would write it, made with numpy in seconds at any size.

Writes `history/*.ops` and `drain/*.ops` (`harness/histories/format.py`), so that the real lay-out and the real verdict
can process it. A third each of its operations are sends (with their invocations), reads by consumers, and the final
read. One send in `UNKNOWN_EVERY` has an unknown result. The run has two anomalies and no others:

* an acknowledged record of partition `LOST_IN` is above the final high watermark: a lost-write;
* a record of partition `TWICE_IN` is repeated as the last record of the partition: a duplicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from harrow.harness.histories.format import (
    COMMITTED,
    HEADER,
    MAGIC,
    ROW,
    ROW_DTYPE,
    SCHEMA_VERSION,
    OperationFunction,
    OperationType,
)

TOPIC = "bench"
PARTITIONS, PRODUCERS, CONSUMERS, KEYS = 16, 8, 4, 100_003
LOST_IN, TWICE_IN = 3, 5
UNKNOWN_EVERY = 1009
FILE_RECORDS = 1 << 20
DTYPE = np.dtype(ROW_DTYPE)
NAMES = [TOPIC, *(f"producer-{i}" for i in range(PRODUCERS)), *(f"consumer-{i}" for i in range(CONSUMERS))]
Rows = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The findings that every engine must report for a synthetic run."""

    counts: dict[str, int]
    lost: tuple[int, int]
    """Partition and offset of the lost record."""
    twice: tuple[int, int]
    """Partition of the duplicated record, and the first of its two offsets."""

    @property
    def operations(self) -> int:
        """Number of operations that are judged."""
        names = ("acknowledged", "unacknowledged", "read", "drained")
        return sum(self.counts[name] for name in names)


def make_run(folder: Path, operations: int, *, partitions: int = PARTITIONS) -> Truth:
    """Writes a run of about `operations` operations to `folder`."""
    depth = max(operations // 3 // partitions, 4)
    records = depth * partitions
    for start in range(0, records, FILE_RECORDS):
        numbers = np.arange(start, min(start + FILE_RECORDS, records), dtype=np.int64)
        _write(folder / "history" / f"producers-{start}", _sends(numbers, partitions))
        _write(folder / "history" / f"consumers-{start}", _reads(numbers, partitions))
        _write(folder / "drain" / f"final-{start}", _final(numbers, partitions))
    _write(folder / "history" / "lost-1", _lost(depth, partitions))
    _write(folder / "drain" / "last-1", _twice_and_bounds(depth, partitions))
    unknown = -(-records // UNKNOWN_EVERY)
    counts = {
        "acknowledged": records - unknown + 1,
        "unacknowledged": unknown,
        "failed": 0,
        "read": records,
        "drained": records + 1,
    }
    return Truth(counts=counts, lost=(LOST_IN, depth), twice=(TWICE_IN, depth // 2))


def _mixed(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """Splitmix64: maps each number to another number, as a hash would."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _rows(numbers: Numbers, kind: OperationFunction, partitions: int) -> Rows:
    """Places record `n` in partition `n % partitions` at offset `n // partitions`."""
    rows = np.zeros(len(numbers), DTYPE)
    rows["kind"], rows["outcome"], rows["commit"] = kind, OperationType.OK, COMMITTED
    rows["partition"], rows["offset"] = numbers % partitions, numbers // partitions
    rows["op"] = numbers
    rows["key_hash"], rows["value_hash"] = _mixed(numbers % KEYS), _mixed(numbers)
    rows["timestamp_ms"] = 1_700_000_000_000 + numbers // 100
    rows["invoked_ns"] = 1_000_000 + numbers * 1_000
    rows["time_ns"] = rows["invoked_ns"] + 500_000
    return rows


def _sends(numbers: Numbers, partitions: int) -> Rows:
    """Writes an invocation and a completion for each record."""
    done = _rows(numbers, OperationFunction.SEND, partitions)
    done["client"] = 1 + numbers // partitions % PRODUCERS
    unknown = numbers % UNKNOWN_EVERY == 0
    done["outcome"][unknown], done["offset"][unknown] = OperationType.INFO, -1
    rows = np.empty(2 * len(done), DTYPE)
    invoked = done.copy()
    invoked["outcome"], invoked["offset"], invoked["partition"] = OperationType.INVOKE, -1, -1
    invoked["time_ns"] = invoked["invoked_ns"]
    rows[0::2], rows[1::2] = invoked, done
    return rows


def _reads(numbers: Numbers, partitions: int) -> Rows:
    rows = _rows(numbers, OperationFunction.POLL, partitions)
    rows["client"] = 1 + PRODUCERS + rows["partition"] % CONSUMERS
    return rows


def _final(numbers: Numbers, partitions: int) -> Rows:
    return _rows(numbers, OperationFunction.POLL, partitions)


def _lost(depth: int, partitions: int) -> Rows:
    rows = _rows(np.array([depth * partitions + LOST_IN]), OperationFunction.SEND, partitions)
    rows["client"] = 1
    return rows


def _twice_and_bounds(depth: int, partitions: int) -> Rows:
    again = _rows(np.array([depth // 2 * partitions + TWICE_IN]), OperationFunction.POLL, partitions)
    again["offset"] = depth
    bounds = _rows(np.arange(partitions, dtype=np.int64), OperationFunction.BOUNDS, partitions)
    bounds["op"], bounds["offset"] = 0, depth
    bounds["offset"][TWICE_IN] += 1
    return np.concatenate([again, bounds])


def _write(stem: Path, rows: Rows) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{stem}.ops", "wb") as file:
        file.write(HEADER.pack(MAGIC, SCHEMA_VERSION, ROW.size, 1, 0, 0))
        rows.tofile(file)
    lines = "".join(f"{number}\t{name}\n" for number, name in enumerate(NAMES))
    Path(f"{stem}.names").write_text(lines)
