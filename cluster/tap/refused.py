"""The part of the tap that keeps what a broker refused: the batches themselves, for checks by record id (J6).

Owns `tap.refused`: for each refused batch a head (`REFUSED_HEAD`) and the bytes of the batches as the producer sent
them, appended with one write. The same bytes for the same partition are written once by a process. After
`REFUSED_BYTES_MOST` the file gets no more entries, so a file of that size may not have everything. A full disk may cut
an entry: a reader must not trust what follows it.
"""

from __future__ import annotations

import os
import zlib

from ..broker_folder import TAP_REFUSED
from ..host.seam import Buffer
from .files import TapFiles
from .layouts import REFUSED_BYTES_MOST, REFUSED_HEAD, REFUSED_MAGIC


class RefusedBatches:
    """The file of one host; `files` numbers the names."""

    def __init__(self, files: TapFiles) -> None:
        self._files = files
        self._fd = files.open_rows(TAP_REFUSED, 1)
        self._left = REFUSED_BYTES_MOST - os.fstat(self._fd).st_size
        self._known: set[tuple[str, int, int, int]] = set()

    def keep(self, client: str, topic: str, partition: int, error: int, batches: Buffer) -> None:
        """Write what a partition of a Produce request had, unless it is there; OSError for a full disk."""
        data = bytes(batches)
        key = topic, partition, len(data), zlib.crc32(data)
        if not data or self._left <= 0 or key in self._known:
            return
        self._known.add(key)
        number = self._files.number_of
        entry = REFUSED_HEAD.pack(REFUSED_MAGIC, number(client), number(topic), partition, error, len(data)) + data
        os.write(self._fd, entry)
        self._left -= len(entry)
