"""What groups wait for, as delayed operations (E5): a phase of a rebalance, and each member's session.

Owns: the purgatories `Rebalance` and `Heartbeat` of this broker. The machine of a group (`membership`) says which
deadlines it has; here each is an operation, watched under its group, or under its member. What the group does wakes
it: it completes when the machine no longer waits for that deadline (everybody joined, a heartbeat came, the member
left), and the next deadline is a new operation. One that reaches its deadline has the machine ticked.

Invariant: whatever the machine waits for has an operation that comes no later. A session that was prolonged
behind this module's back (a commit proves a member alive, too) is found out at the old deadline.

Source: Kafka's `DelayedRebalance` (DelayedJoin, DelayedSync) and `DelayedHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..purgatory import DelayedOperation, Purgatory, PurgatoryTimer
from .hosted_group import HostedGroup


class DelayedDeadline(DelayedOperation):
    """One deadline of a group: of the rebalance's phase, or of a member (`member_id`)."""

    __slots__ = ("_due", "_held", "_member_id")

    def __init__(
        self, held: HostedGroup, member_id: str | None, deadline_ms: int, due: Callable[[], None]
    ) -> None:
        super().__init__(deadline_ms)
        self._held = held
        self._member_id = member_id
        self._due = due

    def try_complete(self) -> bool:
        """Complete when the machine waits for this deadline no longer."""
        group, member_id = self._held.group, self._member_id
        stands = (
            group.phase_deadline_ms() if member_id is None else group.member_deadline_ms(member_id)
        )
        return stands != self.deadline_ms and self.force_complete()

    def on_complete(self) -> None:
        """Nothing: the machine answers who waits."""

    def on_expiration(self) -> None:
        """Have the machine ticked."""
        if self._member_id is not None:
            self._held.watched.pop(self._member_id, None)
        self._due()


class GroupWaits:
    """The delayed operations of all groups of one broker."""

    def __init__(self, timer: PurgatoryTimer) -> None:
        self.rebalances = Purgatory("Rebalance", timer)
        """Under (offsets partition, group id)."""
        self.heartbeats = Purgatory("Heartbeat", timer)
        """Under (offsets partition, group id, member id)."""

    def follow(self, partition: int, held: HostedGroup, due: Callable[[], None]) -> None:
        """Watch what the group waits for now, and nothing else."""
        group, watched = held.group, held.watched
        key = (partition, group.group_id)
        self.rebalances.check_and_complete(key)
        phase_ms = group.phase_deadline_ms()
        if phase_ms is not None and not self.rebalances.waiting(key):
            self.rebalances.watch(DelayedDeadline(held, None, phase_ms, due), (key,))
        deadlines = group.member_deadlines()
        if deadlines == watched:  # of many members few change at a time
            return
        for member_id in watched | deadlines:  # in an order that no hash decides
            if watched.get(member_id) != deadlines.get(member_id):
                self.heard(partition, held, member_id, due)

    def heard(
        self, partition: int, held: HostedGroup, member_id: str, due: Callable[[], None]
    ) -> None:
        """The same for one member's session."""
        key = (partition, held.group.group_id, member_id)
        self.heartbeats.check_and_complete(key)
        deadline_ms = held.group.member_deadline_ms(member_id)
        if deadline_ms is None:
            held.watched.pop(member_id, None)
        elif not self.heartbeats.waiting(key):
            held.watched[member_id] = deadline_ms
            op = DelayedDeadline(held, member_id, deadline_ms, due)
            self.heartbeats.watch(op, (key,))
