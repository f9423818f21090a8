"""A killed broker starts on damaged files, under real traffic, and loses nothing that others have (K3)."""

from __future__ import annotations

import pytest
from faults_under_traffic import run
from harrow import Harrow, damage_disk, leader

NAMES = ("bit-flip", "corrupt-index", "missing-snapshot", "missing-checkpoint", None)


@pytest.mark.harrow(config={"internal.segment.bytes": 20_000})
@pytest.mark.parametrize("name", NAMES)
def test_a_broker_recovers_from_damaged_files(harrow: Harrow, name: str | None) -> None:
    topic = harrow.topic("orders", partitions=1)
    producer = harrow.producer(enable_idempotence=True)
    for number in range(200):
        producer.produce(topic.name, b"%d" % number * 100)
        producer.flush(30)
    before = harrow.cluster.describe().topics["orders"][0]
    rows = run(harrow, topic, damage_disk(name, leader(topic, 0), seconds=0.3))
    assert rows["inject"]["targets"] == [before.leader]
    done = rows["effect"]["evidence"]["damaged"][str(before.leader)]
    assert done["damage"] == (name or done["damage"])
    assert all(f"/broker-{before.leader}/data/" in path for path in done["files"])
    assert before.leader in rows["healed"]["evidence"]["isr"]
    harrow.verify(topic, guarantee="no-loss")
