"""Makes a data folder with a real Apache Kafka that contains every kind of data that a log of ours may have.

Owns: starting Kafka (`apache-kafka`, see `kafka_reference.py`), the traffic, and the choice of files to compare. As a
script it rewrites the small files of `tests/conformance/kafka_files`, each with Kafka's own dump beside it:

    .venv/bin/python tests/support/kafka_writes.py             (`--dumps`: only the dumps)

Traffic: every codec with and without a producer id, headers, null keys and values, committed and aborted
transactions, LogAppendTime, a compacted topic whose tombstones have their delete horizon, a classic group and a group
of KIP-848, and a restart in between, for a second leader epoch.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka_reference import FAST_START, TOOL, dump
from odd_logs import write_damaged, write_samples
from waiting import until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GOLDEN = Path(__file__).parents[1] / "conformance" / "kafka_files"
SMALL = {"index.interval.bytes": "300", "retention.ms": "-1"}
TOPICS: dict[str, dict[str, str]] = {
    "codecs": {**SMALL, "internal.segment.bytes": "3000"},
    "transactions": SMALL,
    "k-java": SMALL,
    "append-time": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "compacted": {
        **SMALL,
        "internal.segment.bytes": "1500",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "1000000000",
        "file.delete.delay.ms": "500",
    },
}
SETTINGS = """\
log.cleaner.backoff.ms=100
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
log.index.size.max.bytes=4096
"""
FIRST_TIME = 1_700_000_000_000
"""Fixed timestamps of the records, so that rewriting the golden files changes as little as possible."""


class KafkaNode:
    """A node of Apache Kafka, on its own port."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.bootstrap_servers = f"127.0.0.1:{port + 1}"
        self.data = folder / "data-1"

    def start(self) -> None:
        """Starts the node; returns when it accepts connections."""
        environment = {
            **os.environ,
            **FAST_START,
            "KAFKA_PORT": str(self.port),
            "KAFKA_HEAP": "256m",
            "KAFKA_SET": SETTINGS,
        }
        command = [TOOL, "up", str(self.folder), "1"]
        # the tool gives up after 30 s, which a busy machine may need; the node continues to start
        subprocess.run(command, env=environment, check=False, timeout=90, capture_output=True)
        until(self._listens, f"Kafka listens (see {self.folder}/1.log)", timeout_s=60)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port + 1)) == 0

    def end(self, number: signal.Signals) -> None:
        """Ends the node and waits until its process is gone. SIGTERM is a controlled shutdown, SIGKILL is not."""
        marker = self.folder / "1.pid"
        pid = int(marker.read_text())
        os.kill(pid, number)
        until(lambda: not Path(f"/proc/{pid}/exe").exists(), "Kafka ended", timeout_s=30)
        marker.unlink()

    def __enter__(self) -> KafkaNode:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if (self.folder / "1.pid").exists():
            self.end(signal.SIGKILL)


def first_life(node: KafkaNode) -> None:
    """Creates the topics and most of the traffic."""
    admin: Any = AdminClient({"bootstrap.servers": node.bootstrap_servers})
    topics = [NewTopic(name, num_partitions=1, replication_factor=1, config=config) for name, config in TOPICS.items()]
    for made in admin.create_topics(topics).values():
        made.result(30)
    for index, codec in enumerate(CODECS):
        produce(node.bootstrap_servers, "codecs", 6, index * 100, **{"compression.type": codec})
        produce(
            node.bootstrap_servers,
            "codecs",
            6,
            index * 100 + 50,
            **{"compression.type": codec, "enable.idempotence": True},
        )
    produce(node.bootstrap_servers, "append-time", 6, 0)
    produce(node.bootstrap_servers, "append-time", 6, 0, **{"compression.type": "lz4"})
    transactions(node.bootstrap_servers)
    _compacted(node)
    groups(node.bootstrap_servers, "classic", "consumer")


