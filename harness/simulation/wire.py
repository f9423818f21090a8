"""A small Kafka client on a simulated machine: requests to brokers, and the leaders from Metadata.

Owns: a link to each broker, opened when needed; leaders by partition. It speaks the real protocol through the seam's
network, as librdkafka does through sockets, and shares only codecs and bytes with the brokers.

The client ignores Metadata with an older leader epoch than the stored one (KIP-320).
What may fail: OSError and TimeoutError of a request; WireError of a malformed response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from harrow.cluster.errors import WireError
from harrow.cluster.host.seam import Buffer, Host, Link, Peer, Promise
from harrow.cluster.ids import TopicPartition
from harrow.cluster.network.peers import InFlightRequest, PeerConnection
from harrow.cluster.wire import messages
from harrow.cluster.wire.headers import encode_request_header

METADATA, METADATA_VERSION = 3, 12
CONNECT_MS = 600
METADATA_MS = 600

Address = tuple[str, int]


def pause_ms(host: Host) -> float:
    """How long a client waits before it tries again: around half of Kafka's `retry.backoff.ms`."""
    return 30 + 60 * host.random.random()


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

    async def ask(
        self, address: Address, api_key: int, version: int, entity: Any, timeout_ms: float = METADATA_MS
    ) -> Any:
        """Send one request, a kio entity, and decode its response."""
        body = messages.encode_request(api_key, version, entity)
        view = await self.request(address, api_key, version, body, timeout_ms)
        return messages.decode_response(api_key, version, view)

    async def ask_any_broker(self, api_key: int, version: int, entity: Any) -> Any:
        """Send the request to brokers in random order, until a broker responds."""
        while True:
            address = self.host.random.choice(self.bootstrap)
            try:
                return await self.ask(address, api_key, version, entity)
            except (OSError, TimeoutError, WireError):
                await self.host.tasks.sleep(pause_ms(self.host))

    # --------------------------------------------------------------- metadata

    async def refresh(self, topic: str) -> None:
        """Fetch Metadata from any broker; concurrent callers share the response."""
        if self._refreshing is not None:
            mine: Promise[None] = self.host.tasks.promise()
            self._refreshing.append(mine)
            await mine
            return
        self._refreshing = []
        schema = messages.schema(METADATA, METADATA_VERSION, "request")
        entity = schema.MetadataRequest(
            topics=(schema.MetadataRequestTopic(topic_id=None, name=topic),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        try:
            self._learn(await self.ask_any_broker(METADATA, METADATA_VERSION, entity))
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
