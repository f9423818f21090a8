"""A test that was written for the simulation runs unchanged on real brokers, with the faults that a search found."""

from __future__ import annotations

import json

import pytest
from harrow.faults import Schedule, ScheduledFault, pause_program

SHOP = """
    import asyncio
    import json

    import pytest
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from harrow import Harrow, kill_program

    async def bill(servers, topic):
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
        )
        async with consumer, AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            async for order in consumer:
                await producer.send_and_wait("bills", order.value)
                await consumer.commit()

    async def raises():
        raise LookupError("no configuration")

    async def place(servers, count):
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            for number in range(count):
                await producer.send_and_wait("orders", json.dumps({"order": number}).encode())
                await asyncio.sleep(0.02)

    pytestmark = pytest.mark.harrow(backend="simulated", seeds=3, brokers=1)

    async def test_every_order_is_billed(harrow: Harrow):
        orders, bills = harrow.topic("orders", partitions=3), harrow.topic("bills")
        billing = harrow.start(bill, harrow.bootstrap_servers, "orders", name="billing")
        async with harrow.chaos(kill_program("billing", seconds=0.1)):
            await place(harrow.bootstrap_servers, harrow.up_to(14, "orders"))
        await harrow.aio.await_caught_up("billing", orders)
        verdict = harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
        (step,) = harrow.schedule.steps
        print("FIRED", step.fault, step.fired_ms, orders.partitions, billing.starts, billing.alive)
        assert verdict.valid

    async def test_a_service_that_raises(harrow: Harrow):
        harrow.topic("orders")
        harrow.start(raises)
        await harrow.aio.await_records("orders", 1, timeout=60)

    async def test_a_service_in_a_function(harrow: Harrow):
        async def within():
            pass
        harrow.start(within)
"""


def test_services_are_processes_and_a_recorded_schedule_hits_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SHOP)
    step = ScheduledFault(
        id="1", fault=pause_program("billing"), nodes=(), duration_ms=150, fired_ms=60, frames=6, details={}
    )
    sizes = {"orders": 12, "partitions of orders": 1}
    recorded = Schedule(steps=(step,), seed=3, run={"sizes": sizes})
    pytester.path.joinpath("schedule.json").write_text(recorded.to_json())
    result = pytester.runpytest_subprocess(
        *("-rP", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("--harrow-backend=local", "--harrow-engine=inline", "--harrow-schedule=schedule.json", "--harrow-keep"),
    )
    text = result.stdout.str()
    result.assert_outcomes(passed=1, failed=2, errors=1)
    assert "FIRED pause_program('billing') 60 1 1 True" in text, "1 partition, and one start"
    assert "28 records acknowledged" in text, "as many orders as the test says, and a bill for each"
    assert "the program 'raises' has ended: exit code 1" in text
    assert "the service 'raises' raised: exit code 1" in text
    assert "LookupError: no configuration" in text
    assert "--harrow-schedule=schedule.json --harrow-backend=local --harrow-engine=inline" in text
    assert "harrow.start(test_a_service_in_a_function.<locals>.within" in text
    assert "define it at the top level of a module" in text
    (rows,) = pytester.path.glob("harrow-out/*/*every_order*/faults.jsonl")
    events = [json.loads(line)["event"] for line in rows.read_text().splitlines()]
    assert events == ["inject", "effect", "heal", "healed"]
