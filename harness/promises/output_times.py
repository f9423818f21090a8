"""When the outputs of a pipeline came out: when their batches were acknowledged, from the brokers' taps.

`produced_batches` gathers the batches of a topic; `times_of` looks records up in a file of them. A batch that was
acknowledged more than once (its first response was lost) counts from the first time: it was in the log then. For a
record without a row the time is 0, which is before every commit: the leader may have ended between the append and the
response, and nothing is said about such a record.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..histories.commits import NEVER
from ..histories.task_files import is_url, read_bytes

COLUMNS = ("partition", "base_offset", "last_offset", "completed_ns", "crc", "producer_id")
CRC, PRODUCER_ID = COLUMNS.index("crc"), COLUMNS.index("producer_id")

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def produced_batches(taps: list[Path], topic: str) -> npt.NDArray[np.int64]:
    """Return the acknowledged batches of a topic by partition and offset: columns `COLUMNS`."""
    import numpy as np
    from harrow.cluster.tap.layouts import PRODUCED

    from ..histories.tap import read_tap

    found: list[Any] = [np.empty((0, len(COLUMNS)), np.int64)]
    for path in taps:
        tap = read_tap(path)
        if topic not in tap.names or not len(tap.rows):
            continue
        rows = tap.rows[(tap.rows["kind"] == PRODUCED) & (tap.rows["topic"] == tap.names.index(topic))]
        rows = rows[(rows["error"] == 0) & (rows["base_offset"] >= 0)]
        found.append(np.stack([rows[name].astype(np.int64) for name in COLUMNS], axis=1))
    batches = np.concatenate(found)
    return batches[np.lexsort((batches[:, 1], batches[:, 0]))]


def since(batches: npt.NDArray[np.int64], created_ns: int) -> npt.NDArray[np.int64]:
    """Return the batches that were acknowledged since a time."""
    return batches[batches[:, COLUMNS.index("completed_ns")] >= created_ns]


def rewritten(batches: npt.NDArray[np.int64]) -> list[int]:
    """Return the partitions with an offset at which two different batches were acknowledged.

    The topic was deleted and created again, or its leader lost records: the time of an offset may be that of another
    record.
    """
    import numpy as np

    same = (batches[1:, :2] == batches[:-1, :2]).all(axis=1)
    other = batches[1:, CRC] != batches[:-1, CRC]
    return sorted(set(np.unique(batches[1:][same & other, 0]).tolist()))


def times_of(path: str, partition: npt.NDArray[np.int32], offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return when each record was first acknowledged, or 0."""
    import numpy as np

    batches = _loaded(path)[:, :4]
    times = np.zeros(len(offset), np.int64)
    for number in np.unique(partition).tolist():
        chosen = np.flatnonzero(partition == number)
        start, end = np.searchsorted(batches[:, 0], [number, number + 1])
        times[chosen] = _of_partition(np.asarray(batches[start:end, 1:]), offset[chosen])
    return times


def producers_of(path: str, partition: npt.NDArray[np.int32], offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the producer id of each record's batch; -1 where it has none, or is not known."""
    import numpy as np

    found = np.full(len(offset), -1, np.int64)
    batches = _loaded(path)
    if not len(batches) or batches.shape[1] <= PRODUCER_ID:
        return found
    for number in np.unique(partition).tolist():
        chosen = np.flatnonzero(partition == number)
        start, end = np.searchsorted(batches[:, 0], [number, number + 1])
        own = np.asarray(batches[start:end])
        at = np.searchsorted(own[:, 1], offset[chosen], side="right") - 1
        inside = (at >= 0) & (own[at, 2] >= offset[chosen]) if len(own) else at >= 0
        found[chosen[inside]] = own[at[inside], PRODUCER_ID]
    return found


def _loaded(path: str) -> Any:
    import numpy as np

    return np.load(io.BytesIO(read_bytes(path))) if is_url(path) else np.load(path, mmap_mode="r")


def _of_partition(batches: npt.NDArray[np.int64], offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first time of each offset; ranges overlap where offsets were written again after a loss."""
    import numpy as np

    low, high = int(offset.min()), int(offset.max())
    near = batches[(batches[:, 1] >= low) & (batches[:, 0] <= high)]
    first = np.full(high - low + 1, NEVER, np.int64)
    for base, last, time in near.tolist():
        part = first[max(base - low, 0) : last - low + 1]
        np.minimum(part, time, out=part)
    found = first[offset - low]
    found[found == NEVER] = 0
    return found
