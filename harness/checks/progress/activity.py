"""Progress and work of each subject in one partition, from the rows of the taps (`Track`, `Gap`).

Vectorised: the rows of a partition are sorted once by time, and each client's are taken from them. A gap is a time
without progress that is at least as long as the floor; only gaps with work are kept, and a healthy run has none.

A producer's work is known by the times at which its records were made (`created_ns` of the tap) and by refusals that a
client repeats with another broker. An application may give its records any timestamp. So these times count only for a
producer of which some records left soon after they were made, and never before its first record.

A group's position in a partition is that of its fetches; with another owner it begins again at the committed offset,
and without one at what could be read then. A reader without a group counts only where it continues exactly at its
position, because one that was closed leaves no trace.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import OFFSET_COMMITTED
from harrow.cluster.tap.layouts import FETCHED, FLAG_LOST, FLAG_READ_COMMITTED, PRODUCED

from .memberships import Tenure, alive, dead_owners, first_owned
from .positions import Positions, Steps, rises
from .spans import Span, Spans, both, merged, total, without
from .transactions import FOREVER_NS, readable_times, transactions_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .availability import Place

    Numbers = npt.NDArray[np.int64]
    Columns = dict[str, npt.NDArray[Any]]

PRODUCER, GROUP, READER, TRANSACTIONAL_ID = "producer", "group", "reader", "transactional id"
WRONG_BROKER = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.leader_not_available,
    ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
)
"""Refusals after which a client that looks for the leader succeeds; other refusals are the cluster's."""
RETRY_MOST_NS = 2_500_000_000
"""Refusals with less time between them are one attempt that a client repeats."""
TIMELY_LEAST = 3
TIMELY_SHARE_LEAST = 0.2
GAPS_MOST = 100
"""Of a subject in one partition, those with most work are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time without progress, with work."""

    begin_ns: int
    """The last progress before, or when the subject began."""
    end_ns: int
    """The next progress, or the end of the run."""
    work: Spans
    """When there was work, within the gap."""
    offsets: tuple[int, ...] = ()
    """The first and the last record that waited."""
    recovered: bool = True
    """Whether progress followed."""
    made_ms: int | None = None
    """The timestamp of the first record that waited to be acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One subject in one partition."""

    kind: str
    name: str
    place: Place
    progress: Spans
    gaps: list[Gap]
    waits: Spans = field(default_factory=list[Span])
    """When it waited for a member that did not return, within its timeouts."""
    begins_with_faults: bool = False
    """Whether only gaps that touch a fault count, because others may be intended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInput:
    """One group in one partition."""

    name: str
    clients: frozenset[int]
    """The numbers of the clients that read the topic for it."""
    number: int
    """The group's own number among the names of the run."""
    owned: Sequence[Tenure]
    rebalances: Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInput:
    """What the taps have of one partition; columns by the names of `TAP_DTYPE` and `COMMIT_DTYPE`."""

    place: Place
    batches: Columns
    offsets: Columns
    transactions: Columns
    names: Sequence[str]
    """The names of the run, by number."""
    not_users: frozenset[int]
    """The numbers of the clients that are Harrow's own."""
    groups: Sequence[GroupInput] = ()
    begin_ns: int = 0
    end_ns: int = FOREVER_NS
    floor_ns: int = 1_000_000_000


def dense(times: Numbers, join_ns: int) -> Spans:
    """Return the times as intervals: those that follow each other within `join_ns` are one. `times` ascend."""
    import numpy as np

    if not len(times):
        return []
    breaks = np.flatnonzero(np.diff(times) > join_ns)
    begins = times[np.append(0, breaks + 1)]
    ends = times[np.append(breaks, len(times) - 1)] + 1
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def union(begins: Numbers, ends: Numbers) -> Spans:
    """Return the union of many intervals, as `spans.merged` does."""
    import numpy as np

    if not len(begins):
        return []
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    first = np.append(True, begins[1:] > ends[:-1])
    last = np.append(np.flatnonzero(first)[1:] - 1, len(begins) - 1)
    return merged(zip(begins[first].tolist(), ends[last].tolist(), strict=True))


