"""C1 to C4 on real brokers, checked in their traces: fetch rounds, the HW at start, and ISR changes."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from brokers_by_hand import PlacedTopic, besides_the_controller, place
from harrow.cluster import Cluster
from waiting import until

OFFSETS = ("partition.leo", "partition.hw", "partition.follower_leo")
LAG_MS = 800


@contextmanager
def pair(**config: object) -> Generator[tuple[PlacedTopic, int, int]]:
    """A topic on two of three brokers, a leader and a follower, with every change of an offset in the trace."""
    settings = {"harrow.trace.hw.interval.ms": 0, "min.insync.replicas": 1}
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    with Cluster(brokers=3, config={**settings, **dotted}) as cluster:
        leader, follower = besides_the_controller(cluster)
        yield place(cluster, "orders", leader, follower), leader, follower


def offset_changes(orders: PlacedTopic, leader: int, follower: int) -> list[tuple[Any, ...]]:
    """Returns every change of an offset on both brokers, in the order of their common clock."""
    rows = [(row, "leader") for row in orders.events(leader, *OFFSETS)]
    rows += [(row, "follower") for row in orders.events(follower, *OFFSETS)]
    rows.sort(key=lambda pair: int(pair[0]["t_ns"]))
    return [
        ("remote", row["leo"], row["cause"])
        if row["event"] == "partition.follower_leo"
        else (who, row["event"].removeprefix("partition."), row["leo"], row["hw"], row["cause"])
        for row, who in rows
    ]


def test_a_produced_record_becomes_visible_after_two_fetches() -> None:
    """C1, C2: the table of seed 004, and the second and third round of seed 002, line by line."""
    with pair(replica_fetch_wait_max_ms=700, replica_lag_time_max_ms=30_000) as (orders, a, b):
        until(lambda: ("remote", 0, "follower-fetch") in offset_changes(orders, a, b), "B's first fetch")
        orders.produce(a, "m0", acks=1)
        orders.await_ends(leo={a: 1, b: 1}, hw={a: 1, b: 1})
        orders.produce(a, "m1", acks=1)
        orders.await_ends(leo={a: 2, b: 2}, hw={a: 2, b: 2})
        rounds = [change for change in offset_changes(orders, a, b) if change != ("remote", 0, "follower-fetch")]
        expected: list[tuple[Any, ...]] = []
        for count in (0, 1):
            expected += [
                ("leader", "leo", count + 1, count, "append"),
                ("follower", "leo", count + 1, count, "fetch-response"),
                ("remote", count + 1, "follower-fetch"),
                ("leader", "hw", count + 1, count + 1, "follower-fetch"),
                ("follower", "hw", count + 1, count + 1, "fetch-response"),
            ]
        assert rounds == expected


@pytest.mark.parametrize(("checkpoint", "begins_with"), [(1, 1), (9, 3)])
def test_restarting_a_broker_sets_the_high_watermark_to_at_most_checkpoint_and_leo(
    checkpoint: int, begins_with: int
) -> None:
    """C3: min(checkpoint, LEO). The task that writes the checkpoint runs from the first LeaderAndIsr on."""
    interval = {"replica_high_watermark_checkpoint_interval_ms": 50}
    with pair(replica_lag_time_max_ms=30_000, **interval) as (orders, a, b):
        for value in ("m0", "m1", "m2"):
            orders.produce(a, value)
        orders.await_ends(hw={a: 3, b: 3})
        orders.await_checkpoint(b, 3)
        broker = orders.cluster.brokers[b]
        broker.kill()
        before = len(orders.events(b, "partition.follower"))
        data = orders.cluster.folder / f"broker-{b}" / "data"
        rewrite(data / "replication-offset-checkpoint", f"orders 0 {checkpoint}")
        broker.start()
        orders.await_state(leader=a, isr=(a, b))
        # the ISR had the broker all the time
        until(lambda: len(orders.events(b, "partition.follower")) > before, "B follows again")
        first = orders.events(b, "partition.follower")[before]
        assert (first["leo"], first["hw"]) == (3, begins_with)
        orders.await_ends(hw={b: 3})


def rewrite(checkpoint: Path, line: str) -> None:
    """Replaces the line of this topic in the checkpoint file."""
    version, count, *rows = checkpoint.read_text().splitlines()
    topic = line.split(maxsplit=1)[0]
    kept = [row for row in rows if row.split()[0] != topic]
    assert len(kept) == int(count) - 1
    checkpoint.write_text("\n".join([version, count, *kept, line, ""]))


def isr_changes(orders: PlacedTopic, leader: int) -> list[tuple[str, list[int]]]:
    return [(row["cause"], row["isr"]) for row in orders.events(leader, "partition.isr")]


def test_isolating_a_follower_removes_it_from_the_isr_until_it_catches_up() -> None:
    """C4: the follower stops fetching; after healing it must reach the HW before it returns to the ISR."""
    fast = {"replica_fetch_wait_max_ms": 100, "replica_lag_time_max_ms": LAG_MS}
    with pair(**fast) as (orders, a, b):
        orders.cluster.control(b, "links.block", peers=[f"broker {a}"], direction="out")
        orders.produce(a, "x", acks=1)
        until(lambda: isr_changes(orders, a) == [("shrink", [a])], "the shrink")
        hw = orders.events(a, "partition.hw")[-1]
        assert (hw["hw"], hw["cause"]) == (1, "isr"), "the leader alone in the ISR does not wait for B"
        orders.produce(a, "y")
        orders.cluster.control(b, "links.heal", mode="deliver")
        until(lambda: isr_changes(orders, a)[1:] == [("expand", [a, b])], "the expansion")
        assert joined_at(orders, a) >= 2


def known_before(orders: PlacedTopic, leader: int, cause: str) -> list[tuple[int, int]]:
    """Returns (ns, LEO) of the follower as its leader stored it, up to and with the first ISR change with `cause`."""
    known: list[tuple[int, int]] = []
    for row in orders.events(leader, "partition.isr", "partition.follower_leo"):
        if row["event"] == "partition.follower_leo":
            known.append((row["t_ns"], row["leo"]))
        elif row["cause"] == cause:
            return [*known, (row["t_ns"], known[-1][1])]
    raise AssertionError(f"no {cause} in the trace of broker {leader}")


def joined_at(orders: PlacedTopic, leader: int) -> int:
    """Returns the follower's LEO, as stored by its leader, when it joined the ISR."""
    return known_before(orders, leader, "expand")[-1][1]


