"""Records of share groups: delivered too often, to two members at a time, or never (KIP-932, J6).

The rows are those of `tap.shares`; each group is judged alone. A record is *over* when an acknowledgement that accepts
or rejects it succeeded, or may have: an error, or no response at all, does not say it (`share_rows.may_be_done`).

* `redelivered-after-accept`: a record was acquired after a leader had said that an acceptance of it succeeded. An
  acceptance says nothing when the leader had ended the lock before: the record was below the start offset already, so
  the leader said no error and stored nothing. A leader of an earlier epoch, which was paused and does not know of the
  later one, gives records from its memory: that is no anomaly.
* `over-delivered`: a record was acquired with a delivery count above the limit.
* `wrong-lock`: two members held a record at the same time, on one leader in one leader epoch: both acquisitions have
  rows, and until the later row no acknowledgement of either, no release, no expiry and no end of either lock may have
  come between. A row is about a decision that was made after its request came, and before the row was written.
* `never-delivered`: a record of the final read, above the start of the group, was never acquired, although the group
  got records above it in `FETCHES` fetches, after each lock must have ended that may have no row. Of a group that must
  have consumed everything (`consumed_by=`): any record from the start on.
* `given-up`: a record was delivered as often as is allowed, no member accepted or rejected it, and it was archived,
  and no dead-letter queue has it; or it is a dead letter, also by a rejection, that the queue of its group cannot have.
* `stuck-in-flight`: the last lock of a record has ended, and it was not delivered again although the group got records
  above it in `FETCHES` later fetches, from that leader or a later one. Of a group that must have consumed everything:
  a record that is not over when the run ends.

The start of a group is the start offset with which a leader loaded the share-partition. Until an acknowledgement is
stored, a new leader may choose it again (`share.auto.offset.reset` latest), so the largest one until then counts.
Without such rows (foreign brokers) it is the lowest record of which an acknowledgement succeeded. The same rows say how
often a record may be delivered, which groups may set; without them it is the brokers' setting.

What removes a record legally removes it from the final read: aborted transactions, retention, compaction, deleted
records. Where rows are missing there is a doubt: overlapping locks on foreign brokers, whose responses do not show
releases; a limit that is not known; deliveries after a client moved or deleted share groups.

Source: Kafka's `SharePartition`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ..client_names import ClientNumber
from ..rows import OperationRow
from .findings import Description, PartitionFindings
from .inputs import FLAG_LOST, PartitionInputs
from .share_rows import (
    ACCEPTED,
    ACQUIRED,
    ARCHIVED,
    COPIED,
    ENDS,
    EXPIRED,
    LOADED,
    OF_NO_MEMBER,
    REJECTED,
    RELEASED,
    RENEWED,
    Longs,
    Mask,
    SharedOffsets,
    any_of,
    first_of,
    is_kind,
    last_of,
    may_be_done,
)

REDELIVERED, OVER_DELIVERED, WRONG_LOCK = "redelivered-after-accept", "over-delivered", "wrong-lock"
NEVER_DELIVERED, GIVEN_UP, STUCK = "never-delivered", "given-up", "stuck-in-flight"
FETCHES = 3
"""So many later fetches that pass over a record show that the leader does not deliver it."""
SLACK_NS = 5_000_000_000
"""So late a leader may notice the end of a lock."""
LOWEST_LIMIT = 2
"""The lowest limit of deliveries that Kafka accepts."""
UNKNOWN = -1
NAMES = {
    ACQUIRED: "ShareFetch",
    ACCEPTED: "accept",
    RELEASED: "release",
    REJECTED: "reject",
    RENEWED: "renew",
    EXPIRED: "lock expired",
    ARCHIVED: "archived",
    LOADED: "share-partition loaded",
    COPIED: "copied to the dead-letter queue",
}


class SharedRow(NamedTuple):
    """A row as a report needs it."""

    kind: int
    flags: int
    error: int
    member: int
    client: int
    leader_epoch: int
    delivery_count: int
    first_offset: int
    last_offset: int
    invoked_ns: int
    completed_ns: int
    node: int


class Range(NamedTuple):
    """Records of one anomaly, and the rows that show it."""

    first: int
    records: int
    rows: tuple[int, ...] = ()


def share_groups(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Judge each share group."""
    claimed = set(inputs.job.consuming_groups)
    for (group,), rows in inputs.shares.group_by("group", maintain_order=True) if len(inputs.shares) else ():
        number = int(group)
        _Group(inputs, findings, rows, number, claimed=number in claimed).judge()
        claimed.discard(number)
    for _ in claimed:
        if inputs.final is None or len(inputs.visible()):
            findings.doubt(
                NEVER_DELIVERED,
                f"no broker recorded that a share group read {inputs.job.topic}-{inputs.job.partition}, which it must "
                "have consumed: check the name of the group, and that its members ran",
            )


