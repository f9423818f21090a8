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

from ..host.seam import Host
from ..purgatory import DelayedOperation, Purgatory, PurgatoryTimer
from .membership import Group


class DelayedDeadline(DelayedOperation):
    """One deadline of a group: of the rebalance's phase, or of a member (`member_id`)."""

    __slots__ = ("_due", "_group", "_member_id")

    def __init__(
        self, group: Group, member_id: str | None, deadline_ms: int, due: Callable[[], None]
    ) -> None:
        super().__init__(deadline_ms)
        self._group = group
        self._member_id = member_id
        self._due = due

    def try_complete(self) -> bool:
        """Complete when the machine waits for this deadline no longer."""
        if self._member_id is None:
            stands = self._group.phase_deadline_ms()
        else:
            stands = self._group.member_deadline_ms(self._member_id)
        return stands != self.deadline_ms and self.force_complete()

    def on_complete(self) -> None:
        """Nothing: the machine answers who waits."""

    def on_expiration(self) -> None:
        """Have the machine ticked."""
        self._due()


class GroupWaits:
    """The delayed operations of all groups of one broker."""

    def __init__(self, host: Host) -> None:
        self._timer = PurgatoryTimer(host)
        self.rebalances = Purgatory("Rebalance", self._timer)
        """Under (offsets partition, group id)."""
        self.heartbeats = Purgatory("Heartbeat", self._timer)
        """Under (offsets partition, group id, member id)."""

    def follow(
        self, partition: int, group: Group, watched: set[str], due: Callable[[], None]
    ) -> None:
        """Watch what `group` waits for now and nothing else; `watched`: the members watched so far, kept current."""
        key = (partition, group.group_id)
        self.rebalances.check_and_complete(key)
        phase_ms = group.phase_deadline_ms()
        if phase_ms is not None and not self.rebalances.waiting(key):
            self.rebalances.watch(DelayedDeadline(group, None, phase_ms, due), (key,))
        for member_id in watched | set(group.members_with_deadlines()):
            self.heard(partition, group, member_id, watched, due)

    def heard(
        self,
        partition: int,
        group: Group,
        member_id: str,
        watched: set[str],
        due: Callable[[], None],
    ) -> None:
        """The same for one member's session."""
        key = (partition, group.group_id, member_id)
        self.heartbeats.check_and_complete(key)
        deadline_ms = group.member_deadline_ms(member_id)
        if deadline_ms is None:
            watched.discard(member_id)
        elif not self.heartbeats.waiting(key):
            watched.add(member_id)
            op = DelayedDeadline(group, member_id, deadline_ms, due)
            self.heartbeats.watch(op, (key,))

    def close(self) -> None:
        """Nothing expires any more."""
        self._timer.close()
