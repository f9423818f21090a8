"""May this client commit or fetch offsets of a consumer group now?

Owns: the checks of OffsetCommit, TxnOffsetCommit and OffsetFetch; each raises KafkaError or returns. A member names its
present epoch, or commits with an older one if it has had each partition since then (KIP-1251): a partition that moved
away and back has a newer epoch, so that a client that was left behind cannot commit for it. STALE_MEMBER_EPOCH
otherwise, ILLEGAL_GENERATION for a member of the classic protocol.

Source: Kafka's ConsumerGroup.validateOffsetCommit, validateOffsetFetch, createAssignmentEpochValidator.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import ErrorCode, KafkaError
from ...wire.topic_ids import UUID
from ..known_members import known_member
from ..membership_values import NO_MEMBER
from .group_state import GroupData
from .members import ConsumerMember

NO_GENERATION = -1
Named = tuple[UUID | None, int]
"""A partition by the id of its topic; a topic that is gone since the request was read has none."""
MEMBER_EPOCH_FROM = 9
"""First version of OffsetCommit and OffsetFetch with errors for member epochs."""


def check_commit(
    state: GroupData, group_id: str, member_id: str, epoch: int, version: int, partitions: Iterable[Named]
) -> None:
    """OffsetCommit. A client that is no member, an administrator for example, may commit while the group is Empty."""
    if epoch < 0 and not state.members:
        return
    member = known_member(state.members, group_id, member_id)
    if not member.is_classic and version < MEMBER_EPOCH_FROM:
        raise KafkaError(ErrorCode.unsupported_version)
    _check_epoch_of_commit(member, epoch, partitions)


def check_transactional(
    state: GroupData, group_id: str, member: tuple[str, str | None], epoch: int, partitions: Iterable[Named]
) -> None:
    """TxnOffsetCommit of `(member id, instance id)`; its versions before v3 name no member."""
    names_none = (*member, epoch) == (NO_MEMBER, None, NO_GENERATION)
    if names_none or (epoch < 0 and not state.members):
        return
    _check_epoch_of_commit(known_member(state.members, group_id, member[0]), epoch, partitions)


def check_fetch(state: GroupData, group_id: str, member_id: str | None, epoch: int) -> None:
    """OffsetFetch. A client that names no member is not checked."""
    if member_id is None and epoch < 0:
        return
    _check_epoch(known_member(state.members, group_id, member_id or ""), epoch)


def _check_epoch_of_commit(member: ConsumerMember, epoch: int, partitions: Iterable[Named]) -> None:
    if epoch < member.epoch:
        since = [None if topic_id is None else member.has_since((topic_id, number)) for topic_id, number in partitions]
        if all(first is not None and first <= epoch for first in since):
            return
    _check_epoch(member, epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        raise KafkaError(ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch)
