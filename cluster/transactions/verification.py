"""A partition leader's question to the coordinator: may this producer append to these partitions (KIP-890)?

Owns: `CoordinatorQueries`, which finds the coordinator of a transactional id and asks it with AddPartitionsToTxn, or
asks in the process when this broker coordinates. For producers of transaction version 1 it verifies that the
partitions were added; for those of version 2 it adds them.

What may fail: nothing; each partition has an error code. NETWORK_EXCEPTION: the coordinator was not reached.
Source: Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, HarrowError
from ..host.seam import Host, Promise
from ..ids import TopicPartition, by_topic
from ..internal_topics import TRANSACTIONS, partition_for
from ..wire import messages
from ..wire.api_keys import ApiKey
from .rules import Producer
from .transaction import TRANSACTION_VERSION

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..network.peer_connections import PeerConnections
    from .service import TransactionService

VERSION = 5

Errors = Mapping[TopicPartition, ErrorCode]


class CoordinatorQueries:
    """Asks coordinators whether partitions belong to transactions."""

    def __init__(self, host: Host, cache: MetadataCache, peers: PeerConnections, service: TransactionService) -> None:
        self._host = host
        self._cache = cache
        self._peers = peers
        self._service = service

    async def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> Errors:
        """Whether each partition is in the transaction; `add`: add it."""
        producer = Producer(producer_id=producer_id, epoch=producer_epoch)
        count = self._cache.partition_count(TRANSACTIONS.name)
        if not count:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        home = TopicPartition(TRANSACTIONS.name, partition_for(transactional_id, count))
        node = self._cache.leader(home)
        if node == self._cache.node_id:
            return await self._ask_here(transactional_id, producer, partitions, add=add)
        if not self._cache.is_alive(node):
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        entity = _request(transactional_id, producer, partitions, add=add)
        try:
            response = await self._peers.request(node, ApiKey.ADD_PARTITIONS_TO_TXN, VERSION, entity)
        except (OSError, HarrowError) as error:  # TimeoutError is an OSError
            self._host.trace.log("warning", f"the coordinator of {transactional_id}: {error}")
            return dict.fromkeys(partitions, ErrorCode.network_exception)
        return _errors_of(response, partitions)

    async def _ask_here(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], *, add: bool
    ) -> Errors:
        if not add:
            return self._service.verify(transactional_id, producer, partitions)
        promise: Promise[ErrorCode] = self._host.tasks.promise()
        self._service.add_partitions(transactional_id, producer, partitions, TRANSACTION_VERSION, promise.set_result)
        return dict.fromkeys(partitions, await promise)


def _request(transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], *, add: bool) -> object:
    s = messages.schema(ApiKey.ADD_PARTITIONS_TO_TXN, VERSION, "request")
    return s.AddPartitionsToTxnRequest(
        transactions=(
            s.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=not add,
                topics=tuple(
                    s.AddPartitionsToTxnTopic(name=topic, partitions=tuple(tp.partition for tp in rows))
                    for topic, rows in by_topic(partitions).items()
                ),
            ),
        )
    )


def _errors_of(response: Any, partitions: Collection[TopicPartition]) -> Errors:
    refused: ErrorCode = response.error_code
    if refused is not ErrorCode.none:
        return dict.fromkeys(partitions, refused)
    found: dict[TopicPartition, ErrorCode] = {
        TopicPartition(topic.name, row.partition_index): row.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for row in topic.results_by_partition
    }
    return {tp: found.get(tp, ErrorCode.unknown_server_error) for tp in partitions}
