"""KAFKA-10471: the clean-shutdown marker outlives a crash while the logs are loaded.

What was wrong: the marker was removed after all logs had been loaded, which takes minutes on a large broker. Loading
maps the indexes of each active segment with room for every entry: zeroes behind the entries. A broker that was killed
before the end of the loading left these files and the marker. The next start believed in a clean shutdown, skipped the
recovery, and took the size of an index for the number of its entries (since KIP-263 an index is not checked at a start,
because recovery rebuilds those that a crash may have left). An index that is full makes the first append roll the
segment, whose largest timestamp is that of its last entry: 0. Retention by time deletes the segment with everything in
it.

A simulated load is one turn of the loop. So the plant makes the window: the marker is removed `LOADING_MS` after the
logs were opened, and the broker goes on with its start then. It serves nothing before, as in Kafka. Our broker maps an
index at the first append and checks it at each start, so that a marker which is left does no harm to it alone; that is
why the plant treats indexes as Kafka does. Indexes of that kind alone do no harm either: it is the marker that matters.

Seen as: `lost-write`: no record of the segment was as old as `retention.ms` (`checks/oracle_of_removals.py` in a
simulation, `checks/kernels/early_removals.py` on real brokers). A directed search on real processes has not made it
happen yet.
Replaces: `LogManager.start` and `LogFolder.remove_marker` (when the marker is removed); what Kafka does with index
files of a log that was closed cleanly: `check_entries` of both indexes, `LogLoader.end_of`.
Source: KAFKA-10471, KAFKA-10207, KIP-263; Kafka's `LogManager.loadLogs`, `Log.loadSegments`, `AbstractIndex`.
"""

from __future__ import annotations

import random

from harrow.cluster.ids import Offset
from harrow.cluster.planting import Planter
from harrow.cluster.storage.indexes.offset_index import OffsetIndex
from harrow.cluster.storage.indexes.time_index import TimeIndex
from harrow.cluster.storage.log_folder import LogFolder
from harrow.cluster.storage.log_manager import LogManager
from harrow.cluster.storage.opening.loader import LogLoader
from harrow.cluster.storage.segment import LogSegment

from .. import crash_during_recovery, follower, kill, leader
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import AVAILABLE, SHORT, SHORT_SESSION_MS

TITLE = "KAFKA-10471: a broker that is killed while it loads its logs counts as shut down cleanly"
LOADING_MS = 500
"""How long the loading of the logs takes."""
OPTIONS = SimulationOptions(
    brokers=2,  # the follower alone can be elected
    seconds=7.0,
    partitions=1,
    topic_config=AVAILABLE,
    config={**SHORT, "log.segment.bytes": 1 << 20, "log.retention.check.interval.ms": 300},
)


def plant(planter: Planter) -> None:
    """Remove the marker after the loading, and trust the indexes of a log that was closed cleanly."""
    start, remove_marker = LogManager.start, LogFolder.remove_marker

    async def start_slowly(self: LogManager) -> None:
        await start(self)
        await self.tasks.sleep(LOADING_MS)
        for folder in self.online:
            remove_marker(folder)

    planter.replace_method(LogManager, "start", start_slowly)
    planter.replace_method(LogFolder, "remove_marker", _not_yet)
    planter.replace_method(OffsetIndex, "check_entries", _trusted)
    planter.replace_method(TimeIndex, "check_entries", _trusted)
    planter.replace_method(LogLoader, "end_of", _end_by_offset_index)


def _not_yet(self: LogFolder) -> None:
    del self


def _trusted(self: OffsetIndex | TimeIndex) -> None:
    del self


def _end_by_offset_index(self: LogLoader, segment: LogSegment) -> Offset:
    """Read from the last entry of the offset index to the end; map the indexes with room for every entry."""
    del self
    end = segment.base_offset
    for _, header in segment.scan(segment.offsets.last_position()):
        end = header.last_offset + 1
    segment.offsets.begin()
    segment.times.begin()
    return Offset(end)


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A follower shuts down cleanly, and is killed while it starts; later the leader dies for long."""
    end_ms = 1_000 * OPTIONS.seconds
    crash = crash_during_recovery(follower(TOPIC, 0), clean=True)
    begin_ms, lasts_ms = rng.uniform(500, 1_500), rng.uniform(0.5, 1.5) * SHORT_SESSION_MS
    dies_ms = begin_ms + lasts_ms + rng.uniform(3, 5) * SHORT_SESSION_MS
    return (timed_step(1, begin_ms, crash, lasts_ms), timed_step(2, dies_ms, kill(leader(TOPIC, 0)), end_ms))


BUG = Bug(
    number=14,
    module=__name__,
    title=TITLE,
    versions="2.4 to 2.7",
    needs=(
        "a controlled shutdown of a follower, a kill while it loads its logs, a start; it is elected after retention "
        "has deleted the segment"
    ),
    seen_as=frozenset({"lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
)
