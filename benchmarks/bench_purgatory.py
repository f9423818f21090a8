"""Compares the timing wheel with heapq and loop.call_later; measures 10 000 delayed fetches on an idle broker (E1, E4).

    python benchmarks/bench_purgatory.py [--sizes 1e3,1e4,1e5,1e6] [--rounds 3] [--waiting 10000] [--idle 5]

Timers: n of them wait at the same time, due within the next minute, as the timeouts of requests are; 95 % are
cancelled before they are due, the others expire. All are created, armed, cancelled and expired on a virtual clock, so
that only processor time is measured (process time, with the cyclic collector off, as in `timeit`). Each structure runs
in its best case:

* harrow: `TimingWheel`, already in use, advanced from bucket to bucket;
* heapq: a list of [deadline, number, call], cancelled by emptying the call, popped when due;
* call_later: asyncio's own event loop on a virtual clock, `TimerHandle.cancel`.

All three must expire the same number of timers.
Fetches: 10 000 fetches of an empty partition wait for a minute at a broker; measures the CPU time of the idle broker
process with and without them. Exit code 1 when the wheel's cost per timer at the largest size is more than twice that
at the smallest, when the wheel is slower than another structure from 1e5 timers on, or when the delayed fetches add
more than a thousandth of a core to the idle broker's CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import random
import selectors
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harrow.cluster import Cluster
from harrow.cluster.purgatory import TimerEntry, TimingWheel
from harrow.cluster.wire import messages
from harrow.cluster.wire.headers import encode_request_header
from harrow.cluster.wire.records import build_batch

HORIZON_MS = 60_000
CANCELLED = 0.95
AHEAD_FROM = 100_000
FLAT_MOST = 2.0
IDLE_CORE_MOST = 0.001
PER_CONNECTION = 400
QUIET_S, QUIET_SHARE = 0.3, 0.05
"""The broker has received all fetches when it uses less than this share of a core for this long."""
PRODUCE, FETCH, CREATE_TOPICS = (0, 9), (1, 12), (19, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The deadlines in milliseconds, and which timers are cancelled."""

    deadlines: list[int]
    cancelled: list[bool]

    @classmethod
    def of(cls, count: int) -> Load:
        """Returns the same load for the same count."""
        rng = random.Random(count)
        deadlines = [rng.randrange(1, HORIZON_MS) for _ in range(count)]
        return cls(deadlines=deadlines, cancelled=[rng.random() < CANCELLED for _ in range(count)])


def wheel(load: Load) -> tuple[float, int]:
    """Runs our timing wheel; returns (seconds, number of expired timers)."""
    now = 7 * HORIZON_MS
    timers = TimingWheel(now)
    for delay in (1, HORIZON_MS // 20, 2 * HORIZON_MS):  # a wheel in use has its overflow wheels
        warm = TimerEntry(now + delay)
        timers.add(warm)
        warm.cancel()
    deadlines = [now + deadline for deadline in load.deadlines]
    entries: list[TimerEntry] = []
    expired = 0
    begun = time.process_time()
    for deadline in deadlines:
        entry = TimerEntry(deadline)
        timers.add(entry)
        entries.append(entry)
    for entry, cancelled in zip(entries, load.cancelled, strict=True):
        if cancelled:
            entry.cancel()
    while (expiry := timers.next_expiry_ms()) is not None:
        expired += len(timers.advance(expiry))
    return time.process_time() - begun, expired


def heap(load: Load) -> tuple[float, int]:
    """Runs the standard library's heap; returns (seconds, number of expired timers)."""
    queue: list[list[Any]] = []
    entries: list[list[Any]] = []
    call: Callable[[], None] = lambda: None  # noqa: E731 - what is due
    push, pop = heapq.heappush, heapq.heappop
    expired = 0
    begun = time.process_time()
    for number, deadline in enumerate(load.deadlines):
        entry = [deadline, number, call]
        push(queue, entry)
        entries.append(entry)
    for entry, cancelled in zip(entries, load.cancelled, strict=True):
        if cancelled:
            entry[2] = None
    while queue:
        if pop(queue)[2] is not None:
            expired += 1
    return time.process_time() - begun, expired


class VirtualSelector(selectors.SelectSelector):
    """A selector that moves the clock forward in place of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Moves the clock forward by the timeout."""
        self.now += timeout or 0.0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Asyncio's loop on a clock that moves forward when the loop waits."""

    def __init__(self) -> None:
        self.selector = VirtualSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        """Returns the virtual time in seconds."""
        return self.selector.now


def call_later(load: Load) -> tuple[float, int]:
    """Runs asyncio's timers; returns (seconds, number of expired timers)."""
    loop = VirtualLoop()
    expired = 0

    def due() -> None:
        nonlocal expired
        expired += 1

    delays = [deadline / 1000 for deadline in load.deadlines]
    handles: list[asyncio.TimerHandle] = []
    begun = time.process_time()
    for delay in delays:
        handles.append(loop.call_later(delay, due))  # noqa: PERF401 - as the others do it
    for handle, cancelled in zip(handles, load.cancelled, strict=True):
        if cancelled:
            handle.cancel()
    loop.call_later(HORIZON_MS / 1000 + 1, loop.stop)
    loop.run_forever()
    taken = time.process_time() - begun
    loop.close()
    return taken, expired


PEERS: dict[str, Callable[[Load], tuple[float, int]]] = {"harrow": wheel, "heapq": heap, "call_later": call_later}


def timers(sizes: Sequence[int], rounds: int) -> list[str]:
    """Prints the table; returns the missed goals."""
    failures: list[str] = []
    ours: dict[int, float] = {}
    print(f"{'timers':>9}  " + "".join(f"{name:>16}" for name in PEERS) + "   ns per timer")
    for size in sizes:
        load = Load.of(size)
        taken: dict[str, list[float]] = {name: [] for name in PEERS}
        for _ in range(rounds):
            counts: set[int] = set()
            for name, run in PEERS.items():
                gc.collect()
                gc.disable()
                seconds, expired = run(load)
                gc.enable()
                taken[name].append(seconds)
                counts.add(expired)
            if len(counts) != 1:
                failures.append(f"{size} timers: the structures expired {counts}")
        cost = {name: median(times) / size * 1e9 for name, times in taken.items()}
        ours[size] = cost["harrow"]
        cells = [f"{cost['harrow']:>16,.0f}"]
        cells += [f"{cost[name]:>9,.0f} ({cost[name] / cost['harrow']:.1f}x)" for name in ("heapq", "call_later")]
        print(f"{size:>9,}  " + "  ".join(cells))
        failures += [
            f"{size} timers: {name} takes {cost[name]:.0f} ns a timer, the wheel {cost['harrow']:.0f}"
            for name in ("heapq", "call_later")
            if size >= AHEAD_FROM and cost[name] <= cost["harrow"]
        ]
    first, last = ours[sizes[0]], ours[sizes[-1]]
    print(f"harrow from {sizes[0]:,} to {sizes[-1]:,} timers: {last / first:.2f} times the cost each")
    if last > FLAT_MOST * first:
        failures.append(f"not flat: {first:.0f} ns a timer at first, {last:.0f} ns at last")
    return failures


# ------------------------------------------------------------------------------ waiting fetches


def frame(api: tuple[int, int], correlation: int, entity: Any) -> bytes:
    """Returns a request with its size before it."""
    body = encode_request_header(*api, correlation, "waiting") + messages.encode_request(*api, entity)
    return len(body).to_bytes(4, "big") + body


def fetch_entity(topic: str, wait_ms: int) -> Any:
    """Returns a consumer's fetch at the end of an empty partition."""
    s = messages.schema(*FETCH, "request")
    row = s.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    return s.FetchRequest(
        replica_id=-1,
        max_wait=messages.milliseconds(wait_ms),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(s.FetchTopic(topic=topic, partitions=(row,)),),
        forgotten_topics_data=(),
        rack_id="",
    )


def answers(link: socket.socket, count: int) -> None:
    """Reads `count` responses."""
    for _ in range(count):
        size = int.from_bytes(link.recv(4, socket.MSG_WAITALL), "big")
        link.recv(size, socket.MSG_WAITALL)


def produce(port: int, topic: str) -> None:
    """Produces the record that completes all delayed fetches."""
    s = messages.schema(*PRODUCE, "request")
    row = s.PartitionProduceData(index=0, records=build_batch([(None, b"x", ())], timestamp_ms=0))
    entity = s.ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout=messages.milliseconds(10_000),
        topic_data=(s.TopicProduceData(name=topic, partition_data=(row,)),),
    )
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(frame(PRODUCE, 1, entity))
        answers(link, 1)


