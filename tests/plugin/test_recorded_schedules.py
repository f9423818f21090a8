"""`--harrow-schedule`: the faults, and in a simulation the sizes, of a recorded run in place of the test's own."""

from __future__ import annotations

import pytest
from harrow.faults import Schedule, ScheduledFault, one, pause

ALONE = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--harrow-jobs=1", "--harrow-engine=inline")
TEST = """
    import asyncio

    import pytest
    from aiokafka import AIOKafkaProducer
    from harrow import Harrow, kill, one

    @pytest.mark.harrow(backend="simulated", seeds=40, brokers=2)
    async def test_two_blocks(harrow: Harrow):
        harrow.topic("orders", partitions=2)
        for _ in range(2):
            async with harrow.chaos(kill(one)):
                async with AIOKafkaProducer(bootstrap_servers=harrow.bootstrap_servers) as producer:
                    for _ in range(harrow.up_to(9, "orders")):
                        await producer.send_and_wait("orders", b"an order")
                        await asyncio.sleep(0.02)
        faults = [[step.fault.kind for step in schedule.steps] for schedule in harrow.schedules]
        raise LookupError(f"{faults}, {harrow.up_to(9, 'orders')} orders, {harrow.brokers} brokers")
"""


def test_a_block_without_a_recorded_schedule_has_no_fault_and_the_sizes_are_those_of_the_run(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(TEST)
    step = ScheduledFault(id="2", fault=pause(one), nodes=(1,), duration_ms=30, fired_ms=5, details={})
    recorded = Schedule(steps=(step,), run={"sizes": {"orders": 3, "brokers": 1}})
    run = pytester.mkdir("run")
    (run / "schedule-2.json").write_text(recorded.to_json())
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-schedule=run", "--harrow-seed=3")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "seed 3: LookupError: [[], ['pause']], 3 orders, 1 brokers" in text
    assert "test_two_blocks: 1 runs, 1 failed" in text
    assert "shrunk" not in text


@pytest.mark.parametrize(
    ("given", "said"),
    [("nowhere", "expected a schedule.json, or the folder of a run that has one"), ("wrong.json", "not a schedule")],
)
def test_what_cannot_be_read_is_said(pytester: pytest.Pytester, given: str, said: str) -> None:
    pytester.makepyfile(TEST)
    (pytester.path / "wrong.json").write_text("{")
    result = pytester.runpytest_subprocess(*ALONE, f"--harrow-schedule={given}")
    assert result.ret != 0
    assert said in result.stdout.str() + result.stderr.str()
