"""Events of the log of one replica, and of data folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .event import TraceEvent
from .partitions import PartitionEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecovered(PartitionEvent):
    """A log was recovered after a crash, where something was read or removed."""

    EVENT: ClassVar[str] = "log.recovered"
    truncated_bytes: int
    reason: str
    log_end_offset: int
    recovery_point: int
    segments_read: int
    segments_removed: int
    removed_base_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRolled(PartitionEvent):
    """A segment was closed, and the next one starts at `base_offset`."""

    EVENT: ClassVar[str] = "log.rolled"
    base_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsDeleted(PartitionEvent):
    """Segments were removed from the beginning of a log.

    A row of Harrow's brokers has all fields; one about a broker of Kafka has `base_offsets` only.
    """

    EVENT: ClassVar[str] = "log.segments-deleted"
    base_offsets: tuple[int, ...]
    reason: str | None = None
    end: int | None = None
    """Where the log begins now."""
    bytes_left: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaning(PartitionEvent):
    """The log cleaner begins a pass, before it removes anything.

    A row of Harrow's brokers has all fields; one about a broker of Kafka has `first_uncleanable` only.
    """

    EVENT: ClassVar[str] = "log.cleaning"
    first_dirty: int | None = None
    first_uncleanable: int
    delete_retention_ms: int | None = None
    min_lag_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaned(PartitionEvent):
    """The log cleaner ended a pass."""

    EVENT: ClassVar[str] = "log.cleaned"
    first_dirty: int
    end: int
    bytes_read: int
    bytes_written: int
    segments: int
    map_full: bool
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGapClosed(PartitionEvent):
    """A log was truncated at a gap that a crash had left."""

    EVENT: ClassVar[str] = "log.gap-closed"
    log_end_offset: int
    offsets_cut: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFailed(PartitionEvent):
    """An I/O error took the log of a replica out of service."""

    EVENT: ClassVar[str] = "log.failed"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolderFailed(TraceEvent):
    """A data folder went offline with its logs."""

    EVENT: ClassVar[str] = "log.folder-failed"
    folder: str
    logs: int
    error: str
