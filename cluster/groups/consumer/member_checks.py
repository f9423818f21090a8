"""May this client commit or fetch offsets of a consumer group now?

Owns: the checks of OffsetCommit, TxnOffsetCommit and OffsetFetch; each raises KafkaError or returns. A member must name
its present epoch: STALE_MEMBER_EPOCH otherwise, ILLEGAL_GENERATION for a member of the classic protocol.

Source: Kafka's ConsumerGroup.validateOffsetCommit and validateOffsetFetch.
"""

from __future__ import annotations

from ...errors import ErrorCode, KafkaError
from ..membership_values import NO_MEMBER
from .group_state import GroupData
from .heartbeats import known_member
from .members import ConsumerMember

NO_GENERATION = -1
MEMBER_EPOCH_FROM = 9
"""First version of OffsetCommit and OffsetFetch with errors for member epochs."""


def check_commit(state: GroupData, group_id: str, member_id: str, epoch: int, version: int) -> None:
    """OffsetCommit. A client that is no member, an administrator for example, may commit while the group is Empty."""
    if epoch < 0 and not state.members:
        return
    member = known_member(state, group_id, member_id)
    if not member.is_classic and version < MEMBER_EPOCH_FROM:
        raise KafkaError(ErrorCode.unsupported_version)
    _check_epoch(member, epoch)


def check_transactional(state: GroupData, group_id: str, member_id: str, instance_id: str | None, epoch: int) -> None:
    """TxnOffsetCommit, whose clients know STALE_MEMBER_EPOCH from v6 on; its older versions name no member."""
    names_none = (member_id, instance_id, epoch) == (NO_MEMBER, None, NO_GENERATION)
    if names_none or (epoch < 0 and not state.members):
        return
    _check_epoch(known_member(state, group_id, member_id), epoch)


def check_fetch(state: GroupData, group_id: str, member_id: str | None, epoch: int) -> None:
    """OffsetFetch. A client that names no member is not checked."""
    if member_id is None and epoch < 0:
        return
    _check_epoch(known_member(state, group_id, member_id or ""), epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        raise KafkaError(ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch)
