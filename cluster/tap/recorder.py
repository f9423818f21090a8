"""`FileTap`: the tap of one process, appending to the files in its folder. It is made of the writers of the room."""

from __future__ import annotations

from ..host.seam import Clock
from .batches import BatchRows
from .coordinators import CoordinatorRows
from .files import TapFiles
from .refused import RefusedBatches
from .requests import RequestRows
from .shares import ShareRows
from .watermarks import WatermarkRows


class FileTap:
    """A `Tap` whose methods are those of the writers."""

    enabled = True

    def __init__(self, folder: str, clock: Clock) -> None:
        """Open the files in `folder`, or go on with those of an earlier process. OSError for a full disk."""
        self._files = files = TapFiles(folder)
        batches = BatchRows(files, clock, RefusedBatches(files))
        self.produced, self.fetched = batches.produced, batches.fetched
        coordinators = CoordinatorRows(files, clock)
        self.committed, self.transaction = coordinators.committed, coordinators.transaction
        self.member, self.group = coordinators.member, coordinators.group
        self.watermarks = WatermarkRows(files, clock).watermarks
        self.shared = ShareRows(files, clock).shared
        self._requests = RequestRows(files)
        self.requested = self._requests.requested

    def close(self) -> None:
        """Close the files."""
        self._requests.close()
        self._files.close()
