"""WriteTxnMarkers: the partition leader's side of the markers, and their way from the coordinator (F3, F4).

Owns: `MarkerWriter`, which appends markers to the partitions led here with acks=all; `MarkerPeers`, which takes a
coordinator's markers to a leader, in the process when this broker leads; and the handler of WriteTxnMarkers.

A marker for a partition of `__consumer_offsets` is written by the group coordinator, because offsets of the
transaction take effect with it (F6). An administrator may send a marker, too, to abort a transaction whose
coordinator is lost (KIP-664).

Errors are those of the log, and of a producer id or epoch of -1, which means none; a group coordinator that is
loading or not here is NOT_LEADER_OR_FOLLOWER, on which the transaction coordinator tries again.

Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..errors import ErrorCode
from ..host.seam import Host
from ..host.seam.failpoints import AFTER_MARKER, BEFORE_MARKER, passes
from ..ids import NodeId, TopicPartition, by_topic
from ..internal_topics import OFFSETS
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.batches import build_end_txn_marker
from .marker_sender import Marker, Results

if TYPE_CHECKING:
    from ..network.peer_connections import PeerConnections
    from ..replication import ReplicaManager
    from ..wire.request import Request

VERSIONS = (1, 2)
ALL_IN_SYNC_REPLICAS = -1
NONE = -1
"""The producer id, and the epoch, of a batch without a producer."""

OnMarker = Callable[[ErrorCode], None]
OnResults = Callable[[list[Results]], None]
OnEach = Callable[[Marker, TopicPartition, ErrorCode], None]


class GroupMarkers(Protocol):
    """What the group coordinator does at the end of a transaction."""

    def end_transaction(self, partition: int, marker: Marker, invoked_ns: int, done: OnMarker, /) -> None:
        """Write the marker to a partition of `__consumer_offsets` and make its offsets valid, or drop them."""
        ...


class MarkerWriter:
    """Writes markers to partitions that this broker leads."""

    def __init__(self, host: Host, replicas: ReplicaManager, groups: GroupMarkers, timeout_ms: int) -> None:
        self._host = host
        self._replicas = replicas
        self._groups = groups
        self._timeout_ms = timeout_ms

    def write(
        self,
        markers: Sequence[Marker],
        invoked_ns: int,
        done: OnResults,
        each: OnEach = lambda _marker, _tp, _error: None,
    ) -> None:
        """Append each marker to its partitions; `done` follows once with all results, maybe before this returns.

        `each` follows with each result, in the order in which they are known.
        """
        self._host.failpoints.hit(BEFORE_MARKER)
        results: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        wanted = [(index, tp) for index, row in enumerate(markers) for tp in row.partitions]
        left = len(wanted)

        def written(index: int, tp: TopicPartition, error: ErrorCode) -> None:
            nonlocal left
            results[index][tp] = error
            each(markers[index], tp, error)
            left -= 1
            if not left:
                # the markers are written, whatever the failpoint was armed with
                passes(self._host.failpoints, self._host.trace, AFTER_MARKER)
                done(list(results))

        if not wanted:
            done(list(results))
        for index, tp in wanted:
            self._write(markers[index], tp, invoked_ns, partial(written, index, tp))

    def _write(self, marker: Marker, tp: TopicPartition, invoked_ns: int, done: OnMarker) -> None:
        refused = self._refuse(marker, tp)
        if refused is not ErrorCode.none:
            done(refused)
            return
        if tp.topic == OFFSETS.name:
            self._groups.end_transaction(tp.partition, marker, invoked_ns, done)
            return
        batch = build_end_txn_marker(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._host.clock.wall_ms(),
        )
        self._replicas.append(
            {tp: batch},
            acks=ALL_IN_SYNC_REPLICAS,
            timeout_ms=self._timeout_ms,
            done=lambda rows: done(rows[tp].error),
            internal=True,
        )

    def _refuse(self, marker: Marker, tp: TopicPartition) -> ErrorCode:
        partition = self._replicas.partition(tp)
        if partition is None:  # also where another broker has it, as in Kafka
            return ErrorCode.unknown_topic_or_partition
        if marker.producer_id == NONE:
            return ErrorCode.invalid_producer_id_mapping
        if marker.producer_epoch == NONE:
            return ErrorCode.invalid_producer_epoch
        entry = partition.log.producers.get(marker.producer_id)
        if entry is None or entry.accepts_marker(marker.producer_epoch, marker.client_version):
            return ErrorCode.none
        return ErrorCode.invalid_producer_epoch

    # ---- WriteTxnMarkers -----------------------------------------------------------------------------

    def handlers(self) -> Iterable[ApiRow]:
        """WriteTxnMarkers."""
        return (ApiRow(ApiKey.WRITE_TXN_MARKERS, *VERSIONS, self.write_txn_markers),)

    def write_txn_markers(self, request: Request) -> None:
        """WriteTxnMarkers v1 and v2."""
        body = request.decode()
        markers = [
            Marker(
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                coordinator_epoch=row.coordinator_epoch,
                commit=row.transaction_result,
                client_version=getattr(row, "transaction_version", 0),
                partitions=tuple(
                    TopicPartition(topic.name, number) for topic in row.topics for number in topic.partition_indexes
                ),
            )
            for row in body.markers
        ]
        by_producer: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for marker in markers:
            row = by_producer.setdefault(marker.producer_id, {})
            row.update(dict.fromkeys(marker.partitions, ErrorCode.none))

        def each(marker: Marker, tp: TopicPartition, error: ErrorCode) -> None:
            by_producer[marker.producer_id][tp] = error

        self.write(markers, request.received_ns, lambda _: _respond(request, by_producer), each)


def _respond(request: Request, by_producer: Mapping[int, Mapping[TopicPartition, ErrorCode]]) -> None:
    """As in Kafka, a row for each producer with partitions, and in it a row for each partition.

    Of two markers of a producer for one partition it has the result that was known last: that of a marker which
    followers had to take, and not that of one which was refused at once.
    """
    s = messages.response(request)
    rows = tuple(
        s.WritableTxnMarkerResult(
            producer_id=producer_id,
            topics=tuple(
                s.WritableTxnMarkerTopicResult(
                    name=topic,
                    partitions=tuple(
                        s.WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=result[tp])
                        for tp in partitions
                    ),
                )
                for topic, partitions in by_topic(result).items()
            ),
        )
        for producer_id, result in by_producer.items()
        if result
    )
    request.respond(s.WriteTxnMarkersResponse(markers=rows))


class MarkerPeers:
    """Takes markers to their leaders: by WriteTxnMarkers, or in this process."""

    def __init__(self, host: Host, peers: PeerConnections, writer: MarkerWriter) -> None:
        self._host = host
        self._peers = peers
        self._writer = writer

    async def write(self, node_id: NodeId, markers: Sequence[Marker], /) -> list[Results]:
        """The result of each marker at each partition; OSError or HarrowError when the broker was not reached."""
        if node_id == self._peers.node_id:
            promise = self._host.tasks.promise()
            self._writer.write(markers, self._host.clock.monotonic_ns(), promise.set_result)
            results: list[Results] = await promise
            return results
        entity = _request(markers)
        response = await self._peers.request(node_id, ApiKey.WRITE_TXN_MARKERS, VERSIONS[-1], entity)
        by_producer: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for row in response.markers:
            found = by_producer.setdefault(row.producer_id, {})
            for topic in row.topics:
                for part in topic.partitions:
                    found[TopicPartition(topic.name, part.partition_index)] = part.error_code
        return [_results_of(by_producer, marker) for marker in markers]


def _results_of(by_producer: Mapping[int, Results], marker: Marker) -> dict[TopicPartition, ErrorCode]:
    found = by_producer.get(marker.producer_id, {})
    return {tp: found.get(tp, ErrorCode.unknown_server_error) for tp in marker.partitions}


def _request(markers: Sequence[Marker]) -> object:
    s = messages.schema(ApiKey.WRITE_TXN_MARKERS, VERSIONS[-1], "request")
    return s.WriteTxnMarkersRequest(
        markers=tuple(
            s.WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.commit,
                topics=tuple(
                    s.WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(tp.partition for tp in partitions))
                    for topic, partitions in by_topic(marker.partitions).items()
                ),
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.client_version,
            )
            for marker in markers
        )
    )
