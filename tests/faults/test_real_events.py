"""A schedule of events in a user's test, on real processes: each step begins at what another one has caused (K9)."""

from __future__ import annotations

import json

import pytest
from harrow import Harrow, failpoint, kill, leader
from harrow.faults import Schedule, ScheduledFault, healed, new_leader, took_effect
from harrow.harness.workloads.orders import Workload
from waiting import until


@pytest.mark.harrow(brokers=3, config={"zookeeper.session.timeout.ms": 3_000})
def test_the_new_leader_is_held_at_an_append_until_the_old_leader_is_back(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=1)
    held = failpoint("log.after-append", leader(orders), "stop")
    steps = (
        ScheduledFault(id="1", fault=kill(leader(orders)), trigger="traffic", until=(took_effect("2"),)),
        ScheduledFault(id="2", fault=held, after=(new_leader(orders, 0, "1"),), until=(healed("1"),)),
    )
    schedule = Schedule.from_json(Schedule(steps=steps, cap=2).to_json())
    with Workload(harrow, orders), harrow.chaos(schedule=schedule) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
    lines = (harrow.folder / "faults.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    order = [(row["event"], row["id"]) for row in rows]
    expected = [("effect", "1"), ("inject", "2"), ("effect", "2"), ("heal", "1"), ("heal", "2")]
    assert [row for row in order if row in expected] == expected
    old, new = (step.nodes for step in chaos.schedule.steps)
    assert old != new
    harrow.verify(orders)
