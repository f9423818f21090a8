"""Requests of the members of one classic group over `RawKafka`, of any version, one by one.

Results are small tuples without ids that differ from run to run: member ids have the names that the test gave them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from raw_transactions import coordinator_of
from waiting import until

GROUP_KIND = 0
SUBSCRIBES_NOTHING = b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"
"""ConsumerProtocolSubscription v0 without topics."""

Protocols = Sequence[tuple[str, bytes]]
RANGE: Protocols = (("range", SUBSCRIBES_NOTHING),)
Joined = tuple[ErrorCode, str, int, str | None, str, tuple[str, ...]]
"""Error, member, generation, protocol, leader, members that the leader sees."""


class RawGroup:
    """One group. `connect` gives a connection to a node; a member that waits needs a connection of its own."""

    def __init__(self, connect: Callable[[int], RawKafka], name: str, any_node: int) -> None:
        self.name = name
        self._connect = connect
        self._any_node = any_node
        self._ids: dict[str, str] = {}
        self.home = self.member_link()

    def member_link(self) -> RawKafka:
        """A connection to the coordinator."""
        node = coordinator_of(self._connect(self._any_node), self.name, GROUP_KIND)
        return self._connect(node)

    def await_loaded(self) -> None:
        """Returns when the coordinator serves the group."""
        waits = {ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator}
        until(lambda: self.describe()[0] not in waits, "the coordinator has loaded the group")

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """The response to one request."""
        return self.home.ask(key, version, **fields)

    # ---- member ids --------------------------------------------------------------------------------

    def id_of(self, name: str) -> str:
        """The member id that a response gave to `name`; a name without id stands for itself."""
        return self._ids.get(name, name)

    def _name_of(self, member_id: str) -> str:
        names = (name for name, known in reversed(self._ids.items()) if known == member_id)
        return next(names, member_id)

    # ---- JoinGroup ---------------------------------------------------------------------------------

    def send_join(
        self,
        link: RawKafka,
        member_id: str = "",
        version: int = 9,
        *,
        protocols: Protocols = RANGE,
        instance: str | None = None,
        session_ms: int = 20_000,
        rebalance_ms: int = 4_000,
        protocol_type: str = "consumer",
        group: str | None = None,
    ) -> None:
        """Sends a JoinGroup without waiting for its response."""
        link.send(
            ApiKey.JOIN_GROUP,
            version,
            group_id=self.name if group is None else group,
            session_timeout=session_ms,
            rebalance_timeout=rebalance_ms,
            member_id=self.id_of(member_id),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": data} for name, data in protocols],
        )

    def take_join(self, link: RawKafka, name: str) -> Joined:
        """The response to a JoinGroup; its member id is `name` from now on."""
        _, answer = link.take()
        if answer.member_id:
            self._ids.pop(name, None)
            self._ids[name] = answer.member_id
        return (
            ErrorCode(answer.error_code),
            self._name_of(answer.member_id),
            answer.generation_id,
            answer.protocol_name,
            self._name_of(answer.leader),
            tuple(sorted(self._name_of(row.member_id) for row in answer.members)),
        )

    def join(self, name: str, member_id: str = "", version: int = 9, **more: Any) -> Joined:
        """One JoinGroup and its response."""
        self.send_join(self.home, member_id, version, **more)
        return self.take_join(self.home, name)

    # ---- SyncGroup, Heartbeat, LeaveGroup ----------------------------------------------------------

    def send_sync(
        self,
        link: RawKafka,
        member: str,
        generation: int,
        version: int = 5,
        *,
        gives: Mapping[str, bytes] | None = None,
        instance: str | None = None,
        protocol: tuple[str | None, str | None] = ("consumer", "range"),
        group: str | None = None,
    ) -> None:
        """Sends a SyncGroup without waiting; `protocol`: type and name."""
        protocol_type, protocol_name = protocol
        link.send(
            ApiKey.SYNC_GROUP,
            version,
            group_id=self.name if group is None else group,
            generation_id=generation,
            member_id=self.id_of(member),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[{"member_id": self.id_of(name), "assignment": data} for name, data in (gives or {}).items()],
        )

    def take_sync(self, link: RawKafka) -> tuple[ErrorCode, bytes]:
        """Error and assignment."""
        _, answer = link.take()
        return ErrorCode(answer.error_code), bytes(answer.assignment)

    def sync(self, member: str, generation: int, version: int = 5, **more: Any) -> tuple[ErrorCode, bytes]:
        """One SyncGroup and its response."""
        self.send_sync(self.home, member, generation, version, **more)
        return self.take_sync(self.home)

    def heartbeat(
        self, member: str, generation: int, *, instance: str | None = None, group: str | None = None
    ) -> ErrorCode:
        """The error of a Heartbeat."""
        answer = self.ask(
            ApiKey.HEARTBEAT,
            4,
            group_id=self.name if group is None else group,
            generation_id=generation,
            member_id=self.id_of(member),
            group_instance_id=instance,
        )
        return ErrorCode(answer.error_code)

    def leave(
        self, *members: tuple[str, str | None], group: str | None = None
    ) -> tuple[ErrorCode, list[tuple[str, str | None, ErrorCode]]]:
        """LeaveGroup of several members: error, and name, instance and error of each."""
        rows = [{"member_id": self.id_of(name), "group_instance_id": instance} for name, instance in members]
        answer = self.ask(ApiKey.LEAVE_GROUP, 5, group_id=self.name if group is None else group, members=rows)
        left = [
            (self._name_of(row.member_id), row.group_instance_id, ErrorCode(row.error_code)) for row in answer.members
        ]
        return ErrorCode(answer.error_code), left

    def leave_alone(self, member: str, version: int = 2) -> ErrorCode:
        """LeaveGroup of one member, before version 3."""
        answer = self.ask(ApiKey.LEAVE_GROUP, version, group_id=self.name, member_id=self.id_of(member))
        return ErrorCode(answer.error_code)

    # ---- whole rebalances --------------------------------------------------------------------------

    def begin(self, *members: str, version: int = 9, **more: Any) -> dict[str, RawKafka]:
        """Gives these dynamic members ids and connections, and joins them in turn. The responses are not awaited."""
        links = {name: self.member_link() for name in members}
        for name, link in links.items():
            self.send_join(link, "", version, **more)
            first = self.take_join(link, name)
            assert first[0] is ErrorCode.member_id_required, first
        for name, link in links.items():
            before = len(self.describe()[4])
            self.send_join(link, name, version, **more)
            self.await_size(before + 1)
        return links

    def await_size(self, members: int) -> None:
        """Returns when the group has this many members."""
        until(lambda: len(self.describe()[4]) == members, f"{members} members in {self.name}")

    def stable(self, *members: str, version: int = 9, **more: Any) -> dict[str, RawKafka]:
        """Joins these dynamic members of a new group; returns their connections. The group is Stable."""
        links = self.begin(*members, version=version, **more)
        self.complete(links, more.get("protocol_type", "consumer"))
        return links

    def take_joins(self, links: Mapping[str, RawKafka]) -> tuple[int, str]:
        """All members, which have sent JoinGroup, get their responses. Returns generation and leader."""
        joined = {name: self.take_join(link, name) for name, link in links.items()}
        assert {row[0] for row in joined.values()} == {ErrorCode.none}, joined
        _, _, generation, _, leader, _ = next(iter(joined.values()))
        return generation, leader

    def sync_all(self, links: Mapping[str, RawKafka], generation: int, protocol_type: str = "consumer") -> None:
        """All members sync; each is given its own name."""
        gives = {name: name.encode() for name in links}
        protocol = (protocol_type, "range")
        for name, link in links.items():
            self.send_sync(link, name, generation, gives=gives, protocol=protocol)
        for name, link in links.items():
            assert self.take_sync(link) == (ErrorCode.none, name.encode())

    def complete(self, links: Mapping[str, RawKafka], protocol_type: str = "consumer") -> int:
        """All members, which have sent JoinGroup, get their responses and sync. Returns the generation."""
        generation, _ = self.take_joins(links)
        self.sync_all(links, generation, protocol_type)
        return generation

    # ---- offsets -----------------------------------------------------------------------------------

    def commit(
        self,
        topic: str,
        offset: int,
        member: str = "",
        generation: int = -1,
        version: int = 9,
        *,
        partition: int = 0,
        instance: str | None = None,
        metadata: str = "",
    ) -> ErrorCode:
        """The error of an OffsetCommit of one partition."""
        rows = [(topic, partition, offset, metadata)]
        return self.commit_rows(rows, member, generation, version, instance=instance)[0]

    def commit_rows(
        self,
        rows: Sequence[tuple[str, int, int, str]],
        member: str = "",
        generation: int = -1,
        version: int = 9,
        *,
        instance: str | None = None,
    ) -> list[ErrorCode]:
        """OffsetCommit of rows (topic, partition, offset, metadata); the error of each."""
        answer = self.ask(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=self.name,
            generation_id_or_member_epoch=generation,
            member_id=self.id_of(member),
            group_instance_id=instance,
            topics=[committed_topic(*row) for row in rows],
        )
        return [ErrorCode(row.error_code) for topic in answer.topics for row in topic.partitions]

    def fetch(
        self, *groups: str, topics: Mapping[str, Sequence[int]] | None = None, stable: bool = False
    ) -> dict[str, Any]:
        """OffsetFetch v8: group -> its error, or (topic, partition) -> (offset, error)."""
        wanted = None
        if topics is not None:
            wanted = [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]
        asked = [{"group_id": name, "topics": wanted} for name in groups]
        answer = self.ask(ApiKey.OFFSET_FETCH, 8, groups=asked, require_stable=stable)
        return {row.group_id: _fetched(row) for row in answer.groups}

    def delete_offsets(
        self, *rows: tuple[str, int], group: str | None = None
    ) -> tuple[ErrorCode, list[tuple[str, int, ErrorCode]]]:
        """OffsetDelete: error, and topic, partition and error of each."""
        topics = [{"name": topic, "partitions": [{"partition_index": number}]} for topic, number in rows]
        answer = self.ask(ApiKey.OFFSET_DELETE, 0, group_id=self.name if group is None else group, topics=topics)
        deleted = [
            (topic.name, row.partition_index, ErrorCode(row.error_code))
            for topic in answer.topics
            for row in topic.partitions
        ]
        return ErrorCode(answer.error_code), sorted(deleted)

    # ---- descriptions ------------------------------------------------------------------------------

    def describe(
        self, version: int = 6, group: str | None = None
    ) -> tuple[ErrorCode, str, str, str, list[tuple[str, bytes, bytes]]]:
        """DescribeGroups: error, state, protocol type, protocol; name, subscription, assignment of each member."""
        name = self.name if group is None else group
        answer = self.ask(ApiKey.DESCRIBE_GROUPS, version, groups=(name,))
        row = answer.groups[0]
        members = [
            (self._name_of(m.member_id), bytes(m.member_metadata), bytes(m.member_assignment)) for m in row.members
        ]
        error = ErrorCode(row.error_code)
        return error, row.group_state, row.protocol_type, row.protocol_data, sorted(members)

    def state(self) -> str:
        """The state by Kafka's name."""
        return self.describe()[1]

    def listed(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> tuple[str, str, str] | None:
        """The group in ListGroups with these filters: protocol type, state, type."""
        answer = self.ask(ApiKey.LIST_GROUPS, 5, states_filter=tuple(states), types_filter=tuple(types))
        assert answer.error_code is ErrorCode.none, answer
        rows = [row for row in answer.groups if row.group_id == self.name]
        return (rows[0].protocol_type, rows[0].group_state, rows[0].group_type) if rows else None

    def delete(self, *groups: str) -> dict[str, ErrorCode]:
        """DeleteGroups: the error of each group."""
        answer = self.ask(ApiKey.DELETE_GROUPS, 2, groups_names=groups)
        return {row.group_id: ErrorCode(row.error_code) for row in answer.results}


def committed_topic(topic: str, partition: int, offset: int, metadata: str) -> dict[str, Any]:
    """One partition of an OffsetCommit, as a topic of its own."""
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    return {"name": topic, "partitions": [row]}


def _fetched(row: Any) -> Any:
    error = ErrorCode(row.error_code)
    if error is not ErrorCode.none:
        return error
    return {
        (topic.name, found.partition_index): (found.committed_offset, ErrorCode(found.error_code))
        for topic in row.topics
        for found in topic.partitions
    }
