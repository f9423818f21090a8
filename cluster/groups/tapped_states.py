"""Reports to the tap the state of a group after each change, classic or of KIP-848 (J6, L4).

Owns: what it reported last, so that a call without a change costs a comparison. A group without members that was never
stable has no row: a request that was refused, or commits of a client that is no member.
"""

from __future__ import annotations

from ..host.seam import Tap, TappedGroup
from .consumer.group_state import GroupData
from .membership import Group


class TappedState:
    """What the tap has of one group since its coordinator loaded it."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: TappedGroup | None = None

    def report(self, tap: Tap, group_id: str, now: TappedGroup, *, partition: int, leader_epoch: int) -> None:
        """Report the group if it differs from the last report."""
        if now == self._last or (self._last is None and not now.generation and not now.members):
            return
        self._last = now
        tap.group(group_id, now, partition=partition, leader_epoch=leader_epoch)


def classic_state(group: Group) -> TappedGroup:
    """A classic group."""
    timeouts = (max(row.rebalance_timeout_ms, row.session_timeout_ms) for row in group.members)
    return TappedGroup(group.state.value, group.generation, len(group.members), max(timeouts, default=0))


def consumer_state(data: GroupData, session_timeout_ms: int) -> TappedGroup:
    """A consumer group whose members of the new protocol have `session_timeout_ms`."""
    timeouts = [session_timeout_ms] if data.members else []
    for member in data.members.values():
        classic = member.metadata.classic
        timeouts += [member.metadata.rebalance_timeout_ms, 0 if classic is None else classic.session_timeout_ms]
    return TappedGroup(data.state().value, data.epoch, len(data.members), max(timeouts, default=0))