def create(port: int, topic: str) -> None:
    """Creates a topic with a single partition."""
    s = messages.schema(*CREATE_TOPICS, "request")
    asked = s.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=())
    entity = s.CreateTopicsRequest(topics=(asked,), timeout=messages.milliseconds(10_000), validate_only=False)
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(frame(CREATE_TOPICS, 1, entity))
        answers(link, 1)


def cpu_seconds(pid: int | None) -> float:
    """Returns the CPU time of a process, with a resolution of a nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def busy(pid: int | None, seconds: float) -> float:
    """Measures the share of a core that `pid` uses during `seconds`."""
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds


def waiting_fetches(count: int, idle_s: float) -> list[str]:
    """Prints the cost of the delayed fetches; returns the missed goals."""
    with Cluster(brokers=1) as cluster:
        broker = cluster.brokers[1]
        create(broker.port, "quiet")
        time.sleep(1)
        alone = busy(broker.pid, idle_s)
        links: list[socket.socket] = []
        begun = cpu_seconds(broker.pid)
        asked = fetch_entity("quiet", HORIZON_MS)
        for first in range(0, count, PER_CONNECTION):
            link = socket.create_connection(("127.0.0.1", broker.port), 10)
            few = min(PER_CONNECTION, count - first)
            link.sendall(b"".join(frame(FETCH, number + 1, asked) for number in range(few)))
            links.append(link)
        while busy(broker.pid, QUIET_S) > QUIET_SHARE:
            pass  # the broker still receives them
        arrived = cpu_seconds(broker.pid) - begun
        waiting = busy(broker.pid, idle_s)
        begun = cpu_seconds(broker.pid)
        produce(broker.port, "quiet")
        for number, link in enumerate(links):  # this record completes every delayed fetch
            answers(link, min(PER_CONNECTION, count - number * PER_CONNECTION))
            link.close()
        woken = cpu_seconds(broker.pid) - begun
    over = waiting - alone
    each = f"{arrived / count * 1e6:.0f} us each to arrive, {woken / count * 1e6:.0f} us to be answered"
    print(
        f"{count:,} waiting fetches: {each} by one record; idle for {idle_s:g} s the broker takes "
        f"{waiting:.4%} of a core with them, {alone:.4%} without"
    )
    if over > IDLE_CORE_MOST:
        return [f"{count} waiting fetches cost {over:.2%} of a core while nothing happens"]
    return []


def main() -> int:
    """Runs both parts; returns 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", default="1e3,1e4,1e5,1e6")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--idle", type=float, default=5.0)
    options = parser.parse_args()
    failures = timers([int(float(size)) for size in options.sizes.split(",")], options.rounds)
    failures += waiting_fetches(options.waiting, options.idle)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
