"""Restarts in several steps and partitions of several brokers, on real brokers under real traffic (K1, K2)."""

from __future__ import annotations

from typing import Any

from faults_under_traffic import run
from harrow import (
    Harrow,
    bridge,
    controller,
    crash_during_recovery,
    crash_loop,
    disconnect,
    follower,
    half_open,
    halves,
    isolate,
    leader,
    majorities_ring,
    registry,
    rolling_restart,
    slow_start,
)

Rows = dict[str, dict[str, Any]]


def incarnations(harrow: Harrow) -> dict[int, int]:
    return {node: broker.incarnations for node, broker in harrow.cluster.brokers.items()}


def rules(rows: Rows, event: str) -> dict[int, set[tuple[str, str]]]:
    """The link rules of each broker as (peers, direction), those of two directions as "both"."""
    found: dict[int, set[tuple[str, str]]] = {}
    for node, row in rows[event]["evidence"]["links"].items():
        ways: dict[str, list[str]] = {}
        for rule in row["rules"]:
            ways.setdefault(rule["peers"], []).append(rule["direction"])
        found[int(node)] = {(peer, "both" if len(way) == 2 else way[0]) for peer, way in ways.items()}
    return found


def test_a_rolling_restart_restarts_each_broker_once_and_loses_nothing(harrow: Harrow) -> None:
    run(harrow, harrow.topic("orders", partitions=2), rolling_restart())
    assert incarnations(harrow) == {1: 2, 2: 2, 3: 2}


def test_a_crash_loop_and_crashes_during_recovery_lose_nothing(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    rows = run(harrow, topic, crash_loop(leader(topic, 0), alive_s=(0, 0.5), seconds=1))
    [node] = rows["inject"]["targets"]
    crashes = rows["effect"]["evidence"]["starts"][str(node)]["crashes"]
    assert crashes >= 2
    assert incarnations(harrow)[node] >= crashes + 1


def test_a_broker_is_killed_while_it_recovers(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    fault = crash_during_recovery(leader(topic, 0), crashes=2, seconds=0.2)
    rows = run(harrow, topic, fault)
    [node] = rows["inject"]["targets"]
    assert rows["effect"]["evidence"]["starts"][str(node)]["hits_while_starting"] == 2
    assert incarnations(harrow)[node] >= 4


def test_a_broker_is_paused_before_it_serves(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    rows = run(harrow, topic, slow_start(leader(topic, 0), seconds=0.5))
    [node] = rows["inject"]["targets"]
    status = rows["effect"]["evidence"]["brokers"][str(node)]
    assert (status["state"], status["process"]) == ("paused", "T")
    assert status["incarnation"] >= 2


def test_halves_do_not_reach_each_other(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    rows = run(harrow, topic, halves(seconds=2.5, heals_by="reset"))
    [node] = rows["inject"]["targets"]
    others = {f"broker {other}" for other in {1, 2, 3} - {node}}
    assert rules(rows, "effect") == {node: {(peer, "both") for peer in others | {"registry"}}}
    assert rules(rows, "healed") == {node: set()}


def test_two_brokers_are_disconnected_and_keep_their_sessions(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    rows = run(harrow, topic, disconnect(leader(topic, 0), follower(topic, 0), seconds=2.5))
    [node] = rows["inject"]["targets"]
    [(peer, way)] = rules(rows, "effect")[node]
    assert way == "both"
    assert peer in {f"broker {other}" for other in {1, 2, 3} - {node}}


def test_the_controller_without_its_session_is_replaced(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    before = harrow.cluster.controller_id()
    rows = run(harrow, topic, disconnect(controller(), registry(), seconds=4))
    assert rows["inject"]["targets"] == [before]
    assert harrow.cluster.controller_id() not in (None, before)


def test_the_registry_is_isolated_from_all_brokers(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    rows = run(harrow, topic, isolate(registry(), seconds=0.5))
    assert rules(rows, "effect") == {node: {("registry", "both")} for node in (1, 2, 3)}


def test_each_broker_of_a_ring_receives_from_another_majority(harrow: Harrow) -> None:
    rows = run(harrow, harrow.topic("orders", partitions=3), majorities_ring(seconds=1.5))
    found = rules(rows, "effect")
    assert len(found) == 3
    assert all(way == "in" for rows in found.values() for _, way in rows)
    assert len({peer for rows in found.values() for peer, _ in rows}) == 3


def test_a_bridge_keeps_the_only_way_between_two_brokers(harrow: Harrow) -> None:
    rows = run(harrow, harrow.topic("orders", partitions=3), bridge(seconds=1.5))
    [(node, found)] = rules(rows, "effect").items()
    [(peer, way)] = found
    assert way == "both"
    assert peer != f"broker {node}"


def test_half_open_connections_carry_nothing_and_new_ones_do(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    rows = run(harrow, topic, half_open(leader(topic, 0), seconds=2.5))
    [node] = rows["inject"]["targets"]
    links = rows["effect"]["evidence"]["links"][str(node)]
    frozen = [rule["frozen"] for rule in links["rules"]]
    assert "registry" in frozen
    assert links["held_in_bytes"] + links["held_out_bytes"] > 0
    assert not rows["healed"]["evidence"]["links"][str(node)]["rules"]
