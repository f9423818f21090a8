"""Tests of the backend simulated: asyncio services over many seeds, a failure made smaller, the same run each time."""

from __future__ import annotations

import re
import shlex

import pytest

ALONE = (
    "-rs",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--harrow-jobs=1",
    "--harrow-shrink=30",
    "--harrow-seed=1",
)
SHOP = """
    import asyncio
    import json
    import logging

    import pytest
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from harrow import Harrow, kill, kill_program, leader, reset

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    async def bill(servers):
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        await consumer.start()
        await producer.start()
        async for order in consumer:
            await producer.send_and_wait("bills", order.value)
            await consumer.commit()

    async def place(servers):
        producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        await producer.start()
        for number in range(12):
            await producer.send_and_wait("orders", json.dumps({"order": number}).encode())
            await asyncio.sleep(0.02)
        await producer.stop()

    async def shop(harrow, guarantee):
        orders, bills = harrow.topic("orders"), harrow.topic("bills")
        harrow.start(bill, harrow.bootstrap_servers, name="billing")
        async with harrow.chaos(reset(leader(orders), clients=True), kill_program("billing")):
            await place(harrow.bootstrap_servers)
        await harrow.aio.await_caught_up("billing", orders)
        harrow.verify_pipeline(orders, bills, guarantee=guarantee, record_id="order")
"""


def test_a_correct_service_holds_over_its_seeds_and_a_wrong_promise_is_made_small(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SHOP
        + """
    @pytest.mark.harrow(backend="simulated", seeds=4)
    async def test_every_order_is_billed(harrow: Harrow):
        await shop(harrow, "at-least-once")

    @pytest.mark.harrow(backend="simulated", seeds=40)
    async def test_every_order_is_billed_once(harrow: Harrow):
        await shop(harrow, "exactly-once")
"""
    )
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-seed=5", "--harrow-shrink=12")
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert re.search(r"test_every_order_is_billed: 4 runs, 0 failed, 8 faults, [\d,]+ s of virtual time", text)
    assert "duplicate-output; 2 faults shrunk to 1" in text
    (fault,) = re.findall(r"fault=(\w+)\(", text)
    assert fault in ("kill_program", "terminate_program", "pause_program"), fault
    assert "another run in another process" not in text
    assert re.search(
        r"the same faults on real processes: pytest \S+ --harrow-backend=local --harrow-schedule=\S+", text
    )
    (page,) = re.findall(r"the page of this run: (\S+)", text)
    assert "duplicate-output" in (pytester.path / page).read_text()
    of_the_page, of_the_seed = re.findall(r"repeat with: pytest (.*)", text)
    assert "--harrow-schedule=" in of_the_page, "the page is of the smallest run"
    assert "--harrow-schedule=" not in of_the_seed
    for command in (of_the_page, f"{of_the_seed} --harrow-shrink=0"):
        again = pytester.runpytest_subprocess(*ALONE[:-1], *shlex.split(command))
        again.assert_outcomes(failed=1)
        assert "duplicate-output" in again.stdout.str()
        assert re.search(r"billed_once: 1 runs, 1 failed", again.stdout.str())


def test_what_has_nothing_to_do_with_a_fault_is_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SHOP
        + """
    @pytest.mark.harrow(backend="simulated", seeds=3, brokers=1)
    async def test_fails_by_itself(harrow: Harrow):
        harrow.topic("orders")
        async with harrow.chaos(kill(leader("orders"))):
            await place(harrow.bootstrap_servers)
        raise LookupError("the test is wrong")

    @pytest.mark.harrow(backend="simulated", seeds=3, brokers=1)
    async def test_a_service_that_raises(harrow: Harrow):
        async def ends():
            raise LookupError("no configuration")
        harrow.topic("orders")
        harrow.start(ends)
        await asyncio.sleep(1)

    @pytest.mark.harrow(backend="simulated", seeds=3, brokers=1)
    async def test_a_thread(harrow: Harrow):
        import threading
        harrow.topic("orders")
        threading.Thread(target=print).start()

    @pytest.mark.harrow(backend="simulated", seeds=3, brokers=1)
    def test_a_process_in_a_plain_function(harrow: Harrow):
        import subprocess
        orders = harrow.topic("orders")

        async def starts_a_process():
            subprocess.run(["true"])

        service = harrow.start(starts_a_process, name="starter")
        assert service.wait(10) == 1
        harrow.await_leader(orders)

    @pytest.mark.harrow(backend="simulated", seeds=3, brokers=1)
    async def test_a_client_in_c(harrow: Harrow):
        from confluent_kafka import Producer
        Producer({"bootstrap.servers": harrow.bootstrap_servers})

    @pytest.mark.harrow(backend="simulated", seeds=3, brokers=1)
    async def test_a_recording_client_in_c(harrow: Harrow):
        harrow.producer()

    @pytest.mark.harrow(backend="simulated", seeds=3)
    async def test_no_end(harrow: Harrow):
        harrow.topic("orders")
        await asyncio.Event().wait()
"""
    )
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(failed=6, skipped=1)
    text = result.stdout.str()
    assert text.count("it fails without any fault") == 6
    assert "a simulated program called confluent_kafka.Producer(…), whose threads are those of a library in C" in text
    assert "a client of confluent-kafka, has threads and real sockets, and this test is simulated: use aiokafka" in text
    assert "LookupError: the test is wrong" in text
    assert re.search(r"the service 'ends' raised at \d\.\d+ s of virtual time", text)
    assert re.search(r"_thread\.start_new_thread.*this call starts a thread; use a fake in its place", text)
    assert re.search(r"subprocess\.Popen.*this call starts a process", text)
    assert "did not end within 1800 s of virtual time" in text


def test_what_no_seed_reaches_fails_a_test_that_demands_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import random

        import pytest
        from harrow import Harrow, sometimes

        @pytest.mark.harrow(backend="simulated", brokers=1, seeds=8, reaches=["a large number", "one never", "typo"])
        async def test_numbers(harrow: Harrow):
            sometimes("a large number", random.random() > 0.5)
            sometimes("one never", False)

        @pytest.mark.harrow(backend="simulated", brokers=1, seeds=8, reaches="a large number")
        def test_large_numbers(harrow: Harrow):
            sometimes("a large number", random.random() > 0.5)
        """
    )
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "8 runs never reached: 'one never'; 'typo' (no sometimes() has it)" in text
    counts = [int(count) for count in re.findall(r"'a large number' in (\d) runs", text)]
    assert all(0 < count < 8 for count in counts) and len(counts) == 2, counts


def test_the_backend_outside_of_a_simulated_test_says_what_to_write(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from harrow import Harrow
        from harrow.cluster.errors import ConfigError
        from harrow.harness.backends.simulated.source import simulated_clusters

        def test_without_a_marker():
            with pytest.raises(ConfigError, match="backend=.simulated., seeds=100"):
                simulated_clusters(None)

        @pytest.mark.harrow(backend="simulated", scope="session")
        def test_shared(harrow: Harrow):
            harrow.topic("orders")

        def test_on_processes(harrow: Harrow):
            async def main():
                pass
            harrow.start(main, name="billing")
        """
    )
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str()
    assert "leave out scope='session'" in text
    assert "define it at the top level of a module, or keep this test on the backend simulated" in text
