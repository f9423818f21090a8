"""What the coordinator writes to `__consumer_offsets`, and what its refusals mean to a group's client.

Owns: building the batch of one change, appending it with acks=all (a commit is answered only when its
replicas have it), and the translation of the log's errors. May fail: never raises; the outcome goes to
`done(error, base offset)`.

Source: Kafka's GroupMetadataManager.appendForGroup, storeGroup, storeOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..errors import ErrorCode
from ..host.seam import Host
from ..ids import NO_OFFSET, Offset, TopicPartition
from ..internal_topics import OFFSETS
from ..wire.batches import build_batch
from .members import Persist
from .membership import Group
from .records import GroupValue, MemberValue, encode_group_key, encode_group_value

if TYPE_CHECKING:
    from ..replication import ProduceResult, ReplicaManager

ALL_REPLICAS = -1

_UNAVAILABLE = ErrorCode.coordinator_not_available
_ELSEWHERE = ErrorCode.not_coordinator
_TOO_LARGE = (
    ErrorCode.message_too_large,
    ErrorCode.record_list_too_large,
    ErrorCode.invalid_fetch_size,
)
_SHARED: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.unknown_topic_or_partition: _UNAVAILABLE,
    ErrorCode.not_enough_replicas: _UNAVAILABLE,
    ErrorCode.not_enough_replicas_after_append: _UNAVAILABLE,
    ErrorCode.not_leader_or_follower: _ELSEWHERE,
    ErrorCode.kafka_storage_error: _ELSEWHERE,
}
OFFSET_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **_SHARED,
    ErrorCode.request_timed_out: _UNAVAILABLE,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.invalid_commit_offset_size),
}
"""Log error → what OffsetCommit answers; others pass as they are."""

GROUP_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **_SHARED,
    # The members shall join again: nobody knows whether the assignment was stored.
    ErrorCode.request_timed_out: ErrorCode.rebalance_in_progress,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.unknown_server_error),
}
"""Log error → what SyncGroup and JoinGroup answer; others pass as they are."""

KeyValue = tuple[bytes, bytes | None]
Done = Callable[[ErrorCode, Offset], None]


class OffsetsStore:
    """Appends to the partitions of `__consumer_offsets` that this broker leads."""

    __slots__ = ("_config", "_host", "_replicas")

    def __init__(self, host: Host, config: BrokerConfig, replicas: ReplicaManager) -> None:
        self._host = host
        self._config = config
        self._replicas = replicas

    def append(self, partition: int, records: Sequence[KeyValue], done: Done) -> None:
        """Append one batch; `done` gets the log's own error and the offset of the first record."""
        tp = TopicPartition(OFFSETS.name, partition)
        batch = build_batch(
            [(key, value, ()) for key, value in records],
            timestamp_ms=self._host.clock.wall_ms(),
        )

        def answered(results: dict[TopicPartition, ProduceResult]) -> None:
            result = results[tp]
            done(result.error, Offset(result.base_offset))

        self._replicas.append(
            {tp: batch},
            acks=ALL_REPLICAS,
            timeout_ms=self._config.number("offsets.commit.timeout.ms"),
            done=answered,
            internal=True,
        )


def group_record(group: Group, persist: Persist, since_ms: int) -> KeyValue:
    """The record of a generation with the assignments that `persist` carries."""
    members = [
        MemberValue(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=persist.assignments.get(member.member_id, b""),
        )
        for member in group.members
    ]
    value = GroupValue(
        protocol_type=group.members.protocol_type or "",
        generation=persist.generation,
        protocol=group.protocol_name,
        leader=group.members.leader,
        since_ms=since_ms,
        members=members,
    )
    return encode_group_key(group.group_id), encode_group_value(value)


__all__ = ["GROUP_ERRORS", "NO_OFFSET", "OFFSET_ERRORS", "OffsetsStore", "group_record"]
