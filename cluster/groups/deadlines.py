"""The deadlines of groups as delayed operations (E5): the phase of a rebalance, and each member's session timeout.

Owns: the purgatories `Rebalance` and `Heartbeat` of this broker. The state machine of a group (`membership`) returns
its deadlines; this module keeps one delayed operation for each, under the key of the group or of the member. The
operation completes when the state machine no longer has that deadline (every member joined, a heartbeat arrived, the
member left); the next deadline is a new operation. When an operation reaches its deadline, the group's `tick` runs.

Invariant: each deadline of a state machine has an operation that expires no later. A commit also restarts a session;
this module is not notified of commits, so the operation expires at the old deadline, finds the session alive, and is
replaced.

Source: Kafka's `DelayedRebalance` (DelayedJoin, DelayedSync) and `DelayedHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..purgatory import DelayedOperation, Purgatory, PurgatoryTimer
from .hosted_group import HostedGroup


class DelayedDeadline(DelayedOperation):
    """One deadline of a group: of the rebalance's phase, or of the member `member_id`."""

    __slots__ = ("_due", "_held", "_member_id")

    def __init__(self, held: HostedGroup, member_id: str | None, deadline_ms: int, due: Callable[[], None]) -> None:
        super().__init__(deadline_ms)
        self._held = held
        self._member_id = member_id
        self._due = due

    def try_complete(self) -> bool:
        """Complete when the state machine no longer has this deadline."""
        group, member_id = self._held.group, self._member_id
        current_ms = group.phase_deadline_ms() if member_id is None else group.member_deadline_ms(member_id)
        return current_ms != self.deadline_ms and self.force_complete()

    def on_complete(self) -> None:
        """Nothing: the state machine responds to the waiting requests."""

    def on_expiration(self) -> None:
        """Run the group's `tick`."""
        if self._member_id is not None:
            self._held.watched.pop(self._member_id, None)
        self._due()


class GroupDeadlines:
    """The delayed operations of all groups of one broker."""

    def __init__(self, timer: PurgatoryTimer) -> None:
        self.rebalances = Purgatory("Rebalance", timer)
        """Key: (offsets partition, group id)."""
        self.heartbeats = Purgatory("Heartbeat", timer)
        """Key: (offsets partition, group id, member id)."""

    def watch(self, partition: int, held: HostedGroup, due: Callable[[], None]) -> None:
        """Watch exactly the deadlines that the group has now."""
        group, watched = held.group, held.watched
        key = (partition, group.group_id)
        self.rebalances.check_and_complete(key)
        phase_ms = group.phase_deadline_ms()
        if phase_ms is not None and not self.rebalances.waiting(key):
            self.rebalances.watch(DelayedDeadline(held, None, phase_ms, due), (key,))
        deadlines = group.member_deadlines()
        if deadlines == watched:  # few of many members change at a time
            return
        for member_id in watched | deadlines:  # the order must not depend on a hash
            if watched.get(member_id) != deadlines.get(member_id):
                self.heartbeat_received(partition, held, member_id, due)

    def heartbeat_received(self, partition: int, held: HostedGroup, member_id: str, due: Callable[[], None]) -> None:
        """Watch the session timeout of one member."""
        key = (partition, held.group.group_id, member_id)
        self.heartbeats.check_and_complete(key)
        deadline_ms = held.group.member_deadline_ms(member_id)
        if deadline_ms is None:
            held.watched.pop(member_id, None)
        elif not self.heartbeats.waiting(key):
            held.watched[member_id] = deadline_ms
            op = DelayedDeadline(held, member_id, deadline_ms, due)
            self.heartbeats.watch(op, (key,))
