"""Every fault on real brokers under real traffic: its effect seen from outside, and its undoing (K1, K2, K6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from faults_under_traffic import lines, run, traffic
from harrow import (
    Harrow,
    Topic,
    controller,
    cut,
    delay_request,
    duplicate_request,
    failpoint,
    follower,
    isolate,
    kill,
    leader,
    lose_request,
    lose_response,
    pause,
    pause_registry,
    refuse_request,
    reset,
    restart,
    restart_registry,
    slow_disk,
    slow_link,
    terminate,
    throttle,
    wipe,
)
from harrow.faults import Fault
from harrow.harness.backends.local import gone, process_state
from waiting import until

FAULTS: dict[str, Callable[[Topic], Fault]] = {
    "kill": lambda topic: kill(leader(topic, 0), seconds=2),
    "terminate": lambda topic: terminate(leader(topic, 0), seconds=0.5),
    "restart": lambda topic: restart(follower(topic, 0)),
    "pause past the session": lambda _: pause(controller(), seconds=3),
    "a short pause": lambda topic: pause(leader(topic, 0), seconds=0.3),
    "isolate, then deliver": lambda topic: isolate(leader(topic, 0), seconds=3, heals_by="deliver"),
    "isolate, then reset": lambda _: isolate(controller(), seconds=3, heals_by="reset"),
    "isolate from clients too": lambda topic: isolate(leader(topic, 0), seconds=2, clients=True),
    "cut off one way": lambda topic: cut(leader(topic, 0), seconds=2),
    "connections reset": lambda topic: reset(leader(topic, 0), clients=True),
    "an empty disk": lambda topic: wipe(follower(topic, 0), seconds=(0.1, 0.3)),
    "a slow disk": lambda topic: slow_disk(leader(topic, 0), delay_ms=15, seconds=1),
    "lose a response": lambda topic: lose_response("Produce", nth=3),
    "refuse a request": lambda topic: refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=3),
    "lose a request": lambda topic: lose_request("Produce", nth=3),
    "delay a request": lambda topic: delay_request("Produce", nth=3),
    "duplicate a request": lambda topic: duplicate_request("Produce", nth=3),
    "throttled": lambda topic: throttle(leader(topic, 0), bytes_per_s=30_000, seconds=1.5, clients=True),
    "crash after append": lambda topic: failpoint("log.after-append", leader(topic, 0), seconds=1),
    "stop after append": lambda topic: failpoint("log.after-append", leader(topic, 0), "stop", seconds=2.5),
}


@pytest.mark.harrow(scope="session")
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_proved_and_healed_and_loses_nothing(harrow: Harrow, name: str) -> None:
    topic = harrow.topic("orders", partitions=2)
    pids = {node: broker.pid for node, broker in harrow.cluster.brokers.items()}
    rows = run(harrow, topic, FAULTS[name](topic))
    hit = rows["inject"]["targets"]
    again = {node for node, broker in harrow.cluster.brokers.items() if broker.pid != pids[node]}
    dies = rows["inject"]["fault"] in ("kill", "terminate", "restart", "wipe") or "crash" in name
    assert again == (set(hit) if dies else set())
    assert all(gone(pids[node]) for node in again)
    assert not any(process_state(broker.pid) == "T" for broker in harrow.cluster.brokers.values())


def test_an_isolated_leader_is_deposed_and_holds_its_bytes(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    before = harrow.cluster.describe().topics["orders"][0]
    rows = run(harrow, topic, isolate(leader(topic), seconds=4))
    after = harrow.cluster.describe().topics["orders"][0]
    assert after.leader_epoch > before.leader_epoch
    held = rows["effect"]["evidence"]["links"][str(before.leader)]
    assert held["held_in_bytes"] + held["held_out_bytes"] > 0
    assert not rows["healed"]["evidence"]["links"][str(before.leader)]["rules"]


def test_killed_leader_is_replaced_with_a_higher_epoch(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    before = harrow.cluster.describe().topics["orders"][0]
    rows = run(harrow, topic, kill(leader(topic), seconds=2.5))
    after = harrow.cluster.describe().topics["orders"][0]
    assert rows["inject"]["targets"] == [before.leader]
    assert after.leader_epoch > before.leader_epoch
    assert after.leader != before.leader


def test_a_recorded_schedule_repeats_on_another_cluster(harrow: Harrow, tmp_path: Path) -> None:
    from harrow.faults import Schedule

    topic = harrow.topic("orders", partitions=3)
    with traffic(harrow, topic), harrow.chaos(kill(leader(topic), seconds=(0.1, 1))) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
    first = lines(harrow)[0]
    recorded = Schedule.from_json((harrow.folder / "schedule.json").read_text())
    with Harrow(tmp_path / "again", seed=harrow.seed + 1) as other:
        topic = other.topic("orders", partitions=3)
        with traffic(other, topic), other.chaos(schedule=recorded) as chaos:
            until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
        again = lines(other)[0]
    assert (again["targets"], again["evidence"]) == (first["targets"], first["evidence"])


def test_slow_link_delays_acknowledgements(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    before = harrow.cluster.describe().topics["orders"][0]
    rows = run(harrow, topic, slow_link(leader(topic), delay_ms=120, seconds=1.5))
    [node] = rows["inject"]["targets"]
    assert node == before.leader
    assert rows["inject"]["evidence"]["delay_ms"] == 120
    found = rows["effect"]["evidence"]["links"][str(node)]
    assert {row["delay_ms"] for row in found["rules"]} == {120}
    assert found["delayed_bytes"] > 0
    assert not rows["healed"]["evidence"]["links"][str(node)]["rules"]
    after = harrow.cluster.describe().topics["orders"][0]
    assert after.leader_epoch == before.leader_epoch  # far below the session timeout


def test_cluster_survives_a_killed_and_a_paused_registry(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    registry = harrow.cluster.registry
    pid = registry.pid
    faults = (restart_registry(seconds=0.5), pause_registry(seconds=0.5))
    with traffic(harrow, topic), harrow.chaos(*faults) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
    rows = lines(harrow)
    assert [(row["fault"], row["event"]) for row in rows] == [
        (fault.kind, event) for fault in faults for event in ("inject", "effect", "heal", "healed")
    ]
    assert not any(row["targets"] for row in rows)
    assert rows[1]["evidence"]["pid"] == pid
    assert registry.pid == rows[-1]["evidence"]["pid"] != pid
    assert registry.state == "running"
    assert process_state(registry.pid) != "T"
    harrow.cluster.await_converged(60)
