"""Plans: the tasks that Spark runs for a verdict, each a list of topic-partitions to judge.

`pack` fills the tasks so that each has a bounded number of bytes, and a small history is a single task. The process
that makes a plan imports neither polars nor pyspark; the tasks import the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..histories.row_index import RowRange
from .log_changes import CleaningBegun, Leadership, Removal

TASK_BYTES = 32 << 20
ROW_RANGES = ("ops", "pending", "batches", "transactions", "offsets", "members", "watermarks", "shares")
"""The fields of a job that hold row ranges."""
JOB_BYTES = 128 << 10
"""What a job costs however small it is, about a millisecond, as bytes of its task; a task costs about 40 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionJob:
    """A topic-partition to judge. Paths are absolute; `limit` bounds the anomalies that are shown of each name."""

    topic: str
    partition: int
    ops: list[RowRange] = field(default_factory=list[RowRange])
    pending: list[RowRange] = field(default_factory=list[RowRange])
    batches: list[RowRange] = field(default_factory=list[RowRange])
    transactions: list[RowRange] = field(default_factory=list[RowRange])
    """Rows of the coordinators: this and the next two (`histories/coordinator_rows.py`)."""
    offsets: list[RowRange] = field(default_factory=list[RowRange])
    members: list[RowRange] = field(default_factory=list[RowRange])
    watermarks: list[RowRange] = field(default_factory=list[RowRange])
    shares: list[RowRange] = field(default_factory=list[RowRange])
    logs: dict[str, str] = field(default_factory=dict[str, str])
    """The folder of each replica's log, by node id."""
    windows: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Fault windows by start: nanoseconds of the monotonic clock, from the injection to the healing."""
    started_ns: int = 0
    """The start of the run; 0 where it is not known."""
    created_ns: int = 0
    """When the topic was created again; 0: it was created once. This and the next two: `log_changes.LogChanges`."""
    cleaned_end: int = 0
    deleted_heads: dict[str, int] = field(default_factory=dict[str, int])
    removals: list[Removal] = field(default_factory=list[Removal])
    """This and the next four: `log_changes.LogChanges`, too."""
    cleanings: list[CleaningBegun] = field(default_factory=list[CleaningBegun])
    leaderships: list[Leadership] = field(default_factory=list[Leadership])
    unclean_epochs: list[int] = field(default_factory=list[int])
    wrong_clocks: bool = False
    own_clients: list[int] = field(default_factory=list[int])
    """The numbers of Harrow's own clients, such as that of the final read."""
    untapped: list[int] = field(default_factory=list[int])
    """Brokers without a tap of their coordinators (`histories/recordings.py`)."""
    whole_taps: list[int] = field(default_factory=list[int])
    """Brokers whose tap has a row for each Produce request that they served (`whole_taps.py`)."""
    delivery_limit: int = 0
    """How often a share group may get a record; 0: not known. This and the next two: `share_settings.py`."""
    share_resets: list[int] = field(default_factory=list[int])
    """When clients asked to move or to delete share groups, in nanoseconds, sorted."""
    consuming_groups: list[int] = field(default_factory=list[int])
    """The numbers of the share groups that must have consumed every record (`consumed_by=`)."""
    all_sends: bool = False
    """Whether the history has every send to the partition (of a history from elsewhere)."""
    reads_committed: bool = True
    """Whether the readers receive no records of aborted transactions."""
    limit: int = 20
    size: int = 0
    """About how many bytes judging reads; `pack` fills tasks by it."""

    def __post_init__(self) -> None:
        assert self.partition >= 0, f"rows of {self.topic} without a partition are in no job of their own"
        assert self.size >= 0, f"{self.topic}-{self.partition} has {self.size} bytes"
        assert all(start <= end for start, end in self.windows), self.windows
        assert self.windows == sorted(self.windows), self.windows

    @property
    def taps_of_all_leaders(self) -> bool:
        """Whether the taps have each Produce request for the partition, of each of its leaders."""
        leaders = {row.leader for row in self.leaderships}
        return bool(leaders) and leaders <= set(self.whole_taps) and not self.created_ns

    def to_dict(self) -> dict[str, Any]:
        """Return the job as plain JSON. Lists are shared with the job; `asdict` would copy all of them."""
        return {name: getattr(self, name) for name in JOB_FIELDS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PartitionJob:
        """Return the job of a `to_dict` result, also after it was written and read as JSON."""
        assert data.keys() == set(JOB_FIELDS), f"a job lost or gained fields: {data.keys() ^ set(JOB_FIELDS)}"
        fields: dict[str, Any] = dict(data)
        for name in ROW_RANGES:
            fields[name] = [RowRange(*part) for part in data[name]]
        fields["windows"] = [(start, end) for start, end in data["windows"]]
        fields["removals"] = [Removal(*row) for row in data["removals"]]
        fields["cleanings"] = [CleaningBegun(*row) for row in data["cleanings"]]
        fields["leaderships"] = [Leadership(*row) for row in data["leaderships"]]
        return cls(**fields)


JOB_FIELDS = tuple(field.name for field in fields(PartitionJob))


def pack(jobs: Sequence[PartitionJob]) -> list[list[dict[str, Any]]]:
    """Divide the jobs into tasks: the largest jobs first, each task filled up to `TASK_BYTES`.

    In a task the jobs are in the order of their partitions, because neighbours in the index files are read together.
    """
    tasks: list[list[PartitionJob]] = []
    room = 0
    for job in sorted(jobs, key=lambda job: -job.size):
        size = job.size + JOB_BYTES
        if not tasks or size > room:
            tasks.append([])
            room = TASK_BYTES
        tasks[-1].append(job)
        room -= size
    packed = sum(map(len, tasks))
    assert packed == len(jobs), f"{packed} of {len(jobs)} jobs are in a task"
    for task in tasks:
        task.sort(key=lambda job: (job.topic, job.partition))
    return [[job.to_dict() for job in task] for task in tasks]
