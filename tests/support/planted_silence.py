"""A planted bug: a consumer's fetch that wants many bytes is never answered while the log has fewer."""

from __future__ import annotations

from collections.abc import Callable

from harrow.cluster.network import unanswered
from harrow.cluster.planting import Planter
from harrow.cluster.replication.fetch_handler import FetchHandler
from harrow.cluster.replication.fetch_reads import FetchReader
from harrow.cluster.wire.fetch import FetchRequest
from harrow.cluster.wire.fetch_response import FetchAnswer

TITLE = "a fetch with fetch.min.bytes above 1,000 that has to wait is forgotten"
MANY_BYTES = 1_000
PATIENCE_S = 3
"""A broker reports a request that waits for so much longer than it may: a test does not wait for the usual 10 s."""
_wait = FetchHandler._wait  # pyright: ignore[reportPrivateUsage] - replaced below


def plant(planter: Planter) -> None:
    """Replace the waiting of a fetch."""
    planter.replace_method(FetchHandler, "_wait", _forget)
    unanswered.PATIENCE_S = PATIENCE_S


def _forget(
    self: FetchHandler, fetch: FetchRequest, reader: FetchReader, answer: Callable[[list[FetchAnswer]], None]
) -> None:
    if fetch.min_bytes <= MANY_BYTES:
        _wait(self, fetch, reader, answer)
