"""Apache Kafka reads every file that our brokers wrote, prints the same as our dump, and finds no errors (B1-B4, N1).

All tests share a cluster: two replicas, every codec, with and without idempotence, headers and nulls, group commits,
segments that roll. One of its brokers is stopped, the other one killed. A log with aborted transactions is made without
a broker. Kafka's tool runs once for each check, for all files together. In the other direction, our tool dumps a folder
that Kafka has just written, with the same output, and our loader opens it.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from compacted_logs import Compaction
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from free_ports import first_free
from harrow import Cluster
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import LeaderEpoch
from harrow.cluster.storage import Origin
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import build_batch
from harrow.cluster.wire.records import build_end_txn_marker
from harrow.harness.commands import cli
from harrow.harness.requests.share_member import ACCEPT, REJECT, RELEASE
from kafka_reference import dump, needs_kafka
from kafka_writes import CODECS, FIRST_TIME, KafkaNode, groups, produce, transactions, worth_reading
from raw_kafka import RawKafka
from share_consumers import ShareConsumer
from storage_host import StorageHost
from waiting import until

pytestmark = [needs_kafka, pytest.mark.xdist_group("apache-kafka")]
GROUP_RESOURCE = 32
SMALL = {"internal.segment.bytes": "3000", "index.interval.bytes": "300", "retention.ms": "-1"}
BROKER = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 2,
    "default.replication.factor": 2,
    "log.index.size.max.bytes": 65536,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 2,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 2,
}


def our_lines(files: list[str], *options: str) -> tuple[list[bytes], str]:
    result = CliRunner().invoke(cli, ["dump-log", *options, "--files", ",".join(files)])
    assert result.exception is None, result.exception
    return result.stdout_bytes.splitlines(), result.stderr


def judged(folder: Path, files: list[str], *options: str) -> list[str]:
    """Dumps with Kafka's tool and with ours; asserts the same lines and no errors; returns the lines.

    Kafka 4.4 reports that "-1 is followed by" the first offset of each log that does not begin at 0, which is no error:
    that pair must be the only one of its log.
    """
    out, err = dump(files, *options, folder=folder)
    ours, our_complaints = our_lines(files, *options)
    # Kafka prints its report in the order of a hash table
    assert sorted(our_complaints.splitlines()) == sorted(err.decode().splitlines())
    complaints = our_complaints.splitlines()
    assert all(line.startswith("Non-consecutive offsets in ") for line in complaints[::2]), complaints
    assert all(line.startswith("  -1 is followed by ") for line in complaints[1::2]), complaints
    assert ours == out.splitlines()
    return out.decode().splitlines()


def log_files(folder: Path) -> list[str]:
    """Returns the files to dump, without unwritten indexes: Kafka's tool takes their zeroes for an entry."""
    return [
        str(file.relative_to(folder))
        for file in worth_reading(folder)
        if not (file.suffix.endswith("index") and file.stat().st_size and not any(file.read_bytes()))
    ]


