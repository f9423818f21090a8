"""A small blocking client of the Kafka protocol: one socket, plain entities, no retries.

For tests that must see a broker's responses byte for byte and in their order. `RawKafka` sends requests to a single
broker; `send` does not wait, and `take` returns the next response. Entities come from `harrow.cluster.wire.messages`.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.headers import encode_request_header, parse_response_header
from harrow.cluster.wire.records import NewRecord, build_batch

SIZE = struct.Struct(">i")
NOW_MS = 1_700_000_000_000


class RawKafka:
    """A connection to a broker."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, client_id: str = "raw", timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._sent: dict[int, tuple[int, int]] = {}
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # ------------------------------------------------------------------ frames

    def send(self, api_key: int, version: int, entity: Any) -> int:
        """Sends a request without waiting; returns its correlation id, for `take`."""
        return self.send_body(api_key, version, messages.encode_request(api_key, version, entity))

    def send_body(self, api_key: int, version: int, body: bytes, *, answered_as: int | None = None) -> int:
        """Sends a request with an encoded body; `answered_as` is the version of its response."""
        self._correlation += 1
        header = encode_request_header(api_key, version, self._correlation, self._client_id)
        self._sent[self._correlation] = (api_key, version if answered_as is None else answered_as)
        self._socket.sendall(SIZE.pack(len(header) + len(body)) + header + body)
        return self._correlation

    def send_frame(self, frame: bytes, api_key: int, version: int) -> None:
        """Sends a frame with a header of the test's own, which has correlation id 1; the next response is to it."""
        self._sent[1] = (api_key, version)
        self._socket.sendall(SIZE.pack(len(frame)) + frame)

    def take(self) -> tuple[int, Any]:
        """Returns the next response: (correlation id, entity). ConnectionError when the broker hung up."""
        frame = self._exactly(SIZE.unpack(self._exactly(4))[0])
        (correlation,) = SIZE.unpack_from(frame)
        api_key, version = self._sent.pop(correlation)
        _, at = parse_response_header(api_key, version, frame)
        return correlation, messages.decode_response(api_key, version, frame, at)

    def ready(self) -> bool:
        """True when bytes of a response have arrived."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def ask(self, api_key: int, version: int, entity: Any) -> Any:
        """Sends a request and returns its response."""
        asked = self.send(api_key, version, entity)
        correlation, answer = self.take()
        assert correlation == asked, f"answer {correlation} to request {asked}"
        return answer

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

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
        s = messages.schema(ApiKey.LIST_OFFSETS, version, "request")
        row = s.ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
        timeout = {"timeout": timedelta(seconds=30)} if version >= 10 else {}
        entity = s.ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=(s.ListOffsetsTopic(name=topic, partitions=(row,)),), **timeout
        )
        return self.ask(ApiKey.LIST_OFFSETS, version, entity).topics[0].partitions[0]

    def epoch_end(self, topic: str, partition: int, epoch: int, *, current: int = -1, version: int = 4) -> Any:
        """Sends OffsetForLeaderEpoch for a partition; returns its row of the response."""
        s = messages.schema(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, "request")
        row = s.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        entity = s.OffsetForLeaderEpochRequest(
            replica_id=-1, topics=(s.OffsetForLeaderTopic(topic=topic, partitions=(row,)),)
        )
        return self.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, entity).topics[0].partitions[0]

    def metadata(self, *topics: str, version: int = 9) -> Any:
        """Requests the metadata of `topics`, or of all topics."""
        s = messages.schema(ApiKey.METADATA, version, "request")
        rows = tuple(s.MetadataRequestTopic(name=name) for name in topics)
        entity = s.MetadataRequest(
            topics=rows or None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return self.ask(ApiKey.METADATA, version, entity)

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
        s = messages.schema(ApiKey.CREATE_TOPICS, version, "request")
        topic = s.CreatableTopic(
            name=name,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1 if assignment else replication,
            assignments=tuple(
                s.CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(nodes))
                for index, nodes in enumerate(assignment)
            ),
            configs=tuple(s.CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()),
        )
        timeout = messages.milliseconds(30_000)
        entity = s.CreateTopicsRequest(topics=(topic,), timeout=timeout, validate_only=False)
        return self.ask(ApiKey.CREATE_TOPICS, version, entity).topics[0]


def batch(values: Sequence[str], **fields: Any) -> bytes:
    """Builds a batch of these values, as a producer would send it."""
    records: list[NewRecord] = [(b"k", value.encode(), ()) for value in values]
    return build_batch(records, timestamp_ms=NOW_MS, **fields)


def produce_request(
    topic: str, partition: int, values: Sequence[str] | bytes | None, acks: int, timeout_ms: int, version: int
) -> Any:
    """Builds a Produce request with a batch of these values, with these bytes, or with null."""
    s = messages.schema(ApiKey.PRODUCE, version, "request")
    records = values if values is None or isinstance(values, bytes) else batch(values)
    row = s.PartitionProduceData(index=partition, records=records)
    return s.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=messages.milliseconds(timeout_ms),
        topic_data=(s.TopicProduceData(name=topic, partition_data=(row,)),),
    )


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
) -> Any:
    """Builds a Fetch request for a partition as a consumer, by default without a session."""
    s = messages.schema(ApiKey.FETCH, version, "request")
    row = s.FetchPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return s.FetchRequest(
        replica_id=-1,
        max_wait=messages.milliseconds(max_wait_ms),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=(s.FetchTopic(topic=topic, partitions=(row,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
