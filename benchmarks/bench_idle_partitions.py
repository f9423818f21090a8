"""The cost of one record beside idle partitions, and the life of a cluster with 3,000 replicas (C6, KIP-227).

    python benchmarks/bench_idle_partitions.py [--idle 1,100,1000] [--records 60] [--rounds 61] [--partitions 1000]
                                               [--limit 300] [--skip cost,life]

Cost: for each number of idle partitions a cluster of three brokers with those partitions and one loaded partition
beside them, all RF 3. A producer sends one record at a time, acks=all, to the loaded partition. The clusters take
turns, so that other work on the machine meets all of them. Printed are medians of the turns: the CPU time of the
leader, and of one follower, a record, and their ratio to the first cluster in the same turn. The periodic work of a
broker (ISR checks, checkpoints) grows with its partitions and costs the same without records: it is measured first,
without load, printed in its own column, and its share is taken off.

Life: a topic of `--partitions` partitions, RF 3, on three brokers. Printed are the seconds

* from CreateTopics until every partition has a leader, and until every ISR is full;
* of a start of this cluster on its data folders, until every partition has a leader;
* from a kill -9 of one broker until every partition has a live leader, and until a record that was sent to a partition
  which the dead broker led is acknowledged (the session timeout is part of both);
* of a graceful stop of all brokers.

Fails (exit 1) when a record beside the most idle partitions costs the leader or a follower more than 1.1 times what it
costs beside the fewest. The whole run ends within `--limit` seconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import load
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow.cluster import Cluster
from load import Budget, ExceededError, OneAtATime

STEP_S = 90.0
POLL_S = 0.02
LONG_SESSION_MS, SESSION_MS = 30_000, 3_000
"""Without and with a failover: no broker may lose its session while CPU is measured on a busy machine."""
WARM_RECORDS = 200
PERIODIC_S = 3.0
DEARER_MOST = 1.1
IDLE, LOADED = "idle", "loaded"


def cpu_us(pid: int) -> float:
    """Microseconds of CPU time of all threads of a process, exact to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e3


def create(cluster: Cluster, topics: dict[str, int], deadline: float) -> None:
    """Topics with three replicas, by name and number of partitions."""
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    rows = [NewTopic(name, num_partitions=n, replication_factor=3) for name, n in topics.items()]
    futures: Any = admin.create_topics(rows, operation_timeout=STEP_S, request_timeout=STEP_S)
    for future in futures.values():
        future.result(max(0.1, deadline - time.perf_counter()))


