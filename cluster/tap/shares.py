"""The share groups' part of the tap: which records a member acquired, what it said of them, which were given up (J6).

Owns: `tap.shares`. One write for each call, before the response leaves: what a member received is in the tap.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..broker_folder import TAP_SHARES
from ..host.seam import Clock, SharedRecords
from .files import TapFiles
from .layouts import FLAG_LOST, SHARE_ROW


class ShareRows:
    """The file of one host; `files` numbers the names."""

    def __init__(self, files: TapFiles, clock: Clock) -> None:
        self._clock = clock
        self._number_of = files.number_of
        self._rows = files.open_rows(TAP_SHARES, SHARE_ROW.size)

    def shared(
        self,
        group: str,
        member: str,
        client: str,
        records: Iterable[SharedRecords],
        *,
        kind: int,
        error: int = 0,
        invoked_ns: int = 0,
        lock_until_ns: int = 0,
        lost: bool = False,
    ) -> None:
        """Write a row for each range of records; `invoked_ns` 0: now. OSError for a full disk."""
        now_ns = self._clock.monotonic_ns()
        front = (kind, FLAG_LOST if lost else 0, error, *map(self._number_of, (group, member, client)))
        rows = b"".join(
            SHARE_ROW.pack(
                *front,
                self._number_of(row.topic),
                row.partition,
                row.leader_epoch,
                row.delivery_count,
                row.first_offset,
                row.last_offset,
                invoked_ns or now_ns,
                now_ns,
                lock_until_ns,
            )
            for row in records
        )
        if rows:
            os.write(self._rows, rows)
