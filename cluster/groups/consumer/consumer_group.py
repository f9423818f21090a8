"""One consumer group on its coordinator: operations in turn, and timeouts.

Owns: the committed state of the group (`data`), the operations that wait, and the deadlines of members.

An operation plans on a `Draft`. Its records are appended with acks=all; then the draft becomes the state, and the
response leaves. The next operation begins after that, so each operation sees only what is in the log, and what a
client knows survives the coordinator.

When an append ends with an error but its batch is in this leader's log (a timeout, too few replicas after the append),
the draft becomes the state too, because as long as this broker leads, the batch stays; the client gets the error and
tries again. Any other error leaves the state as it was.

When a deadline passes, the member is fenced:

| deadline  | of                                    | begins                                    |
| --------- | ------------------------------------- | ----------------------------------------- |
| session   | each member                           | at each accepted request of the member     |
| rebalance | a member that must revoke partitions  | when it must; ends when its state changes  |
| join      | a classic member that must join again | at its Heartbeat or SyncGroup              |
| sync      | a classic member that joined          | at its JoinGroup                           |

Source: Kafka's GroupMetadataManager (schedule…Timeout, consumerGroupFenceMember), CoordinatorRuntime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

from ...coordinators import COORDINATOR_ERRORS, KeyValue
from ...errors import ErrorCode, KafkaError
from ..write_errors import TOO_LARGE
from .group_state import ConsumerGroupState, Draft, GroupData
from .heartbeats import remove_members
from .members import ConsumerMember, MemberState
from .record_formats import encode_all
from .subscriptions import DescribedTopics
from .target_assignments import ConsumerRules

IN_THE_LOG = frozenset((ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append))
"""Errors of an append whose batch is in the leader's log."""

Plan = Callable[[Draft], Callable[[], None]]
"""Plans on a draft, and returns what follows once the records are in the log; KafkaError refuses the operation."""
Refusal = Callable[[KafkaError], None]


