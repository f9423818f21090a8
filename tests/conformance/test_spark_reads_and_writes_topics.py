"""Spark's own Kafka source and sink work on our cluster, as batches and streams, while a leader is killed (A2, C5, F5).

Spark and its connector are unmodified (`support/spark_kafka_jars.py`), in a process of their own. Needs a full Java and
the connector's jars; only `make conformance` runs these tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer
from spark_cluster import NoClusterError, full_java
from spark_kafka_jars import NoJarsError, connector_jars
from waiting import until

SCRIPT = Path(__file__).parents[1] / "support" / "spark_kafka_jobs.py"
pytestmark = pytest.mark.skipif(
    os.environ.get("HARROW_APACHE") != "1",
    reason="Spark's own JVM would slow down the suite: `make conformance` runs it",
)


class SparkJobs:
    """A process with Spark; `jobs.read(topic="orders")` calls a method of `Jobs` there."""

    def __init__(self, folder: Path, servers: str, jars: list[Path]) -> None:
        self._log = folder / "spark.log"
        java = Path(full_java()).parents[1]
        environment = {**os.environ, "JAVA_HOME": str(java), "PYSPARK_PYTHON": sys.executable}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT), servers, *map(str, jars)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            pass  # closes its standard input, which ends it, and waits

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            calls, results = self._process.stdin, self._process.stdout
            assert calls is not None
            assert results is not None
            calls.write(json.dumps({"do": name, **arguments}) + "\n")
            calls.flush()
            line = results.readline()
            assert line, f"Spark's process has ended: {self._log.read_text()[-2_000:]}"
            answer = json.loads(line)
            assert "error" not in answer, answer["error"]
            return answer["result"]

        return call


@pytest.fixture(scope="module")
def spark(own_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkJobs]:
    """Spark with its connector for Kafka."""
    try:
        jars = connector_jars()
        full_java()
    except (NoJarsError, NoClusterError) as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("spark")
    with SparkJobs(folder, own_cluster.bootstrap_servers, jars) as jobs:
        yield jobs


@pytest.fixture(scope="module")
def servers(own_cluster: Any) -> str:
    """The bootstrap address of our cluster."""
    return str(own_cluster.bootstrap_servers)


def texts(count: int) -> list[str]:
    """The values of the numbers below `count`, in Spark's order."""
    return sorted(map(str, range(count)))


def write(servers: str, topic: str, first: int, count: int) -> None:
    """Writes numbers to partition 0, acknowledged by all replicas."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 2})
    for number in range(first, first + count):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0


def end_of(kafka: Any, topic: str) -> int:
    """The log end offset that clients see, from the current leader."""
    leader = kafka.partition(topic, 1).leader_id
    return int(kafka.raw(leader).list_offset(topic, 0, -1).offset)


def restarted(kafka: Any, node: int, topic: str) -> None:
    """Starts a killed broker, and waits until its replica is in sync."""
    kafka.start(node)
    until(lambda: node in kafka.partition(topic, 1).isr_nodes, "the ISR is full")


def test_a_batch_is_written_and_read_while_the_leader_is_killed(own_kafka: Any, spark: SparkJobs) -> None:
    topic = own_kafka.topic("batch", 2, 3, 1)
    spark.write(topic=topic, first=0, count=1_000)
    before = end_of(own_kafka, topic)
    assert before == 1_000
    with ThreadPoolExecutor(1) as aside:
        writing = aside.submit(spark.write, topic=topic, first=1_000, count=30_000)
        until(lambda: writing.done() or end_of(own_kafka, topic) > before, "the batch is being written")
        own_kafka.kill(2)
        try:
            writing.result(120)
        finally:
            own_kafka.start(2)
    until(lambda: 2 in own_kafka.partition(topic, 1).isr_nodes, "the ISR is full")
    assert spark.read(topic=topic) == texts(31_000)


def test_a_batch_read_with_read_committed_leaves_out_aborted_records(
    own_kafka: Any, spark: SparkJobs, servers: str
) -> None:
    topic = own_kafka.topic("committed", 1, 2)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(60)
    for turn in range(6):
        producer.begin_transaction()
        for number in range(turn * 10, turn * 10 + 10):
            producer.produce(topic, str(number))
        assert producer.flush(60) == 0
        (producer.commit_transaction if turn % 2 == 0 else producer.abort_transaction)(60)
    committed = sorted(str(number) for number in range(60) if number // 10 % 2 == 0)
    assert spark.read(topic=topic, isolation="read_committed") == committed
    assert spark.read(topic=topic) == texts(60)


def test_a_stream_to_files_has_each_record_once_after_a_kill_and_a_restart(
    own_kafka: Any, spark: SparkJobs, servers: str, tmp_path: Path
) -> None:
    topic = own_kafka.topic("to-files", 2, 3, 1)
    sink, checkpoint = str(tmp_path / "sink"), str(tmp_path / "checkpoint")
    write(servers, topic, 0, 1_000)
    spark.stream(topic=topic, sink=sink, checkpoint=checkpoint)
    until(lambda: spark.processed() >= 1, "the first batch")
    own_kafka.kill(2)
    try:
        write(servers, topic, 1_000, 1_000)
        # a batch has 200 records: on a busy machine Spark may have all of them before the wait begins
        until(lambda: spark.processed() > 1_000 // 200, "a batch from the new leader")
        spark.stop(drain=False)
    finally:
        restarted(own_kafka, 2, topic)
    write(servers, topic, 2_000, 500)
    spark.stream(topic=topic, sink=sink, checkpoint=checkpoint)
    spark.stop(drain=True)
    assert spark.files(path=sink) == texts(2_500)


def test_a_stream_to_a_topic_has_each_record_while_the_leader_of_the_sink_is_killed(
    own_kafka: Any, spark: SparkJobs, servers: str, tmp_path: Path
) -> None:
    topic, sink = own_kafka.topic("from", 1, 3, 2), own_kafka.topic("to", 2, 3, 1)
    write(servers, topic, 0, 1_000)
    spark.stream(topic=topic, sink=sink, checkpoint=str(tmp_path / "checkpoint"))
    until(lambda: end_of(own_kafka, sink) > 0, "the first batch")
    own_kafka.kill(2)
    try:
        write(servers, topic, 1_000, 500)
        spark.stop(drain=True)
    finally:
        restarted(own_kafka, 2, sink)
    assert spark.read(topic=sink) == texts(1_500)