@pytest.fixture(scope="module")
def our_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes our data folders `stopped/`, `killed/`, `by-hand/`."""
    target = tmp_path_factory.mktemp("ours")
    with Cluster(brokers=2, config=BROKER, folder=target / "cluster") as cluster:
        admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        appended = {**SMALL, "message.timestamp.type": "LogAppendTime"}
        topics = [
            NewTopic(name, num_partitions=1, replication_factor=2, config=config)
            for name, config in (("codecs", SMALL), ("append-time", appended), ("transactions", SMALL))
        ]
        for made in admin.create_topics(topics).values():
            made.result(30)
        servers = cluster.bootstrap_servers
        for index, codec in enumerate(CODECS):
            produce(servers, "codecs", 8, index * 100, **{"compression.type": codec})
            settings = {"compression.type": codec, "enable.idempotence": True}
            produce(servers, "codecs", 30, index * 100 + 50, **settings)
        produce(servers, "append-time", 40, 0, **{"compression.type": "zstd"})
        groups(servers, "classic")
        transactions(servers)
        share_group(servers, "codecs")
        cluster.await_converged()
        cluster.brokers[2].kill()
        shutil.copytree(cluster.brokers[2].folder / "data", target / "killed")
        cluster.brokers[1].terminate(30)
        shutil.copytree(cluster.brokers[1].folder / "data", target / "stopped")
    by_hand(target / "by-hand" / "aborted-0")
    return target


def share_group(servers: str, topic: str) -> None:
    """A share group that accepts, releases and rejects records of `topic`, which it reads from the start."""
    with RawKafka(int(servers.split(",", maxsplit=1)[0].rsplit(":", 1)[1])) as raw:
        entry = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        row = {"resource_type": GROUP_RESOURCE, "resource_name": "workers", "configs": [entry]}
        changed = raw.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[row], validate_only=False)
    assert changed.responses[0].error_code is ErrorCode.none, changed
    with ShareConsumer(servers, "workers", topic) as worker:
        records = until(worker.poll, "records are acquired")
        for kind in (ACCEPT, RELEASE, REJECT):
            worker.acknowledge(records[kind::4], kind)


def by_hand(folder: Path) -> None:
    """Writes three transactions, two of them aborted, across a roll."""
    folder.mkdir(parents=True)
    log = StorageHost().open(str(folder), {"internal.segment.bytes": 800, "index.interval.bytes": 100})
    rows: list[tuple[bytes | None, bytes | None, tuple[()]]] = [(b"k", b"v" * 20, ())] * 3
    for turn, commit in enumerate((True, False, False)):
        for producer in (7, 8):
            log.append_as_leader(
                build_batch(
                    rows,
                    timestamp_ms=FIRST_TIME + turn,
                    producer_id=producer,
                    producer_epoch=1,
                    base_sequence=turn * 3,
                    is_transactional=True,
                ),
                LeaderEpoch(turn),
            )
        for producer in (8, 7):
            marker = build_end_txn_marker(
                commit=commit,
                producer_id=producer,
                producer_epoch=1,
                coordinator_epoch=4,
                timestamp_ms=FIRST_TIME + turn,
            )
            log.append_as_leader(marker, LeaderEpoch(turn), origin=Origin.COORDINATOR)
    log.close()


def test_kafka_dumps_every_file_of_ours_as_we_do(our_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(our_folders)
    files = [f"{part}/{file}" for part in ("stopped", "killed", "by-hand") for file in log_files(our_folders / part)]
    for suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
        assert any(file.endswith(suffix) for file in files), suffix
    for part in ("stopped", "killed"):
        assert len(list((our_folders / part / "codecs-0").glob("*.log"))) > 2, "the log must have rolled"
    lines = judged(our_folders, files, "--print-data-log")
    text = "\n".join(lines)
    assert "isvalid: false" not in text
    assert "invalid bytes" not in text
    for codec in CODECS:
        assert f"compresscodec: {codec} " in text
    for sign in (
        "LogAppendTime: ",
        "headerKeys: [trace,,nothing]",
        "valueSize: -1",
        "keySize: -1",
        "endTxnMarker: ABORT coordinatorEpoch: 4",
        "version: 0 producerId: 8 firstOffset: ",
    ):
        assert sign in text, sign


def test_kafkas_sanity_check_accepts_all_our_indexes(our_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka would rebuild no index after a clean stop, and only those of the active segment after a kill."""
    monkeypatch.chdir(our_folders)
    files: list[str] = []
    for part in ("stopped", "by-hand", "killed"):
        for folder in sorted((our_folders / part).glob("*-0")):
            active = max(folder.glob("*.log")).stem
            files += [
                str(file.relative_to(our_folders))
                for file in sorted(folder.glob("*index"))
                if file.suffix != ".txnindex" and not (part == "killed" and file.stem == active)
            ]
    assert len(files) >= 16
    lines = judged(our_folders, files, "--index-sanity-check")
    verdicts = [line for line in lines if not line.startswith("Dumping ")]
    assert len(verdicts) == len(files)
    assert all(line.endswith((" passed sanity check.", " is empty.")) for line in verdicts)
    assert judged(our_folders, files, "--verify-index-only") == [
        line for line in lines if line.startswith("Dumping ") or line.endswith(" is empty.")
    ]


