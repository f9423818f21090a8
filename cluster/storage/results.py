"""What a log answers to an append and to a read, and who may append.

Tuples, not dataclasses: one is made for every append and every fetch of a partition.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..host.seam import Buffer
from ..ids import Offset


class Origin(Enum):
    """Who appends; decides what is checked (Kafka's `AppendOrigin`)."""

    CLIENT = "client"
    """A produce request: everything is checked."""

    COORDINATOR = "coordinator"
    """This broker's own group or transaction coordinator: control batches allowed, no sequences."""

    REPLICATION = "replication"
    """A leader's bytes, or our own at recovery: what was accepted once is only recorded."""


class AppendInfo(NamedTuple):
    """What an append did. Of a duplicate: what the first append of it did."""

    first_offset: Offset
    last_offset: Offset
    append_time_ms: int
    """Milliseconds since the epoch; -1 when the topic keeps CreateTime."""
    log_start_offset: Offset
    duplicate: bool
    record_count: int
    size: int
    """Bytes appended; 0 for a duplicate."""


class FetchData(NamedTuple):
    """Whole batches as they lie in the log, ready for the wire; one may go on from a part to the next."""

    parts: list[Buffer]
    size: int
    first_offset: Offset
    """Base offset of the first batch (at or below the asked one); the asked one when empty."""


class AppendedBatch(NamedTuple):
    """A batch about to be appended, with its offsets assigned; `position` is in its buffer."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
