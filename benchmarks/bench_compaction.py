"""Compares compaction with copying the same bytes, in the same run (B8, B12).

    python benchmarks/bench_compaction.py [--megabytes 64] [--value 1000] [--rounds 3] [--keys 20000]

Writes a log of keyed records, cleans it with the broker's own cleaner (`log.cleaner.threads=1`, real fsyncs) and, in
alternating rounds, copies its segments file by file with the same fsyncs. Prints for each codec and for two mixes of
keys:

* MB/s of compacted dirty log, MB/s of copied log, and their ratio;
* CPU time for each record, which other load on the machine does not change;
* the share of the log that is left, and the peak memory that compaction needed.

    unique      every key once: compaction keeps and rewrites everything
    few keys    most records are superseded: compaction writes little and rebuilds every batch

The ratio cannot reach 1: compaction reads every byte twice and decodes every record twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.host.real.tasks import RealTasks
from harrow.cluster.host.seam import Host, Trace
from harrow.cluster.ids import LeaderEpoch, TopicPartition
from harrow.cluster.storage import Log, LogOptions, open_log
from harrow.cluster.storage.compaction.log_cleaner import LogCleaner
from harrow.cluster.wire.batches import build_batch

MEGABYTE = 1_000_000
EPOCH = LeaderEpoch(0)
CODECS = {"none": 0, "lz4": 3}
COPY_BYTES = 1024 * 1024


class Quiet:
    """A trace and failpoints that do nothing."""

    def emit(self, event: str, /, **fields: object) -> None:
        """Ignores the event."""

    def log(self, level: str, message: str, /, **_fields: object) -> None:
        """Fails on warnings and errors."""
        assert level not in ("error", "warning"), message

    def hit(self, name: str) -> None:
        """Does nothing: no failpoint is armed."""


@contextmanager
def real_host() -> Generator[tuple[Host, asyncio.AbstractEventLoop]]:
    """A host with real files, clock and threads, without a network."""
    loop = asyncio.new_event_loop()
    quiet = Quiet()
    tasks = RealTasks(loop, cast("Trace", quiet))
    host = SimpleNamespace(
        name="bench",
        clock=RealClock(),
        tasks=tasks,
        disk=RealDisk(),
        random=random.Random(1),
        trace=quiet,
        failpoints=quiet,
    )
    try:
        yield cast("Host", host), loop
    finally:
        loop.run_until_complete(tasks.stop())
        loop.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Seconds and bytes of a round."""

    compacting: float
    cpu: float
    copying: float
    records: int
    before: int
    after: int


def options(config: BrokerConfig) -> LogOptions:
    """The options of a compacted topic's log."""
    topic = {"cleanup.policy": "compact", "segment.bytes": 16 * MEGABYTE}
    return LogOptions(config=config.topic(topic), tail_bytes=0)


def fill(log: Log, size: int, value: int, keys: int, codec: int) -> None:
    """Appends batches of about 16 KB; with `keys` 0 every key occurs once."""
    draw = random.Random(7)
    pool = draw.randbytes(1 << 20)  # half of each value compresses
    half, rest = value // 2, bytes(value - value // 2)
    count = max(1, 16_000 // (value + 20))
    number = 0
    while log.size < size:
        batch = [
            (
                b"key-%012d" % (draw.randrange(keys) if keys else number + i),
                pool[(at := draw.randrange(len(pool) - half)) : at + half] + rest,
                (),
            )
            for i in range(count)
        ]
        number += count
        records = build_batch(batch, timestamp_ms=number, codec=codec)
        log.append_as_leader(records, EPOCH)
    log.roll()
    log.flush()


def copy(log: Log, folder: Path) -> float:
    """Copies the sealed segments with an fsync each, as compaction's second pass must; returns the seconds."""
    folder.mkdir()
    begun = time.perf_counter()
    for segment in log.segments[:-1]:
        with (
            Path(segment.path_of(".log")).open("rb") as source,
            (folder / f"{segment.base_offset}").open("wb") as target,
        ):
            shutil.copyfileobj(source, target, COPY_BYTES)
            target.flush()
            os.fsync(target.fileno())
    took = time.perf_counter() - begun
    shutil.rmtree(folder)
    return took


def one_round(arguments: argparse.Namespace, keys: int, codec: int) -> Round:
    """Fills a log, copies it, and then compacts it."""
    config = BrokerConfig.parse({"log.cleaner.min.cleanable.ratio": 0})
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, real_host() as (host, loop):
        path = f"{folder}/bench-0"
        host.disk.make_folder(path)
        log = open_log(host, path, TopicPartition("bench", 0), options(config))
        cleaner = LogCleaner(host, config, lambda: [log])

        async def work() -> Round:
            fill(log, arguments.megabytes * MEGABYTE, arguments.value, keys, codec)
            copying = copy(log, Path(folder) / "copy")
            before = log.size
            begun, cpu = time.perf_counter(), time.process_time()
            assert await cleaner.clean_filthiest(cleaner.offset_map())
            compacting = time.perf_counter() - begun
            return Round(
                compacting=compacting,
                cpu=time.process_time() - cpu,
                copying=copying,
                records=log.log_end_offset,
                before=before,
                after=log.size,
            )

        try:
            return loop.run_until_complete(work())
        finally:
            log.abandon()


def peak_megabytes() -> float:
    """Returns the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--value", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=20_000, help="of the mix with few keys")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where to write; a disk, not memory")
    arguments: Any = parser.parse_args()
    print(f"{arguments.megabytes} MB of values of {arguments.value} B, {arguments.rounds} rounds, medians")
    print(f"{'':>20}{'compacted':>14}{'copied':>14}{'ratio':>8}{'CPU/record':>13}{'left':>7}{'memory':>10}")
    for name, codec in CODECS.items():
        for mix, keys in (("unique", 0), ("few keys", arguments.keys)):
            idle = peak_megabytes()
            rounds = [one_round(arguments, keys, codec) for _ in range(arguments.rounds)]
            size = rounds[0].before / MEGABYTE
            compacting = size / median(r.compacting for r in rounds)
            copying = size / median(r.copying for r in rounds)
            cpu = median(r.cpu / r.records for r in rounds) * 1e6
            left = rounds[0].after / rounds[0].before
            grown = peak_megabytes() - idle
            print(
                f"{name + ', ' + mix:>20}{compacting:>9.0f} MB/s{copying:>9.0f} MB/s"
                f"{compacting / copying:>8.2f}{cpu:>10.1f} us{left:>7.0%}{grown:>7.0f} MB"
            )


if __name__ == "__main__":
    main()
