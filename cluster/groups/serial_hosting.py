"""The surroundings of the groups of KIP-848, KIP-932 and KIP-1071 on one shard: the clock, the log, timers, the trace.

Owns: `SerialHosting`, what `SerialGroup` needs of its shard; consumer_hosting, share_hosting and streams_hosting add
how their groups begin and change. `HostingShard` is what they need of a `GroupShard`.

May fail: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from enum import Enum
from typing import Any, Protocol

from ..coordinators import KeyValue, Shard
from ..errors import ErrorCode
from ..events.coordinators import GroupChanged
from ..host.seam import Host
from ..ids import Offset
from .hosted_group import HostedGroup
from .membership_values import Effect
from .serial_group import SerialGroup

UNTRANSLATED: Mapping[ErrorCode, ErrorCode] = {}


class HostingShard(Protocol):
    """What this module needs of a `GroupShard`."""

    @property
    def shard(self) -> Shard:
        """The partition."""
        ...

    def find(self, group_id: str) -> HostedGroup | None:
        """The group, if there is one."""
        ...

    def run(self, hosted: HostedGroup, effects: Iterable[Effect]) -> None:
        """Carry out effects of the classic state machine, and watch its deadlines."""
        ...

    def write(
        self,
        records: Sequence[KeyValue],
        on_result: Callable[[ErrorCode, Offset], None],
        errors: Mapping[ErrorCode, ErrorCode],
    ) -> None:
        """Append records."""
        ...

    def trace_expired(self, group_id: str, member_id: str, client_id: str) -> None:
        """A member lost its membership because its timeout had passed."""
        ...


class TracedState(Protocol):
    """The state of a group, as far as the trace shows it."""

    @property
    def epoch(self) -> int:
        """The group epoch."""
        ...

    @property
    def members(self) -> Sized:
        """The members."""
        ...

    def state(self) -> Enum:
        """The state by Kafka's name."""
        ...


class SerialHosting:
    """The surroundings of the groups of one kind."""

    def __init__(self, shard: HostingShard, host: Host, kind: str) -> None:
        """`kind`: such as "share group", for timers and messages."""
        self._shard = shard
        self._host = host
        self._kind = kind

    def now_ms(self) -> int:
        """The monotonic clock."""
        return self._host.clock.monotonic_ms()

    def append(self, records: Sequence[KeyValue], done: Callable[[ErrorCode], None]) -> None:
        """Append with acks=all; `done(error of the log)` once."""
        self._shard.write(records, lambda error, _offset: done(error), UNTRANSLATED)

    def call_at(self, group_id: str, delay_ms: int, call: Callable[[], None]) -> None:
        """Call once; replaces the call of this group that was scheduled before."""
        if self._shard.shard.is_active:
            self._shard.shard.timers.schedule((self._kind, group_id), delay_ms, call)

    def expired(self, group: SerialGroup[Any, Any, Any], clients: Mapping[str, str]) -> None:
        """Trace the members that were removed because their timeouts had passed; `clients`: client id by member id."""
        for member_id, client_id in clients.items():
            self._shard.trace_expired(group.group_id, member_id, client_id)

    def trace_change(self, group_id: str, before: TracedState, after: TracedState) -> None:
        """Trace a change of the state or of the epoch."""
        if (before.state(), before.epoch) == (after.state(), after.epoch):
            return
        self._host.trace.emit(
            GroupChanged(
                group=group_id,
                partition=self._shard.shard.number,
                state=after.state().value,
                generation=after.epoch,
                members=len(after.members),
            )
        )

    def close(self, group: SerialGroup[Any, Any, Any] | None) -> None:
        """The group was deleted, or its partition is no longer here; None: there was none."""
        if group is not None:
            active = self._shard.shard.is_active
            group.close(ErrorCode.group_id_not_found if active else ErrorCode.not_coordinator)

    def write_tombstones(self, group_id: str, tombstones: Sequence[KeyValue]) -> None:
        """The group has another type from now on: remove the records of this one."""

        def done(error: ErrorCode, _offset: Offset) -> None:
            if error is not ErrorCode.none:
                text = f"group {group_id}: its records as a {self._kind} stay: {error.name}"
                self._host.trace.log("warning", text)

        self._shard.write(tombstones, done, UNTRANSLATED)
