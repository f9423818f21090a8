"""One streams group on its coordinator: operations in turn, and timeouts.

Owns: the committed state of the group (`data`), what is known besides (`known`), the operations that wait, and the
deadlines.

An operation plans on a `Draft`. Its records are appended with acks=all; then the draft becomes the state, and the
response leaves. The next operation begins after that, so each operation sees only what is in the log. When an append
ends with an error but its batch is in this leader's log, the draft becomes the state too, and the client gets the error
and tries again. Any other error leaves the state as it was.

| deadline  | of                              | begins                                       | when it passes         |
| --------- | ------------------------------- | -------------------------------------------- | ---------------------- |
| session   | each member                     | at each accepted heartbeat of the member     | the member is fenced   |
| rebalance | a member that must revoke tasks | when it must; ends when its state changes    | the member is fenced   |
| initial   | the group                       | at the first join of a group without members | a target is computed   |

Source: Kafka's GroupMetadataManager (schedule…Timeout, streamsGroupFenceMember, computeDelayedTargetAssignment).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

from ...coordinators import COORDINATOR_ERRORS, KeyValue
from ...errors import ErrorCode, KafkaError
from ..write_errors import TOO_LARGE
from .group_state import Draft, StreamsData, StreamsGroupState
from .heartbeats import StreamsRules, Volatile, delayed_target
from .members import MemberState, StreamsMember
from .record_formats import encode_all

IN_THE_LOG = frozenset((ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append))
"""Errors of an append whose batch is in the leader's log."""
RETRY_MS = 1_000
"""How long the coordinator waits before it fences members again after a failed write."""

Plan = Callable[[Draft], Callable[[], None]]
"""Plans on a draft, and returns what follows once the records are in the log; KafkaError refuses the operation."""
Refusal = Callable[[KafkaError], None]


class Deadline(Enum):
    """What a deadline is for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    INITIAL = "initial"


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

    def changed(self, group: StreamsGroup, before: StreamsData) -> None:
        """The state of a group changed: for traces and taps."""
        ...

    def expired(self, group: StreamsGroup, clients: Mapping[str, str]) -> None:
        """Members, each with its client id, were removed because their timeouts had passed: for traces."""
        ...


class _Operation(NamedTuple):
    plan: Plan
    refuse: Refusal


class StreamsGroup:
    """One group."""

    __slots__ = (
        "_closed",
        "_deadlines",
        "_queue",
        "_running",
        "_surroundings",
        "_timer_ms",
        "_writing",
        "data",
        "group_id",
        "known",
        "rules",
    )

    def __init__(self, group_id: str, data: StreamsData, rules: StreamsRules, surroundings: GroupSurroundings) -> None:
        self.group_id = group_id
        self.data = data
        self.known = Volatile()
        self.rules = rules
        self._surroundings = surroundings
        self._queue: deque[_Operation] = deque()
        self._running = self._writing = False
        self._closed: ErrorCode | None = None
        self._deadlines: dict[tuple[Deadline, str], int] = {}
        self._timer_ms: int | None = None

    @property
    def state(self) -> StreamsGroupState:
        """The state by Kafka's name."""
        return StreamsGroupState.DEAD if self._closed is not None else self.data.state()

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
        draft = Draft(self.data)
        try:
            follow = operation.plan(draft)
        except KafkaError as error:
            operation.refuse(error)
            return
        batch = [*draft.first, *encode_all(self.group_id, draft.records)]
        if not batch:
            follow()
            return

        def written(error: ErrorCode) -> None:
            self._writing = False
            self._written(draft, follow, operation.refuse, error)
            self._run()

        self._writing = True
        self._surroundings.append(batch, written)

    def _written(self, draft: Draft, follow: Callable[[], None], refuse: Refusal, error: ErrorCode) -> None:
        is_in_log = error is ErrorCode.none or error in IN_THE_LOG
        if is_in_log and self._closed is None:
            before, self.data = self.data, draft.state
            if not self.data.members:
                self.known.shutdown_by = None
            for applied in draft.on_applied:
                applied()
            self._watch(before)
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
            self._watch_revocation(member)

    def member_heard(self, member: StreamsMember) -> None:
        """A heartbeat of the member was accepted: its session begins again."""
        self._set(Deadline.SESSION, member.member_id, self.rules.session_timeout_ms(self.group_id))

    def delays(self, *, was_empty: bool) -> bool:
        """Begin the delay of the first rebalance where the group had no member; True while the delay lasts."""
        key = (Deadline.INITIAL, "")
        delay_ms = self.rules.initial_delay_ms(self.group_id)
        if was_empty and delay_ms > 0 and key not in self._deadlines:
            self._set(*key, delay_ms)
        return key in self._deadlines

    def _watch_revocation(self, member: StreamsMember) -> None:
        """Begin the rebalance timeout of a member that must revoke tasks; end that of any other."""
        if member.current.state is MemberState.UNREVOKED_TASKS:
            self._set(Deadline.REBALANCE, member.member_id, member.metadata.rebalance_timeout_ms)
        else:
            self._deadlines.pop((Deadline.REBALANCE, member.member_id), None)

    def _watch(self, before: StreamsData) -> None:
        for member_id in before.members.keys() - self.data.members.keys():
            self._deadlines.pop((Deadline.SESSION, member_id), None)
            self._deadlines.pop((Deadline.REBALANCE, member_id), None)
        for member in self.data.members.values():
            old = before.members.get(member.member_id)
            if old is member:
                continue
            if (Deadline.SESSION, member.member_id) not in self._deadlines:
                self.member_heard(member)
            if old is None or old.current != member.current:
                self._watch_revocation(member)

    def _set(self, kind: Deadline, member_id: str, timeout_ms: int) -> None:
        if self._closed is not None:
            return
        due_ms = self._surroundings.now_ms() + timeout_ms
        self._deadlines[kind, member_id] = due_ms
        if self._timer_ms is None or due_ms < self._timer_ms:
            self._arm(due_ms)

    def _arm(self, due_ms: int) -> None:
        self._timer_ms = due_ms
        delay_ms = max(due_ms - self._surroundings.now_ms(), 0)
        self._surroundings.call_at(self.group_id, delay_ms, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._timer_ms = None
        if self._closed is not None:
            return
        if self._passed():
            self.submit(self._end_passed, lambda _error: self._arm_again(retry=True))
        else:
            self._arm_again()

    def _arm_again(self, *, retry: bool = False) -> None:
        due_ms = min(self._deadlines.values(), default=None)
        if due_ms is not None and self._closed is None:
            # a write that failed is tried again later, not at once
            earliest_ms = self._surroundings.now_ms() + RETRY_MS if retry else due_ms
            self._arm(max(due_ms, earliest_ms))

    def _passed(self) -> list[tuple[Deadline, str]]:
        now_ms = self._surroundings.now_ms()
        return [key for key, due_ms in self._deadlines.items() if due_ms <= now_ms]

    def _end_passed(self, draft: Draft) -> Callable[[], None]:
        passed = self._passed()
        expired = [name for name in dict.fromkeys(name for _, name in passed) if name in draft.state.members]
        if expired:
            clients = {name: draft.state.members[name].metadata.client_id for name in expired}
            draft.on_applied.append(partial(self._surroundings.expired, self, clients))
        for name in expired:
            draft.remove_member(name)
        if (Deadline.INITIAL, "") in passed:
            # the delay ends now, also where this write fails: the next heartbeat computes the target then
            del self._deadlines[Deadline.INITIAL, ""]
            delayed_target(draft, self.known.configured)
        return self._arm_again
