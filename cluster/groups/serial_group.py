"""A group of KIP-848, KIP-932 or KIP-1071 on its coordinator: operations in turn, and deadlines of members.

Owns: `Draft`, the records of one operation and the state after them, and `SerialGroup`: the committed state of the
group (`data`), the operations that wait, and the deadlines.

An operation plans on a draft. Its records are appended with acks=all; then the draft becomes the state, and the
response leaves. The next operation begins after that, so each operation sees only what is in the log, and what a
client knows survives the coordinator.

When an append ends with an error but its batch is in this leader's log (a timeout, too few replicas after the append),
the draft becomes the state too, because as long as this broker leads, the batch stays; the client gets the error and
tries again. Any other error leaves the state as it was.

Source: Kafka's CoordinatorRuntime, CoordinatorTimer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from ..coordinators import COORDINATOR_ERRORS, KeyValue
from ..errors import ErrorCode, KafkaError
from .write_errors import TOO_LARGE

IN_THE_LOG = frozenset((ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append))
"""Errors of an append whose batch is in the leader's log."""
RETRY_MS = 1_000
"""How long the coordinator waits before it fences members again after a failed write."""

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
K = TypeVar("K")


class ReplayedState(Protocol[R_contra]):
    """What the records of a group add up to."""

    def copy(self) -> Self:
        """A copy that may change."""
        ...

    def apply(self, record: R_contra, /) -> None:
        """Apply one record."""
        ...


S = TypeVar("S", bound=ReplayedState[Any])


class Draft(Generic[S, R]):
    """The records of one operation, and the state after them."""

    __slots__ = ("_is_copy", "first", "last", "on_applied", "records", "state")

    def __init__(self, state: S) -> None:
        self.state = state
        self.records: list[R] = []
        self.first: list[KeyValue] = []
        """Records of other kinds before those of the group: the tombstone of a classic group."""
        self.last: list[KeyValue] = []
        """Records of other kinds after those of the group: a classic group, tombstones of offsets."""
        self.on_applied: list[Callable[[], None]] = []
        """Called when the draft has become the state, before the response."""
        self._is_copy = False

    def add(self, *records: R) -> None:
        """Append records, and apply them to the copy."""
        if records and not self._is_copy:
            self.state = self.state.copy()
            self._is_copy = True
        for record in records:
            self.state.apply(record)
        self.records.extend(records)

    def replace_records(self, records: Iterable[R]) -> None:
        """Write `records` instead of those collected; the state stays as it is."""
        self.records = list(records)


D = TypeVar("D", bound=Draft[Any, Any])

Refusal = Callable[[KafkaError], None]


class SerialSurroundings(Protocol):
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


class _Operation(NamedTuple):
    plan: Callable[[Any], Callable[[], None]]
    refuse: Refusal


class SerialGroup(Generic[S, D, K]):
    """One group: state `S`, drafts `D`, deadlines of kind `K`."""

    __slots__ = ("_around", "_closed", "_deadlines", "_queue", "_running", "_timer_ms", "_writing", "data", "group_id")

    def __init__(self, group_id: str, data: S, surroundings: SerialSurroundings) -> None:
        self.group_id = group_id
        self.data = data
        self._around = surroundings
        self._queue: deque[_Operation] = deque()
        self._running = self._writing = False
        self._closed: ErrorCode | None = None
        self._deadlines: dict[tuple[K, str], int] = {}
        self._timer_ms: int | None = None

    @property
    def is_busy(self) -> bool:
        """True while an operation is in progress or waits."""
        return self._writing or bool(self._queue)

    # ---- what each kind of group says ------------------------------------------------------------

    def _new_draft(self) -> D:
        """A draft on the present state."""
        raise NotImplementedError

    def _encode(self, draft: D) -> Sequence[KeyValue]:
        """Keys and values of the group's own records."""
        raise NotImplementedError

    def _applied(self, before: S) -> None:
        """A draft has become the state."""
        raise NotImplementedError

    def _fence(self, draft: D, expired: Sequence[str]) -> None:
        """Deadlines of these members have passed; some may have left since."""
        raise NotImplementedError

    # ---- operations ------------------------------------------------------------------------------

    def submit(self, plan: Callable[[D], Callable[[], None]], refuse: Refusal) -> None:
        """Run an operation after those that wait; it may end before this returns.

        `plan` plans on a draft and returns what follows once the records are in the log; KafkaError refuses the
        operation.
        """
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
        draft = self._new_draft()
        try:
            follow = operation.plan(draft)
        except KafkaError as error:
            operation.refuse(error)
            return
        batch = [*draft.first, *self._encode(draft), *draft.last]
        if not batch:
            follow()
            return

        def written(error: ErrorCode) -> None:
            assert self._writing, f"{self.group_id}: a second result of one write, {error}"
            self._writing = False
            self._written(draft, follow, operation.refuse, error)
            self._run()

        self._writing = True
        self._around.append(batch, written)

    def _written(self, draft: D, follow: Callable[[], None], refuse: Refusal, error: ErrorCode) -> None:
        is_in_log = error is ErrorCode.none or error in IN_THE_LOG
        if is_in_log and self._closed is None:
            before, self.data = self.data, draft.state
            for applied in draft.on_applied:
                applied()
            self._applied(before)
        if error is ErrorCode.none:
            follow()
            return
        too_large = error in TOO_LARGE
        code = ErrorCode.unknown_server_error if too_large else COORDINATOR_ERRORS.get(error, error)
        refuse(KafkaError(code))

    # ---- deadlines -------------------------------------------------------------------------------

    def has_deadline(self, kind: K, member_id: str) -> bool:
        """True while that deadline is set."""
        return (kind, member_id) in self._deadlines

    def set_deadline(self, kind: K, member_id: str, timeout_ms: int) -> None:
        """Set a deadline from now on."""
        if self._closed is not None:
            return
        due_ms = self._around.now_ms() + timeout_ms
        self._deadlines[kind, member_id] = due_ms
        if self._timer_ms is None or due_ms < self._timer_ms:
            self._arm(due_ms)

    def clear_deadline(self, kind: K, member_id: str) -> None:
        """Forget a deadline."""
        self._deadlines.pop((kind, member_id), None)

    def _arm(self, due_ms: int) -> None:
        self._timer_ms = due_ms
        delay_ms = max(due_ms - self._around.now_ms(), 0)
        self._around.call_at(self.group_id, delay_ms, self._deadline_passed)

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
            earliest_ms = self._around.now_ms() + RETRY_MS if retry else due_ms
            self._arm(max(due_ms, earliest_ms))

    def _expired(self) -> list[str]:
        now_ms = self._around.now_ms()
        passed = [name for (_, name), due_ms in self._deadlines.items() if due_ms <= now_ms]
        return list(dict.fromkeys(passed))

    def _fence_expired(self, draft: D) -> Callable[[], None]:
        self._fence(draft, self._expired())
        return self._arm_again
