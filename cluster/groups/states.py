"""The states of a classic group, as tables.

Owns: which state may follow which, and the error of SyncGroup and of Heartbeat in each state. Source: Kafka's
ClassicGroupState and GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ..errors import ErrorCode


class GroupState(Enum):
    """Kafka's names, as ListGroups and DescribeGroups show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({PREPARING, STABLE, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset({DEAD}),
}
"""State -> states that may follow."""

SYNC_ERRORS: Mapping[GroupState, ErrorCode] = {
    EMPTY: ErrorCode.unknown_member_id,
    PREPARING: ErrorCode.rebalance_in_progress,
    DEAD: ErrorCode.coordinator_not_available,
}
HEARTBEAT_ERRORS: Mapping[GroupState, ErrorCode] = {
    EMPTY: ErrorCode.unknown_member_id,
    PREPARING: ErrorCode.rebalance_in_progress,
    # After the response to JoinGroup consumers send heartbeats while the leader computes the assignment.
    COMPLETING: ErrorCode.none,
    STABLE: ErrorCode.none,
    DEAD: ErrorCode.coordinator_not_available,
}
