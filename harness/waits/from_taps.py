"""What waits see of Harrow's own brokers, without a request: taps, the replicas' logs, control sockets.

* groups and their owners of partitions: `tap.groups` and `tap.members` (`harrow.cluster.host.coordinator_tap`);
* committed offsets: `tap.commits`; the row of the latest time counts;
* where partitions begin and end: the leaders, over their control sockets;
* records: the batches in the log of the leader, below its last stable offset.

Files are read from where the last look ended. A new coordinator writes rows of what it found in the log, so the rows of
the highest leader epoch are those of the group's present coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.broker_folder import (
    TAP_COMMITS,
    TAP_GROUPS,
    TAP_MEMBERS,
    TAP_NAMES,
    broker_files,
)
from harrow.cluster.errors import ClusterError
from harrow.cluster.host.coordinator_tap import COMMIT_ROW, GROUP_ROW, MEMBER_OWNS, MEMBER_ROW
from harrow.cluster.host.seam import GROUP_STATES, OFFSET_COMMITTED
from harrow.cluster.ids import TopicPartition

from .. import run_folder
from ..checks.segments import (
    CONTROL,
    SegmentError,
    scan_log,
    transaction_ranges,
)
from ..histories.format import read_names
from ..histories.request_rows import RequestCount, count_requests
from .seen import GroupSeen, OffsetsSeen, newest_leaders

if TYPE_CHECKING:
    from harrow.cluster.view import ClusterView

    from ..running_cluster import RunningCluster

PACE_S = 0.02
DEAD = "Dead"


class RowTail:
    """The rows of one kind of file of every broker that were not returned yet."""

    def __init__(self, cluster: Path, name: str, row: struct.Struct) -> None:
        self._cluster = cluster
        self._name = name
        self._row = row
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """Yield each new row and the names to which its numbers refer; a torn last row is left for the next look."""
        for path in broker_files(self._cluster, self._name):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = len(data) // self._row.size * self._row.size
            if not whole:
                continue
            self._read[path] = self._read.get(path, 0) + whole
            names = read_names(path.with_name(TAP_NAMES))
            for row in self._row.iter_unpack(memoryview(data)[:whole]):
                yield names, row


class GroupRows:
    """The groups by the rows of all coordinators so far."""

    def __init__(self, cluster: Path) -> None:
        self._groups = RowTail(cluster, TAP_GROUPS, GROUP_ROW)
        self._members = RowTail(cluster, TAP_MEMBERS, MEMBER_ROW)
        self._states: dict[str, tuple[int, int, str, int]] = {}
        """Leader epoch, time, state and members, by group; the greatest counts."""
        self._owners: dict[str, tuple[int, dict[tuple[str, str], set[TopicPartition]]]] = {}
        """By group: leader epoch, and the partitions of each (client id, member id)."""

    def names(self) -> list[str]:
        """Return the groups that exist."""
        self._read()
        return sorted(name for name, row in self._states.items() if row[2] != DEAD)

    def group(self, name: str) -> GroupSeen | None:
        """Return one group; None where there is none."""
        self._read()
        row = self._states.get(name)
        if row is None or row[2] == DEAD:
            return None
        _, held = self._owners.get(name, (-1, {}))
        clients = [client for client, _ in held]
        owners = {
            client if clients.count(client) == 1 else member: [str(tp) for tp in sorted(owned)]
            for (client, member), owned in sorted(held.items())
            if owned
        }
        return GroupSeen(state=row[2], members=row[3], owners=owners)

    def _read(self) -> None:
        for names, row in self._groups.new():
            state, group, _, _, epoch, members, _, time_ns = row
            found = (epoch, time_ns, GROUP_STATES[state], members)
            name = names[group]
            self._states[name] = max(found, self._states.get(name, found))
        for names, row in self._members.new():
            kind, group, member, client, topic, _, partition, _, epoch, _ = row
            known, held = self._owners.get(names[group], (-1, {}))
            if epoch < known:
                continue
            held = held if epoch == known else {}
            self._owners[names[group]] = epoch, held
            owned = held.setdefault((names[client], names[member]), set())
            change = owned.add if kind == MEMBER_OWNS else owned.discard
            change(TopicPartition(names[topic], partition))


class CommitRows:
    """The committed offsets by the rows of all coordinators so far."""

    def __init__(self, cluster: Path) -> None:
        self._rows = RowTail(cluster, TAP_COMMITS, COMMIT_ROW)
        self._last: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        """The time and the offset of the last commit of a group for a partition."""

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets of one group."""
        for names, row in self._rows.new():
            kind, error, number, topic, partition = row[:5]
            offset, completed_ns = row[9], row[12]
            if kind != OFFSET_COMMITTED or error:
                continue
            key = names[number], TopicPartition(names[topic], partition)
            if self._last.get(key, (0, 0))[0] <= completed_ns:
                self._last[key] = completed_ns, offset
        return {where: offset for (name, where), (_, offset) in self._last.items() if name == group}


