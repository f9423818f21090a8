"""Measures a producer's latency during faults: the death of a leader and a paused follower (C4, D1, K1).

    python benchmarks/bench_disturbed.py [--rounds 3] [--sessions 300,600,1500] [--lag 1000] [--limit 300]

Death: kills the leader of an acks=all producer. Prints the time from the kill to the next acknowledged record, and the
session timeout, before which the cluster cannot detect the death.
Pause: sends single messages with acks=all, replication factor 3, min.insync.replicas 2. A follower is stopped
(SIGSTOP), leaves the ISR, and returns. Prints the latencies

* before the pause;
* of the message that waits for the ISR to shrink: at most 1.5 x `replica.lag.time.max.ms`, because the leader checks
  the ISR every half of that time;
* while the follower is paused and outside the ISR;
* after it returned to the ISR.

Exit code 1 when the wait for the shrink exceeds its bound by more than a tenth, when the latency with a paused
follower is more than 1.5 times the latency before, or when a failover takes longer than the session timeout plus half
a second.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import load
import peers
from load import Budget, ExceededError, OneAtATime, quantile

STEP_S = 60.0
MESSAGES = 1_000
OVER_SESSION_MS = 500.0
STALL_SLACK, SLOWER_MOST = 1.1, 1.5


def deaths(sessions: list[int], rounds: int, budget: Budget) -> list[str]:
    """Prints a line for each session timeout; returns the missed goals."""
    missed: list[str] = []
    print(f"\n{'session timeout, ms':<32}{'kill to ack, ms':>18}{'its share':>12}")
    for session_ms in sessions:
        found: list[float] = []
        for number in range(rounds):
            with peers.harrow({"zookeeper.session.timeout.ms": session_ms}) as peer:
                found.append(load.fail_over(peer, budget.step(STEP_S), number / rounds).ack)
        middle = median(found)
        print(f"{session_ms:<32}{middle:>18,.0f}{middle / session_ms:>11.2f}x")
        if middle > session_ms + OVER_SESSION_MS:
            missed.append(f"a death took {middle:.0f} ms with a session timeout of {session_ms} ms")
    return missed


def many(sender: OneAtATime, count: int = MESSAGES) -> list[float]:
    """Sends `count` messages; returns their sorted times."""
    return sorted(sender.send() for _ in range(count))


def until(sender: OneAtATime, holds: Callable[[], bool], deadline: float) -> list[float]:
    """Sends messages until `holds` is true, at least one; returns their sorted times."""
    times = [sender.send()]
    while not holds():
        times.append(sender.send())
        if time.perf_counter() > deadline:
            raise ExceededError("the ISR did not change in time")
    return sorted(times)


def paused(lag_ms: int, budget: Budget) -> list[str]:
    """Prints the latencies before, during and after the pause of a follower; returns the missed goals."""
    config: dict[str, object] = {
        "replica.lag.time.max.ms": lag_ms,
        "min.insync.replicas": 2,
        "zookeeper.session.timeout.ms": 60_000,  # longer than the pause, so only the ISR changes
    }
    with peers.harrow(config) as peer:
        cluster = peer.cluster
        assert cluster is not None
        topic = load.make_topic(peer, 1)
        cluster.await_full_isr()
        client = OneAtATime(cluster.bootstrap_servers, topic, STEP_S)
        many(client, MESSAGES // 2)  # warm
        before = many(client)
        leader = cluster.leader(topic, 0)
        follower = cluster.brokers[next(node for node in cluster.brokers if node != leader)]
        deadline = budget.step(STEP_S)
        follower.pause()
        try:
            stalled = until(client, lambda: len(cluster.isr(topic, 0)) == 2, deadline)
            beside = many(client)
        finally:
            follower.resume()
        until(client, lambda: len(cluster.isr(topic, 0)) == 3, deadline)
        after = many(client)
    bound_ms = 1.5 * lag_ms
    stall, slower = stalled[-1] / bound_ms, median(beside) / median(before)
    print(f"\n{'pause of a follower':<32}{'p50, ms':>12}{'p99, ms':>12}{'ratio':>10}")
    for name, times, ratio in (
        ("before", before, 1.0),
        ("out of the ISR", beside, slower),
        ("back in it", after, median(after) / median(before)),
    ):
        p99 = quantile(times, 0.99)
        print(f"{name:<32}{median(times):>12.2f}{p99:>12.2f}{ratio:>9.2f}x")
    print(f"{'waited for the shrink':<32}{stalled[-1]:>12,.0f}{'':>12}{stall:>9.2f}x of {bound_ms:,.0f} ms")
    missed: list[str] = []
    if stall > STALL_SLACK:
        missed.append(f"a message waited {stalled[-1]:.0f} ms for the shrink, bound {bound_ms:.0f}")
    if slower > SLOWER_MOST:
        missed.append(f"beside a stopped follower the median is {slower:.2f} times what it was")
    return missed


def main() -> int:
    """Measures, prints, and compares with the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", default="300,600,1500", help="session timeouts in ms")
    parser.add_argument("--lag", type=int, default=1000, help="replica.lag.time.max.ms")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of the whole run")
    options = parser.parse_args()
    budget = Budget(options.limit)
    sessions = [int(number) for number in options.sessions.split(",")]
    missed = deaths(sessions, options.rounds, budget) + paused(options.lag, budget)
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
