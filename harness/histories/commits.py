"""Committed offsets of consumer groups on a topic, from the brokers' taps (J6).

A `Commit` is a committed offset that all in-sync replicas of the group's coordinator had. `CommitTimes` says when a
group had first committed beyond an offset: from that time on a restart of the group does not read the record again.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import TAP_COMMITS, TAP_NAMES, broker_files
from harrow.cluster.host.seam import OFFSET_COMMITTED
from harrow.cluster.tap.layouts import COMMIT_DTYPE, COMMIT_ROW

from .format import read_names

NEVER = 2**62
"""A time after every run, in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A group's committed offset in one partition."""

    group: str
    partition: int
    offset: int
    completed_ns: int
    """When all in-sync replicas had it, on the monotonic clock."""


def read_commits(cluster: Path, topic: str) -> list[Commit]:
    """Return the successful commits on `topic` that the taps in the folder of a cluster have, ordered by time."""
    found = [commit for path in broker_files(cluster, TAP_COMMITS) for commit in _of_file(path, topic)]
    return sorted(found, key=lambda commit: (commit.completed_ns, commit.group, commit.partition))


def _of_file(path: Path, topic: str) -> list[Commit]:
    import numpy as np

    count = os.path.getsize(path) // COMMIT_ROW.size
    if not count:
        return []
    names = read_names(path.with_name(TAP_NAMES))
    if topic not in names:
        return []
    rows: Any = np.fromfile(path, np.dtype(COMMIT_DTYPE), count)
    chosen: Any = rows[
        (rows["topic"] == names.index(topic)) & (rows["error"] == 0) & (rows["kind"] == OFFSET_COMMITTED)
    ]
    fields: list[tuple[int, int, int, int]] = chosen[["group", "partition", "offset", "completed_ns"]].tolist()
    return [
        Commit(group=names[group], partition=partition, offset=offset, completed_ns=completed_ns)
        for group, partition, offset, completed_ns in fields
    ]


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """For a group and partition: offsets in rising order, and the time of the first commit of each or a higher one."""

    offsets: tuple[int, ...] = ()
    times_ns: tuple[int, ...] = ()

    def time_of(self, offset: int) -> int:
        """Return when the group first had a committed offset above `offset`; `NEVER` if it never had."""
        at = bisect_right(self.offsets, offset)
        return self.times_ns[at] if at < len(self.offsets) else NEVER

    @property
    def end(self) -> int:
        """The highest committed offset; 0 if there is none."""
        return self.offsets[-1] if self.offsets else 0


def commit_times(commits: Iterable[Commit]) -> Mapping[str, Mapping[int, CommitTimes]]:
    """Return the times for each group and partition, groups by name. A commit below an earlier one changes nothing."""
    rising: dict[str, dict[int, list[Commit]]] = {}
    for commit in sorted(commits, key=lambda commit: commit.completed_ns):
        found = rising.setdefault(commit.group, {}).setdefault(commit.partition, [])
        if commit.offset > (found[-1].offset if found else 0):
            found.append(commit)
    return {
        group: {
            partition: CommitTimes(
                tuple(commit.offset for commit in found), tuple(commit.completed_ns for commit in found)
            )
            for partition, found in sorted(rising[group].items())
        }
        for group in sorted(rising)
    }