def test_kafka_decodes_our_offsets_topic(our_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G1: Kafka prints every record of __consumer_offsets as JSON."""
    monkeypatch.chdir(our_folders)
    logs = [str(file.relative_to(our_folders)) for file in sorted(our_folders.glob("*/__consumer_offsets-0/*.log"))]
    text = "\n".join(judged(our_folders, logs, "--offsets-decoder"))
    assert '"type":"1","data":{"group":"group-classic","topic":"codecs","partition":0}' in text
    assert '"subscription":{"topics":[' in text
    assert '"assignment":{"assignedPartitions":[' in text
    assert "skipping" not in text


def test_kafka_decodes_our_transaction_log(our_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2: Kafka prints every record of __transaction_state as JSON."""
    monkeypatch.chdir(our_folders)
    logs = [str(file.relative_to(our_folders)) for file in sorted(our_folders.glob("*/__transaction_state-0/*.log"))]
    text = "\n".join(judged(our_folders, logs, "--transaction-log-decoder"))
    assert '"data":{"transactionalId":"payments"}' in text
    for status in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"):
        assert f'"transactionStatus":"{status}"' in text, status
    assert '"transactionPartitions":[{"topic":"transactions","partitionIds":[0]}]' in text
    assert "skipping" not in text


def test_kafka_decodes_our_records_of_share_groups(our_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-932: records of the group in __consumer_offsets, of the states of share-partitions in __share_group_state."""
    monkeypatch.chdir(our_folders)
    logs = [str(file.relative_to(our_folders)) for file in sorted(our_folders.glob("*/__consumer_offsets-0/*.log"))]
    text = "\n".join(judged(our_folders, logs, "--offsets-decoder"))
    for kind in range(10, 16):
        assert f'"type":"{kind}","data":{{"groupId":"workers"' in text
    logs = [str(file.relative_to(our_folders)) for file in sorted(our_folders.glob("*/__share_group_state-0/*.log"))]
    assert len(logs) == 2
    text = "\n".join(judged(our_folders, logs, "--share-group-state-decoder"))
    for kind, state in ((0, '"stateBatches":[]'), (1, '"deliveryState":2,"deliveryCount":1'), (1, '"deliveryState":4')):
        lines = [line for line in text.splitlines() if f'key: {{"type":"{kind}","data":{{"groupId":"workers"' in line]
        assert any(state in line for line in lines), f"{state} in a record of type {kind}"
    assert "skipping" not in text
    assert "isvalid: false" not in text


def test_kafka_reads_our_compacted_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B8: every codec, tombstones with their delete horizon, an aborted transaction; Kafka reports only the gaps."""
    compaction = Compaction(str(tmp_path / "compacted-0"), {"delete.retention.ms": 10**9})
    for turn in range(4):
        for codec in range(len(CODECS)):
            keys = [b"%d-%d" % (codec, number % (3 + turn)) for number in range(8)]
            value = None if turn == 3 else b"v" * 30
            compaction.put(*((key, value) for key in keys), codec=codec)
        compaction.put(
            (b"in-transaction", b"%d" % turn),
            producer_id=5,
            producer_epoch=0,
            base_sequence=turn,
            is_transactional=True,
        )
        compaction.end_transaction(5, commit=turn % 2 == 0)
    assert compaction.seal_and_clean()
    compaction.log.close()
    monkeypatch.chdir(tmp_path)
    files = log_files(tmp_path)
    out, err = dump(files, "--print-data-log", folder=tmp_path)
    ours, our_complaints = our_lines(files, "--print-data-log")
    assert ours == out.splitlines()
    # Kafka prints its report in the order of a hash table
    assert sorted(our_complaints.splitlines()) == sorted(err.decode().splitlines())
    assert "Non-consecutive offsets in " in our_complaints
    assert "Mismatches" not in our_complaints
    assert "timestamp" not in our_complaints
    text = out.decode()
    assert "isvalid: false" not in text
    assert "deleteHorizonMs: OptionalLong[" in text
    for name in CODECS:
        assert f"compresscodec: {name} " in text


@pytest.mark.skipif(
    os.environ.get("HARROW_APACHE") != "1",
    reason="a node of Kafka starts in time only on an idle machine: run `make conformance`",
)
def test_dumping_a_folder_written_by_the_running_kafka_prints_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides the golden files, our dump and our loader read what the installed Kafka writes."""
    node = KafkaNode(tmp_path / "kafka", first_free(range(31_100, 32_700, 10), (1, -9999)))
    with node:
        for codec in CODECS:
            produce(node.bootstrap_servers, "fresh", 20, 0, **{"compression.type": codec})
        node.end(signal.SIGTERM)
    monkeypatch.chdir(node.data)
    files = [name for name in log_files(node.data) if name.startswith("fresh-0/")]
    judged(node.data, files, "--print-data-log")
    written = {name: (node.data / name).read_bytes() for name in files}
    log = StorageHost().open(str(node.data / "fresh-0"))
    assert log.log_end_offset == 20 * len(CODECS)
    log.close()
    assert {name: (node.data / name).read_bytes() for name in files} == written
