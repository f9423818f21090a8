"""Services of simulated tests: what they serve to each other and to the test, print, and write."""

from __future__ import annotations

import re

import pytest

ALONE = ("-rs", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--harrow-jobs=1", "--harrow-seed=1")
HEALTH = """
    import asyncio
    import json

    import pytest
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from harrow import Harrow, dependency, isolate, kill_program, sometimes

    async def health(reader, writer):
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        assert head.startswith(b"GET /health HTTP/1.1\\r\\n")
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
        await writer.drain()
        writer.close()

    async def bill(servers):
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        async with consumer, producer, await asyncio.start_server(health, "0.0.0.0", 8080):
            async for order in consumer:
                await producer.send_and_wait("bills", order.value)
                await consumer.commit()

    async def get(name, port, path):
        reader, writer = await asyncio.open_connection(name, port)
        try:
            writer.write(f"GET {path} HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n".encode())
            head, _, body = (await reader.read()).partition(b"\\r\\n\\r\\n")
            return head.partition(b"\\r\\n")[0].decode(), body
        finally:
            writer.close()

    async def probe(answers):
        while True:
            try:
                async with asyncio.timeout(0.3):
                    answers.append((await get("billing", 8080, "/health"))[0])
            except (OSError, TimeoutError) as error:
                answers.append(type(error).__name__)
            await asyncio.sleep(0.05)

    async def place(servers):
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            for number in range(30):
                await producer.send_and_wait("orders", json.dumps({"order": number}).encode())
                await asyncio.sleep(0.1)

    @pytest.mark.harrow(backend="simulated", seeds=2, brokers=1, reaches=["down", "cut off", "well"])
    async def test_health(harrow: Harrow):
        orders, bills = harrow.topic("orders"), harrow.topic("bills")
        harrow.start(bill, harrow.bootstrap_servers, name="billing")
        await harrow.aio.await_assigned("billing")
        answers = []
        probing = asyncio.create_task(probe(answers))
        async with harrow.chaos(
            kill_program("billing", seconds=0.5), isolate(dependency("billing"), seconds=1)
        ):
            await place(harrow.bootstrap_servers)
        await harrow.aio.await_caught_up("billing", orders)
        probing.cancel()
        sometimes("down", "ConnectionRefusedError" in answers)
        sometimes("cut off", "TimeoutError" in answers)
        sometimes("well", "HTTP/1.1 200 OK" in answers)
        assert await get("billing", 8080, "/health") == ("HTTP/1.1 200 OK", b"ok")
        harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")

    @pytest.mark.harrow(backend="simulated", seeds=1, brokers=1)
    async def test_dependency(harrow: Harrow):
        harrow.topic("orders")
        harrow.dependency("store", "127.0.0.1:6379")
"""


def test_a_service_with_a_health_port_is_asked_while_it_is_killed_and_cut_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEALTH)
    result = pytester.runpytest_subprocess(*ALONE)
    text = result.stdout.str()
    result.assert_outcomes(passed=1, skipped=1)
    assert re.search(r"test_health: 2 runs, 0 failed, 4 faults", text), text
    assert "this test is simulated: start the service with harrow.start" in text