class _Group:
    """The checks of one group."""

    def __init__(
        self, inputs: PartitionInputs, findings: PartitionFindings, rows: pl.DataFrame, group: int, *, claimed: bool
    ) -> None:
        self._inputs, self._findings, self._group, self._claimed = inputs, findings, group, claimed
        self._job = inputs.job
        self._rows = rows = rows.sort("completed_ns", maintain_order=True)
        self._offsets = offsets = SharedOffsets.of(rows)
        self._count = len(offsets.first)
        self._kind, self._error = offsets.column("kind"), offsets.column("error")
        self._invoked, self._completed = offsets.column("invoked_ns"), offsets.column("completed_ns")
        self._acquired = self._kind == ACQUIRED
        self._over = any_of(offsets.segment, may_be_done(self._kind, self._error), self._count)
        self._last = last_of(offsets.segment, self._acquired, self._count)
        self._passed: dict[tuple[int, int], tuple[Longs, Longs]] = {}
        """By the end of a lock and its leader epoch: first offsets and times of later acquisitions."""
        limits = rows.filter((pl.col("kind") == LOADED) & (pl.col("delivery_count") > 0))["delivery_count"]
        self._limits = (int(limits.min()), int(limits.max())) if len(limits) else (self._job.delivery_limit,) * 2  # type: ignore[arg-type]
        """The least and the largest limit of deliveries of a leader; 0: not known."""
        copies = self._kind == COPIED
        self._copied = any_of(offsets.segment, copies & (self._error == 0), self._count)
        self._lost = any_of(offsets.segment, copies, self._count) & ~self._copied
        """Dead letters that their queue cannot have."""
        self._archived = any_of(offsets.segment, (self._kind == ARCHIVED) & (self._error == 0), self._count)
        self._archived |= self._copied | self._lost

    def judge(self) -> None:
        """Run every check."""
        self._over_delivered()
        if self._count:
            self._redelivered()
            self._wrong_locks()
        self._unfinished()

    # -------------------------------------------------------------------------------- too often

    def _over_delivered(self) -> None:
        rows, limit = self._rows, self._limits[1]
        counts = rows["delivery_count"].to_numpy()
        acquired = rows["kind"].to_numpy() == ACQUIRED
        if not limit:
            if (counts[acquired] > LOWEST_LIMIT).any():
                self._doubt(OVER_DELIVERED, "the limit of deliveries is not known, and records were delivered again")
            return
        found = [self._of_row(row) for row in np.flatnonzero(acquired & (counts > limit)).tolist()]
        self._report(OVER_DELIVERED, found, f"delivered more often than the limit of {limit} allows")

    def _redelivered(self) -> None:
        segment = self._offsets.segment
        done = (self._kind == ACCEPTED) & (self._error == 0) & ~self._ended_before()
        accepted = first_of(segment, done, self._count)
        of_event = accepted[segment]
        epoch = self._offsets.column("leader_epoch")
        later = self._acquired & (of_event >= 0) & (np.arange(len(segment)) > of_event)
        later &= self._completed > self._completed[np.maximum(of_event, 0)]
        later &= (epoch == UNKNOWN) | (epoch >= epoch[np.maximum(of_event, 0)])
        at = first_of(segment, later, self._count)
        segments = np.flatnonzero(at >= 0)
        reset_ns = self._job.share_resets[0] if self._job.share_resets else None
        if reset_ns is not None and len(segments):
            after = self._completed[at[segments]] >= reset_ns
            if after.any():
                self._doubt(
                    REDELIVERED, "records were delivered again after a client had moved or deleted share groups"
                )
            segments = segments[~after]
        found = [self._of_segment(number, int(accepted[number]), int(at[number])) for number in segments.tolist()]
        self._report(REDELIVERED, _joined(found), "delivered again after a leader had said that it is accepted")

    def _ended_before(self) -> Mask:
        """Return at which events the last lock of the record had ended, as a row of no member says."""
        segment = self._offsets.segment
        number = np.arange(len(segment))
        ended = np.maximum.accumulate(np.where(is_kind(self._kind, *OF_NO_MEMBER), number, -1))
        acquired = np.maximum.accumulate(np.where(self._acquired, number, -1))
        result: Mask = (ended >= np.searchsorted(segment, segment, "left")) & (ended > acquired)
        return result

    # -------------------------------------------------------------------------------- two at a time

    def _wrong_locks(self) -> None:
        """Compare each acquisition with the one before it in its segment."""
        offsets = self._offsets
        at = np.flatnonzero(self._acquired)
        if len(at) < 2:
            return
        same = offsets.segment[at[1:]] == offsets.segment[at[:-1]]
        before, after = at[:-1][same], at[1:][same]
        node, epoch, member = (offsets.column(name) for name in ("node", "leader_epoch", "member"))
        comparable = (node[before] == node[after]) & (epoch[before] == epoch[after]) & (member[before] != member[after])
        # most locks ended by a row between the two acquisitions
        ends = np.cumsum(is_kind(self._kind, *ENDS))
        comparable &= ends[before] == ends[after]
        found: list[Range] = []
        foreign = 0
        for earlier, later in zip(before[comparable].tolist(), after[comparable].tolist(), strict=True):
            if self._may_have_ended(earlier, later):
                continue
            if epoch[earlier] == UNKNOWN:
                foreign += 1
            else:
                found.append(self._of_segment(int(offsets.segment[earlier]), earlier, later))
        self._report(WRONG_LOCK, _joined(found), "delivered to a member while another member held it")
        if foreign:
            self._doubt(
                WRONG_LOCK,
                "a member got records that another one may have held; responses of these brokers do not show when a "
                "member gave them back",
            )

    def _may_have_ended(self, earlier: int, later: int) -> bool:
        """Whether either acquisition may have ended before the row of the second was written."""
        offsets, until = self._offsets, int(self._completed[later])
        member, lock = offsets.column("member"), offsets.column("lock_until_ns")
        segment = int(offsets.segment[earlier])
        start = int(np.searchsorted(offsets.segment, segment, "left"))
        end = int(np.searchsorted(offsets.segment, segment, "right"))
        for at in (earlier, later):
            held_until = int(lock[at])
            since = int(self._invoked[at])
            for other in range(start, end):
                kind = int(self._kind[other])
                ours = member[other] == member[at]
                if kind == RENEWED and ours and not self._error[other] and at < other and lock[other]:
                    if self._completed[other] <= until:
                        held_until = int(lock[other])
                elif kind in ENDS and (ours or kind in OF_NO_MEMBER) and since <= self._completed[other]:
                    ended = bool(self._invoked[other] <= until)
                    if ended:
                        return True
            if held_until <= until:  # also where it is not known
                return True
        loaded = self._rows.filter(
            (pl.col("kind") == LOADED) & (pl.col("node") == int(offsets.column("node")[earlier]))
        )
        times = loaded["completed_ns"].to_numpy()
        since = min(int(self._invoked[earlier]), int(self._invoked[later]))
        return bool(((times >= since) & (times <= until)).any())

    # -------------------------------------------------------------------------------- never

    def _unfinished(self) -> None:
        """What the group never got, and what it got and did not finish, of the records that are in the topic."""
        inputs, offsets = self._inputs, self._offsets
        if inputs.final is None:
            return
        visible = inputs.visible()["offset"].to_numpy()
        visible = visible[visible >= inputs.low]
        place = np.searchsorted(offsets.first, visible, "right") - 1
        place[(place >= 0) & (visible >= np.append(offsets.end, 0)[place])] = -1
        # the segment -1 of a record without rows is the one behind the last
        got, closed = np.append(self._last >= 0, False), np.append(self._over | self._archived, False)
        self._given_up(visible, place)
        self._never_delivered(visible[~got[place] & ~closed[place]])
        open_ = got[place] & ~closed[place]
        self._stuck(visible[open_], place[open_])

    def _given_up(self, visible: Longs, place: Longs) -> None:
        limit, offsets, last = self._limits[0], self._offsets, self._last
        dead = np.append(self._lost, False)[place]
        words = "given up, and the dead-letter queue of the group does not have it"
        self._report(GIVEN_UP, self._each(visible[dead], place[dead]), words)
        if not limit:
            return
        often = (last >= 0) & (np.append(offsets.column("delivery_count"), 0)[last] >= limit)
        # a foreign broker does not say that it archives; what an ended session gives back has no result there
        released = (self._kind == RELEASED) & (self._error == 0) & (offsets.column("leader_epoch") == UNKNOWN)
        after = last_of(offsets.segment, released, self._count) > last
        wanted = np.append(often & ~self._over & (self._archived | after) & ~self._copied & ~self._lost, False)[place]
        words = f"given up after {limit} deliveries, and no member accepted or rejected it"
        self._report(GIVEN_UP, self._each(visible[wanted], place[wanted]), words)

    def _never_delivered(self, missed: Longs) -> None:
        start = self._start()
        if start is None:
            if self._claimed and len(missed):
                self._doubt(NEVER_DELIVERED, "no row says at which offset the group began")
            return
        missed = missed[missed >= start]
        if not self._claimed and len(missed):
            missed = missed[self._passed_over(missed)]
        found = _joined([Range(int(offset), 1) for offset in missed.tolist()])
        if found and self._job.share_resets:
            self._doubt(NEVER_DELIVERED, "records were not delivered, and a client had moved or deleted share groups")
            return
        self._report(NEVER_DELIVERED, found, "in the topic, and it was never delivered to the group")

    def _passed_over(self, missed: Longs) -> Mask:
        """Return of which offsets the group got later records also when a lock that has no row must have ended.

        A broker that is killed before its response leaves has acquired records without a row.
        """
        acquired = self._rows.filter(pl.col("kind") == ACQUIRED)
        first = acquired["first_offset"].to_numpy()
        passed = np.zeros(len(missed), np.bool_)
        above = np.searchsorted(np.sort(first), missed, "right")
        for number in np.unique(above).tolist():  # the offsets of a gap have the same rows above them
            same = above == number
            passed[same] = _fetched_on(acquired.filter(pl.Series(first > missed[same][0])))
        return passed

    def _start(self) -> int | None:
        """Return where the group began; None where no row says it."""
        rows = self._rows
        kind = rows["kind"].to_numpy()
        first, completed = rows["first_offset"].to_numpy(), rows["completed_ns"].to_numpy()
        stored = np.isin(kind, (ACCEPTED, RELEASED, REJECTED)) & (rows["error"].to_numpy() == 0)
        loaded = kind == LOADED
        if loaded.any():
            until = int(completed[stored].min()) if stored.any() else np.iinfo(np.int64).max
            early = loaded & (completed <= until)
            return int(first[early].max()) if early.any() else None
        return int(first[stored].min()) if stored.any() else None

    def _stuck(self, visible: Longs, place: Longs) -> None:
        """Of records that are not over, report those that should have been delivered again."""
        limit = self._limits[0]
        counts = self._offsets.column("delivery_count")[self._last[place]]
        unseen = counts >= (limit or LOWEST_LIMIT)  # it may have been archived, which responses do not show
        if self._claimed and unseen.any() and not limit:
            self._doubt(STUCK, "the limit of deliveries is not known, and records were delivered again")
        visible, place = visible[~unseen], place[~unseen]
        if self._claimed:
            words = "not over when the run ended: no member accepted or rejected it, and it was not archived"
        else:
            words = "not over, its lock has ended, and it was not delivered again while the group got later records"
            segments = [number for number in map(int, np.unique(place)) if self._should_be_delivered(number)]
            wanted = np.isin(place, segments)
            visible, place = visible[wanted], place[wanted]
        self._report(STUCK, self._each(visible, place), words)

    def _should_be_delivered(self, segment: int) -> bool:
        freed = self._freed(segment)
        if freed is None:
            return False
        if freed not in self._passed:
            rows = self._rows.filter(pl.col("kind") == ACQUIRED)
            rows = rows.filter((pl.col("invoked_ns") > freed[0]) & (pl.col("leader_epoch") >= freed[1]))
            self._passed[freed] = rows["first_offset"].to_numpy(), rows["completed_ns"].to_numpy()
        first, completed = self._passed[freed]
        return len(np.unique(completed[first > self._offsets.first[segment]])) >= FETCHES

    def _freed(self, segment: int) -> tuple[int, int] | None:
        """Return when the last lock of a segment had surely ended, and in which leader epoch; None: not known."""
        offsets, last = self._offsets, int(self._last[segment])
        end = int(np.searchsorted(offsets.segment, segment, "right"))
        epoch, lock = offsets.column("leader_epoch"), offsets.column("lock_until_ns")
        times: list[tuple[int, int]] = []
        until = int(lock[last]) + int(self._completed[last] - self._invoked[last]) if lock[last] else None
        for other in range(last + 1, end):
            kind, error = int(self._kind[other]), int(self._error[other])
            if kind == RENEWED:
                took = int(self._completed[other] - self._invoked[other])
                until = max(until, int(lock[other]) + took) if until is not None and lock[other] else None
            elif kind == EXPIRED or (kind == RELEASED and not error):
                times.append((int(self._completed[other]), int(epoch[other])))
        if until is not None:
            times.append((until + SLACK_NS, int(epoch[last])))
        return min(times) if times else None

    # -------------------------------------------------------------------------------- reports

    def _of_row(self, row: int) -> Range:
        first, last = self._rows["first_offset"][row], self._rows["last_offset"][row]
        return Range(first, last - first + 1, (row,))

    def _of_segment(self, segment: int, *events: int) -> Range:
        offsets = self._offsets
        first = int(offsets.first[segment])
        return Range(first, int(offsets.end[segment]) - first, tuple(int(offsets.row[event]) for event in events))

    def _each(self, visible: Longs, place: Longs) -> list[Range]:
        """Return the records, with the row of the last acquisition of each that has one."""
        events = self._last[place].tolist()
        rows = [(int(self._offsets.row[event]),) if event >= 0 else () for event in events]
        return _joined([Range(int(offset), 1, row) for offset, row in zip(visible, rows, strict=True)])

    def _doubt(self, about: str, why: str) -> None:
        place = f"{self._job.topic}-{self._job.partition}"
        self._findings.doubt(about, f"{about} was not judged completely in {place}: {why}")

    def _report(self, name: str, found: list[Range], words: str) -> None:
        if not found:
            return
        frame = pl.DataFrame(
            {
                "first": [item.first for item in found],
                "records": [item.records for item in found],
                "rows": [list(item.rows) for item in found],
            },
            schema={"first": pl.Int64, "records": pl.Int64, "rows": pl.List(pl.Int64)},
        )

        def describe(item: Range) -> Description:
            shown = [SharedRow(*self._rows[row].select(SharedRow._fields).row(0)) for row in item.rows]
            last = item.first + item.records - 1
            what = (
                f"the record at offset {item.first} was "
                if item.records == 1
                else (f"each record from offset {item.first} to {last} was ")
            )
            text = (what, words, "; share group ", ClientNumber(self._group), *_members(shown))
            return [item.first, last][: item.records], [_operation(row, self._group) for row in shown], text

        self._findings.add_each(name, frame, Range, describe)


