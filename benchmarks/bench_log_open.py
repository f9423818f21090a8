"""Measures opening a log and look-ups in it, each with its lower bound measured in the same run.

    python benchmarks/bench_log_open.py [--segments 10000] [--partitions 1000] [--mib 256] [--folder DIR]

* look-up   a random read of a batch by offset, from the file, and a look-up by timestamp, while the number of
            segments grows from 10 on. The figures should not grow.
* recovery  an unclean start reads every batch again; for comparison the same files are read and CRC-checked as a
            whole (goal: >= 0.5 x for batches of 16 KB, which is Kafka's batch.size, and more; batches of one record
            have no goal).
* open      a data folder with many partitions, after a clean stop and after a crash.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c
from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.seam import Host
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Log, LogManager, LogOptions, open_log
from harrow.cluster.wire.batches import build_batch

NOW = 1_700_000_000_000
TP = TopicPartition("bench", 0)
ROUNDS = 5
LOOK_UPS = 3_000
ALL = Offset(2**60)


def open_at(host: Host, folder: Path, topic: dict[str, object], *, clean: bool = True) -> Log:
    folder.mkdir(parents=True, exist_ok=True)
    config = BrokerConfig.parse({}).topic(topic)
    options = LogOptions(config=config, clean=clean, tail_bytes=0)
    return open_log(host, str(folder), TP, options)


def seconds(call: Callable[[Path], None], path: Path) -> float:
    begun = time.perf_counter()
    call(path)
    return time.perf_counter() - begun


def look_ups(host: Host, folder: Path, most: int) -> None:
    """Measures look-ups with eight batches in each segment, so that only the number of segments grows."""
    batch = build_batch([(None, bytes(1_000), ())], timestamp_ms=NOW)
    topic: dict[str, object] = {
        "internal.segment.bytes": 8 * len(batch),
        "index.interval.bytes": 2_000,
        "segment.index.bytes": 1_200,
    }
    log = open_at(host, folder / TP.topic, topic)
    sizes = [size for size in (10, 100, 1_000, 10_000) if size <= most]
    chance = random.Random(1)
    print(f"{'segments':>10} {'first time, us':>15} {'by offset, us':>14} {'by time, us':>12}")
    number = 0
    for size in sizes:
        while len(log.segments) < size:
            data = build_batch([(None, bytes(1_000), ())], timestamp_ms=NOW + number)
            log.append_as_leader(data, LeaderEpoch(0))
            number += 1
        end = int(log.log_end_offset)
        first = [Offset(segment.base_offset + 5) for segment in log.segments[:-1]]
        begun = time.perf_counter()
        for offset in first:  # loads each index
            log.read(offset, 1, ALL, at_least_one=True)
        cold = (time.perf_counter() - begun) / len(first)
        best_offset = best_time = 1e9
        for _ in range(ROUNDS):
            offsets = [Offset(chance.randrange(end)) for _ in range(LOOK_UPS)]
            begun = time.perf_counter()
            for offset in offsets:
                log.read(offset, 1, ALL, at_least_one=True)
            best_offset = min(best_offset, (time.perf_counter() - begun) / LOOK_UPS)
            begun = time.perf_counter()
            for offset in offsets[:300]:
                log.offset_for_timestamp(NOW + offset)
            best_time = min(best_time, (time.perf_counter() - begun) / 300)
        figures = f"{cold * 1e6:>15.1f} {best_offset * 1e6:>14.1f} {best_time * 1e6:>12.1f}"
        print(f"{size:>10} {figures}", flush=True)
    log.abandon()


def recovery(host: Host, folder: Path, mib: int) -> None:
    print(f"{'batch bytes':>12} {'recover, MB/s':>14} {'read + CRC':>11} {'ratio':>6}")
    for size in (1_000, 16_000, 128_000):
        path = folder / f"recovery-{size}" / "bench-0"
        log = open_at(host, path, {})
        batch = build_batch([(None, bytes(size), ())], timestamp_ms=NOW)
        for _ in range(mib * 1024 * 1024 // len(batch)):
            log.append_as_leader(batch, LeaderEpoch(0))
        total = log.size
        log.abandon()
        ours = limit = 1e9
        for _ in range(ROUNDS):
            limit = min(limit, seconds(read_and_crc, path))
            begun = time.perf_counter()
            log = open_at(host, path, {}, clean=False)
            ours = min(ours, time.perf_counter() - begun)
            log.abandon()
        print(f"{size:>12} {total / ours / 1e6:>14.0f} {total / limit / 1e6:>11.0f} {limit / ours:>6.2f}", flush=True)
        shutil.rmtree(path)


def read_and_crc(path: Path) -> None:
    for file in path.glob("*.log"):
        with file.open("rb", buffering=0) as data:
            while chunk := data.read(1024 * 1024):
                crc32c(chunk)


def opening(host: Host, folder: Path, partitions: int) -> None:
    data = folder / "data"
    config = BrokerConfig.parse({})

    def memory_mib() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    logs = LogManager(host, str(data), config)
    logs.load()
    batch = build_batch([(None, bytes(500), ())], timestamp_ms=NOW)
    for number in range(partitions):
        log = logs.create(TopicPartition("bench", number), "", config.topic())
        for _ in range(20):
            log.append_as_leader(batch, LeaderEpoch(0))
    print(f"{partitions} partitions of 20 batches", flush=True)
    for clean in (True, False, False, True):
        begun = time.perf_counter()
        logs.close(clean=clean)
        closed = time.perf_counter()
        before = memory_mib()
        logs = LogManager(host, str(data), config)
        logs.load()
        took = time.perf_counter() - closed
        how = "clean stop" if clean else "crash"
        print(
            f"  after a {how:10}  open {took * 1e3:7.0f} ms  ({took / partitions * 1e6:5.0f} us each), "
            f"close {(closed - begun) * 1e3:6.0f} ms, memory +{memory_mib() - before:.0f} MiB",
            flush=True,
        )
    logs.close(clean=False)


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(dir=asked.folder) as tmp:
        host = RealHost("bench", f"{tmp}/host")
        folder = Path(tmp)
        try:
            look_ups(host, folder / "look-ups", asked.segments)
            recovery(host, folder, asked.mib)
            opening(host, folder, asked.partitions)
        finally:
            await host.stop()


if __name__ == "__main__":
    asyncio.run(main())
