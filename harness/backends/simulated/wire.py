"""A small Kafka client on a simulated machine: requests to brokers, waits, and the leaders from Metadata.

Owns: a link to each broker, opened when needed; leaders by partition. It speaks the real protocol through the seam's
network, as librdkafka does through sockets, and shares only codecs and bytes with the brokers.

The client ignores Metadata with an older leader epoch than the stored one (KIP-320).
What may fail: OSError and TimeoutError of a request; WireError of a malformed response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.host.seam import Buffer, Host, Link, Peer, Promise
from harrow.cluster.ids import TopicPartition
from harrow.cluster.network.peers import InFlightRequest, PeerConnection
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest, encode_fetch_request
from harrow.cluster.wire.fetch_response import FetchedPartition, decode_fetch_response
from harrow.cluster.wire.headers import encode_request_header

METADATA_VERSION, CREATE_VERSION, FETCH_VERSION = 12, 5, 12
CONNECT_MS = 600
METADATA_MS = 600
CREATE_MS = 5_000
FETCH_MS = 1_200
MOST_BYTES = 1 << 20

Address = tuple[str, int]


class KnownLeader(NamedTuple):
    """The leader of a partition: node id, address and leader epoch."""

    node_id: int
    address: Address
    epoch: int


class WireClient:
    """Requests to any broker of a simulated cluster."""

    def __init__(self, host: Host, client_id: str, bootstrap: Sequence[Address]) -> None:
        self.host = host
        self._client_id = client_id
        self.bootstrap = list(bootstrap)
        self._connections: dict[Address, PeerConnection] = {}
        self._correlation = 0
        self.leaders: dict[TopicPartition, KnownLeader] = {}
        self._refreshing: list[Promise[None]] | None = None
        # callers that wait for the response that is requested already

    # --------------------------------------------------------------- requests

    async def request(self, address: Address, api_key: int, version: int, body: bytes, timeout_ms: float) -> memoryview:
        """One request and the body of its response."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = await self._connect(address)
        self._correlation += 1
        header = encode_request_header(api_key, version, self._correlation, self._client_id)
        promise: Promise[memoryview] = self.host.tasks.promise()
        deadline_ms = self.host.clock.monotonic_ms() + timeout_ms
        request = InFlightRequest(api_key, version, promise, deadline_ms, timeout_ms)
        parts: tuple[Buffer, ...] = (header, body)
        connection.send(self._correlation, parts, request)
        return await promise

    async def _connect(self, address: Address) -> PeerConnection:
        made: list[PeerConnection] = []

        def make(link: Link) -> PeerConnection:
            made.append(PeerConnection(self.host, link))
            return made[0]

        peer = Peer("broker", f"at {address[1]}")
        await self.host.network.connect(peer, *address, make, timeout_ms=CONNECT_MS)
        # another request may have connected at the same time: either connection serves
        self._connections[address] = made[0]
        return made[0]

    async def ask(self, address: Address, request: ClientRequest, timeout_ms: float | None = None) -> Any:
        """Send one request and decode its response."""
        key, version, _ = request
        view = await self.request(
            address, key, version, request.body(), METADATA_MS if timeout_ms is None else timeout_ms
        )
        return messages.decode_response(key, version, view)

    async def ask_any_broker(self, request: ClientRequest) -> Any:
        """Send the request to brokers in random order, until a broker responds."""
        while True:
            address = self.host.random.choice(self.bootstrap)
            try:
                return await self.ask(address, request)
            except (OSError, WireError):
                await self.pause()

    async def create_topic(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Send CreateTopics until the topic exists."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication,
            "configs": [{"name": key, "value": value} for key, value in sorted(config.items())],
        }
        request = client_request(ApiKey.CREATE_TOPICS, CREATE_VERSION, topics=[topic], timeout=CREATE_MS)
        while True:
            response = await self.ask_any_broker(request)
            if response.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
                return
            await self.sleep(20)

    async def fetch(
        self, tp: TopicPartition, leader: KnownLeader, offset: int, wait_ms: int, *, isolation: int, epoch: int
    ) -> FetchedPartition | None:
        """Fetch from one partition; None without a response, whose error code the caller checks."""
        part = FetchPartition(tp.topic, tp.partition, epoch, offset, -1, -1, MOST_BYTES)
        fetch = FetchRequest(-1, -1, wait_ms, 1, MOST_BYTES, isolation, 0, -1, [part], [], "")
        body = encode_fetch_request(FETCH_VERSION, fetch)
        try:
            view = await self.request(leader.address, ApiKey.FETCH, FETCH_VERSION, body, FETCH_MS)
            response = decode_fetch_response(FETCH_VERSION, bytes(view))
        except (OSError, WireError):
            return None
        return response.partitions[0] if response.partitions else None

    # --------------------------------------------------------------- time

    def now_ms(self) -> float:
        """The machine's monotonic clock."""
        return self.host.clock.monotonic_ms()

    async def sleep(self, delay_ms: float) -> None:
        """Wait so long."""
        await self.host.tasks.sleep(delay_ms)

    async def pause(self) -> None:
        """Wait before something is tried again: around half of Kafka's `retry.backoff.ms`."""
        await self.host.tasks.sleep(30 + 60 * self.host.random.random())

    # --------------------------------------------------------------- metadata

    async def refresh(self, topic: str) -> None:
        """Fetch Metadata from any broker; concurrent callers share the response."""
        if self._refreshing is not None:
            mine: Promise[None] = self.host.tasks.promise()
            self._refreshing.append(mine)
            await mine
            return
        self._refreshing = []
        request = client_request(
            ApiKey.METADATA, METADATA_VERSION, topics=[{"name": topic}], allow_auto_topic_creation=False
        )
        try:
            self._learn(await self.ask_any_broker(request))
        finally:
            shared, self._refreshing = self._refreshing, None
            for promise in shared:
                promise.set_result(None)

    def _learn(self, response: Any) -> None:
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            for row in topic.partitions:
                if row.leader_id not in addresses:
                    continue
                tp = TopicPartition(topic.name, row.partition_index)
                known = self.leaders.get(tp)
                if known is None or known.epoch <= row.leader_epoch:
                    self.leaders[tp] = KnownLeader(row.leader_id, addresses[row.leader_id], row.leader_epoch)

    async def leader(self, tp: TopicPartition) -> KnownLeader:
        """Return the partition's leader; fetches Metadata until there is a leader."""
        while (found := self.leaders.get(tp)) is None:
            await self.refresh(tp.topic)
            if tp not in self.leaders:
                await self.host.tasks.sleep(30)
        return found
