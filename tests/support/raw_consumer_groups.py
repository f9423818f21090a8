"""Requests of the members of one group of either protocol, classic or consumer (KIP-848), over `RawKafka`, one by one.

Results are small tuples as those of `RawGroup`; partitions are sorted numbers of the one topic of the group.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.consumer.consumer_protocol import decode_assignment, encode_assignment
from harrow.cluster.wire.api_keys import ApiKey
from raw_groups import Joined, RawGroup, committed_topic
from waiting import until

Numbers = Sequence[int]
Answer = tuple[ErrorCode, int, list[int] | None]
"""Error, epoch or generation, partitions."""
ROBUST: Any = {"session_ms": 60_000, "rebalance_ms": 60_000}


class RawConsumerGroup(RawGroup):
    """A group whose members subscribe to one topic."""

    topic = ""
    topic_id: Any = None
    partitions = 0

    def use(self, topic: str, partitions: int) -> None:
        """The topic of all members; returns when the coordinator assigns its partitions, and without the group."""
        self.topic, self.partitions = topic, partitions
        answer = self.home.metadata(topic, version=12)
        self.topic_id = answer.topics[0].topic_id
        everything = list(range(partitions))
        until(lambda: self.enter("probe")[2] == everything, f"{topic} is assigned")
        self.beat("probe", -1)
        assert self.delete(self.name) == {self.name: ErrorCode.none}

    def subscription(self, owned: Numbers | None = None, *, topics: Sequence[str] | None = None) -> bytes:
        """ConsumerProtocolSubscription v1."""
        names = (self.topic,) if topics is None else topics
        head = struct.pack(">hi", 1, len(names)) + b"".join(map(_text, names))
        head += struct.pack(">i", -1)
        if not owned:
            return head + struct.pack(">i", 0)
        numbers = struct.pack(f">i{len(owned)}i", len(owned), *owned)
        return head + struct.pack(">i", 1) + _text(self.topic) + numbers

    def assignment(self, *numbers: int) -> bytes:
        """ConsumerProtocolAssignment v1."""
        return encode_assignment(1, {self.topic: numbers})

    # ---- the classic protocol ----------------------------------------------------------------------

    def rejoin(
        self,
        name: str,
        member: str | None = None,
        *,
        owned: Numbers | None = None,
        topics: Sequence[str] | None = None,
        protocol: str = "cooperative-sticky",
        version: int = 9,
        **more: Any,
    ) -> Joined:
        """JoinGroup with what the member owns; `member` None: under the id of `name`."""
        data = self.subscription(owned, topics=topics)
        given = name if member is None else member
        more = {"protocols": ((protocol, data),), **ROBUST, **more}
        return self.join(name, given, version, **more)

    def synced(self, member: str, generation: int, **more: Any) -> tuple[ErrorCode, list[int]]:
        """SyncGroup: error and partitions."""
        more.setdefault("protocol", ("consumer", "cooperative-sticky"))
        code, data = self.sync(member, generation, **more)
        return code, sorted(tp.partition for tp in decode_assignment(data))

    def classic(self, name: str, *, instance: str | None = None) -> None:
        """A classic group of one member, which has every partition."""
        self.rejoin(name, "", instance=instance)
        if instance is None:
            self.rejoin(name)
        given = {name: self.assignment(*range(self.partitions))}
        code, _ = self.synced(name, 1, gives=given, instance=instance)
        assert code is ErrorCode.none, code

    # ---- the consumer protocol ---------------------------------------------------------------------

    def beat(
        self,
        member: str,
        epoch: int,
        *,
        owned: Numbers | None = None,
        topics: Sequence[str] | None = None,
        instance: str | None = None,
        version: int = 1,
        timeout_ms: int = -1,
        **more: Any,
    ) -> Answer:
        """ConsumerGroupHeartbeat: error, member epoch, assigned partitions (None: not changed)."""
        rows = None
        if owned is not None:
            row = {"topic_id": self.topic_id, "partitions": tuple(owned)}
            rows = (row,) if owned else ()
        answer = self.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            version,
            group_id=self.name,
            member_id=self.id_of(member),
            member_epoch=epoch,
            instance_id=instance,
            rebalance_timeout=timeout_ms,
            topic_partitions=rows,
            subscribed_topic_names=None if topics is None else tuple(topics),
            **more,
        )
        given = answer.assignment
        numbers = given and sorted(n for row in given.topic_partitions for n in row.partitions)
        return ErrorCode(answer.error_code), answer.member_epoch, numbers

    def enter(self, member: str, **more: Any) -> Answer:
        """The first heartbeat of a member."""
        more.setdefault("topics", (self.topic,))
        return self.beat(member, 0, owned=(), timeout_ms=60_000, **more)

    def consumers(self) -> tuple[Any, ...]:
        """ConsumerGroupDescribe: error, state, epochs, and of each member name, epoch, protocol, partitions, target."""
        (row,) = self.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=(self.name,)).groups
        members = [
            (
                self._name_of(m.member_id),
                m.member_epoch,
                m.member_type,
                _count(m.assignment),
                _count(m.target_assignment),
            )
            for m in row.members
        ]
        error = ErrorCode(row.error_code)
        return error, row.group_state, row.group_epoch, row.assignment_epoch, sorted(members)

    # ---- offsets -----------------------------------------------------------------------------------

    def commit_topics(self, rows: Sequence[tuple[str, int, int, str]], *topics: str) -> list[Any]:
        """OffsetCommit of rows (topic, partition, offset, metadata), and of topics without partitions: the response."""
        named = [committed_topic(*row) for row in rows] + [{"name": topic} for topic in topics]
        answer = self.ask(
            ApiKey.OFFSET_COMMIT, 8, group_id=self.name, generation_id_or_member_epoch=-1, member_id="", topics=named
        )
        return [
            (topic.name, [(row.partition_index, ErrorCode(row.error_code)) for row in topic.partitions])
            for topic in answer.topics
        ]

    def fetch_by_id(self, *ids: Any) -> list[Any]:
        """OffsetFetch v10 of partition 0 of each topic: which ids the response has, and the errors."""
        group = {
            "group_id": self.name,
            "topics": [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in ids],
        }
        answer = self.ask(ApiKey.OFFSET_FETCH, 10, groups=[group])
        return [
            (topic.topic_id is not None, ErrorCode(topic.partitions[0].error_code)) for topic in answer.groups[0].topics
        ]


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _count(assignment: Any) -> int:
    return sum(len(row.partitions) for row in assignment.topic_partitions)
