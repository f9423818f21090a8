"""The ids of records that brokers refused, for the join with what the topics have (`record_id=`).

A refused record that the application sent again is in the topic with its id, whatever timestamp and batch it has then.
Owns `refused.arrow` in `promises/` of the run folder: `id` (canonical text) and `topic` (its number), each pair once.
Nothing is written where not all refused records are known (`histories/refused_records.py`), or one has no readable id:
then the verdict says what it can say without ids. Records of transactions that could not be committed are left out
(`checks/refused.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks.record import Record
from ..checks.refused import FENCED, NO_COMMIT
from ..histories.refused_records import RefusedRecord, read_refused
from ..histories.task_files import arrow_table, write_arrow
from .record_ids import IdReader, canonical

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedChunk:
    """The refused ids; a `Chunk` of the join."""

    path: str
    rows: int
    size: int

    def ids(self) -> list[str]:
        """Return the canonical texts of the ids."""
        ids: list[str] = arrow_table(self.path).column("id").to_pylist()
        return ids

    def topics(self) -> npt.NDArray[np.int16]:
        """Return the number of the topic of each id, as an array."""
        topics: npt.NDArray[np.int16] = arrow_table(self.path).column("topic").to_numpy()
        return topics


def write_refused_ids(run: Path, topics: Sequence[str], reader: IdReader, folder: Path) -> RefusedChunk | None:
    """Write the ids of the records that brokers refused; None where there are none, or not all are known."""
    refused = read_refused(run, topics)
    pairs: dict[tuple[str, int], None] = {}
    for record in refused or ():
        if record.error in NO_COMMIT or (record.error == FENCED and record.transactional):
            continue
        try:
            value = reader.of(_as_record(record))
            if value is not None:
                pairs[canonical(value), topics.index(record.topic)] = None
        except Exception:  # of the user's function
            return None
    if not pairs:
        return None
    return _write(folder / "refused.arrow", pairs)


def _as_record(of: RefusedRecord) -> Record:
    return Record(
        topic=of.topic,
        partition=of.partition,
        timestamp_ms=of.timestamp_ms,
        key=of.key,
        value=of.value,
        headers=of.headers,
    )


def _write(path: Path, pairs: dict[tuple[str, int], None]) -> RefusedChunk:
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

    from .expectations import text_array

    arrow: Any = pa
    ids, numbers = zip(*pairs, strict=True)
    batch = arrow.record_batch({"id": text_array(arrow, list(ids)), "topic": arrow.array(numbers, arrow.int16())})
    write_arrow(path, batch)
    return RefusedChunk(path=str(path), rows=len(ids), size=int(batch.nbytes))
