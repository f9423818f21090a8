"""A test that injects nothing does not pass: it fails at its end and says what to write (J1, K)."""

from __future__ import annotations

import pytest

USER = """
    import asyncio
    import sys

    import pytest
    from confluent_kafka import Producer
    from harrow import Harrow, kill, leader, pause, one
    from harrow.faults import Schedule, ScheduledFault

    pytestmark = pytest.mark.harrow(brokers=1, scope="session")

    def send(harrow, topic, count=20):
        producer = Producer({"bootstrap.servers": harrow.bootstrap_servers})
        for number in range(count):
            producer.produce(topic.name, str(number))
        assert producer.flush(20) == 0

    def test_without_with(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        harrow.chaos(pause(leader(orders), seconds=1))
        send(harrow, orders)

    def test_with_a_loop(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        chaos = harrow.chaos(pause(leader(orders)))
        while chaos.running:
            send(harrow, orders)

    def test_async(harrow: Harrow) -> None:
        orders = harrow.topic("orders")

        async def job():
            harrow.chaos(pause(leader(orders)))
            await asyncio.to_thread(send, harrow, orders)

        asyncio.run(job())

    def test_failed_for_another_reason(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        harrow.chaos(pause(leader(orders)))
        raise RuntimeError("my own bug")

    def test_verify_of_a_block_that_was_not_entered(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        harrow.chaos(pause(leader(orders)))
        judge = harrow.verify  # a call in this file's text would start Spark
        judge(orders)

    def test_never_left(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        harrow.chaos(pause(leader(orders), seconds=0.1)).__enter__()

    def test_entered_twice(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        block = harrow.chaos(pause(leader(orders), seconds=0.1))
        with block:
            send(harrow, orders)
        with block:
            send(harrow, orders)

    def test_empty_schedule(harrow: Harrow) -> None:
        with harrow.chaos(schedule=Schedule(steps=(), seed=1)):
            send(harrow, harrow.topic("orders"))

    def test_no_step_fires(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        late = ScheduledFault(id="1", fault=pause(one), at_ms=60_000, required=False)
        with harrow.chaos(schedule=Schedule(steps=(late,), seed=1, duration_ms=1_000)):
            send(harrow, orders)

    def test_program_never_started(harrow: Harrow) -> None:
        harrow.topic("orders")
        harrow.program("billing", [sys.executable, "-c", ""], start=False)

    @pytest.mark.harrow(brokers=1)
    def test_marker_without_a_fixture() -> None:
        pass

    def test_correct(harrow: Harrow) -> None:
        orders = harrow.topic("orders")
        with harrow.chaos(pause(leader(orders), seconds=0.1)):
            send(harrow, orders)
"""
WRITE = "write with harrow.chaos"
SAID = {
    "test_without_with": ("was made and never entered, so no fault was injected", WRITE),
    "test_with_a_loop": ("was made and never entered", WRITE),
    "test_async": ("was made and never entered", "async with harrow.chaos"),
    "test_verify_of_a_block_that_was_not_entered": ("was made and never entered", WRITE),
    "test_entered_twice": ("a chaos block runs once", "make another"),
    "test_empty_schedule": ("the schedule has no step",),
    "test_no_step_fires": ("no fault took effect in this block", "while chaos.running"),
    "test_program_never_started": ("'billing', …, start=False) was made and never started",),
    "test_marker_without_a_fixture": ("the marker @pytest.mark.harrow has no effect", "add the argument harrow"),
}


def section(stdout: str, test: str) -> str:
    """Return what pytest printed of one failed test."""
    return stdout.split(f" {test} _")[1].partition("\n____")[0]


def test_each_way_to_inject_nothing_fails_with_what_to_write(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USER)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(failed=len(SAID) + 1, passed=2, errors=1)
    stdout = result.stdout.str()
    for test, words in SAID.items():
        for word in words:
            assert word in section(stdout, test), test
    own = section(stdout, "test_failed_for_another_reason")
    assert "RuntimeError: my own bug" in own
    assert "harrow: harrow.chaos(pause(leader('orders-" in own  # a note
    assert stdout.count("my own bug") >= 1
    assert "was entered and never left" in stdout.split("ERROR at teardown of test_never_left")[1]
