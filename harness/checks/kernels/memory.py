"""Whether a partition fits into the memory that is free: one that does not is a doubt, and not a worker that is killed.

A check needs all rows of its partition at once, so that a worker holds `OPERATION_BYTES` for each operation of its
largest partition. `room_for(job)` compares that with the memory that the machine, and each control group of this
process, have left. Partitions that do not fit beside one as large on each other core are judged one after the other on
a machine, by a lock that the kernel releases when its holder ends.

Small partitions (`SMALL_BYTES`) are not looked at: the look costs as much as their judgement.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ...histories.row_index import RowRange
from ..plans import ROW_RANGES, PartitionJob

OPERATION_BYTES = 90
"""Measured at 2.5e7 and 1e8 operations (`benchmarks/bench_verdict.py`): the columns, and what the checks sort."""
SMALL_BYTES = 256 << 20
WAIT_S, LOOK_EVERY_S = 3600.0, 0.1
"""How long a large partition waits for another one, and how often it looks."""
MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""The limit and the use of a control group, of version 2 and of version 1."""
EVICTED_FIRST = ("inactive_file", "total_inactive_file")
"""Pages of files that count as used, and that the kernel takes back before it kills a process."""


_UNLIMITED = 1 << 62


class TooLargeError(Exception):
    """The rows of a partition do not fit into the memory that is free."""


def needed_bytes(job: PartitionJob) -> int:
    """Return the memory that the rows of a job and the checks of them need."""
    ranges: list[list[RowRange]] = [getattr(job, name) for name in ROW_RANGES]
    return OPERATION_BYTES * sum(part.rows for parts in ranges for part in parts)


@contextmanager
def room_for(job: PartitionJob) -> Generator[None]:
    """Hold the memory of `job` while it is judged. TooLargeError, with a remedy, when so much is not free."""
    needed = needed_bytes(job)
    if needed <= SMALL_BYTES or needed * (1 + (os.cpu_count() or 1)) <= free_bytes():
        yield
        return
    with open(Path(tempfile.gettempdir(), f"harrow-large-partition-{os.getuid()}.lock"), "w") as lock:
        _locked(lock, job)
        free = free_bytes()  # now that no other large partition is judged here
        if needed > free:
            raise TooLargeError(
                f"{job.topic}-{job.partition} was not judged: its {needed // OPERATION_BYTES:,} rows need about "
                f"{needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; give the topic more partitions or "
                "fewer records, or call `harrow check` for the run's folder on a machine with more memory"
            )
        yield


def _locked(lock: IO[str], job: PartitionJob) -> None:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TooLargeError(
                    f"{job.topic}-{job.partition} was not judged: another large partition was judged on this machine "
                    f"for {WAIT_S:g} s, and both do not fit into its memory together"
                ) from None
        time.sleep(LOOK_EVERY_S)


def free_bytes() -> int:
    """Return the memory that this process may still take: of the machine, and of each of its control groups."""
    return min(_of_machine(), *map(bytes_of_group, _groups()))


def _of_machine() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return _UNLIMITED


def _groups() -> Iterator[Path]:
    """Yield the folder of each control group that may limit the memory of this process, and its parents."""
    root = Path("/sys/fs/cgroup")
    yield from (root, root / "memory")  # what a container sees as its own
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            folder = (root / controllers).joinpath(path.lstrip("/"))
            while folder != root and folder != root / "memory":
                yield folder
                folder = folder.parent


def bytes_of_group(folder: Path) -> int:
    """Return what a control group leaves to its processes; its evictable pages of files are free."""
    for limit_name, used_name in MEMORY_FILES:
        try:
            limit = (folder / limit_name).read_text(encoding="ascii").strip()
            used = int((folder / used_name).read_text(encoding="ascii"))
            stat = (folder / "memory.stat").read_text(encoding="ascii")
        except (OSError, ValueError):
            continue
        if not limit.isdigit():
            return _UNLIMITED
        evictable = max(
            (int(value) for name, value in (line.split() for line in stat.splitlines()) if name in EVICTED_FIRST),
            default=0,
        )
        return max(0, int(limit) - used + evictable)
    return _UNLIMITED
