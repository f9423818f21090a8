"""The results of an append and of a read, and the origin of an append.

Tuples, not dataclasses: every append and every fetch of a partition creates a result.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..host.seam import Buffer
from ..ids import Offset


class Origin(Enum):
    """The source of an append, which decides what is validated (Kafka's `AppendOrigin`)."""

    CLIENT = "client"
    """A produce request: everything is validated."""

    COORDINATOR = "coordinator"
    """This broker's own group or transaction coordinator: control batches allowed, no sequences."""

    REPLICATION = "replication"
    """A leader's batches, or this log's at recovery: accepted before, so they are only recorded."""


class AppendInfo(NamedTuple):
    """The result of an append; for a duplicate, of its first append."""

    first_offset: Offset
    last_offset: Offset
    append_time_ms: int
    """Milliseconds since the epoch; -1 when the topic keeps CreateTime."""
    log_start_offset: Offset
    duplicate: bool
    record_count: int
    size: int
    """Bytes appended; 0 for a duplicate."""
    stored_header: bytes = b""
    """The header in the log, where it has another max timestamp than the client's, and so another CRC."""


class FetchData(NamedTuple):
    """Whole batches unchanged, ready for a response; a batch may continue in the next part."""

    parts: list[Buffer]
    size: int
    first_offset: Offset
    """Base offset of the first batch, at or below the requested offset; the requested offset when empty."""


class AppendedBatch(NamedTuple):
    """A batch about to be appended, with its offsets assigned; `position` is in its buffer."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
