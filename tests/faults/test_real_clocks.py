"""Wrong wall clocks on real brokers under real traffic (K4)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from faults_under_traffic import run
from harrow import Harrow, Topic, freeze_clock, jump_clock, leader, skew_clock, strobe_clock
from harrow.faults import Fault

CLOCKS: dict[str, Callable[[Topic], Fault]] = {
    "jump": lambda topic: jump_clock(leader(topic, 0), by_s=-1800, seconds=0.5),
    "skew": lambda topic: skew_clock(leader(topic, 0), rate=3.0, seconds=0.5),
    "freeze": lambda topic: freeze_clock(leader(topic, 0), seconds=0.5),
    "strobe": lambda topic: strobe_clock(leader(topic, 0), by_s=600, period_ms=50, seconds=0.5),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_wrong_clock_is_read_and_loses_nothing(harrow: Harrow, name: str) -> None:
    topic = harrow.topic("orders", partitions=1)
    fault = CLOCKS[name](topic)
    rows = run(harrow, topic, fault)
    [node] = rows["inject"]["targets"]
    clock = rows["effect"]["evidence"]["clocks"][str(node)]
    assert clock["armed"]
    assert clock["fired"] > 0
    if name == "jump":
        assert clock["off_ms"] == -1_800_000
    [row] = harrow.cluster.control(node, "rules.list", kind="clock")["rules"]
    assert (row["armed"], row["off_ms"]) == (False, 0)
    trace = (harrow.cluster.brokers[node].folder / "trace.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in trace]
    assert [event for event in events if event.startswith("clock.")] == ["clock.set", "clock.cleared"]
