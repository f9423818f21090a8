"""The dead-letter queue of a share group: records that no member gets any more are copied to a topic (KIP-1191).

Owns: `DeadLetterQueues`. A record of the queue says by its headers (`__dlq.errors.topic`, `.partition`, `.offset`,
`.group`, `.delivery.count`, `.message`) which record it stands for; with `errors.deadletterqueue.copy.record.enable` it
has the key and the value of that record, too, as far as the log still has it. The partition is that of the record,
modulo the partitions of the queue.

A record may be in the queue twice: where the leader moves, or a response is lost, before the end of the copying is
stored. A record that cannot be copied is given up all the same.

What may fail: KafkaError where the topic must not be used (its name does not begin with
`errors.deadletterqueue.topic.name.prefix`, it has not `errors.deadletterqueue.group.enable`, it does not exist and may
not be created), and where it refuses the records; errors of connections after the last attempt.

Source: Kafka's ShareGroupDLQStateManager, ShareGroupDLQRecordFetcher.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..config import BrokerConfig
from ..config.group_table import DEAD_LETTER_COPIES, DEAD_LETTER_TOPIC, group_flag, group_text
from ..errors import ErrorCode, HarrowError, KafkaError
from ..host.seam import Host
from ..ids import NO_NODE, Offset, TopicPartition
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.batch_header import HEADER_SIZE
from ..wire.batches import headers
from ..wire.features import features_of
from ..wire.records import Header, NewRecord, build_batch, decode_records
from ..wire.release_table import RELEASES
from .in_flight_records import DeadLetters

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..network.peer_connections import PeerConnections
    from ..replication.partition import Partition

ENABLED = "errors.deadletterqueue.group.enable"
LEVEL = 2
"""Of the feature `share.version`."""
PRODUCE_VERSION = 12
"""The last version with names of topics."""
ATTEMPTS = 5
FIRST_PAUSE_MS, LAST_PAUSE_MS, JITTER = 1_000, 30_000, 0.2
AGAIN = frozenset((ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available))
"""Errors of a partition whose leader moves."""
FETCH_BYTES_MOST = 1_048_576
RECORD_OVERHEAD = 128
"""More than the lengths and the names of the headers of a record take."""
REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."

Content = tuple[bytes | None, bytes | None]
"""Key and value."""
NO_CONTENT: Content = (None, None)


class TopicSettings(Protocol):
    """The settings of topics, as all brokers have them."""

    async def topic_config(self, name: str) -> dict[str, str]:
        """Return the overrides of a topic."""
        ...


class QueueTopics(Protocol):
    """What a queue needs of the administration of topics."""

    @property
    def configs(self) -> TopicSettings:
        """Settings of topics."""
        ...

    async def ensure_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> None:
        """Create the topic unless it exists, and wait until metadata has it."""
        ...


class Source(NamedTuple):
    """The share-partition whose records are copied."""

    group_id: str
    partition: Partition


class DeadLetterQueues:
    """The dead-letter queues of the groups whose share-partitions this broker leads."""

    def __init__(
        self, host: Host, config: BrokerConfig, cache: MetadataCache, topics: QueueTopics, peers: PeerConnections
    ) -> None:
        self._host = host
        self._config = config
        self._cache = cache
        self._topics = topics
        self._peers = peers
        features = features_of((ApiKey.SHARE_FETCH,), RELEASES.get(config.text("harrow.as.version")))
        self._are_there = any(row.name == "share.version" and row.level >= LEVEL for row in features)

    def has(self, group_id: str) -> bool:
        """Whether a group has a dead-letter queue."""
        return self._are_there and bool(group_text(self._config, group_id, DEAD_LETTER_TOPIC))

    async def copy(self, source: Source, letters: DeadLetters) -> None:
        """Copy records to the queue; returns when all in-sync replicas of the queue have them."""
        assert 0 <= letters.first_offset <= letters.last_offset, f"{letters} are no records"
        topic = group_text(self._config, source.group_id, DEAD_LETTER_TOPIC)
        most = await self._prepared(topic, source.group_id)
        with_content = group_flag(self._config, source.group_id, DEAD_LETTER_COPIES)
        at = letters.first_offset
        while at <= letters.last_offset:
            found: Mapping[int, Content] = {}
            end = letters.last_offset
            if with_content:
                found, end = self._read(source.partition, at, end, most)
            assert at <= end, "the first of the records always fits"
            at = await self._copy_some(topic, source, letters._replace(first_offset=at, last_offset=end), found, most)

    # ---------------------------------------------------------------- the topic

    async def _prepared(self, topic: str, group_id: str) -> int:
        """Create the topic where it may be; return the most bytes of a batch. KafkaError where it must not be used."""
        if not self._cache.partition_count(topic):
            self._check(topic, group_id, exists=False)
            await self._topics.ensure_topic(
                topic,
                partitions=-1,
                replication_factor=-1,
                config={ENABLED: "true", "message.timestamp.type": "CreateTime"},
            )
        config = await self._topics.configs.topic_config(topic)
        self._check(topic, group_id, exists=True, enabled=config.get(ENABLED, "").lower() == "true")
        return int(config.get("max.message.bytes") or self._config.number("message.max.bytes"))

    def _check(self, topic: str, group_id: str, *, exists: bool, enabled: bool = False) -> None:
        prefix = self._config.text("errors.deadletterqueue.topic.name.prefix")
        text = ""
        if exists and not enabled:
            text = f"DLQ is not enabled on configured DLQ topic for share group: {group_id}, topic: {topic}."
        elif not exists and not self._config.flag("errors.deadletterqueue.auto.create.topics.enable"):
            text = (
                f"DLQ topic does not exist and auto create is disabled on cluster for share group: {group_id}, "
                f"topic: {topic}."
            )
        elif not topic.startswith(prefix):
            text = (
                f"Configured DLQ topic name does not comply with the DLQ topic prefix in share group: {group_id}, "
                f"topic: {topic}, prefix: {prefix}."
            )
        if text:
            raise KafkaError(ErrorCode.invalid_config, text)

    # -------------------------------------------------------------- the records

    def _read(self, partition: Partition, first: Offset, last: Offset, most: int) -> tuple[dict[int, Content], Offset]:
        """Return keys and values by offset, and the last offset that they are complete up to.

        Records that the log does not have, and those that are larger than a batch of the queue may be, are not in it.
        """
        found: dict[int, Content] = {}
        size, at = 0, first
        while at <= last:
            try:
                read = partition.log.read(at, FETCH_BYTES_MOST, partition.high_watermark, at_least_one=True)
            except KafkaError:
                return found, last  # retention has removed them
            data = b"".join(bytes(part) for part in read.parts)
            if not data:
                return found, last
            for start, length, header in headers(data):
                end = Offset(header.base_offset + header.last_offset_delta)
                if not header.is_control:
                    for record in decode_records(data[start : start + length]):
                        if not first <= record.offset <= last:
                            continue
                        bytes_of = len(record.key or b"") + len(record.value or b"")
                        if bytes_of + HEADER_SIZE > most:
                            continue
                        if size + bytes_of > most:
                            return found, Offset(record.offset - 1)
                        size += bytes_of
                        found[record.offset] = (record.key, record.value)
                at = Offset(end + 1)
        return found, last

    async def _copy_some(
        self, topic: str, source: Source, letters: DeadLetters, found: Mapping[int, Content], most: int
    ) -> Offset:
        """Append as many records as fit into a batch; return the offset after them."""
        records: list[NewRecord] = []
        size = HEADER_SIZE
        for offset in range(letters.first_offset, letters.last_offset + 1):
            key, value = found.get(offset, NO_CONTENT)
            row = (key, value, _headers(source, letters, offset))
            size += _most_bytes(row)
            if records and size > most:
                break
            records.append(row)
        assert records, f"{letters} are no records"
        await self._append(topic, source.partition.topic_partition.partition, records)
        return Offset(letters.first_offset + len(records))

    async def _append(self, topic: str, partition: int, records: list[NewRecord]) -> None:
        """Append a batch, again while the leader moves."""
        pause_ms = FIRST_PAUSE_MS
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._append_once(topic, partition, records)
            except KafkaError as error:
                if error.code not in AGAIN or attempt == ATTEMPTS:
                    raise
            except (HarrowError, OSError, TimeoutError):
                if attempt == ATTEMPTS:
                    raise
            await self._host.tasks.sleep(pause_ms * (1 + JITTER * (2 * self._host.random.random() - 1)))
            pause_ms = min(2 * pause_ms, LAST_PAUSE_MS)
        raise AssertionError("the last attempt returns or raises")

    async def _append_once(self, topic: str, partition: int, records: list[NewRecord]) -> None:
        count = self._cache.partition_count(topic)
        tp = TopicPartition(topic, partition % count if count else 0)
        leader = self._cache.leader(tp)
        if leader == NO_NODE or not self._cache.is_alive(leader):
            raise KafkaError(ErrorCode.leader_not_available, f"{tp} has no leader now")
        s = messages.schema(ApiKey.PRODUCE, PRODUCE_VERSION, "request")
        batch = build_batch(records, timestamp_ms=self._host.clock.wall_ms())
        row = s.PartitionProduceData(index=tp.partition, records=batch)
        request = s.root(
            transactional_id=None,
            acks=-1,
            timeout=messages.milliseconds(self._config.number("request.timeout.ms")),
            topic_data=(s.TopicProduceData(name=topic, partition_data=(row,)),),
        )
        response = await self._peers.request_any(leader, ApiKey.PRODUCE, PRODUCE_VERSION, request)
        [result] = [row for found in response.responses for row in found.partition_responses]
        if result.error_code is not ErrorCode.none:
            raise KafkaError(result.error_code, f"{tp}: {result.error_message or result.error_code.name}")


def _headers(source: Source, letters: DeadLetters, offset: int) -> list[Header]:
    topic, partition = source.partition.topic_partition
    said: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "group": source.group_id,
        "delivery.count": letters.delivery_count,
        "message": REJECTED if letters.rejected else DELIVERED_TOO_OFTEN,
    }
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in said.items()]


def _most_bytes(record: NewRecord) -> int:
    key, value, rows = record
    contents = (key, value, *(content for _, content in rows))
    return RECORD_OVERHEAD + sum(len(name) for name, _ in rows) + sum(len(content or b"") for content in contents)
