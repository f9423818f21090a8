"""What waits see of brokers that are not Harrow's: requests of Harrow's, again and again (polling).

* groups: ListGroups, DescribeGroups and ConsumerGroupDescribe; committed offsets: OffsetFetch;
* where partitions end: ListOffsets; records: a consumer that reads committed data, which reads each record once.

A fault of requests of any client (`client="*"`) counts these requests too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.errors import ClusterError
from harrow.cluster.ids import TopicPartition

from ..fault_clients.background import CLIENT_ID
from ..fault_clients.group_view import describe_group
from ..histories.live_taps import GroupSeen
from ..histories.request_rows import RequestCount, count_requests
from ..requests.blocking import BlockingTransport, completed
from ..requests.coordinator import GROUP, Coordinator, committed_offsets
from ..requests.final_groups import list_groups
from .seen import OffsetsSeen, newest_leaders

if TYPE_CHECKING:
    import confluent_kafka
    from harrow.cluster.view import ClusterView

    from ..running_cluster import RunningCluster

PACE_S = 0.2
PATIENCE_S = 3.0
"""How long one look waits for a coordinator, or for records."""
READER = "harrow-wait"


class FromResponses:
    """`ClusterSeen` of any broker; `run`: the run folder, `stopped`: ends a look early."""

    pace_s = PACE_S

    def __init__(self, cluster: RunningCluster, run: Path, stopped: threading.Event) -> None:
        self._cluster = cluster
        self._run = run
        self._stopped = stopped
        self._coordinators: dict[str, Coordinator] = {}
        self._reader: confluent_kafka.Consumer | None = None
        self._counted: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        """Up to which offset the records from an offset were counted, and how many they are."""

    def view(self) -> ClusterView:
        """The cluster by Metadata."""
        return self._cluster.describe()

    def group_names(self) -> Collection[str]:
        """The groups that ListGroups returns."""
        return list_groups(self._cluster.own_servers).states

    def group(self, name: str) -> GroupSeen | None:
        """One group as its coordinator describes it."""
        found = completed(describe_group(self._coordinator(name)))
        if found is None:
            return None
        owners = {
            member: [f"{topic}-{number}" for topic in sorted(held) for number in held[topic]]
            for member, held in sorted(found.members.items())
            if any(held.values())
        }
        return GroupSeen(state=found.state, members=len(found.members), owners=owners)

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets that OffsetFetch returns."""
        found = completed(committed_offsets(self._coordinator(group), partitions, stable=False))
        return {where: offset for where, offset in found.items() if offset >= 0}

    def _coordinator(self, group: str) -> Coordinator:
        if group not in self._coordinators:
            transport = BlockingTransport(self._cluster.own_servers, CLIENT_ID, self._stopped)
            self._coordinators[group] = Coordinator(transport, GROUP, group, patience_ms=PATIENCE_S * 1000)
        return self._coordinators[group]

    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetsSeen]:
        """The ends that ListOffsets returns; a log is taken to begin at offset 0, below which nothing is read."""
        leaders = newest_leaders(self._cluster.state(), frozenset(partitions))
        ends = {where: row["lso"] for where, (_, row) in leaders.items()}
        return {where: OffsetsSeen(start=0, end=end) for where, end in ends.items() if end is not None}

    def readable(self, where: TopicPartition, first: int, end: int) -> int:
        """Read what was not counted yet; ClusterError where the leader does not return it now."""
        position, count = self._counted.get((where, first), (first, 0))
        deadline = time.monotonic() + PATIENCE_S
        if position < end:
            reader = self._opened()
            reader.assign([_place(where, position)])
            try:
                while position < end:
                    position, more = self._read(reader, position, end)
                    count += more
                    self._counted[where, first] = position, count
                    if time.monotonic() > deadline or self._stopped.is_set():
                        raise ClusterError(f"{where} was read up to offset {position} of {end} so far")
            finally:
                reader.unassign()
        return count

    @staticmethod
    def _read(reader: confluent_kafka.Consumer, position: int, end: int) -> tuple[int, int]:
        """Return the position behind the next messages, and how many of them are records below `end`."""
        from confluent_kafka import KafkaError

        count = 0
        for message in reader.consume(10_000, 0.2):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name in the library
                    position = max(position, message.offset() or 0, end)
                continue
            offset = message.offset() or 0
            if offset < end:
                count += 1
            position = offset + 1
        return position, count

    def _opened(self) -> confluent_kafka.Consumer:
        if self._reader is None:
            import confluent_kafka

            self._reader = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": self._cluster.own_servers,
                    "group.id": READER,
                    "client.id": READER,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": False,
                    "log_level": 2,
                }
            )
        return self._reader

    def requests(self) -> Sequence[RequestCount]:
        """The counters of the taps of the proxy."""
        return count_requests(self._run)

    def close(self) -> None:
        """Close the consumer."""
        if self._reader is not None:
            with contextlib.suppress(RuntimeError):
                self._reader.close()


def _place(where: TopicPartition, offset: int) -> confluent_kafka.TopicPartition:
    import confluent_kafka

    return confluent_kafka.TopicPartition(where.topic, where.partition, offset)