def by_client(clients: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each client's number, and where its rows are, in their order."""
    import numpy as np

    if not len(clients):
        return
    few = int(clients.max()) < 1 << 16
    order = np.argsort(clients.astype(np.uint16) if few else clients, kind="stable")
    sorted_clients = clients[order]
    starts = np.flatnonzero(np.append(True, sorted_clients[1:] != sorted_clients[:-1]))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        yield int(sorted_clients[start]), order[start:end]


class PartitionActivity:
    """The subjects of one partition."""

    def __init__(self, given: PartitionInput) -> None:
        import numpy as np

        self.given = given
        rows, times = given.batches, given.batches["completed_ns"]
        if len(times) and (np.diff(times) < 0).any():
            order = np.argsort(times, kind="stable")
            rows = {name: column[order] for name, column in rows.items()}
        self.rows = rows
        ok = rows["error"] == 0
        self._acked = (rows["kind"] == PRODUCED) & ok
        self._fetched = (rows["kind"] == FETCHED) & ok
        if given.not_users:
            own = np.isin(rows["client"], list(given.not_users))
            self._fetched &= ~own
        at = np.flatnonzero(self._acked & (rows["last_offset"] >= 0))
        self._acked_ns: Numbers = rows["completed_ns"][at]
        self._acked_end: Numbers = np.maximum.accumulate(rows["last_offset"][at] + 1)
        self._has_transactions = bool(len(given.transactions["time_ns"]))
        self._committed: tuple[Numbers, Numbers] | None = None

    def tracks(self) -> list[Track]:
        """Return all subjects that did something in this partition."""
        found = self._producers()
        found += [self._group(group) for group in self.given.groups]
        found += self._readers()
        return found + self._transactional_ids()

    # ---- producers ---------------------------------------------------------------------------

    def _producers(self) -> list[Track]:
        import numpy as np

        produced = np.flatnonzero(self.rows["kind"] == PRODUCED)
        found: list[Track] = []
        for client, where in by_client(self.rows["client"][produced]):
            if client not in self.given.not_users:
                found.append(self._producer(client, produced[where]))
        return found

    def _producer(self, client: int, at: Numbers) -> Track:
        import numpy as np

        rows, floor_ns = self.rows, self.given.floor_ns
        error, times = rows["error"][at], rows["completed_ns"][at]
        acked = at[(error == 0) & ((rows["flags"][at] & FLAG_LOST) == 0)]
        progress = dense(rows["completed_ns"][acked], floor_ns // 4)
        created = np.maximum(rows["created_ns"][acked], times[0])
        waited = rows["completed_ns"][acked] - created
        late = waited > floor_ns
        timely = int((~late).sum())
        if timely < TIMELY_LEAST and timely < TIMELY_SHARE_LEAST * len(acked):
            late &= False
        late_rows = acked[late]
        work = union(created[late], rows["completed_ns"][late_rows])
        refused = times[np.isin(error, [int(code) for code in WRONG_BROKER])]
        work = merged([*work, *dense(refused, RETRY_MOST_NS)])
        gaps = [
            self._producer_gap((begin, end), progress, late_rows, created[late])
            for begin, end in without(work, progress)
            if end - begin >= floor_ns
        ]
        return Track(
            kind=PRODUCER, name=self.given.names[client], place=self.given.place, progress=progress, gaps=_longest(gaps)
        )

    def _producer_gap(self, span: Span, progress: Spans, late: Numbers, created: Numbers) -> Gap:
        """Return the gap of a producer that had work for the whole `span`. `created`: of the rows `late`."""
        end = self.rows["completed_ns"][late]
        waiting = late[(created < span[1]) & (end >= span[1])]
        offsets: tuple[int, ...] = ()
        made_ms = None
        if len(waiting):
            first, last = self.rows["base_offset"][waiting], self.rows["last_offset"][waiting]
            offsets = int(first.min()), int(last.max())
            made_ms = int(self.rows["base_timestamp_ms"][waiting].min())
        return Gap(
            begin_ns=_last_before(progress, span[0], span[0]),
            end_ns=_next_after(progress, span[1], span[1]),
            work=[span],
            offsets=offsets,
            made_ms=made_ms,
            recovered=_next_after(progress, span[1], -1) >= 0,
        )

    # ---- readers -----------------------------------------------------------------------------

    def _readable(self, *, committed: bool) -> tuple[Numbers, Numbers]:
        """Return (times, ends): from each time on, records below the end may be read; both ascend."""
        import numpy as np

        if not (committed and self._has_transactions):
            return self._acked_ns, self._acked_end
        if self._committed is None:
            times, readable = readable_times(transactions_of(self.given.transactions))
            index = np.searchsorted(self._acked_ns, readable, "right") - 1
            ends = np.append(0, self._acked_end)[index + 1]
            self._committed = times, np.maximum.accumulate(ends)
        return self._committed

    def _readable_work(self, position: int, span: Span, *, committed: bool) -> tuple[Span, tuple[int, ...]]:
        """Return when there were records from `position` on within `span`, and the first and last of them."""
        import numpy as np

        times, ends = self._readable(committed=committed)
        index = int(np.searchsorted(ends, position, "right"))
        if index == len(ends):
            return (0, 0), ()
        begin = max(span[0], int(times[index]))
        last = int(np.searchsorted(times, span[1], "right")) - 1
        return (begin, span[1]), (position, int(ends[last]) - 1) if begin < span[1] else ()

    def _end_at(self, at_ns: int, *, committed: bool) -> int:
        """Return the end of what could be read at a time."""
        import numpy as np

        times, ends = self._readable(committed=committed)
        index = int(np.searchsorted(times, at_ns, "right")) - 1
        return int(ends[index]) if index >= 0 else 0

    def _reads_committed(self, at: Numbers) -> bool:
        flags = self.rows["flags"][at]
        return bool((flags & FLAG_READ_COMMITTED).any()) or not len(at)

    def _group(self, group: GroupInput) -> Track:
        import numpy as np

        given, rows = self.given, self.rows
        at = np.flatnonzero(self._fetched & np.isin(rows["client"], list(group.clients)))
        committed = self._reads_committed(at)
        fetched_ns, ends = rows["completed_ns"][at], rows["last_offset"][at] + 1
        own = (
            (given.offsets["group"] == group.number)
            & (given.offsets["kind"] == OFFSET_COMMITTED)
            & (given.offsets["error"] == 0)
        )
        order = np.argsort(given.offsets["completed_ns"][own], kind="stable")
        commit_ns, commits = (given.offsets["completed_ns"][own][order], given.offsets["offset"][own][order])
        resets = first_owned(group.owned)
        positions = Positions(
            resets,
            Steps(fetched_ns, ends),
            Steps(commit_ns, commits),
            lambda at_ns: self._end_at(at_ns, committed=committed),
        )
        # a commit of all that was read says nothing new: a client commits by a timer, too
        risen = commit_ns[rises(commits) & (commits != positions.at(commit_ns))]
        progress = dense(np.sort(np.append(positions.progress_ns, risen)), given.floor_ns // 4)
        living = alive(group.owned)
        waiting = both(without(living, group.rebalances), [(given.begin_ns, given.end_ns)])
        first = min((begin for begin, _ in [*living, *progress]), default=0)
        gaps: list[Gap] = []
        for begin, end in without([(first, given.end_ns)], progress):
            if end - begin < given.floor_ns:
                continue
            cuts = [begin, *(reset for reset in resets if begin < reset < end), end]
            reached = positions.at(cuts).tolist()
            found = [
                self._readable_work(reached[n], (cuts[n], cuts[n + 1]), committed=committed)
                for n in range(len(cuts) - 1)
            ]
            work = both(merged(span for span, _ in found), waiting)
            offsets = [offset for _, pair in found for offset in pair]
            if work:
                gaps.append(
                    Gap(
                        begin_ns=begin,
                        end_ns=end,
                        work=work,
                        offsets=_bounds(offsets),
                        recovered=_next_after(progress, end, -1) >= 0,
                    )
                )
        return Track(
            kind=GROUP,
            name=group.name,
            place=given.place,
            progress=progress,
            gaps=_longest(gaps),
            waits=dead_owners(group.owned),
        )

    def _readers(self) -> list[Track]:
        """Return the readers that read this topic for no group."""
        import numpy as np

        members = {client for group in self.given.groups for client in group.clients}
        fetched = np.flatnonzero(self._fetched)
        found: list[Track] = []
        for client, where in by_client(self.rows["client"][fetched]):
            if client not in members:
                found.append(self._reader(client, fetched[where]))
        return found

    def _reader(self, client: int, at: Numbers) -> Track:
        import numpy as np

        rows, floor_ns = self.rows, self.given.floor_ns
        new = at[rises(rows["last_offset"][at])]
        times, first, last = (rows["completed_ns"][new], rows["base_offset"][new], rows["last_offset"][new])
        committed = self._reads_committed(at)
        continued = (np.diff(times) >= floor_ns) & (first[1:] == last[:-1] + 1)
        gaps: list[Gap] = []
        for index in np.flatnonzero(continued).tolist():
            span = int(times[index]), int(times[index + 1])
            work, offsets = self._readable_work(int(last[index]) + 1, span, committed=committed)
            if work[1] > work[0]:
                gaps.append(Gap(begin_ns=span[0], end_ns=span[1], work=[work], offsets=offsets))
        return Track(
            kind=READER,
            name=self.given.names[client],
            place=self.given.place,
            progress=dense(times, floor_ns // 4),
            gaps=_longest(gaps),
            begins_with_faults=True,
        )

    # ---- transactions ------------------------------------------------------------------------

    def _transactional_ids(self) -> list[Track]:
        if not self._has_transactions:
            return []
        given, found = self.given, transactions_of(self.given.transactions)
        tracks: list[Track] = []
        for name, at in by_client(found.transactional_id):
            decided, completed = found.decided_ns[at], found.completed_ns[at]
            ended = completed.clip(max=given.end_ns)
            slow = (decided < FOREVER_NS) & (ended - decided >= given.floor_ns)
            gaps = [
                Gap(begin_ns=begin, end_ns=end, work=[(begin, end)], recovered=done < FOREVER_NS)
                for begin, end, done in zip(
                    decided[slow].tolist(), ended[slow].tolist(), completed[slow].tolist(), strict=True
                )
            ]
            done = completed[completed < FOREVER_NS]
            done.sort()
            tracks.append(
                Track(
                    kind=TRANSACTIONAL_ID,
                    name=given.names[name],
                    place=given.place,
                    progress=dense(done, given.floor_ns // 4),
                    gaps=_longest(gaps),
                )
            )
        return tracks


def _last_before(progress: Spans, at_ns: int, otherwise: int) -> int:
    """Return the end of the last interval that has ended by then."""
    index = bisect.bisect_right(progress, at_ns, key=lambda span: span[1]) - 1
    return progress[index][1] if index >= 0 else otherwise


def _next_after(progress: Spans, at_ns: int, otherwise: int) -> int:
    """Return the begin of the first interval that begins then or later."""
    index = bisect.bisect_left(progress, at_ns, key=lambda span: span[0])
    return progress[index][0] if index < len(progress) else otherwise


def _longest(gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps with most work, in their order."""
    chosen = sorted(gaps, key=lambda gap: total(gap.work))[-GAPS_MOST:]
    return sorted(chosen, key=lambda gap: gap.begin_ns)


def _bounds(offsets: Sequence[int]) -> tuple[int, ...]:
    return (min(offsets), max(offsets)) if offsets else ()
