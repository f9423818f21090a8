"""DescribeProducers (API 61): the producers of a partition, with their open transactions (KIP-664).

Owns: `DescribeProducersHandler`. Every replica describes what its log has; the first offset of an open transaction
says what holds back the last stable offset.

Source: Kafka's `ReplicaManager.activeProducerState`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode
from ..ids import TopicPartition
from ..topic_names import is_valid_topic_name
from ..wire import messages
from ..wire.request import denial

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..storage.producers.producer_entry import ProducerEntry
    from ..wire.request import Request
    from .partition_directory import PartitionDirectory


class DescribeProducersHandler:
    """Describes the producers of the partitions that are here."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory

    def handle(self, request: Request) -> None:
        """DescribeProducers v0."""
        s = messages.response(request)
        asked = request.decode().topics
        denied = request.denied(Operation.READ, ResourceType.TOPIC, (topic.name for topic in asked))
        topics = tuple(
            s.TopicResponse(
                name=topic.name,
                partitions=tuple(
                    self._described(s, TopicPartition(topic.name, number), denied) for number in topic.partition_indexes
                ),
            )
            for topic in asked
        )
        request.respond(s.DescribeProducersResponse(topics=topics))

    def _described(self, s: Any, tp: TopicPartition, denied: Collection[str]) -> Any:
        partition = self._directory.partition(tp)
        if not is_valid_topic_name(tp.topic):
            error = ErrorCode.invalid_topic_exception
        elif tp.topic in denied:
            error = ErrorCode.topic_authorization_failed
        else:
            error = self._directory.missing(tp) if partition is None else partition.check_replica()
        producers = partition.log.producers.entries() if partition and not error else ()
        return s.PartitionResponse(
            partition_index=tp.partition,
            error_code=error,
            error_message=denial(ResourceType.TOPIC).message if tp.topic in denied else None,
            active_producers=tuple(_producer(s, entry) for entry in producers),
        )


def _producer(s: Any, entry: ProducerEntry) -> Any:
    return s.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