def seconds_until(condition: Callable[[], bool], what: str, deadline: float) -> float:
    """Seconds until `condition` holds."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() > deadline:
            raise ExceededError(f"not in time: {what}")
        time.sleep(POLL_S)
    return time.perf_counter() - began


# --------------------------------------------------------------------------- cost


@dataclass(slots=True, kw_only=True)
class MeasuredCluster:
    """A cluster with `idle` partitions, and the microseconds a record of each turn."""

    idle: int
    cluster: Cluster
    sender: OneAtATime
    leader: int
    periodic_us: dict[int, float]
    """CPU microseconds a second of each broker without load."""
    leader_us: list[float] = field(default_factory=list[float])
    follower_us: list[float] = field(default_factory=list[float])

    def turn(self, records: int, deadline: float) -> None:
        """Send so many records and take the CPU time of the brokers."""
        pids = {node: b.pid for node, b in self.cluster.brokers.items() if b.pid is not None}
        before, began = {node: cpu_us(pid) for node, pid in pids.items()}, time.perf_counter()
        load.repeat(self.sender.send, records, deadline)
        seconds = time.perf_counter() - began
        used = {
            node: (cpu_us(pid) - before[node] - self.periodic_us[node] * seconds) / records
            for node, pid in pids.items()
        }
        self.leader_us.append(used.pop(self.leader))
        self.follower_us.append(sum(used.values()) / len(used))


def periodic_us(cluster: Cluster) -> dict[int, float]:
    """CPU microseconds a second of each broker while no client sends anything."""
    pids = {node: broker.pid for node, broker in cluster.brokers.items() if broker.pid is not None}
    before = {node: cpu_us(pid) for node, pid in pids.items()}
    time.sleep(PERIODIC_S)
    return {node: (cpu_us(pid) - before[node]) / PERIODIC_S for node, pid in pids.items()}


def started(stack: ExitStack, idle: int, deadline: float) -> MeasuredCluster:
    """A cluster whose followers are in sync, with a warm producer."""
    config = {"zookeeper.session.timeout.ms": LONG_SESSION_MS}
    cluster = stack.enter_context(Cluster(brokers=3, config=config, name=f"idle-{idle}"))
    create(cluster, {IDLE: idle, LOADED: 1}, deadline)
    cluster.await_full_isr(STEP_S)
    leader = cluster.leader(LOADED, 0)
    assert leader is not None, "a partition with a full ISR has a leader"
    sender = OneAtATime(cluster.bootstrap_servers, LOADED)
    load.repeat(sender.send, WARM_RECORDS, deadline)
    periodic = periodic_us(cluster)
    return MeasuredCluster(idle=idle, cluster=cluster, sender=sender, leader=leader, periodic_us=periodic)


def measure_cost(numbers: Sequence[int], records: int, rounds: int, budget: Budget) -> list[str]:
    """Print a line for each number of idle partitions; what was missed."""
    with ExitStack() as stack:
        clusters = [started(stack, idle, budget.step(STEP_S)) for idle in numbers]
        for number in range(rounds):
            first = number % len(clusters)
            for measured in [*clusters[first:], *clusters[:first]]:
                measured.turn(records, budget.step(STEP_S))
    heads = ("leader, us/record", "ratio", "follower, us/record", "ratio", "periodic, ms/s")
    print(f"\n{'idle partitions':<16}" + "".join(f"{head:>20}" for head in heads))
    missed: list[str] = []
    base = clusters[0]
    for measured in clusters:
        pairs = ((measured.leader_us, base.leader_us), (measured.follower_us, base.follower_us))
        (leader, leader_ratio), (follower, follower_ratio) = (
            (median(own), median(mine / least for mine, least in zip(own, leasts, strict=True)))
            for own, leasts in pairs
        )
        periodic = measured.periodic_us[measured.leader] / 1e3
        cells = (f"{leader:,.0f}", f"{leader_ratio:.2f}x", f"{follower:,.0f}", f"{follower_ratio:.2f}x")
        print(f"{measured.idle:<16}" + "".join(f"{cell:>20}" for cell in (*cells, f"{periodic:.1f}")))
        for role, ratio in (("leader", leader_ratio), ("follower", follower_ratio)):
            if ratio > DEARER_MOST:
                missed.append(f"a record costs the {role} {ratio:.2f} times beside {measured.idle} idle partitions")
    return missed


# --------------------------------------------------------------------------- life


def leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    """The live leaders by partition, as the registry has them."""
    alive = {node for node, broker in cluster.brokers.items() if broker.alive}
    rows = cluster.describe().topics.get(topic, {})
    return {number: row.leader for number, row in rows.items() if row.leader in alive}


def led(cluster: Cluster, partitions: int) -> bool:
    """True when every broker that leads according to the registry says so itself."""
    by_registry = leaders(cluster, IDLE)
    if len(by_registry) < partitions:
        return False
    own: dict[int, int] = {}
    for node in set(by_registry.values()):
        for row in cluster.control(node, "state")["partitions"]:
            if row["is_leader"] and row["topic"] == IDLE:
                own[row["partition"]] = node
    return own == by_registry


def measure_life(partitions: int, budget: Budget) -> None:
    """Print the seconds of each stage."""

    def stage(name: str, seconds: float) -> None:
        print(f"{name:<64}{seconds:>8.2f} s", flush=True)

    def until_led(cluster: Cluster) -> float:
        return seconds_until(lambda: led(cluster, partitions), "all leaders", budget.step(STEP_S))

    print(f"\na cluster of 3 brokers, {partitions:,} partitions, {3 * partitions:,} replicas")
    config = {"zookeeper.session.timeout.ms": SESSION_MS}
    with tempfile.TemporaryDirectory(prefix="harrow-bench-") as folder:
        with Cluster(brokers=3, config=config, folder=folder, name="life") as cluster:
            began = time.perf_counter()
            create(cluster, {IDLE: partitions}, budget.step(STEP_S))
            until_led(cluster)
            stage("create: CreateTopics to all leaders", time.perf_counter() - began)
            cluster.await_full_isr(STEP_S)
            stage("create: CreateTopics to full ISRs", time.perf_counter() - began)
            began = time.perf_counter()
            cluster.stop(graceful=True)
            stage("stop: graceful, all brokers", time.perf_counter() - began)
        began = time.perf_counter()
        with Cluster(brokers=3, config=config, folder=folder, name="life") as cluster:
            stage("start: brokers ready", time.perf_counter() - began)
            until_led(cluster)
            stage("start: to all leaders", time.perf_counter() - began)
            cluster.await_full_isr(STEP_S)
            stage("start: to full ISRs", time.perf_counter() - began)
            fail_over(cluster, stage, until_led, budget)
            began = time.perf_counter()
            cluster.stop(graceful=True)
            stage("stop: graceful, two brokers", time.perf_counter() - began)


def fail_over(
    cluster: Cluster, stage: Callable[[str, float], None], until_led: Callable[[Cluster], float], budget: Budget
) -> None:
    """Kill the leader of partition 0 and send a record to that partition."""
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        **load.QUICK_CLIENT,
        **load.REFRESHES_OFTEN,
    }
    producer = Producer(settings)
    producer.produce(IDLE, b"before", partition=0)
    if producer.flush(STEP_S):
        raise ExceededError("no acknowledgement before the failover")
    leader = leaders(cluster, IDLE)[0]
    began = time.perf_counter()
    cluster.brokers[leader].kill()
    producer.produce(IDLE, b"after", partition=0)
    if producer.flush(max(0.1, budget.step(STEP_S) - began)):
        raise ExceededError("no acknowledgement after the failover")
    stage("failover: kill -9 to an acknowledged record", time.perf_counter() - began)
    until_led(cluster)
    stage(f"failover: kill -9 to all leaders (session {SESSION_MS / 1e3:g} s)", time.perf_counter() - began)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", default="1,100,1000", help="numbers of idle partitions")
    parser.add_argument("--records", type=int, default=60, help="records a turn")
    parser.add_argument("--rounds", type=int, default=61, help="turns of each cluster")
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of the whole run")
    parser.add_argument("--skip", default="", help="cost, life")
    options = parser.parse_args()
    skip = set(options.skip.split(","))
    budget = Budget(options.limit)
    missed: list[str] = []
    if "cost" not in skip:
        numbers = [int(number) for number in options.idle.split(",")]
        missed = measure_cost(numbers, options.records, options.rounds, budget)
    if "life" not in skip:
        measure_life(options.partitions, budget)
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
