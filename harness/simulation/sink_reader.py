"""A reader of committed data on a virtual clock: follows each partition of a topic from its log start.

Owns: `SinkReader`, what it has received by offset, with the markers, and its positions. An unclean election replaces
records at offsets that were read before, so the reader then begins the partition again, at a leader of the new epoch or
a later one. What lies below the log start when the reader wants it, it never receives, also where the log start goes
back later: a broker writes its log starts down in turns only, and a killed leader may have been the only one to know.
"""

from __future__ import annotations

from collections.abc import Callable

from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.client_requests import client_request

from ..backends.simulated.wire import WireClient
from .committed_reads import committed_records, fetch_committed, records_of_log

READ_WAIT_MS = 400
LIST_VERSION, EARLIEST = 7, -2
NO_EPOCH = -1


class SinkReader:
    """Reads every partition of a topic for as long as the simulation runs."""

    def __init__(
        self, client: WireClient, topic: str, partitions: int, unclean_epoch: Callable[[TopicPartition], int]
    ) -> None:
        """`unclean_epoch`: the leader epoch that the last unclean election of a partition began; -1: there was none."""
        self._client = client
        self._host = client.host
        self._unclean_epoch = unclean_epoch
        self.positions = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self.seen: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in self.positions}
        """What it received since it began a partition."""
        self.skipped: dict[TopicPartition, set[int]] = {tp: set() for tp in self.positions}
        """Offsets that were below the log start when it wanted them."""
        self._fetched = {tp: bytearray() for tp in self.positions}
        # the batches of `seen`, with those that were dropped and with markers
        self._begun = dict.fromkeys(self.positions, NO_EPOCH)

    def start(self) -> None:
        """Begin to read."""
        for tp in self.positions:
            self._host.tasks.spawn(self._follow(tp), name=f"read-{tp}")

    def at_end(self, tp: TopicPartition, end: int) -> bool:
        """Whether it has read `tp` to `end`, with no unclean election since it began."""
        return self.positions[tp] == end and self._begun[tp] >= self._unclean_epoch(tp)

    def committed(self, tp: TopicPartition) -> set[int]:
        """Return the offsets that are committed by the markers it received."""
        return {offset for offset, _ in records_of_log(bytes(self._fetched[tp]))[0]}

    async def _follow(self, tp: TopicPartition) -> None:
        while True:
            leader = await self._client.leader(tp)
            if leader.epoch >= self._unclean_epoch(tp) > self._begun[tp]:
                self._begun[tp] = leader.epoch
                self.positions[tp] = 0
                self.seen[tp].clear()
                self.skipped[tp].clear()
                self._fetched[tp].clear()
            if self._begun[tp] < self._unclean_epoch(tp) or not await self._read(tp):
                await self._client.refresh(tp.topic)
                await self._client.pause()

    async def _read(self, tp: TopicPartition) -> bool:
        """One fetch; False when it had no response or an error."""
        position = self.positions[tp]
        row = await fetch_committed(self._client, tp, position, READ_WAIT_MS)
        if row is None or row.error:
            if row is not None and row.error == ErrorCode.offset_out_of_range.value:
                await self._begin_at_log_start(tp)
            return False
        records, end = committed_records(row.records, row.aborted or ())
        if self._begun[tp] >= self._unclean_epoch(tp):  # else it may come from the leader before
            self.seen[tp].update(record for record in records if record[0] >= position)
            for at, size, _ in headers(row.records):
                self._fetched[tp] += row.records[at : at + size]
            self.positions[tp] = max(position, end or 0)
        return True

    async def _begin_at_log_start(self, tp: TopicPartition) -> None:
        """Skip what was deleted before the partition was begun again."""
        leader = await self._client.leader(tp)
        request = client_request(
            ApiKey.LIST_OFFSETS,
            LIST_VERSION,
            replica_id=-1,
            isolation_level=1,
            topics=[{"name": tp.topic, "partitions": [{"partition_index": tp.partition, "timestamp": EARLIEST}]}],
        )
        try:
            response = await self._client.ask(leader.address, request)
        except (OSError, WireError):
            return
        found = response.topics[0].partitions[0]
        if not found.error_code:
            self.skipped[tp] |= set(range(self.positions[tp], found.offset))
            self.positions[tp] = max(self.positions[tp], found.offset)
