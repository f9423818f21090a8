"""How many frames clients and real brokers have delivered to each other, by the counters of the taps.

A tap counts each request of a client before its response leaves, in a table that is mapped into memory
(`cluster/tap/requests.py`): that of a broker, or of the proxy before a broker that is not Harrow's. A request and its
response are two frames. A request that waits, such as a fetch, counts when it is answered.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from harrow.cluster.broker_folder import TAP_REQUEST_COUNTS, broker_files
from harrow.cluster.tap.layouts import COUNT_ROW, OTHERS


class CountedFrames:
    """The frames so far; it is called again and again from the nemesis's thread, and returns fast."""

    def __init__(self, cluster: Path) -> None:
        self._cluster = cluster
        self._tables: dict[Path, mmap.mmap] = {}

    def __call__(self) -> int:
        """Return the sum over all brokers."""
        for path in broker_files(self._cluster, TAP_REQUEST_COUNTS):
            if path not in self._tables and path.stat().st_size:  # a host makes its table when it starts
                with path.open("rb") as file:
                    self._tables[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return 2 * sum(map(_requests, self._tables.values()))


def _requests(table: mmap.mmap) -> int:
    """Return the sum of the rows after the head, up to the first one that is free."""
    total = 0
    for at in range(COUNT_ROW.size, len(table) - COUNT_ROW.size + 1, COUNT_ROW.size):
        api, _, _, count, first_ns, _ = COUNT_ROW.unpack_from(table, at)
        if not first_ns:
            break
        if api >= 0 or api == OTHERS:
            total += count
    return total
