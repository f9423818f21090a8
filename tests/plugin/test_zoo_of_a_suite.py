"""`harrow zoo --suite` with a real suite: one bug is caught, another is let through (M2)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from long_runs import long_run

SUITE = """
    from harrow import lose_response

    def test_orders_arrive_once(harrow):
        orders = harrow.topic("orders", partitions=1)
        producer = harrow.producer(**{"linger.ms": 0, "request.timeout.ms": 1000})
        sent = 0
        with harrow.chaos(lose_response("Produce"), duration=3) as chaos:
            while chaos.running:
                for _ in range(20):
                    producer.produce(orders.name, value=b"order %d" % sent)
                    producer.poll(0.001)
                    sent += 1
        producer.flush(30)
        harrow.verify(orders, guarantee="exactly-once")
"""


@long_run
def test_a_suite_catches_the_bug_that_its_faults_can_show(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    harrow = str(Path(sys.executable).with_name("harrow"))
    suite = f"{sys.executable} -m pytest -p no:randomly -p no:xdist"
    ended = subprocess.run(
        [harrow, "zoo", "--suite", suite, "kafka_5494", "kip_101"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=pytester.path,
        env={**os.environ, "COLUMNS": "240"},
    )
    assert "1 tests passed on brokers without a bug" in ended.stdout, ended.stdout + ended.stderr
    by_bug = {line.split("│")[1].strip(): line for line in ended.stdout.splitlines() if "│" in line}
    assert "1 of 1" in by_bug["KAFKA-5494"], ended.stdout
    assert "test_orders_arrive_once" in ended.stdout
    assert "let through" in by_bug["KIP-101, first case"]
    assert ended.returncode == 1
