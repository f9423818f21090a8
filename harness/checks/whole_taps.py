"""Brokers whose tap has a row for each Produce request that they served, so that nothing was appended unseen (L6).

A tap writes the rows of a Produce request just before its response leaves. So an appended batch has no row where the
process ended first, and where the connection did: the tap of requests has a row of the latter. A broker is one of these
when all of this holds:

* its trace has one `broker.ready`, and it is in the ISR when the run ends (`partition_jobs.py`): its process lived;
* none of its Produce requests ended without a response, and its file of requests did not reach its bound.

A broker that is not known to be one makes nothing wrong: the checks that need all requests are silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from harrow.cluster.broker_folder import TAP, broker_files, node_id_of
from harrow.cluster.errors import HarrowError
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.brokers import BrokerReady

from .. import run_folder
from ..histories.request_rows import brokers_that_always_responded


def brokers_with_whole_taps(run: Path, events: Iterable[TracedEvent[TraceEvent]]) -> list[int]:
    """Return their node ids: none where a file cannot be read. `events`: of the traces."""
    starts = Counter(traced.node for traced in events if isinstance(traced.event, BrokerReady))
    tapped = {node_id_of(path.parent) for path in broker_files(run / run_folder.CLUSTER, TAP)}
    once = {node for node, count in starts.items() if count == 1} & tapped
    try:
        return sorted(once & brokers_that_always_responded(run, "Produce")) if once else []
    except (HarrowError, OSError):
        return []
