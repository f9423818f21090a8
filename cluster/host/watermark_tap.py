"""The watermarks' part of the tap: where the log of a partition began and ended, as responses of its leader said (J6).

Owns: `tap.watermarks` and the format of its rows. A row stands for one partition of a response that a consumer gets:

* `WATERMARKS_FETCHED`: a Fetch response: high watermark, last stable offset, log start offset;
* `WATERMARKS_LISTED`: the latest offset of a ListOffsets response: the high watermark, or for a reader of committed
  data the last stable offset. What the response does not say is -1.

Only a leader's responses have rows, in a leader epoch that is known: a follower may be behind (KIP-392). `leader_epoch`
is that in which the leader read the values. `topic_id` is the CRC-32 of the topic's id, where a proxy wrote the row (0:
not known): a topic that was deleted and created again has another one. Times are on the monotonic clock, one clock for
all brokers of a machine: the values were read after `invoked_ns` and before `completed_ns`.

A Fetch response has no row when the row before it of this partition has the same values, and no earlier row of this
process has larger ones. So a partition without traffic costs nothing, and no regression is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from ..broker_folder import TAP_WATERMARKS
from ..row_layout import row_struct
from .coordinator_tap import CoordinatorTap, NoCoordinatorTap
from .seam import Clock, Watermarks

WATERMARKS_FETCHED, WATERMARKS_LISTED = 1, 2
WATERMARK_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("pad", "V3"),
    ("client", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("leader_epoch", "<i4"),
    ("topic_id", "<u4"),
    ("high_watermark", "<i8"),
    ("last_stable_offset", "<i8"),
    ("log_start_offset", "<i8"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
]
WATERMARK_ROW = row_struct(WATERMARK_DTYPE)

_Values = tuple[int, int, int]
"""High watermark, last stable offset, log start offset."""


class NoWatermarkTap(NoCoordinatorTap):
    """The watermarks' part of the tap of a host without `harrow.tap`."""

    __slots__ = ()

    def watermarks(self, client: str, found: Iterable[Watermarks], *, invoked_ns: int, listed: bool = False) -> None:
        """Nothing."""


class WatermarkTap(CoordinatorTap):
    """The file of watermarks of one host."""

    def __init__(self, folder: str, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._watermarks = self.open_rows(TAP_WATERMARKS, WATERMARK_ROW.size)
        self._written: dict[tuple[str, int], _Written] = {}

    def watermarks(self, client: str, found: Iterable[Watermarks], *, invoked_ns: int, listed: bool = False) -> None:
        """The partitions of a Fetch response, or of a ListOffsets response (`listed`), before its bytes leave."""
        rows = bytearray()
        for row in found:
            if row.leader_epoch < 0 or not (self._is_new(row, listed=listed) or listed):
                continue
            rows += WATERMARK_ROW.pack(
                WATERMARKS_LISTED if listed else WATERMARKS_FETCHED,
                self.number_of(client),
                self.number_of(row.topic),
                row.partition,
                row.leader_epoch,
                row.topic_id,
                row.high_watermark,
                row.last_stable_offset,
                row.log_start_offset,
                invoked_ns,
                self.clock.monotonic_ns(),
            )
        if rows:
            os.write(self._watermarks, rows)

    def _is_new(self, row: Watermarks, *, listed: bool) -> bool:
        """Remember a row; return whether it says something new."""
        place = (row.topic, row.partition)
        before = self._written.get(place)
        values: _Values = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
        if before is None or before.leader_epoch != row.leader_epoch:
            self._written[place] = _Written(row.leader_epoch, None if listed else row, values)
            return True
        if before.fetched == row and before.highest == values:
            return False
        highest = (
            max(before.highest[0], values[0]),
            max(before.highest[1], values[1]),
            max(before.highest[2], values[2]),
        )
        fetched = before.fetched if listed else row
        self._written[place] = _Written(row.leader_epoch, fetched, highest)
        return True


class _Written(NamedTuple):
    """What the rows of a partition say in its last leader epoch."""

    leader_epoch: int
    fetched: Watermarks | None
    """The last row of a Fetch response."""
    highest: _Values