class Deadline(Enum):
    """What a deadline is for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    JOIN = "join"
    SYNC = "sync"


class GroupSurroundings(Protocol):
    """What a group needs of its shard."""

    def now_ms(self) -> int:
        """The monotonic clock."""
        ...

    def append(self, records: Sequence[KeyValue], done: Callable[[ErrorCode], None]) -> None:
        """Append with acks=all; `done(error of the log)` once."""
        ...

    def call_at(self, group_id: str, delay_ms: int, call: Callable[[], None]) -> None:
        """Call once; replaces the call of this group that was scheduled before."""
        ...

    def changed(self, group: ConsumerGroup, before: GroupData) -> None:
        """The state of a group changed: for traces and taps."""
        ...

    def expired(self, group: ConsumerGroup, clients: Mapping[str, str]) -> None:
        """Members, each with its client id, were removed because their timeouts had passed: for traces."""
        ...

    def downgrade(self, group: ConsumerGroup, draft: Draft, *, rebalance: bool) -> bool:
        """Turn the group into a classic group if it may become one; adds what follows to `draft`."""
        ...


class _Operation(NamedTuple):
    plan: Plan
    refuse: Refusal


class ConsumerGroup:
    """One group."""

    __slots__ = (
        "_closed",
        "_deadlines",
        "_queue",
        "_rules",
        "_running",
        "_surroundings",
        "_timer_ms",
        "_writing",
        "data",
        "denied_topics",
        "group_id",
        "topics_version",
    )

    def __init__(self, group_id: str, data: GroupData, rules: ConsumerRules, surroundings: GroupSurroundings) -> None:
        self.group_id = group_id
        self.data = data
        self._rules = rules
        self.denied_topics: Callable[[Iterable[str]], Collection[str]] | None = None
        """Which topics the member that sent the last heartbeat may not describe: its regular expression has none of
        them; None without an authorizer."""
        self.topics_version = -1
        """Version of the cluster's topics that the group has checked; -1: none."""
        self._surroundings = surroundings
        self._queue: deque[_Operation] = deque()
        self._running = self._writing = False
        self._closed: ErrorCode | None = None
        self._deadlines: dict[tuple[Deadline, str], int] = {}
        self._timer_ms: int | None = None

    @property
    def rules(self) -> ConsumerRules:
        """The rules with this group's settings, which administrators may change at any time."""
        rules = self._rules.of_group(self.group_id)
        if self.denied_topics is None:
            return rules
        return replace(rules, view=DescribedTopics(rules.view, self.denied_topics))

    @property
    def state(self) -> ConsumerGroupState:
        """The state by Kafka's name."""
        return ConsumerGroupState.DEAD if self._closed is not None else self.data.state()

    @property
    def is_busy(self) -> bool:
        """True while an operation is in progress or waits."""
        return self._writing or bool(self._queue)

    # ---- operations ------------------------------------------------------------------------------

    def submit(self, plan: Plan, refuse: Refusal) -> None:
        """Run an operation after those that wait; it may end before this returns."""
        self._queue.append(_Operation(plan, refuse))
        self._run()

    def close(self, error: ErrorCode) -> None:
        """Refuse every operation that waits, and all that follow."""
        self._closed = error
        self._deadlines.clear()
        self._run()

    def _run(self) -> None:
        if self._running:
            return
        self._running = True
        while self._queue and not self._writing:
            operation = self._queue.popleft()
            if self._closed is not None:
                operation.refuse(KafkaError(self._closed))
            else:
                self._begin(operation)
        self._running = False

    def _begin(self, operation: _Operation) -> None:
        assert not self._writing, f"{self.group_id}: an operation begins while another one is being written"
        draft = Draft(self.data)
        try:
            follow = operation.plan(draft)
        except KafkaError as error:
            operation.refuse(error)
            return
        batch = [*draft.first, *encode_all(self.group_id, draft.records), *draft.last]
        if not batch:
            follow()
            return

        def written(error: ErrorCode) -> None:
            assert self._writing, f"{self.group_id}: a second result of one write, {error}"
            self._writing = False
            self._written(draft, follow, operation.refuse, error)
            self._run()

        self._writing = True
        self._surroundings.append(batch, written)

    def _written(self, draft: Draft, follow: Callable[[], None], refuse: Refusal, error: ErrorCode) -> None:
        is_in_log = error is ErrorCode.none or error in IN_THE_LOG
        if is_in_log and self._closed is None:
            before, self.data = self.data, draft.state
            now = self.data
            assert before.epoch <= now.epoch or not now.members, (
                f"{self.group_id}: epoch {now.epoch} after {before.epoch}"
            )
            assert now.target_epoch <= now.epoch, f"{self.group_id}: target of epoch {now.target_epoch} in {now.epoch}"
            for applied in draft.on_applied:
                applied()
            self._forget_removed(before)
            self._watch_changed(before)
            self._surroundings.changed(self, before)
        if error is ErrorCode.none:
            follow()
            return
        too_large = error in TOO_LARGE
        code = ErrorCode.unknown_server_error if too_large else COORDINATOR_ERRORS.get(error, error)
        refuse(KafkaError(code))

    # ---- deadlines -------------------------------------------------------------------------------

    def start(self) -> None:
        """The group was loaded: every member has a whole session from now."""
        for member in self.data.members.values():
            self.member_heard(member)
            self.watch_revocation(member)

    def member_heard(self, member: ConsumerMember) -> None:
        """A request of the member was accepted: its session begins again."""
        classic = member.metadata.classic
        timeout_ms = self.rules.limits.session_timeout_ms
        self.set_deadline(
            Deadline.SESSION, member.member_id, timeout_ms if classic is None else classic.session_timeout_ms
        )

    def watch_revocation(self, member: ConsumerMember) -> None:
        """Begin the rebalance timeout of a member that must revoke partitions; end that of any other."""
        must_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if must_revoke and not member.is_classic:
            timeout_ms = member.metadata.rebalance_timeout_ms
            self.set_deadline(Deadline.REBALANCE, member.member_id, timeout_ms)
        else:
            self.clear_deadline(Deadline.REBALANCE, member.member_id)

    def has_deadline(self, kind: Deadline, member_id: str) -> bool:
        """True while that deadline is set."""
        return (kind, member_id) in self._deadlines

    def set_deadline(self, kind: Deadline, member_id: str, timeout_ms: int) -> None:
        """Set a deadline from now on."""
        if self._closed is not None:
            return
        due_ms = self._surroundings.now_ms() + timeout_ms
        self._deadlines[kind, member_id] = due_ms
        if self._timer_ms is None or due_ms < self._timer_ms:
            self._arm(due_ms)

    def clear_deadline(self, kind: Deadline, member_id: str) -> None:
        """Forget a deadline."""
        self._deadlines.pop((kind, member_id), None)

    def _arm(self, due_ms: int) -> None:
        self._timer_ms = due_ms
        delay_ms = max(due_ms - self._surroundings.now_ms(), 0)
        self._surroundings.call_at(self.group_id, delay_ms, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._timer_ms = None
        if self._closed is not None:
            return
        if self._expired():
            self.submit(self._fence_expired, lambda _error: self._arm_again(retry=True))
        else:
            self._arm_again()

    def _arm_again(self, *, retry: bool = False) -> None:
        due_ms = min(self._deadlines.values(), default=None)
        if due_ms is not None and self._closed is None:
            # a write that failed is tried again later, not at once
            earliest_ms = self._surroundings.now_ms() + RETRY_MS if retry else due_ms
            self._arm(max(due_ms, earliest_ms))

    def _expired(self) -> list[str]:
        now_ms = self._surroundings.now_ms()
        passed = [name for (_, name), due_ms in self._deadlines.items() if due_ms <= now_ms]
        return list(dict.fromkeys(passed))

    def _fence_expired(self, draft: Draft) -> Callable[[], None]:
        expired = [name for name in self._expired() if name in draft.state.members]
        if expired:
            clients = {name: draft.state.members[name].metadata.client_id for name in expired}
            draft.on_applied.append(partial(self._surroundings.expired, self, clients))
            remove_members(draft, expired, self.rules)
            self._surroundings.downgrade(self, draft, rebalance=True)
        return self._arm_again

    def _watch_changed(self, before: GroupData) -> None:
        """Members that are new have a session, also where the client of the operation gets an error."""
        for member in self.data.members.values():
            if before.members.get(member.member_id) is member:
                continue
            if not self.has_deadline(Deadline.SESSION, member.member_id):
                self.member_heard(member)
            must_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS
            if must_revoke and not self.has_deadline(Deadline.REBALANCE, member.member_id):
                self.watch_revocation(member)

    def _forget_removed(self, before: GroupData) -> None:
        for member_id in before.members.keys() - self.data.members.keys():
            for kind in Deadline:
                self.clear_deadline(kind, member_id)


RETRY_MS = 1_000
"""How long the coordinator waits before it fences members again after a failed write."""
