"""The legal changes of a partition's log, as values: compaction, retention, elections, a new topic (L6).

`traced_changes.py` reads them from the brokers' traces; oracles and kernels, which run in Spark workers, use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

NOT_TRACED = -2
"""A setting that an event does not have, because the broker is not Harrow's."""
Place = tuple[str, int]


class Removal(NamedTuple):
    """One segment that a replica removed from the beginning of its log: offsets from `base` to before `end`."""

    node: int
    base: int
    end: int
    reason: str
    t_ns: int
    wall_ms: int
    keep_ms: int
    """`retention.ms`; this and the next: -1 for no limit, `NOT_TRACED` where it is not known."""
    keep_bytes: int
    bytes_left: int
    """Size of the log after the removal of all segments that were removed with this one."""


class CleaningBegun(NamedTuple):
    """One pass of a replica's log cleaner."""

    first_uncleanable: int
    t_ns: int
    wall_ms: int
    tombstone_ms: int
    """`delete.retention.ms`; this and the next: `NOT_TRACED` where it is not known."""
    lag_ms: int
    """`min.compaction.lag.ms`."""


class Leadership(NamedTuple):
    """A broker that became leader, and where its log ended."""

    leader_epoch: int
    leader: int
    log_end: int
    t_ns: int


@dataclass(slots=True, kw_only=True)
class LogChanges:
    """The legal changes of one partition's log."""

    created_ns: int = 0
    """When the topic was created again; 0: it was created once."""
    cleaned_end: int = 0
    """Offsets below it may have been removed by compaction."""
    deleted_heads: dict[int, int] = field(default_factory=dict[int, int])
    """By broker, the largest base offset of a segment that was removed from the beginning of its log."""
    removals: list[Removal] = field(default_factory=list[Removal])
    cleanings: list[CleaningBegun] = field(default_factory=list[CleaningBegun])
    leaderships: list[Leadership] = field(default_factory=list[Leadership])
    unclean_epochs: list[int] = field(default_factory=list[int])
    """Leader epochs that unclean elections began, or were about to begin."""
    wrong_clocks: bool = False
    """Whether a fault changed the clock of a broker, of any partition."""
