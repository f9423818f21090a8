"""Bugs inside of Python clients: what each replaces, in a process of its own where it needs the real client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harrow.cluster.mutants.changing_link import MUTANT
from harrow.harness.commands.mutants import INJECTED
from harrow.harness.mutant_rows import ROWS
from harrow.harness.mutants.catalogue import CLIENT, MUTANTS
from harrow.harness.mutants.injected import harrow_client_bugs as bugs


def test_every_mutant_of_a_client_is_in_the_catalogue() -> None:
    assert set(bugs.BUGS) == {mutant.name for mutant in MUTANTS if mutant.where == CLIENT}


class Consumer:
    """A consumer of confluent-kafka and of kafka-python, as far as the bugs use it."""

    def __init__(self, *messages: Any) -> None:
        self.config: dict[str, str | None] = {"group_id": "billing"}
        self._group_id: str | None = "billing"
        self.messages = list(messages)
        self.committed: list[Any] = []

    def poll(self, timeout: float = 0) -> Any:
        del timeout
        return self.messages.pop(0) if self.messages else None

    __next__ = poll

    def consume(self, most: int) -> list[Any]:
        taken, self.messages = self.messages[:most], self.messages[most:]
        return taken

    def assignment(self) -> list[str]:
        return ["orders-0", "orders-1"]

    def position(self, places: list[str]) -> list[Any]:
        assert places == self.assignment()
        return [SimpleNamespace(offset=3), SimpleNamespace(offset=-1001)]

    def commit(self, **options: Any) -> None:
        self.committed.append(options)


def message(error: object = None) -> Any:
    return SimpleNamespace(error=lambda: error)


def test_a_consumer_of_confluent_kafka_commits_what_it_returns() -> None:
    module = SimpleNamespace(Consumer=Consumer, KafkaException=RuntimeError)
    bugs.change_confluent(module, "early-commit")
    consumer = module.Consumer(message("end of the partition"), message(), message(), message())
    consumer.poll()
    assert consumer.committed == [], "an error is no record"
    consumer.poll(1)
    assert [[place.offset for place in given["offsets"]] for given in consumer.committed] == [[3]]
    assert len(consumer.consume(5)) == 2
    assert len(consumer.committed) == 2
    assert consumer.poll() is None
    assert len(consumer.committed) == 2


def test_a_consumer_of_kafka_python_commits_what_it_returns() -> None:
    kind = type("KafkaConsumer", (Consumer,), {})
    bugs.change_kafka_python(SimpleNamespace(KafkaConsumer=kind), "early-commit")
    consumer = kind("a", "b")
    assert (consumer.poll(), next(consumer), consumer.poll()) == ("a", "b", None)
    assert consumer.committed == [{}, {}]
    consumer = kind("a")
    consumer.config["group_id"] = None
    assert consumer.poll() == "a"
    assert consumer.committed == []


def test_a_consumer_of_aiokafka_commits_what_it_returns() -> None:
    class AIOKafkaConsumer(Consumer):
        async def getone(self) -> Any:
            return self.poll()

        async def getmany(self) -> Any:
            return self.consume(2)

        async def commit(self, **options: Any) -> None:  # type: ignore[override]
            self.committed.append(options)

    async def use(consumer: AIOKafkaConsumer) -> None:
        assert await consumer.getone() == "a"
        assert await consumer.getmany() == ["b"]
        assert await consumer.getmany() == []
        assert len(consumer.committed) == 2

    bugs.change_aiokafka(SimpleNamespace(AIOKafkaConsumer=AIOKafkaConsumer), "early-commit")
    asyncio.run(use(AIOKafkaConsumer("a", "b")))


def test_a_failed_delivery_of_aiokafka_counts_as_sent() -> None:
    from aiokafka.errors import KafkaTimeoutError

    class AIOKafkaProducer:
        async def send(self, topic: str, value: bytes) -> Any:
            if value == b"refused":
                raise KafkaTimeoutError
            future = asyncio.get_running_loop().create_future()
            if value == b"late":
                future.set_exception(KafkaTimeoutError())
            else:
                future.set_result((topic, value))
            return future

    async def use(producer: AIOKafkaProducer) -> None:
        assert await (await producer.send("orders", b"good")) == ("orders", b"good")
        for value in (b"refused", b"late"):
            assert (await (await producer.send("orders", value))).topic == "orders"

    bugs.change_aiokafka(SimpleNamespace(AIOKafkaProducer=AIOKafkaProducer), "lost-error")
    asyncio.run(use(AIOKafkaProducer()))


CONFLUENT = """
    import confluent_kafka
    seen = []
    producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100, "log_level": 0})
    producer.produce("orders", b"1", on_delivery=lambda error, message: seen.append(error is None))
    print(producer.flush(10 if BUG == "lost-error" else 0), len(producer) > 0, seen)
"""
KAFKA_PYTHON = """
    from kafka.errors import KafkaTimeoutError
    from kafka.producer.future import FutureProduceResult, FutureRecordMetadata
    from kafka.structs import TopicPartition
    result = FutureProduceResult(TopicPartition("orders", 0))
    future = FutureRecordMetadata(result, 0, -1, None, 0, 1, 0)
    seen = []
    future.add_errback(seen.append)
    result.failure(KafkaTimeoutError())
    print(future.get(1), seen)
"""


def run(bug: str, program: str, rows: Path, *folders: Path) -> str:
    """Run a program in a process that has a bug in its clients; what it printed."""
    path = os.pathsep.join(map(str, (INJECTED, *folders)))
    done = subprocess.run(
        [sys.executable, "-c", f"BUG = {bug!r}\n{textwrap.dedent(program)}"],
        env={**os.environ, MUTANT: bug, ROWS: str(rows), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("bug", "program", "said"),
    [
        ("lost-error", CONFLUENT, "0 False [True]"),
        ("no-flush", CONFLUENT, "0 True []"),
        ("lost-error", KAFKA_PYTHON, "None []"),
    ],
    ids=["confluent-lost-error", "confluent-no-flush", "kafka-python-lost-error"],
)
def test_a_client_that_is_imported_has_the_bug(tmp_path: Path, bug: str, program: str, said: str) -> None:
    rows = tmp_path / "rows"
    assert run(bug, program, rows) == said
    assert [json.loads(line) for line in rows.read_text().splitlines()] == [{"changed": 1}]


def test_the_sitecustomize_of_the_environment_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of the environment')\n")
    rows = tmp_path / "rows"
    assert run("no-flush", "print('the program')", rows, tmp_path) == "of the environment\nthe program"
    assert not rows.exists(), "no client was used"
