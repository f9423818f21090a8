"""May this client commit or fetch offsets of a streams group now?

Owns: the checks of OffsetCommit, TxnOffsetCommit and OffsetFetch; each raises KafkaError or returns. A member may
commit with an older epoch than its present one if it has had the task of each partition since then: a task that moved
away and back has a newer assignment epoch, so that an instance that was left behind cannot commit for it.

Source: Kafka's StreamsGroup.validateOffsetCommit, validateOffsetFetch, createAssignmentEpochValidator.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import ErrorCode, KafkaError
from ...ids import TopicPartition
from ..known_members import known_member
from ..membership_values import NO_MEMBER
from .group_state import StreamsData
from .members import StreamsMember
from .tasks import TaskId

NO_GENERATION = -1
MEMBER_EPOCH_FROM = 9
"""First version of OffsetCommit with errors for member epochs."""


def check_commit(
    state: StreamsData, group_id: str, member_id: str, epoch: int, version: int, partitions: Iterable[TopicPartition]
) -> None:
    """OffsetCommit. A client that is no member, an administrator for example, may commit while the group is Empty."""
    if epoch < 0 and not state.members:
        return
    member = known_member(state.members, group_id, member_id)
    if version < MEMBER_EPOCH_FROM:
        raise KafkaError(ErrorCode.unsupported_version)
    _check_epoch(state, member, epoch, partitions)


def check_transactional(
    state: StreamsData,
    group_id: str,
    member: tuple[str, str | None],
    epoch: int,
    partitions: Iterable[TopicPartition],
) -> None:
    """TxnOffsetCommit of `(member id, instance id)`; its versions before v3 name no member."""
    names_none = (*member, epoch) == (NO_MEMBER, None, NO_GENERATION)
    if names_none or (epoch < 0 and not state.members):
        return
    _check_epoch(state, known_member(state.members, group_id, member[0]), epoch, partitions)


def check_fetch(state: StreamsData, group_id: str, member_id: str | None, epoch: int) -> None:
    """OffsetFetch. A client that names no member is not checked."""
    if member_id is None and epoch < 0:
        return
    if known_member(state.members, group_id, member_id or "").epoch != epoch:
        raise KafkaError(ErrorCode.stale_member_epoch)


def _check_epoch(state: StreamsData, member: StreamsMember, epoch: int, partitions: Iterable[TopicPartition]) -> None:
    if epoch == member.epoch:
        return
    if epoch > member.epoch or state.topology is None:
        raise KafkaError(ErrorCode.stale_member_epoch)
    current = member.current
    for partition in partitions:
        subtopology = state.topology.source_of(partition.topic)
        since = None
        if subtopology is not None:
            task = TaskId(subtopology.subtopology_id, partition.partition)
            since = current.assigned.active.get(task, current.revoking.active.get(task))
        if since is None or epoch < since:
            raise KafkaError(ErrorCode.stale_member_epoch)
