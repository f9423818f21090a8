"""Services of simulated tests: what they serve to each other and to the test, print, and write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ALONE = ("-rs", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--harrow-jobs=1", "--harrow-seed=1")
KEPT_LINE = re.compile(r"^ *(\d+\.\d{3}) s  (\w+): (.*)$", re.MULTILINE)
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


STATE = """
    import asyncio
    import sqlite3

    import pytest
    from harrow import Harrow, sometimes

    async def count(folder, seen, inserted):
        sqlite3.connect(folder / "state.db").execute("create table if not exists t (n)")  # which stays open
        database, journal = sqlite3.connect(folder / "state.db", timeout=0), open(folder / "journal", "a")
        seen.append(database.execute("select count(*) from t").fetchone()[0])
        while True:
            reading = database.execute("select n from t")
            reading.fetchone()
            database.execute("insert into t values (1)")
            inserted.append(1)
            journal.write("committed\\n")
            await asyncio.sleep(0.01)
            database.commit()
            journal.flush()
            await asyncio.sleep(0.01)

    @pytest.mark.harrow(backend="simulated", seeds=3, brokers=1, reaches="killed before the commit")
    async def test_state(harrow: Harrow):
        harrow.topic("orders")
        assert not list(harrow.folder.glob("state.db"))
        seen, inserted = [], []
        service = harrow.start(count, harrow.folder, seen, inserted, name="count")
        for number in range(5):
            await asyncio.sleep(0.05 + harrow.random.random() / 50)
            service.kill()
            left = sqlite3.connect(harrow.folder / "state.db", timeout=0)
            rows = left.execute("select count(*) from t").fetchone()[0]
            left.close()
            sometimes("killed before the commit", len(inserted) > rows)
            del inserted[rows:]
            assert (harrow.folder / "journal").read_text() == "committed\\n" * rows
            service.start()
            await asyncio.sleep(0.005)
            assert seen[-1] == rows
        assert seen == sorted(seen) and seen[0] == 0 < seen[-1] and len(seen) == 6
"""


OUTPUT = """
    import asyncio
    import logging
    import os
    import sqlite3
    import sys

    import pytest
    from harrow import Harrow

    LOGGER = logging.getLogger("billing")

    async def price(reader, writer):
        writer.write((await reader.read(10))[::-1] * 10_000)
        writer.close()

    async def prices():
        print("prices start", end="")
        print("", os.getpid())
        asyncio.create_task(lost())
        async with await asyncio.start_server(price, None, 8080):
            await asyncio.sleep(3)
            os._exit(3)

    async def lost():
        raise LookupError("a task that is not awaited")

    async def billing(folder):
        database = sqlite3.connect(folder / "bills.db")
        database.execute("create table if not exists bills (n)")
        while True:
            try:
                reader, writer = await asyncio.open_connection("prices", 8080)
                writer.write(b"abc")
                sizes = [len(await reader.read(5_000)) for _ in range(4)]
                writer.close()
                await writer.wait_closed()
            except OSError as error:
                LOGGER.warning("no price: %s", error)
            else:
                print("sizes", sizes, file=sys.stderr)
            database.execute("insert into bills values (1)")
            database.commit()
            print("x" * 600)
            await asyncio.sleep(0.2)

    @pytest.mark.harrow(backend="simulated", seeds=1, brokers=1)
    async def test_output(harrow: Harrow, capsys):
        harrow.topic("orders")
        harrow.start(prices, restart="on-failure")
        service = harrow.start(billing, harrow.folder)
        print("the test's own")
        LOGGER.error("the test's own log")
        assert capsys.readouterr().out == "the test's own\\n"
        await asyncio.sleep(10)
        assert "sizes [" in service.output
        raise AssertionError(f"{service.output.count(chr(10))} lines")
"""


def test_a_service_s_files_are_those_that_a_killed_process_leaves(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(STATE)
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_state: 3 runs, 0 failed*"])


def test_what_services_print_is_in_the_report_and_the_same_in_another_environment(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = pytester.makepyfile(OUTPUT)
    found = list[list[tuple[str, str, str]]]()
    for folder, variables in (
        (pytester.path, {"TZ": "UTC", "PYTHONHASHSEED": "1"}),
        (tmp_path, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2", "LONG": "x" * 9_000, "HOME": str(tmp_path)}),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        result = pytester.runpytest_subprocess(*ALONE, str(path))
        result.assert_outcomes(failed=1)
        text = result.stdout.str()
        assert "what services printed, and what was logged, by virtual time:" in text
        assert "Captured log" not in text
        assert "earlier lines of billing are left out" in text
        found.append(KEPT_LINE.findall(text))
    first, second = found
    assert first == second
    assert {(program, line.partition(" [")[0]) for _, program, line in first} >= {
        ("prices", "prices start 4242"),
        ("prices", "LookupError: a task that is not awaited"),
        ("billing", "sizes"),
        ("billing", "WARNING billing: no price:"),
        ("test", "ERROR billing: the test's own log"),
    }
    times = [float(at) for at, _, _ in first]
    assert times == sorted(times)
    assert max(len(line) for _, _, line in first) < 500
