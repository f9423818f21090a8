"""Reads the files of a run folder for the checks of progress, and judges them (`judge_progress`).

Of the taps only the rows of the judged topics are read, by the index that the verdict has laid out. Without a fault
and without a bound nothing is read. What prevents judging is a doubt where a bound is given, else it is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import HarrowError
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.coordinators import MemberExpired
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS, partition_for
from harrow.cluster.tap.layouts import FETCHED

from ... import run_folder
from ...histories.coordinator_rows import MEMBERS
from ...histories.coordinator_rows import OFFSETS as COMMITTED
from ...histories.coordinator_rows import TRANSACTIONS as DECIDED
from ...histories.format import FINAL_READ_CLIENT
from ...histories.group_states import read_group_rows, read_groups
from ...histories.recorded_faults import read_faults
from ...histories.row_ranges import RangeReader
from ...histories.tap import REPLICA_CLIENT, read_tap
from .activity import GROUP, TRANSACTIONAL_ID, GroupInput, PartitionActivity, PartitionInput, Track
from .availability import EVENTS, Availability, Place, disturbances
from .findings import ProgressFindings
from .judging import Bounds, ProgressJudge, Subject
from .memberships import OwnerRow, by_group, rebalances, tenures
from .standstills import Standstill

if TYPE_CHECKING:
    from ...histories.layout import Layout, PartitionFiles
    from ...histories.row_index import Columns

PROGRESS_EVENTS = (*EVENTS, MemberExpired)
"""What the checks of progress read of the traces."""
FLOOR_NS = 1_000_000_000
"""A shorter time without progress is left out, unless a bound is shorter."""
FLOOR_LEAST_NS = 100_000_000
NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
HARROWS_CLIENTS = (FINAL_READ_CLIENT, "harrow", "harrow-fault", "stranger")
NO_TRACES = (
    "standing still (recovers_within) could not be judged: no trace says which brokers led the partitions, because the "
    "brokers are not Harrow's; leave recovers_within out, or run the test on Harrow's brokers"
)
NO_TAPS = (
    "standing still (recovers_within) could not be judged: the brokers wrote no taps; leave recovers_within out, or "
    "run the brokers with harrow.tap=true"
)
BATCH_COLUMNS = {
    "kind": "u1",
    "flags": "u1",
    "error": "i2",
    "client": "u4",
    "base_offset": "i8",
    "last_offset": "i8",
    "completed_ns": "i8",
    "created_ns": "i8",
    "base_timestamp_ms": "i8",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    COMMITTED: {"kind": "u1", "error": "i2", "group": "u4", "client": "u4", "offset": "i8", "completed_ns": "i8"},
    MEMBERS: {"kind": "u1", "group": "u4", "member": "u4", "client": "u4", "leader_epoch": "i4", "time_ns": "i8"},
    DECIDED: {"state": "u1", "transactional_id": "u4", "producer_id": "i8", "time_ns": "i8"},
}


def judge_progress(
    folder: Path, layout: Layout, topics: Sequence[str], events: Sequence[TracedEvent[TraceEvent]], *, started_ns: int
) -> ProgressFindings:
    """Judge the progress of every client on `topics` in the run. `events`: of the traces."""
    facts = run_folder.read_run(folder)
    bounds = bounds_of(facts)
    faults = disturbances(read_faults(folder / run_folder.FAULTS))
    if not (faults or bounds.are_given):
        return ProgressFindings()
    availability = Availability(
        events=[traced for traced in events if isinstance(traced.event, EVENTS)],
        faults=faults,
        least_isr=_least_isr(facts, topics),
    )
    if not (availability.is_known and layout.taps):
        why = NO_TRACES if layout.taps else NO_TAPS
        return ProgressFindings(doubts=[why] if bounds.are_given else [])
    expired = frozenset(traced.event.member for traced in events if isinstance(traced.event, MemberExpired))
    run = _Run(folder, layout, topics, expired, started_ns)
    floor_ns = max(FLOOR_LEAST_NS, min([FLOOR_NS, *(bound // 2 for bound in bounds.given_ns)]))
    tracks = run.tracks(floor_ns)
    judge = ProgressJudge(
        tracks=tracks,
        availability=availability,
        bounds=bounds,
        started_ns=started_ns,
        coordinators=run.coordinators(tracks, availability),
        is_forwarded=run.is_forwarded,
    )
    return judge.judge()


def judge_or_doubt(
    folder: Path, layout: Layout, topics: Sequence[str], events: Sequence[TracedEvent[TraceEvent]], *, started_ns: int
) -> ProgressFindings:
    """Return what `judge_progress` does, with the guarantee of the bounds; where one is given, a crash is a doubt."""
    bounds = bounds_of(run_folder.read_run(folder))
    try:
        found = judge_progress(folder, layout, topics, events, started_ns=started_ns)
    except Exception as error:
        text = f"the check of progress crashed: {error!r}"
        found = ProgressFindings()
        (found.doubts if bounds.are_given else found.notes).append(text)
    found.guarantee = bounds.guarantee()
    return found


def bounds_of(facts: Mapping[str, Any]) -> Bounds:
    """Return the bounds that run.json has."""
    given = _given(facts)
    of_verdict = given.get("recovers_within_s")
    of_faults: dict[str, float] = given.get("recovers_within_s_of_faults") or {}
    return Bounds(
        of_verdict_ns=None if of_verdict is None else round(of_verdict * NS_PER_S),
        of_faults_ns={fault: round(bound * NS_PER_S) for fault, bound in of_faults.items()},
    )


def _given(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `run_folder.note_progress` wrote."""
    given: dict[str, Any] = facts.get("progress") or {}
    return given


