"""A reader of a simulation: follows each partition from its beginning, epochs carried (KIP-320).

Owns: what was delivered, in the order of delivery. OFFSET_OUT_OF_RANGE where it has read before means that
something it was given is gone: an anomaly.
"""

from __future__ import annotations

from collections.abc import Callable

from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest, encode_fetch_request
from harrow.cluster.wire.fetch_response import FetchedPartition, decode_fetch_response
from harrow.cluster.wire.records import decode_records

from .wire import WireClient, pause_ms

FETCH, FETCH_VERSION = 1, 12
WAIT_MS = 400
REQUEST_MS = 1_200
MOST_BYTES = 1 << 20


class Reader:
    """Reads every partition of a topic for as long as the simulation runs."""

    def __init__(
        self, client: WireClient, topic: str, partitions: int, *, on_anomaly: Callable[[str, str], None]
    ) -> None:  # fmt: skip
        self._client = client
        self._host = client.host
        self._on_anomaly = on_anomaly
        self.positions = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self.delivered: dict[TopicPartition, list[tuple[int, bytes]]] = {
            tp: [] for tp in self.positions
        }
        self.stopped = False

    def start(self) -> None:
        """Begin to read."""
        for tp in self.positions:
            self._host.tasks.spawn(self._follow(tp), name=f"read-{tp}")

    async def _follow(self, tp: TopicPartition) -> None:
        while not self.stopped:
            row = await self._fetch(tp)
            error = None if row is None else ErrorCode(row.error)
            if row is not None and error is ErrorCode.none:
                self._take(tp, row)
                continue
            if row is not None and error is ErrorCode.offset_out_of_range:
                text = f"{tp} at {self.positions[tp]}, its log starts at {row.log_start_offset}"
                self._on_anomaly("reader-out-of-range", text)
                return
            await self._client.refresh(tp.topic)
            await self._host.tasks.sleep(pause_ms(self._host))

    async def _fetch(self, tp: TopicPartition) -> FetchedPartition | None:
        leader = await self._client.leader(tp)
        part = FetchPartition(
            tp.topic, tp.partition, leader.epoch, self.positions[tp], -1, -1, MOST_BYTES
        )
        fetch = FetchRequest(-1, -1, WAIT_MS, 1, MOST_BYTES, 0, 0, -1, [part], [], "")
        body = encode_fetch_request(FETCH_VERSION, fetch)
        try:
            view = await self._client.request(
                leader.address, FETCH, FETCH_VERSION, body, REQUEST_MS
            )
            answer = decode_fetch_response(FETCH_VERSION, bytes(view))
        except (OSError, TimeoutError, WireError):
            return None
        return answer.partitions[0] if answer.partitions else None

    def _take(self, tp: TopicPartition, row: FetchedPartition) -> None:
        position, delivered = self.positions[tp], self.delivered[tp]
        for at, size, _ in headers(row.records):
            for record in decode_records(row.records[at : at + size]):
                if record.offset >= position:
                    assert record.value is not None, "the workload writes values"
                    delivered.append((record.offset, record.value))
                    position = record.offset + 1
        self.positions[tp] = position
