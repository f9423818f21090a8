"""What waits see of Harrow's own brokers, without a request: taps, the replicas' logs, control sockets.

* groups, their owners of partitions, and committed offsets: taps (`histories/live_taps.py`);
* where partitions begin and end: the leaders, over their control sockets;
* records: the batches in the log of the leader, below its last stable offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.errors import ClusterError
from harrow.cluster.ids import TopicPartition

from .. import run_folder
from ..histories.live_taps import CommitRows, GroupRows, GroupSeen, known_groups
from ..histories.request_rows import RequestCount, count_requests
from ..histories.segments import CONTROL, Row, SegmentError, scan_log, transaction_ranges
from .seen import OffsetsSeen, newest_leaders

if TYPE_CHECKING:
    from harrow.cluster.view import ClusterView

    from ..running_cluster import RunningCluster

PACE_S = 0.02


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
        return known_groups(self._groups, self._commits)

    def group(self, name: str) -> GroupSeen | None:
        """One group by its rows."""
        return self._groups.group(name)

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets of which a coordinator wrote a row."""
        found = self._commits.committed(group)
        return {where: found[where] for where in partitions if where in found}

    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetsSeen]:
        """What the leaders say over their control sockets."""
        leaders = newest_leaders(self._cluster.state(), frozenset(partitions))
        self._leaders.update((where, node) for where, (node, _) in leaders.items())
        return {where: OffsetsSeen(start=row["log_start"], end=row["lso"]) for where, (_, row) in leaders.items()}

    def readable(self, where: TopicPartition, first: int, end: int) -> int:
        """Count by the batches of the leader's log; a look without a new batch does not read it again."""
        key = where, first, end
        if key not in self._counted:
            self._counted[key] = self.count_records(where, first, end)
        return self._counted[key]

    def count_records(self, where: TopicPartition, first: int, end: int) -> int:
        """Count by the log of the leader."""
        return readable_records(self._log_of(where), first, end)

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
    return readable_in(rows, first, end)


def readable_in(rows: Sequence[Row], first: int, end: int) -> int:
    """The same, for the batches of a log."""
    ranges = transaction_ranges((row[0], row[1], row[5], row[7]) for row in rows)
    aborted = frozenset(ranges.aborted)
    return sum(
        min(row[10], row[1] + 1 - first)
        for row in rows
        if first <= row[1] < end and not row[5] & CONTROL and (row[0], row[1]) not in aborted
    )