def _least_isr(facts: Mapping[str, Any], topics: Sequence[str]) -> dict[str, int]:
    config: dict[str, Any] = facts.get("config") or {}
    default = int(str(config.get("min.insync.replicas", 1)))
    own: dict[str, int] = _given(facts).get("min_insync_replicas") or {}
    return {
        **dict.fromkeys([*topics, OFFSETS.name], default),
        TRANSACTIONS.name: int(str(config.get("transaction.state.log.min.isr", default))),
        **own,
    }


class _Run:
    """The rows of one run."""

    def __init__(
        self, folder: Path, layout: Layout, topics: Sequence[str], expired: frozenset[str], started_ns: int
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._reader = RangeReader()
        self._files = {
            place: files for place, files in layout.partitions.items() if place[0] in topics and place[1] >= 0
        }
        self._expired = expired
        self._started_ns = started_ns
        self._group_rows = read_group_rows(folder)

    def tracks(self, floor_ns: int) -> list[Track]:
        """Return the subjects of every partition."""
        names, end_ns = self._layout.clients, self._end_ns()
        not_users = frozenset(
            number for number, name in enumerate(names) if name in HARROWS_CLIENTS or REPLICA_CLIENT.fullmatch(name)
        )
        inputs: list[PartitionInput] = []
        members = {place: self._members(files) for place, files in self._files.items()}
        commits = {place: self._columns(files, COMMITTED) for place, files in self._files.items()}
        moving = {group: rebalances(rows, end_ns) for group, rows in by_group(self._group_rows).items()}
        clients = self._clients(members, commits)
        for place, files in self._files.items():
            own = by_group(members[place])
            groups = [
                GroupInput(
                    name=names[number],
                    clients=frozenset(found),
                    number=number,
                    owned=tenures(own.get(names[number], ()), end_ns, self._expired),
                    rebalances=moving.get(names[number], []),
                )
                for number, found in clients[place[0]].items()
            ]
            inputs.append(
                PartitionInput(
                    place=place,
                    batches=self._batches(files),
                    offsets=commits[place],
                    transactions=self._columns(files, DECIDED),
                    names=names,
                    not_users=not_users,
                    groups=groups,
                    begin_ns=self._started_ns,
                    end_ns=end_ns,
                    floor_ns=floor_ns,
                )
            )
        return [track for given in inputs for track in PartitionActivity(given).tracks()]

    def coordinators(self, tracks: Iterable[Track], availability: Availability) -> dict[Subject, Place]:
        """Return the partition of the internal topic of each group and transactional id."""
        known = {row.group: row.partition for row in self._group_rows}
        counts = {topic: availability.partitions(topic) for topic in (OFFSETS.name, TRANSACTIONS.name)}
        found: dict[Subject, Place] = {}
        for track in tracks:
            if track.kind == GROUP and track.name in known:
                found[track.kind, track.name] = OFFSETS.name, known[track.name]
            elif track.kind in (GROUP, TRANSACTIONAL_ID):
                topic = OFFSETS.name if track.kind == GROUP else TRANSACTIONS.name
                if counts[topic]:
                    found[track.kind, track.name] = topic, partition_for(track.name, counts[topic])
        return found

    def is_forwarded(self, row: Standstill) -> bool:
        """Whether a record with the timestamp of the first waiting one was delivered from another topic meanwhile.

        A job that copies timestamps from its inputs seems to have waited for as long as its inputs did.
        """
        made_ms = row.gap.made_ms
        if made_ms is None:
            return False
        for path in run_folder.tap_files(self._folder / run_folder.CLUSTER):
            rows, names = read_tap(path)[1:]
            times = rows["completed_ns"]
            mask = (rows["kind"] == FETCHED) & (times <= row.gap.end_ns)
            mask &= times >= row.gap.work[0][0] + FLOOR_NS // 2
            mask &= (rows["base_timestamp_ms"] <= made_ms) & (rows["max_timestamp_ms"] >= made_ms)
            pairs: list[tuple[int, int]] = rows[mask][["client", "topic"]].tolist()
            for client, topic in set(pairs):
                if names[topic] != row.track.place[0] and not REPLICA_CLIENT.fullmatch(names[client]):
                    return True
        return False

    def _end_ns(self) -> int:
        """Return when the verdict was asked for; else when the groups were; else the last row of a tap."""
        ended = _given(run_folder.read_run(self._folder)).get("ended_ns")
        if isinstance(ended, int):
            return ended
        try:
            asked = read_groups(self._folder)
        except (HarrowError, OSError):
            asked = None
        if asked is not None:
            return asked.asked_ns
        last = [self._batches(files)["completed_ns"] for files in self._files.values()]
        return max((int(times.max()) for times in last if len(times)), default=self._started_ns)

    def _batches(self, files: PartitionFiles) -> Columns:
        return self._reader.read(files.batches, dict(BATCH_COLUMNS))

    def _columns(self, files: PartitionFiles, what: str) -> Columns:
        return self._reader.read(files.coordinators.get(what, ()), dict(COLUMNS[what]))

    def _members(self, files: PartitionFiles) -> list[OwnerRow]:
        """Return the rows of owners."""
        columns = self._columns(files, MEMBERS)
        names = self._layout.clients
        rows = zip(*(columns[name].tolist() for name in COLUMNS[MEMBERS]), strict=True)
        return [
            OwnerRow(kind, names[group], names[member], names[client], epoch, time_ns)
            for kind, group, member, client, epoch, time_ns in rows
        ]

    def _clients(
        self, members: Mapping[Place, Sequence[OwnerRow]], commits: Mapping[Place, Columns]
    ) -> dict[str, dict[int, set[int]]]:
        """Return which clients read each topic for which group, by numbers of names."""
        import numpy as np

        numbers = {name: number for number, name in enumerate(self._layout.clients)}
        found: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for (topic, _), rows in members.items():
            for row in rows:
                found[topic][numbers[row.group]].add(numbers[row.client])
        for (topic, _), columns in commits.items():
            pairs = np.unique(np.stack([columns["group"], columns["client"]]), axis=1).T.tolist()
            for group, client in pairs:
                found[topic][group].add(client)
        return found