def java_producer(node: KafkaNode) -> None:
    """Produces with Kafka's Java client, which compresses differently; batches exceed a snappy block."""
    payload = node.folder / "payload"
    payload.write_text("harrow " * 250 + "\n")
    for codec in CODECS[1:]:
        command = [TOOL, "run", "-", "org.apache.kafka.tools.ProducerPerformance", "--topic", "k-java"]
        command += ["--num-records", "30", "--throughput", "-1", "--payload-file", str(payload)]
        command += ["--producer-props", f"bootstrap.servers={node.bootstrap_servers}", "linger.ms=200"]
        command += [f"compression.type={codec}", "batch.size=200000"]
        subprocess.run(command, env={**os.environ, **FAST_START}, check=True, timeout=60)


def second_life(node: KafkaNode) -> None:
    """Produces after a restart, with new leader epochs."""
    produce(node.bootstrap_servers, "codecs", 5, 1000, **{"enable.idempotence": True})
    produce(node.bootstrap_servers, "transactions", 3, 2000)


def third_life(node: KafkaNode) -> None:
    """Produces before the node is killed, so that every index file keeps its preallocated size."""
    produce(node.bootstrap_servers, "codecs", 30, 3000, **{"enable.idempotence": True})
    transactions(node.bootstrap_servers)


def produce(servers: str, topic: str, count: int, shift: int, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "acks": "all", **config})
    for number in range(count):
        _send(producer, topic, number, shift)
    assert producer.flush(30) == 0


def _send(producer: Producer, topic: str, number: int, shift: int) -> None:
    """Sends a record; some have null keys, null values, headers with and without a value, and text beyond ASCII."""
    value = None if number % 5 == 4 else f"value {shift + number} žluťoučký ".encode() * 3
    key = None if number % 5 == 3 else f"key-{number}".encode()
    headers: list[tuple[str, str | bytes | None]] = []
    if number % 3 == 2:
        headers = [("trace", b"\x00\x01"), ("", b""), ("nothing", None)]
    producer.produce(topic, value, key, headers=headers, partition=0, timestamp=FIRST_TIME + shift + number)


def transactions(servers: str) -> None:
    """Runs two producers at once that commit and abort in turns; leaves the last transaction open."""
    base = {"bootstrap.servers": servers, "linger.ms": 20}
    producer = Producer({**base, "transactional.id": "payments"})
    other = Producer({**base, "transactional.id": "orders"})
    producer.init_transactions(30)
    other.init_transactions(30)
    for turn in range(4):
        producer.begin_transaction()
        other.begin_transaction()
        for number in range(5):
            _send(producer, "transactions", number, turn * 100)
            _send(other, "transactions", number, turn * 100 + 50)
        assert producer.flush(30) == 0
        assert other.flush(30) == 0
        if turn % 2:
            producer.abort_transaction(30)
            other.commit_transaction(30)
        else:
            producer.commit_transaction(30)
            other.abort_transaction(30)
    producer.begin_transaction()
    _send(producer, "transactions", 0, 900)
    assert producer.flush(30) == 0  # left open: the snapshot names its first offset


def _compacted(node: KafkaNode) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap_servers, "linger.ms": 5})
    for turn in range(6):
        for number in range(12):
            value = None if turn == 3 and number % 3 == 0 else b"v" * 60
            time = FIRST_TIME + turn * 100 + number
            key = b"once-%d-%d" % (turn, number) if number % 4 == 1 else b"k%d" % (number % 6)
            producer.produce("compacted", value, key, partition=0, timestamp=time)
        assert producer.flush(30) == 0
    folder = node.data / "compacted-0"

    def cleaned() -> bool:
        checkpoint = node.data / "cleaner-offset-checkpoint"
        return checkpoint.exists() and "compacted 0 " in checkpoint.read_text() and not list(folder.glob("*.deleted"))

    until(cleaned, "the cleaner went over compacted-0 and removed what it replaced", timeout_s=90)


def groups(servers: str, *protocols: str) -> None:
    """Lets a member of each protocol read, commit and leave."""
    for protocol in protocols:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"group-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["codecs", "append-time"])
        deadline = monotonic() + 30
        while consumer.poll(0.5) is None:
            assert monotonic() < deadline, f"nothing read by the {protocol} group"
        spots = [TopicPartition("codecs", 0, 7, metadata='half "way"'), TopicPartition("append-time", 0, 3)]
        consumer.commit(offsets=spots, asynchronous=False)
        consumer.close()


