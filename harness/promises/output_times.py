"""When the outputs of a pipeline came out: when their batches were acknowledged, from the brokers' taps.

`write_output_times` gathers the produced batches of the sink topic in a file; `times_of` looks records up in it. A
batch that was acknowledged more than once (its first response was lost) counts from the first time: it was in the log
then. For a record without a row the time is 0, which is before every commit: the leader may have ended between the
append and the response, and nothing is said about such a record.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..histories.commits import NEVER

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def write_output_times(taps: list[Path], topic: str, path: Path) -> bool:
    """Write the batches of `topic` that the taps have to `path`; False when no tap has one."""
    import numpy as np
    from harrow.cluster.host.tap import PRODUCED

    from ..histories.tap import read_tap

    found: list[Any] = []
    for tap in taps:
        rows, names = read_tap(tap).rows, read_tap(tap).names
        if topic not in names or not len(rows):
            continue
        chosen = rows[(rows["kind"] == PRODUCED) & (rows["topic"] == names.index(topic))]
        chosen = chosen[(chosen["error"] == 0) & (chosen["base_offset"] >= 0)]
        columns = ("partition", "base_offset", "last_offset", "completed_ns")
        found.append(np.stack([chosen[name].astype(np.int64) for name in columns], axis=1))
    batches = np.concatenate(found) if found else np.empty((0, 4), np.int64)
    order = np.lexsort((batches[:, 1], batches[:, 0]))
    with path.open("wb") as file:
        np.save(file, batches[order])
    return bool(len(batches))


def times_of(
    path: str, partition: npt.NDArray[np.int32], offset: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return when each record was first acknowledged, or 0."""
    import numpy as np

    batches: Any = np.load(path, mmap_mode="r")
    times = np.zeros(len(offset), np.int64)
    for number in np.unique(partition).tolist():
        chosen = np.flatnonzero(partition == number)
        start, end = np.searchsorted(batches[:, 0], [number, number + 1])
        times[chosen] = _of_partition(np.asarray(batches[start:end, 1:]), offset[chosen])
    return times


def _of_partition(
    batches: npt.NDArray[np.int64], offset: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
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