def _fetched_on(rows: pl.DataFrame) -> bool:
    """Whether acquisitions went on after every lock of the time of the first one must have ended."""
    locks = (rows["lock_until_ns"] - rows["invoked_ns"]).to_numpy()
    if not len(rows) or (rows["lock_until_ns"].to_numpy() == 0).any():
        return False
    until = int(rows["completed_ns"][0]) + int(locks.max()) + SLACK_NS
    later = rows.filter((pl.col("invoked_ns") > until) & (pl.col("leader_epoch") >= int(rows["leader_epoch"][0])))
    return later["completed_ns"].n_unique() >= FETCHES


def _joined(found: list[Range]) -> list[Range]:
    """Join ranges that follow each other and are shown by the same rows."""
    joined: list[Range] = []
    for item in found:
        last = joined[-1] if joined else None
        if last is not None and last.rows == item.rows and last.first + last.records == item.first:
            joined[-1] = last._replace(records=last.records + item.records)
        else:
            joined.append(item)
    return joined


def _members(shown: list[SharedRow]) -> tuple[str | ClientNumber, ...]:
    said: list[str | ClientNumber] = []
    for row in shown:
        said += ["; " if said else ": ", ClientNumber(row.client), f" ({NAMES[row.kind]} on broker {row.node}"]
        said.append(f", delivery {row.delivery_count})" if row.kind == ACQUIRED else ")")
    return tuple(said)


def _operation(row: SharedRow, group: int) -> OperationRow:
    """Return a row as the verdict shows it."""
    shown: OperationRow = {
        "operation": NAMES[row.kind],
        "group": group,
        "member": row.member,
        "client": row.client,
        "broker": row.node,
        "base_offset": row.first_offset,
        "last_offset": row.last_offset,
        "invoked_ns": row.invoked_ns,
        "completed_ns": row.completed_ns,
    }
    if row.delivery_count:
        shown["deliveries"] = row.delivery_count
    if row.leader_epoch >= 0:
        shown["leader_epoch"] = row.leader_epoch
    if row.flags & FLAG_LOST:
        shown["response_lost"] = True
    if row.error:
        shown["response_error"] = row.error
    return shown