def test_a_follower_that_fetches_too_slowly_leaves_the_isr() -> None:
    """C4: each fetch returns one batch, and takes longer than the producer needs for the next ten records."""
    slow = {"replica_fetch_wait_max_ms": 100, "replica_fetch_max_bytes": 1}
    with pair(replica_lag_time_max_ms=LAG_MS, **slow) as (orders, a, b), orders.raw(a) as raw:
        orders.cluster.control(b, "links.slow", peers=[f"broker {a}"], delay_ms=60)
        sent = 0

        def left_behind() -> bool:
            nonlocal sent
            for _ in range(10):
                raw.produce("orders", 0, [f"{sent}"], acks=1)
                sent += 1
            return orders.seen(a).isr == (a,)

        until(left_behind, "the shrink")
        assert isr_changes(orders, a) == [("shrink", [a])]
        *known, (shrunk_ns, leo) = known_before(orders, a, "shrink")
        assert 0 < leo < sent
        recent_fetches = [at for at, _ in known if shrunk_ns - at < LAG_MS * 1_000_000]
        assert len(recent_fetches) > 1, "the follower fetched all the time"
        orders.cluster.control(b, "links.heal", mode="deliver")
        until(lambda: isr_changes(orders, a)[1:] == [("expand", [a, b])], "the expansion")
        assert joined_at(orders, a) >= sent


def test_a_bootstrapping_follower_joins_the_isr_when_it_has_caught_up() -> None:
    """C4: with an empty disk it fetches from the log start offset, and does not count until it reached the HW."""
    slow = {"replica_fetch_wait_max_ms": 100, "replica_fetch_max_bytes": 1}
    with pair(replica_lag_time_max_ms=LAG_MS, **slow) as (orders, a, b), orders.raw(a) as raw:
        orders.cluster.brokers[b].kill()
        orders.await_state(leader=a, isr=(a,))
        for number in range(100):
            raw.produce("orders", 0, [f"{number}"])
        shutil.rmtree(orders.cluster.folder / f"broker-{b}" / "data")
        (orders.cluster.folder / f"broker-{b}" / "data").mkdir()
        begun = len(orders.events(a, "partition.follower_leo"))
        orders.cluster.brokers[b].start()
        orders.await_state(leader=a, isr=(a, b))
        assert joined_at(orders, a) >= 100
        leos = [row["leo"] for row in orders.events(a, "partition.follower_leo")[begun:]]
        assert leos == sorted(leos)
        assert leos[0] == 0
