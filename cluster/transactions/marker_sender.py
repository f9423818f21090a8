"""Markers: which control batches end a transaction, and sending them to every partition leader (F3).

Owns: `Marker`, the request of one transaction to one broker; `MarkerSender`, one queue for each broker. A coordinator
adds a transaction whose result is in the log; the sender calls `ended` once every partition has its marker.
Invariants:

* a partition whose leader is not known, or whose leader refuses, is tried again until its marker is acknowledged with
  acks=all, the coordinator lost its leadership, or the partition is deleted in the registry. The metadata cache alone
  does not prove a deletion, because it is empty when a broker has just started;
* when the metadata names another leader, the marker is sent there without waiting for the response of the old one. A
  leader accepts a marker that it has already (`check_marker`);
* a refusal for an older epoch of the producer or of the coordinator ends the sending: another coordinator has taken
  over.

What may fail: nothing; connections that break are tried again.
Source: Kafka's TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..errors import ErrorCode, HarrowError
from ..host.seam import Host
from ..host.seam.failpoints import BETWEEN_MARKERS
from ..ids import NodeId, TopicPartition

if TYPE_CHECKING:
    from ..metadata import MetadataCache

RETRY_MS = 50
"""Pause before a broker or a leader look-up is tried again; new metadata ends it earlier."""

FENCED = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced})
WRITTEN = frozenset({ErrorCode.none, ErrorCode.unsupported_for_message_format})

Results = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The markers of one transaction for the partitions that one broker leads."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    client_version: int
    """Transaction version of the client: with 2 the epoch is one above that of the records."""
    partitions: tuple[TopicPartition, ...]


class MarkerTransport(Protocol):
    """Takes markers to one broker."""

    async def write(self, node_id: NodeId, markers: Sequence[Marker], /) -> list[Results]:
        """The result of each marker at each partition; OSError or HarrowError when the broker was not reached."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class EndingTransaction:
    """A transaction whose result is in the log, with the partitions that have no marker yet."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    client_version: int
    missing: dict[TopicPartition, NodeId | None]
    """Partition -> the broker that its marker was sent to; None: its leader is not known."""
    is_current: Callable[[], bool]
    """False once the coordinator has lost the leadership under which the result was logged."""
    ended: Callable[[], None]

    def marker(self, partitions: Iterable[TopicPartition]) -> Marker:
        """The marker for some of its partitions."""
        return Marker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            commit=self.commit,
            client_version=self.client_version,
            partitions=tuple(partitions),
        )


@dataclass(slots=True)
class _BrokerQueue:
    """What waits for one broker."""

    waiting: dict[EndingTransaction, list[TopicPartition]] = field(
        default_factory=dict[EndingTransaction, list[TopicPartition]]
    )
    is_sending: bool = False


class MarkerSender:
    """Sends the markers of all coordinated transactions of this broker."""

    def __init__(
        self,
        host: Host,
        cache: MetadataCache,
        transport: MarkerTransport,
        is_deleted: Callable[[TopicPartition], Awaitable[bool]],
    ) -> None:
        self.host = host
        self._cache = cache
        self._transport = transport
        self._is_deleted = is_deleted
        self._queues: dict[NodeId, _BrokerQueue] = {}
        self._ending: dict[EndingTransaction, None] = {}
        self._looking = False
        self._retry_due = False
        cache.on_update.append(self._metadata_updated)

    def __len__(self) -> int:
        return len(self._ending)

    def add(self, ending: EndingTransaction) -> None:
        """Send its markers; `ending.ended` follows, possibly before this returns."""
        self._ending[ending] = None
        if not ending.missing:
            self._ended(ending)
            return
        self._dispatch(ending, ending.missing)

    # ---- which broker --------------------------------------------------------------------------------

    def _dispatch(self, ending: EndingTransaction, partitions: Iterable[TopicPartition]) -> None:
        """Queue the markers of these partitions at their leaders; those without a known leader wait."""
        for tp in tuple(partitions):
            node = self._cache.leader(tp)
            if not self._cache.is_alive(node):
                ending.missing[tp] = None
                self._retry_later()
                continue
            ending.missing[tp] = node
            queue = self._queues.setdefault(node, _BrokerQueue())
            waiting = queue.waiting.setdefault(ending, [])
            if tp not in waiting:
                waiting.append(tp)
            if not queue.is_sending:
                queue.is_sending = True
                self.host.tasks.spawn(self._send_queue(node, queue), name=f"markers-to-{node}")

    def _metadata_updated(self) -> None:
        """Send again what waits for a leader, or was sent to a broker that leads no longer."""
        for ending in tuple(self._ending):
            moved = [tp for tp, node in ending.missing.items() if self._cache.leader(tp) != node]
            if moved and ending.is_current():
                self._dispatch(ending, moved)

    def _retry_later(self) -> None:
        if not self._retry_due:
            self._retry_due = True
            self.host.tasks.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retry_due = False
        if self._looking:
            return
        self._looking = True
        self.host.tasks.spawn(self._look_again(), name="markers-without-leader")

    async def _look_again(self) -> None:
        """Dispatch what has no known leader; a partition that is deleted in the registry needs no marker."""
        try:
            for ending in tuple(self._ending):
                if not ending.is_current():
                    self._ending.pop(ending, None)
                    continue
                for tp in [tp for tp, node in ending.missing.items() if node is None]:
                    if self._cache.partition(tp) is None and await self._is_deleted(tp):
                        self.written(ending, tp)
                    elif ending in self._ending and tp in ending.missing:
                        self._dispatch(ending, (tp,))
        finally:
            self._looking = False
        if any(None in ending.missing.values() for ending in self._ending):
            self._retry_later()

    # ---- sending -------------------------------------------------------------------------------------

    async def _send_queue(self, node: NodeId, queue: _BrokerQueue) -> None:
        """Send what waits for a broker, one request at a time, until nothing does."""
        while queue.waiting:
            taken, queue.waiting = queue.waiting, {}
            batch = [
                (ending, [tp for tp in partitions if ending.missing.get(tp) == node])
                for ending, partitions in taken.items()
                if ending in self._ending and self._is_current(ending)
            ]
            batch = [(ending, partitions) for ending, partitions in batch if partitions]
            if batch and not await self._send(node, batch):
                self.host.tasks.call_later(RETRY_MS, self._dispatch_again, node, batch)
        queue.is_sending = False

    def _dispatch_again(self, node: NodeId, batch: Sequence[tuple[EndingTransaction, list[TopicPartition]]]) -> None:
        for ending, partitions in batch:
            if ending in self._ending and self._is_current(ending):
                self._dispatch(ending, [tp for tp in partitions if ending.missing.get(tp) == node])

    def _is_current(self, ending: EndingTransaction) -> bool:
        if ending.is_current():
            return True
        self._ending.pop(ending, None)
        return False

    async def _send(self, node: NodeId, batch: Sequence[tuple[EndingTransaction, list[TopicPartition]]]) -> bool:
        """Send one request; False when a part of it must be sent again."""
        markers = [ending.marker(partitions) for ending, partitions in batch]
        try:
            results = await self._transport.write(node, markers)
            self.host.failpoints.hit(BETWEEN_MARKERS)
        except (OSError, HarrowError) as error:  # TimeoutError is an OSError
            self.host.trace.log("warning", f"markers for broker {node} are sent again: {error}")
            return False
        complete = True
        for (ending, partitions), result in zip(batch, results, strict=True):
            for tp in partitions:
                complete &= self._take_result(ending, tp, result.get(tp, ErrorCode.unknown_server_error))
        return complete

    def _take_result(self, ending: EndingTransaction, tp: TopicPartition, error: ErrorCode) -> bool:
        """The result of one partition; False when its marker must be sent again."""
        if ending not in self._ending:
            return True
        if error in WRITTEN:
            self.written(ending, tp)
            return True
        if error in FENCED:
            text = f"{ending.transactional_id}: the marker for {tp} is refused: {error.name}"
            self.host.trace.log("error", text)
            self._ending.pop(ending)
            return True
        return False

    def written(self, ending: EndingTransaction, tp: TopicPartition) -> None:
        """A partition has its marker; the transaction ends with the last one, once (rule of KAFKA-10080)."""
        ending.missing.pop(tp, None)
        if not ending.missing and ending in self._ending:
            self._ended(ending)

    def _ended(self, ending: EndingTransaction) -> None:
        del self._ending[ending]
        if ending.is_current():
            ending.ended()
