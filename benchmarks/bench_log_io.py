"""Compares the log with the bare disk and the bare socket (B12), as ratios measured in the same run.

    python benchmarks/bench_log_io.py [--mib 256] [--batch 1048576 131072 16384] [--rounds 7]

    append      batches through `Log.append_as_leader`            against  one `pwritev` a batch, same bytes
    fetch       `Log.read_to_send` → `Link.send`, 1 MiB a fetch   against  `os.sendfile` of the same ranges
    memory      growth of the process after it wrote and read a log four times as large

Rounds of the two sides alternate, so that other load on the machine affects both; a ratio is that of the medians.
Appends never wait and are compared by processor time, fetches by elapsed time; neither side makes an fsync. The files
are in a temporary folder (`--folder`). On both sides a thread at the other end of the socket reads and discards
everything. Goals: append >= 0.6, fetch >= 0.7. Exit code 1 when a goal is missed.

The goal for appends holds for batches of the size that a loaded producer sends (`LOADED_BYTES`). Smaller batches have
no goal: their line shows how many microseconds per batch the log adds to the write.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.knobs.link_rules import LinkRules
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.real.link import RealLink
from harrow.cluster.host.real.link_context import LinkContext
from harrow.cluster.host.seam import Peer
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.wire.batches import build_batch
from hops import tcp_pair

APPEND_LEAST, FETCH_LEAST = 0.6, 0.7
LOADED_BYTES = 100 * 1024
"""Sizes of confluent-kafka's batches under the load of bench_cluster: 107 KiB of 100 B messages, 637 KiB of 1 KiB ones
(medians)."""
FETCH_BYTES = 1024 * 1024
FRESH_BYTES = 64 * 1024 * 1024
"""Larger than every cache of the processor."""
MIB = 1024 * 1024


def resident_mib() -> float:
    """Returns the memory that only this process has, without the page cache."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty"):
            return int(line.split()[1]) / 1024
    return 0.0


