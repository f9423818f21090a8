"""A small blocking client of the Kafka protocol: one socket, plain entities, no retries.

For tests that must see a broker's responses byte for byte and in their order. `RawKafka` sends requests to a single
broker; `send` does not wait, and `take` returns the next response. Entities come from `harrow.cluster.wire.messages`.
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Sequence
from typing import Any

from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import SIZE, ClientRequest, client_request
from harrow.cluster.wire.headers import encode_request_header
from harrow.cluster.wire.records import NewRecord, build_batch
from harrow.harness.requests.raw import Connection

NOW_MS = 1_700_000_000_000


class RawKafka(Connection):
    """A connection to a broker. A request is an entity, or its fields by name (`client_request`)."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        client_id: str = "raw",
        timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(Address(host, port), client_id, timeout_s, tls=tls)
        self._timeout_s = timeout_s

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the broker, as DER; None without TLS."""
        return self._socket.getpeercert(binary_form=True) if isinstance(self._socket, ssl.SSLSocket) else None

    # ------------------------------------------------------------------ frames

    def send(self, api_key: int, version: int, entity: Any = None, /, **fields: Any) -> int:
        """Sends a request without waiting; returns its correlation id, for `take`."""
        made = client_request(api_key, version, **fields) if entity is None else ClientRequest(api_key, version, entity)
        return self.send_request(made)

    def send_body(self, api_key: int, version: int, body: bytes, *, answered_as: int | None = None) -> int:
        """Sends a request with an encoded body; `answered_as` is the version of its response."""
        self._correlation_id += 1
        header = encode_request_header(api_key, version, self._correlation_id, self._client_id)
        self._send_frame(header + body, api_key, version if answered_as is None else answered_as, self._correlation_id)
        return self._correlation_id

    def send_frame(self, frame: bytes, api_key: int, version: int) -> None:
        """Sends a frame with a header of the test's own, which has correlation id 1; the next response is to it."""
        self._send_frame(frame, api_key, version, 1)

    def _send_frame(self, frame: bytes, api_key: int, version: int, correlation_id: int) -> None:
        self._in_flight[correlation_id] = ClientRequest(api_key, version, None)
        self.send_bytes(SIZE.pack(len(frame)) + frame)

    def exchange_bytes(self, data: bytes) -> bytes:
        """Sends bytes that need be no request, and returns the next frame. ConnectionError when the broker hung up."""
        self.send_bytes(data, self._timeout_s)
        deadline = time.monotonic() + self._timeout_s
        return self._exactly(SIZE.unpack(self._exactly(SIZE.size, deadline))[0], deadline)

    def take(self) -> tuple[int, Any]:
        """Returns the next response: (correlation id, entity). ConnectionError when the broker hung up."""
        return self.receive(self._timeout_s)

    def ready(self) -> bool:
        """True when bytes of a response have arrived."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def ask(self, api_key: int, version: int, entity: Any = None, /, **fields: Any) -> Any:
        """Sends a request and returns its response."""
        asked = self.send(api_key, version, entity, **fields)
        correlation, answer = self.take()
        assert correlation == asked, f"answer {correlation} to request {asked}"
        return answer

    # ---------------------------------------------------------------- requests

    def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[str] | bytes | None,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        version: int = 9,
    ) -> Any:
        """Produces a batch, these bytes, or null, to a partition; returns its row of the response."""
        answer = self.ask(ApiKey.PRODUCE, version, produce_request(topic, partition, values, acks, timeout_ms, version))
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, *, version: int = 12, **fields: Any) -> Any:
        """Fetches a partition as a consumer; returns its row of the response."""
        answer = self.ask(ApiKey.FETCH, version, fetch_request(topic, partition, offset, version, **fields))
        if not answer.responses:
            return answer
        return answer.responses[0].partitions[0]

    def list_offset(self, topic: str, partition: int, timestamp: int, *, epoch: int = -1, version: int = 7) -> Any:
        """Sends ListOffsets for a partition; returns its row of the response."""
        row = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
        topics = [{"name": topic, "partitions": [row]}]
        answer = self.ask(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics, timeout=30_000)
        return answer.topics[0].partitions[0]

    def epoch_end(self, topic: str, partition: int, epoch: int, *, current: int = -1, version: int = 4) -> Any:
        """Sends OffsetForLeaderEpoch for a partition; returns its row of the response."""
        row = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        topics = [{"topic": topic, "partitions": [row]}]
        answer = self.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)
        return answer.topics[0].partitions[0]

    def metadata(self, *topics: str, version: int = 9) -> Any:
        """Requests the metadata of `topics`, or of all topics."""
        rows = [{"name": name} for name in topics] or None
        return self.ask(ApiKey.METADATA, version, topics=rows, allow_auto_topic_creation=False)

    def settings(self, kind: int, name: str, keys: Sequence[str] | None = None) -> Any:
        """Describes a resource with its synonyms (DescribeConfigs); returns its row of the response."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        return self.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True).results[0]

    def change_settings(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
        """IncrementalAlterConfigs with names, operations and values; returns the resource's row of the response."""
        rows = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": rows}
        return self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses[0]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int = 1,
        assignment: Sequence[Sequence[int]] = (),
        config: dict[str, str] | None = None,
        version: int = 5,
    ) -> Any:
        """Creates a topic (with `assignment`: on these brokers); returns its row of the response."""
        topic = {
            "name": name,
            "num_partitions": -1 if assignment else partitions,
            "replication_factor": -1 if assignment else replication,
            "assignments": [{"partition_index": index, "broker_ids": nodes} for index, nodes in enumerate(assignment)],
            "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
        }
        return self.ask(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout=30_000).topics[0]


def batch(values: Sequence[str], **fields: Any) -> bytes:
    """Builds a batch of these values, as a producer would send it."""
    records: list[NewRecord] = [(b"k", value.encode(), ()) for value in values]
    return build_batch(records, timestamp_ms=NOW_MS, **fields)


def produce_request(
    topic: str, partition: int, values: Sequence[str] | bytes | None, acks: int, timeout_ms: int, version: int
) -> Any:
    """Builds a Produce request with a batch of these values, with these bytes, or with null."""
    records = values if values is None or isinstance(values, bytes) else batch(values)
    row = {"index": partition, "records": records}
    topics = [{"name": topic, "partition_data": [row]}]
    return client_request(ApiKey.PRODUCE, version, acks=acks, timeout=timeout_ms, topic_data=topics).entity


def fetch_request(
    topic: str,
    partition: int,
    offset: int,
    version: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    epoch: int = -1,
    last_epoch: int = -1,
    isolation: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    topic_id: Any = None,
    rack: str = "",
) -> Any:
    """Builds a Fetch request for a partition as a consumer, by default without a session."""
    row = {
        "partition": partition,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": last_epoch,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return client_request(
        ApiKey.FETCH,
        version,
        replica_id=-1,
        max_wait=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[{"topic": topic, "topic_id": topic_id, "partitions": [row]}],
        rack_id=rack,
    ).entity
