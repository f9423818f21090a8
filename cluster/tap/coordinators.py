"""The coordinators' part of the tap: offsets of groups, transactions, and which member owned which partition (J6).

Owns: `tap.commits`, `tap.transactions`, `tap.members` and `tap.groups`: a row for each partition, in `tap.groups` one
for each change of a group.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from ..broker_folder import TAP_COMMITS, TAP_GROUPS, TAP_MEMBERS, TAP_TRANSACTIONS
from ..host.seam import GROUP_STATES, OFFSET_COMMITTED, UNKNOWN_COMMITTER, Clock, Committer, TappedGroup
from ..ids import TopicPartition
from .files import TapFiles
from .layouts import COMMIT_ROW, GROUP_ROW, MEMBER_OWNS, MEMBER_RELEASED, MEMBER_ROW, TRANSACTION_ROW

_STATE_NUMBERS = {name: number for number, name in enumerate(GROUP_STATES)}


class CoordinatorRows:
    """The files of the coordinators of one host; `files` numbers the names."""

    def __init__(self, files: TapFiles, clock: Clock) -> None:
        self._clock = clock
        self._number_of = files.number_of
        self._commits = files.open_rows(TAP_COMMITS, COMMIT_ROW.size)
        self._transactions = files.open_rows(TAP_TRANSACTIONS, TRANSACTION_ROW.size)
        self._members = files.open_rows(TAP_MEMBERS, MEMBER_ROW.size)
        self._groups = files.open_rows(TAP_GROUPS, GROUP_ROW.size)
        self._owned: dict[tuple[str, str], _Owned] = {}

    def committed(
        self,
        group: str,
        offsets: Iterable[tuple[TopicPartition, int]],
        *,
        error: int,
        invoked_ns: int,
        by: Committer = UNKNOWN_COMMITTER,
        kind: int = OFFSET_COMMITTED,
    ) -> None:
        """Offsets of a group: the result of writing or reading them; `error` is that of the response."""
        completed_ns = self._clock.monotonic_ns()
        assert invoked_ns <= completed_ns, f"{group}: invoked at {invoked_ns}, completed at {completed_ns}"
        number, client, member = map(self._number_of, (group, by.client, by.member))
        rows = b"".join(
            COMMIT_ROW.pack(
                kind,
                error,
                number,
                self._number_of(tp.topic),
                tp.partition,
                client,
                member,
                by.generation,
                by.producer_epoch,
                offset,
                by.producer_id,
                invoked_ns,
                completed_ns,
            )
            for tp, offset in offsets
        )
        if rows:
            os.write(self._commits, rows)

    def transaction(
        self,
        transactional_id: str,
        partitions: Iterable[TopicPartition],
        *,
        state: int,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        since_ns: int = 0,
    ) -> None:
        """A transaction is in `state` in the coordinator's log; `producer_epoch` is that of its records.

        `since_ns`: the earliest time at which it may have been in this state; 0: now.
        """
        now_ns = since_ns or self._clock.monotonic_ns()
        number = self._number_of(transactional_id)
        rows = b"".join(
            TRANSACTION_ROW.pack(
                state, producer_epoch, number, self._number_of(tp.topic), tp.partition, timeout_ms, producer_id, now_ns
            )
            for tp in partitions
        )
        if rows:
            os.write(self._transactions, rows)

    def member(
        self,
        group: str,
        member: str,
        client: str,
        *,
        generation: int,
        partitions: Iterable[TopicPartition],
        leader_epoch: int = -1,
        instance: str | None = None,
    ) -> None:
        """From now on the member owns these partitions and no others; none when it left, expired or was replaced."""
        now = _Owned(leader_epoch, generation, frozenset(partitions))
        before = self._owned.get((group, member), now._replace(partitions=frozenset()))
        if before == now:
            return
        if now.partitions:
            self._owned[group, member] = now
        else:
            self._owned.pop((group, member), None)
        time_ns = self._clock.monotonic_ns()
        name = self._number_of
        numbers = tuple(map(name, (group, member, client)))
        mark = zlib.crc32(instance.encode()) if instance else 0
        same = before[:2] == now[:2]
        gained = now.partitions - before.partitions if same else now.partitions
        released = sorted(before.partitions - now.partitions)
        rows = [
            MEMBER_ROW.pack(
                kind, *numbers, self._number_of(tp.topic), mark, tp.partition, number, leader_epoch, time_ns
            )
            for kind, number, changed in (
                (MEMBER_RELEASED, before.generation, released),
                (MEMBER_OWNS, generation, sorted(gained)),
            )
            for tp in changed
        ]
        os.write(self._members, b"".join(rows))

    def group(self, group: str, now: TappedGroup, *, partition: int, leader_epoch: int) -> None:
        """A group changed, or its coordinator loaded it from `partition` of `__consumer_offsets`."""
        row = GROUP_ROW.pack(
            _STATE_NUMBERS[now.state],
            self._number_of(group),
            partition,
            now.generation,
            leader_epoch,
            now.members,
            now.timeout_ms,
            self._clock.monotonic_ns(),
        )
        os.write(self._groups, row)


class _Owned(NamedTuple):
    """What the tap has of one member."""

    leader_epoch: int
    generation: int
    partitions: frozenset[TopicPartition]