def worth_reading(data: Path) -> Iterator[Path]:
    """Yields every file that DumpLogSegments can read, of the topics (ours and Kafka's two internal ones)."""
    for folder in sorted(data.iterdir()):
        if folder.is_dir() and not folder.name.startswith("__cluster_metadata"):
            for file in sorted(folder.iterdir()):
                if file.suffix in {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}:
                    yield file


def regenerate() -> None:
    """Rewrites `tests/conformance/kafka_files`."""
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        node = KafkaNode(Path(temporary) / "kafka", int(os.environ.get("KAFKA_PORT", "31790")))
        with node:
            first_life(node)
            java_producer(node)
            node.end(signal.SIGTERM)
            node.start()
            second_life(node)
            node.end(signal.SIGTERM)
            shutil.rmtree(GOLDEN, ignore_errors=True)
            _copy(node.data)
            node.start()
            third_life(node)
            node.end(signal.SIGKILL)
        _copy_killed(node.data)
    write_samples(GOLDEN)
    write_damaged(GOLDEN, source=GOLDEN / "codecs-0")


def _copy(data: Path) -> None:
    for file in worth_reading(data):
        target = GOLDEN / file.parent.name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for folder in list(GOLDEN.iterdir()):
        for name in ("leader-epoch-checkpoint", "partition.metadata"):
            shutil.copy(data / folder.name / name, folder / name)
    for file in sorted(data.iterdir()):
        if file.is_file() and file.name != ".lock":
            shutil.copy(file, GOLDEN / file.name)
    metadata = data / "__cluster_metadata-0"
    (GOLDEN / "kraft").mkdir()
    for file in [*metadata.glob("*.log"), *metadata.glob("*.checkpoint")]:
        shutil.copy(file, GOLDEN / "kraft" / file.name)


def _copy_killed(data: Path) -> None:
    for name in ("codecs-0", "transactions-0"):
        shutil.copytree(data / name, GOLDEN / "killed" / name)
    for file in [*data.glob("*checkpoint"), data / "meta.properties"]:
        shutil.copy(file, GOLDEN / "killed" / file.name)


def write_dumps() -> None:
    """Lets Kafka dump the golden files, and stores its output beside them."""
    for name, options in DUMPS.items():
        out, err = dump(files_for(name), *options, folder=GOLDEN)
        (GOLDEN / f"{name}.out").write_bytes(out)
        (GOLDEN / f"{name}.err").write_bytes(err.replace(str(GOLDEN).encode(), b"FOLDER"))


DUMPS: dict[str, tuple[str, ...]] = {
    "shallow": (),
    "deep": ("--deep-iteration",),
    "content": ("--print-data-log",),
    "bare": ("--print-data-log", "--skip-record-metadata"),
    "verify": ("--verify-index-only",),
    "sanity": ("--index-sanity-check",),
    "limited": ("--max-bytes", "700", "--deep-iteration"),
    "offsets": ("--offsets-decoder",),
    "transactions": ("--transaction-log-decoder",),
    "damaged": ("--deep-iteration",),
    "kraft": ("--deep-iteration",),
    "java": ("--deep-iteration",),
    "killed": ("--deep-iteration",),
}
"""Name of a golden dump -> the options of Kafka's tool."""

ONLY = {
    "shallow": "[!dko]*/0*",
    "deep": "transactions-0/*.log",
    "content": "[!_dok]*/*.log",
    "bare": "codecs-0/*.log",
    "limited": "[!_dok]*/*.log",
    "verify": "[!dok]*/*index",
    "sanity": "[!dok]*/*index",
    "offsets": "*offsets*/*.log",
    "transactions": "*_transaction_*/*.log",
    "damaged": "damaged/*",
    "kraft": "kraft/*",
    "java": "k-java-0/*.log",
    "killed": "killed/*/0*",
}


def files_for(name: str) -> list[str]:
    """Returns the golden files of the dump `name`, relative to their folder."""
    return sorted(file.relative_to(GOLDEN).as_posix() for file in GOLDEN.glob(ONLY[name]))


if __name__ == "__main__":
    if "--dumps" not in sys.argv:
        regenerate()
    write_dumps()
