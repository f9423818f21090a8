"""The watermarks' part of the tap: where the log of a partition began and ended, as responses of its leader said (J6).

Owns: `tap.watermarks`. A Fetch response has no row when the row before it of this partition has the same values, and no
earlier row of this process has larger ones. So a partition without traffic costs nothing, and no regression is left
out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from ..broker_folder import TAP_WATERMARKS
from ..host.seam import Clock, Watermarks
from .files import TapFiles
from .layouts import WATERMARK_ROW, WATERMARKS_FETCHED, WATERMARKS_LISTED

_Values = tuple[int, int, int]
"""High watermark, last stable offset, log start offset."""


class WatermarkRows:
    """The file of one host; `files` numbers the names."""

    def __init__(self, files: TapFiles, clock: Clock) -> None:
        self._clock = clock
        self._number_of = files.number_of
        self._rows = files.open_rows(TAP_WATERMARKS, WATERMARK_ROW.size)
        self._written: dict[tuple[str, int], _Written] = {}

    def watermarks(self, client: str, found: Iterable[Watermarks], *, invoked_ns: int, listed: bool = False) -> None:
        """The partitions of a Fetch response, or of a ListOffsets response (`listed`), before its bytes leave."""
        rows = bytearray()
        for row in found:
            if row.leader_epoch < 0 or not (self._is_new(row, listed=listed) or listed):
                continue
            rows += WATERMARK_ROW.pack(
                WATERMARKS_LISTED if listed else WATERMARKS_FETCHED,
                self._number_of(client),
                self._number_of(row.topic),
                row.partition,
                row.leader_epoch,
                row.topic_id,
                row.high_watermark,
                row.last_stable_offset,
                row.log_start_offset,
                invoked_ns,
                self._clock.monotonic_ns(),
            )
        if rows:
            os.write(self._rows, rows)

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