class FromTaps:
    """`ClusterSeen` of Harrow's own brokers; `run`: the run folder."""

    pace_s = PACE_S

    def __init__(self, cluster: RunningCluster, run: Path) -> None:
        self._cluster = cluster
        self._run = run
        self._groups = GroupRows(cluster.folder)
        self._commits = CommitRows(cluster.folder)
        self._leaders: dict[TopicPartition, int] = {}
        self._counted: dict[tuple[TopicPartition, int, int], int] = {}

    def view(self) -> ClusterView:
        """The registry's state."""
        return self._cluster.describe()

    def group_names(self) -> Collection[str]:
        """The groups of which a coordinator wrote a row."""
        return self._groups.names()

    def group(self, name: str) -> GroupSeen | None:
        """One group by its rows."""
        return self._groups.group(name)

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offsets of which a coordinator wrote a row."""
        found = self._commits.committed(group)
        return {where: found[where] for where in partitions if where in found}

    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetsSeen]:
        """What the leaders say over their control sockets."""
        leaders = newest_leaders(self._cluster.state(), frozenset(partitions))
        self._leaders.update((where, node) for where, (node, _) in leaders.items())
        return {
            where: OffsetsSeen(start=row["log_start"], end=row["lso"])
            for where, (_, row) in leaders.items()
        }

    def readable(self, where: TopicPartition, first: int, end: int) -> int:
        """Count by the batches of the leader's log; a look without a new batch does not read it again."""
        key = where, first, end
        if key not in self._counted:
            self._counted[key] = readable_records(self._log_of(where), first, end)
        return self._counted[key]

    def _log_of(self, where: TopicPartition) -> Path:
        folders = run_folder.replica_folders(self._run).get(self._leaders.get(where, -1), [])
        for folder in folders:
            if (log := folder / f"{where.topic}-{where.partition}").is_dir():
                return log
        raise ClusterError(f"the log of {where} was not found on its leader")

    def requests(self) -> Sequence[RequestCount]:
        """The counters of the taps."""
        return count_requests(self._run)

    def close(self) -> None:
        """Nothing is open."""


def readable_records(log: Path, first: int, end: int) -> int:
    """Count the records of a log with offsets from `first` up to `end` that a consumer of committed data receives.

    `end` is at most the last stable offset. SegmentError for a log that cannot be read now: it changes meanwhile.
    """
    try:
        rows = list(scan_log(log, verify=False))
    except FileNotFoundError as error:
        raise SegmentError(f"{log} changes while it is read: {error}") from error
    ranges = transaction_ranges((row[0], row[1], row[5], row[7]) for row in rows)
    aborted = frozenset(ranges.aborted)
    return sum(
        min(row[10], row[1] + 1 - first)
        for row in rows
        if first <= row[1] < end and not row[5] & CONTROL and (row[0], row[1]) not in aborted
    )
