"""The coordinators' part of the tap: offsets of groups, transactions, and which member owned which partition (J6).

Owns: `tap.commits`, `tap.transactions`, `tap.members` and `tap.groups`, and the format of their rows: one for each
partition, in `tap.groups` one for each change of a group.
Names are numbers of `tap.names`. Times are on the monotonic clock, one clock for all brokers of a machine.

Rows of `tap.commits`, by `kind`:

* `OFFSET_COMMITTED`: an OffsetCommit whose result the coordinator has, or an offset of a transaction that its commit
  marker made valid (`producer_id` set; member and generation are those of the row `OFFSET_SENT`). `error` 0: all
  in-sync replicas have the commit, so that the group's next member begins there, whether or not the response reaches
  the client. Another error: the commit may be in the log or not. A commit that is refused before it is written has no
  row.
* `OFFSET_SENT`: a TxnOffsetCommit that is in the log; it becomes valid with its transaction, and only with it.
* `OFFSET_READ`: an offset that OffsetFetch returned.

Rows of `tap.transactions`, by `state` (Kafka's numbers): `TRANSACTION_ONGOING` for each partition that was added,
`PREPARE_COMMIT` and `PREPARE_ABORT` when the result is in the log of the coordinator, before any marker is sent, and
`COMPLETE_COMMIT`, `COMPLETE_ABORT` when every partition has its marker. A new coordinator writes the rows of what it
found in the log, so a state may have several rows; the first counts. `producer_epoch` is that of the records.
`END_UNKNOWN` is written by a proxy only: an EndTxn was forwarded and its result did not arrive, so that the coordinator
may have decided from that time on.

Rows of `tap.members`, by `kind`: `MEMBER_OWNS` a partition from then on in this generation (group epoch, where the
group has the protocol of KIP-848), `MEMBER_RELEASED` it: it was revoked, or the member left, expired or was replaced.
`leader_epoch` is that in which the coordinator began to lead the group's partition of `__consumer_offsets` (-1: a proxy
wrote the row). It orders the rows of two coordinators, because one that was deposed may write late. A new coordinator
writes the rows of what it found in the log. `instance` is the CRC-32 of a static member's instance id, 0 without one.

Rows of `tap.groups`: the state of a group (its place in `GROUP_STATES`), generation, number of members, and the longest
timeout of a member. `partition` is that of `__consumer_offsets`. A new coordinator writes a row for each group that it
found in the log. Only Harrow's brokers write them: responses do not show the state of a group.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from ..broker_folder import TAP_COMMITS, TAP_GROUPS, TAP_MEMBERS, TAP_TRANSACTIONS
from ..ids import TopicPartition
from ..row_layout import row_struct
from .seam import GROUP_STATES, OFFSET_COMMITTED, UNKNOWN_COMMITTER, Clock, Committer, TappedGroup
from .tap_files import TapFiles

COMMIT_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("pad", "V1"),
    ("error", "<i2"),
    ("group", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("client", "<u4"),
    ("member", "<u4"),
    ("generation", "<i4"),
    ("producer_epoch", "<i2"),
    ("pad2", "V2"),
    ("offset", "<i8"),
    ("producer_id", "<i8"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
]
COMMIT_ROW = row_struct(COMMIT_DTYPE)

TRANSACTION_DTYPE: list[tuple[str, str]] = [
    ("state", "u1"),
    ("pad", "V1"),
    ("producer_epoch", "<i2"),
    ("transactional_id", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("timeout_ms", "<i4"),
    ("pad2", "V4"),
    ("producer_id", "<i8"),
    ("time_ns", "<i8"),
]
TRANSACTION_ROW = row_struct(TRANSACTION_DTYPE)

MEMBER_OWNS, MEMBER_RELEASED = 1, 2
MEMBER_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("pad", "V3"),
    ("group", "<u4"),
    ("member", "<u4"),
    ("client", "<u4"),
    ("topic", "<u4"),
    ("instance", "<u4"),
    ("partition", "<i4"),
    ("generation", "<i4"),
    ("leader_epoch", "<i4"),
    ("time_ns", "<i8"),
]
MEMBER_ROW = row_struct(MEMBER_DTYPE)


GROUP_DTYPE: list[tuple[str, str]] = [
    ("state", "u1"),
    ("pad", "V3"),
    ("group", "<u4"),
    ("partition", "<i4"),
    ("generation", "<i4"),
    ("leader_epoch", "<i4"),
    ("members", "<i4"),
    ("timeout_ms", "<i4"),
    ("time_ns", "<i8"),
]
GROUP_ROW = row_struct(GROUP_DTYPE)
_STATE_NUMBERS = {name: number for number, name in enumerate(GROUP_STATES)}


class NoCoordinatorTap:
    """The coordinators' part of the tap of a host without `harrow.tap`."""

    __slots__ = ()

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
        """Nothing."""

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
        """Nothing."""

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
        """Nothing."""

    def group(self, group: str, now: TappedGroup, *, partition: int, leader_epoch: int) -> None:
        """Nothing."""


class CoordinatorTap(TapFiles):
    """The files of the coordinators of one host."""

    def __init__(self, folder: str, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._commits = self.open_rows(TAP_COMMITS, COMMIT_ROW.size)
        self._transactions = self.open_rows(TAP_TRANSACTIONS, TRANSACTION_ROW.size)
        self._members = self.open_rows(TAP_MEMBERS, MEMBER_ROW.size)
        self._groups = self.open_rows(TAP_GROUPS, GROUP_ROW.size)
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
        completed_ns = self.clock.monotonic_ns()
        number, client, member = map(self.number_of, (group, by.client, by.member))
        rows = b"".join(
            COMMIT_ROW.pack(
                kind,
                error,
                number,
                self.number_of(tp.topic),
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
        now_ns = since_ns or self.clock.monotonic_ns()
        number = self.number_of(transactional_id)
        rows = b"".join(
            TRANSACTION_ROW.pack(
                state, producer_epoch, number, self.number_of(tp.topic), tp.partition, timeout_ms, producer_id, now_ns
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
        time_ns = self.clock.monotonic_ns()
        numbers = tuple(map(self.number_of, (group, member, client)))
        mark = zlib.crc32(instance.encode()) if instance else 0
        same = before[:2] == now[:2]
        gained = now.partitions - before.partitions if same else now.partitions
        released = sorted(before.partitions - now.partitions)
        rows = [
            MEMBER_ROW.pack(kind, *numbers, self.number_of(tp.topic), mark, tp.partition, number, leader_epoch, time_ns)
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
            self.number_of(group),
            partition,
            now.generation,
            leader_epoch,
            now.members,
            now.timeout_ms,
            self.clock.monotonic_ns(),
        )
        os.write(self._groups, row)


class _Owned(NamedTuple):
    """What the tap has of one member."""

    leader_epoch: int
    generation: int
    partitions: frozenset[TopicPartition]
