"""A member of a share group (KIP-932): ShareGroupHeartbeat, ShareFetch, ShareAcknowledge. No input or output.

Owns: the member's epoch and assignment; the leaders of its partitions; a share session with each of these leaders. The
transport must keep its connections: a broker ends the share sessions of a connection that ends, and gives back what
their member had acquired.

    member = ShareMember(Coordinator(transport, GROUP, "workers"), ["orders"], member_id)
    await member.heartbeat()
    for record in await member.fetch():
        member.acknowledge(record, ACCEPT)
    results = await member.commit()

`fetch` sends no acknowledgements; `commit` sends those that were made, and returns the result of each. After an error
of a session, or without a response, the session begins again, and the result of its acknowledgements is not known.
What may fail: `KafkaError` of a heartbeat that is not retriable; a member that was fenced joins with the next one.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harrow.cluster.errors import ErrorCode, KafkaError, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.records import decode_records

from .coordinator import Coordinator

SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
HEARTBEAT_VERSION, FETCH_VERSION, ACKNOWLEDGE_VERSION, METADATA_VERSION = 1, 1, 1, 12
ACCEPT, RELEASE, REJECT = 1, 2, 3
"""Types of acknowledgements."""
JOINS, LEAVES = 0, -1
OPENS, CLOSES = 0, -1
"""Epochs of a share session."""
FENCED = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})
MOST_BYTES = 1 << 20
UNKNOWN = int(ErrorCode.request_timed_out)

Address = tuple[str, int]


class Delivered(NamedTuple):
    """A record that the member acquired."""

    tp: TopicPartition
    offset: int
    deliveries: int
    """How often it was delivered, with this time."""
    key: bytes | None
    value: bytes | None
    given_by: Address
    """The broker that gave it."""


class Acknowledged(NamedTuple):
    """The result of an acknowledgement; error `UNKNOWN`: no response says it."""

    record: Delivered
    type: int
    error: int


@dataclass(slots=True)
class ShareSession:
    """A share session with one broker."""

    epoch: int = OPENS
    partitions: frozenset[TopicPartition] = frozenset()
    """What the broker knows that the member fetches."""
    pending: list[tuple[Delivered, int]] = field(default_factory=list[tuple[Delivered, int]])


class ShareMember:
    """One member of the group of `coordinator`."""

    def __init__(
        self,
        coordinator: Coordinator,
        topics: Sequence[str],
        member_id: str,
        *,
        wait_ms: int = 200,
        most_records: int = 100,
    ) -> None:
        """`member_id`: 16 random bytes in base64, as clients make it. `wait_ms`: how long a fetch waits for records."""
        self._coordinator = coordinator
        self._transport = coordinator.transport
        self._topics = tuple(topics)
        self.member_id = member_id
        self._wait_ms, self._most_records = wait_ms, most_records
        self._epoch = JOINS
        self._assigned: tuple[tuple[Any, int], ...] = ()
        """Topic ids and partitions; a topic id without a name yet is looked up again by the next fetch."""
        self._ids: dict[str, Any] = {}
        self._names: dict[Any, str] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._sessions: dict[Address, ShareSession] = {}
        self.unanswered: dict[TopicPartition, int] = {}
        """How many fetches of a partition had no response, or an error: they may have acquired records."""

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator assigned last, of topics whose names are known."""
        names = self._names
        return frozenset(TopicPartition(names[topic], number) for topic, number in self._assigned if topic in names)

    async def heartbeat(self) -> None:
        """Join, or stay in the group; take over the assignment.

        A request that names the topics has the assignment in its response. So, as clients do, the topics are named
        again after a request without response: that response may have had a new assignment.
        """
        complete = self._heartbeat(self._topics)
        try:
            response = await self._coordinator.ask(
                complete if self._epoch == JOINS else self._heartbeat(None), repeated=complete
            )
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            self._epoch, self._assigned = JOINS, ()
            return
        self._epoch = response.member_epoch
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            self._assigned = tuple((row.topic_id, number) for row in rows for number in row.partitions)
            await self._refresh_unknown()

    async def leave(self) -> None:
        """Close the sessions, and leave the group."""
        for address in sorted(self._sessions):
            await self._acknowledge(address, CLOSES)
        await self.leave_group(self._coordinator)

    async def leave_group(self, coordinator: Coordinator) -> None:
        """Leave the group over another `coordinator` of it; a member that it does not know has left."""
        request = client_request(
            SHARE_GROUP_HEARTBEAT,
            HEARTBEAT_VERSION,
            group_id=coordinator.key,
            member_id=self.member_id,
            member_epoch=LEAVES,
        )
        with contextlib.suppress(KafkaError):
            await coordinator.ask(request)
        self._epoch, self._assigned = JOINS, ()

    async def fetch(self) -> list[Delivered]:
        """Acquire records of each leader, one after the other; return them by partition and offset."""
        await self._refresh_unknown()
        wanted: dict[Address, set[TopicPartition]] = defaultdict(set)
        for tp in self.assigned:
            if tp in self._leaders:
                wanted[self._leaders[tp]].add(tp)
        found: list[Delivered] = []
        for address in sorted({*wanted, *self._sessions}):
            found += await self._fetch(address, frozenset(wanted.get(address, ())))
        return sorted(found)

    def acknowledge(self, record: Delivered, type_: int) -> None:
        """Keep an acknowledgement for the next `commit`."""
        address = self._leaders.get(record.tp)
        if address is not None:
            self._sessions.setdefault(address, ShareSession()).pending.append((record, type_))

    async def commit(self) -> list[Acknowledged]:
        """Send the acknowledgements; return their results."""
        found: list[Acknowledged] = []
        for address in sorted(self._sessions):
            if self._sessions[address].pending:
                found += await self._acknowledge(address, self._sessions[address].epoch)
        return found

    def session_with(self, address: Address) -> ShareSession | None:
        """Return the session with a broker; None where there is none."""
        return self._sessions.get(address)

    def has(self, session: ShareSession) -> bool:
        """Return whether a session goes on, as far as the member knows."""
        return any(known is session for known in self._sessions.values())

    # ---------------------------------------------------------------------------- requests

    def _heartbeat(self, topics: Sequence[str] | None) -> ClientRequest:
        return client_request(
            SHARE_GROUP_HEARTBEAT,
            HEARTBEAT_VERSION,
            group_id=self._coordinator.key,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=topics,
        )

    async def _fetch(self, address: Address, wanted: frozenset[TopicPartition]) -> list[Delivered]:
        session = self._sessions.setdefault(address, ShareSession())
        if session.epoch == OPENS and not wanted:
            return []
        request = client_request(
            SHARE_FETCH,
            FETCH_VERSION,
            group_id=self._coordinator.key,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait=self._wait_ms,
            min_bytes=1,
            max_bytes=MOST_BYTES,
            max_records=self._most_records,
            batch_size=self._most_records,
            topics=self._by_topic(wanted - session.partitions, {}),
            forgotten_topics_data=[
                {"topic_id": topic_id, "partitions": [tp.partition for tp in tps]}
                for topic_id, tps in self._of_topics(session.partitions - wanted)
            ],
        )
        response = await self._ask(address, request, session)
        if response is None:
            for tp in sorted(wanted):
                self.unanswered[tp] = self.unanswered.get(tp, 0) + 1
            return []
        session.partitions = wanted
        found: list[Delivered] = []
        for topic in response.responses:
            for row in topic.partitions:
                tp = TopicPartition(self._names[topic.topic_id], row.partition_index)
                if row.error_code is not ErrorCode.none:
                    self._leaders.pop(tp, None)
                found += _delivered(tp, row, address)
        return found

    async def _acknowledge(self, address: Address, epoch: int) -> list[Acknowledged]:
        session = self._sessions[address]
        pending, session.pending = session.pending, []
        batches: dict[TopicPartition, list[dict[str, Any]]] = defaultdict(list)
        for record, type_ in sorted(pending):
            batches[record.tp].append(
                {"first_offset": record.offset, "last_offset": record.offset, "acknowledge_types": [type_]}
            )
        if session.epoch == OPENS:  # there is no session that holds these records
            return [Acknowledged(record, type_, UNKNOWN) for record, type_ in pending]
        request = client_request(
            SHARE_ACKNOWLEDGE,
            ACKNOWLEDGE_VERSION,
            group_id=self._coordinator.key,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=self._by_topic(frozenset(batches), batches),
        )
        response = await self._ask(address, request, session)
        if response is None:
            return [Acknowledged(record, type_, UNKNOWN) for record, type_ in pending]
        if epoch == CLOSES:
            del self._sessions[address]
        errors = {
            TopicPartition(self._names[topic.topic_id], row.partition_index): int(row.error_code)
            for topic in response.responses
            for row in topic.partitions
        }
        return [Acknowledged(record, type_, errors.get(record.tp, UNKNOWN)) for record, type_ in pending]

    async def _ask(self, address: Address, request: ClientRequest, session: ShareSession) -> Any:
        """Send a request of a session; None where the session begins again."""
        try:
            response = await self._transport.ask(address, request, self._wait_ms + 1_000)
        except (OSError, WireError):
            response = None
        if response is not None and response.error_code is ErrorCode.none:
            session.epoch = 1 if session.epoch == (1 << 31) - 1 else session.epoch + 1
            return response
        self._sessions[address] = ShareSession()
        self._leaders = {tp: leader for tp, leader in self._leaders.items() if leader != address}
        return None

    async def _refresh_unknown(self) -> None:
        """Ask for the metadata of the topics where the name or the leader of an assigned partition is not known."""
        if len(self.assigned) < len(self._assigned) or any(tp not in self._leaders for tp in self.assigned):
            await self._refresh()

    async def _refresh(self) -> None:
        """Learn ids and leaders."""
        request = client_request(
            ApiKey.METADATA,
            METADATA_VERSION,
            topics=[{"name": name} for name in self._topics],
            allow_auto_topic_creation=False,
        )
        try:
            response = await self._transport.ask_any_broker(request)
        except (OSError, WireError):
            return
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            if topic.error_code is not ErrorCode.none:
                continue
            self._ids[topic.name], self._names[topic.topic_id] = topic.topic_id, str(topic.name)
            for row in topic.partitions:
                tp = TopicPartition(str(topic.name), row.partition_index)
                if row.leader_id in addresses:
                    self._leaders[tp] = addresses[row.leader_id]

    def _by_topic(
        self, partitions: frozenset[TopicPartition], batches: dict[TopicPartition, list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        return [
            {
                "topic_id": topic_id,
                "partitions": [
                    {"partition_index": tp.partition, "acknowledgement_batches": batches.get(tp, [])} for tp in tps
                ],
            }
            for topic_id, tps in self._of_topics(partitions)
        ]

    def _of_topics(self, partitions: frozenset[TopicPartition]) -> Iterator[tuple[Any, list[TopicPartition]]]:
        for name in sorted({tp.topic for tp in partitions}):
            yield self._ids[name], sorted(tp for tp in partitions if tp.topic == name)


def _delivered(tp: TopicPartition, row: Any, address: Address) -> Iterator[Delivered]:
    """Yield the acquired records; a batch of the log may have others, too."""
    counts = {
        offset: int(acquired.delivery_count)
        for acquired in row.acquired_records
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    }
    records = bytes(row.records or b"")
    for at, size, header in headers(records):
        if header.is_control:
            continue
        for record in decode_records(records[at : at + size]):
            if record.offset in counts:
                yield Delivered(tp, record.offset, counts[record.offset], record.key, record.value, address)