class Drain:
    """Reads a socket to its end on a thread and counts the bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self.count = 0
        self._sock = sock
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        buffer = bytearray(MIB)
        while size := self._sock.recv_into(buffer):
            self.count += size

    def join(self) -> None:
        """Waits for the end of the socket."""
        self._thread.join()
        self._sock.close()


class Bench:
    """A run: the same bytes through our code and through bare system calls."""

    def __init__(self, folder: Path, options: argparse.Namespace, batch: int) -> None:
        self.folder = folder
        value = os.urandom(batch - 200)
        made = build_batch([(b"key", value, ())], timestamp_ms=1_700_000_000_000)
        self.count = options.mib * MIB // len(made)
        self.size = self.count * len(made)
        self.batch_size = len(made)
        # Requests arrive in new memory: a buffer that stays in the cache would favour the side that copies nothing.
        self.batches = [bytes(bytearray(made)) for _ in range(max(1, FRESH_BYTES // len(made)))]
        self.config = BrokerConfig.parse({"log.segment.bytes": 2**30})
        self.runs = 0

    def logs(self, host: RealHost) -> tuple[LogManager, Log]:
        """Opens a new log."""
        self.runs += 1
        logs = LogManager(host, str(self.folder / f"data{self.runs}"), self.config)
        logs.load()
        return logs, logs.create(TopicPartition("bench", 0), "", self.config.topic())

    # ---------------------------------------------------------------- append

    def append_ours(self, host: RealHost) -> float:
        """Returns the processor seconds of our appends."""
        logs, log = self.logs(host)
        epoch, append = LeaderEpoch(0), log.append_as_leader
        begin = time.process_time()
        for batch in islice(cycle(self.batches), self.count):
            append(batch, epoch)
        took = time.process_time() - begin
        logs.close(clean=False)
        shutil.rmtree(logs.folders[0].path)
        return took

    def append_bare(self) -> float:
        """Returns the processor seconds of bare writes."""
        path = self.folder / "bare"
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
        at = 0
        begin = time.process_time()
        for batch in islice(cycle(self.batches), self.count):
            at += os.pwritev(fd, (batch,), at)
        took = time.process_time() - begin
        os.close(fd)
        path.unlink()
        return took

    # ----------------------------------------------------------------- fetch

    async def fetch_ours(self, log: Log) -> float:
        """Sends the whole log to a socket through our code; returns the seconds."""
        loop = asyncio.get_running_loop()
        ours, theirs = pair()
        context: LinkContext[RealLink] = LinkContext(
            loop=loop, rules=LinkRules(), log=lambda _level, _text: None, links=set()
        )
        link = RealLink(context, ours, Peer("client", "c"), max_frame_bytes=MIB, accepted=True)
        ended: asyncio.Future[str] = loop.create_future()
        link.start(Ending(ended))
        drain, offset, end = Drain(theirs), log.log_start_offset, log.log_end_offset
        begin = time.perf_counter()
        while offset < end:
            found = log.read_to_send(offset, FETCH_BYTES, end, at_least_one=True)
            link.send([b"a response's header, and the fields of a partition", *found.parts])
            offset = Offset(offset + found.size // self.batch_size)
            while link.unsent_bytes:  # noqa: ASYNC110 - the link writes on in each turn of the loop
                await asyncio.sleep(0)
        link.close()
        await asyncio.to_thread(drain.join)
        took = time.perf_counter() - begin
        assert drain.count >= self.size, f"{drain.count} of {self.size} bytes arrived"
        return took

    async def fetch_bare(self, path: str) -> float:
        """Sends the same bytes with `os.sendfile`, from a loop that waits for the socket in the same way."""
        ours, theirs = pair()
        drain, at, fd = Drain(theirs), 0, os.open(path, os.O_RDONLY)
        begin = time.perf_counter()
        while at < self.size:
            upto = min(at + FETCH_BYTES, self.size)
            while at < upto:
                try:
                    at += os.sendfile(ours.fileno(), fd, at, upto - at)
                except BlockingIOError:
                    await asyncio.sleep(0)
        ours.close()
        await asyncio.to_thread(drain.join)
        took = time.perf_counter() - begin
        os.close(fd)
        return took


class Ending:
    """A link handler that only waits for the end of the link."""

    def __init__(self, ended: asyncio.Future[str]) -> None:
        self._ended = ended

    def frame_received(self, frame: bytes) -> None:
        """Ignores frames; the other end sends none."""

    def link_closed(self, reason: str) -> None:
        """Notes the end of the link."""
        self._ended.set_result(reason)


def pair() -> tuple[socket.socket, socket.socket]:
    """Returns the two ends of a TCP connection on loopback; the first end does not block."""
    ours, theirs = tcp_pair()
    ours.setblocking(False)
    return ours, theirs


def line(name: str, size: int, ours: list[float], bare: list[float], least: float, count: int = 0) -> bool:
    """Prints a comparison; True when the goal is met. With `count`, the number of small batches, there is no goal."""
    bare_s, ours_s = statistics.median(bare), statistics.median(ours)
    ratio = bare_s / ours_s
    met = ratio >= least or count > 0
    said = f"target >= {least}   {'met' if met else 'MISSED'}"
    if count:
        own_us, write_us = (ours_s - bare_s) / count * 1e6, bare_s / count * 1e6
        said = f"{own_us:.0f} us a batch beside a write of {write_us:.0f} us"
    print(
        f"{name:<15} ours {size / ours_s / MIB:8.0f} MiB/s   bare {size / bare_s / MIB:8.0f} MiB/s   "
        f"ratio {ratio:5.2f}   {said}"
    )
    return met


async def alternating(rounds: int, ours: Callable[[], Any], bare: Callable[[], Any]) -> tuple[list[float], list[float]]:
    """Returns the times of both sides; the first round is a warm-up and does not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(rounds + 1):
        order = ((0, ours), (1, bare)) if round_ % 2 else ((1, bare), (0, ours))
        for side, call in order:
            took = call()
            took = await took if asyncio.iscoroutine(took) else took
            if round_:
                times[side].append(took)
    return times


async def run(options: argparse.Namespace, folder: Path) -> bool:
    """Makes all comparisons; True when every goal is met."""
    host = RealHost("bench", str(folder / "host"))
    print(f"{options.mib} MiB, {options.rounds} rounds, medians")
    met = True
    bench = None
    for batch in options.batch:
        bench = Bench(folder, options, batch)
        ours, bare = await alternating(options.rounds, partial(bench.append_ours, host), bench.append_bare)
        small = 0 if batch >= LOADED_BYTES else bench.count
        name = f"append {batch >> 10} KiB"
        met = line(name, bench.size, ours, bare, APPEND_LEAST, small) and met
    assert bench is not None
    logs, log = bench.logs(host)
    for batch in islice(cycle(bench.batches), bench.count):
        log.append_as_leader(batch, LeaderEpoch(0))
    path = log.segments[0].file.path
    ours, bare = await alternating(options.rounds, lambda: bench.fetch_ours(log), lambda: bench.fetch_bare(path))
    met = line("fetch", bench.size, ours, bare, FETCH_LEAST) and met
    before = resident_mib()
    for batch in islice(cycle(bench.batches), bench.count * 3):
        log.append_as_leader(batch, LeaderEpoch(0))
    bench.size *= 4
    await bench.fetch_ours(log)
    grown = resident_mib() - before
    print(f"memory   {before:.0f} MiB private, {grown:+.1f} MiB after a log of {bench.size // MIB} MiB")
    logs.close(clean=False)
    await host.stop()
    return met and grown < 32


def main() -> int:
    """Parses the arguments, runs, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--batch", type=int, nargs="+", default=[1 << 20, 128 << 10, 16 << 10])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="harrow-bench-") as folder:
        return 0 if asyncio.run(run(options, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
