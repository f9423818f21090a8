"""A proxy's tap and the brokers' own taps say the same about one run (J6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from harrow.cluster import Cluster
from harrow.cluster.broker_folder import TAP_NAMES, TAP_WATERMARKS, broker_files
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import OFFSET_COMMITTED, OFFSET_SENT, PREPARE_COMMIT, TRANSACTION_ONGOING
from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.tap.layouts import FETCHED, FLAG_FILTERED, PRODUCED
from harrow.harness.histories.coordinator_rows import WATERMARKS, map_coordinator_rows
from harrow.harness.histories.format import read_names
from harrow.harness.histories.request_rows import count_requests, read_requests
from kafka import KafkaConsumer, KafkaProducer
from proxied_cluster import batch_rows, member_rows, offset_rows, proxied_cluster, transaction_rows, where
from transactional_clients import TIMEOUT_S, read_both, send, transactional_producer
from waiting import until

RECORDS = 60
HEARTBEATS: dict[str, dict[str, Any]] = {"classic": {"heartbeat.interval.ms": 200}, "consumer": {}}
"""Else the second member waits seconds for the first one."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Proxy]]:
    """One run of all clients through a proxy."""
    folder: Path = tmp_path_factory.mktemp("taps")
    config = {
        "num.partitions": 2,
        "offsets.topic.num.partitions": 3,
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.min.heartbeat.interval.ms": 200,
    }
    with proxied_cluster(folder, config) as (cluster, proxy):
        servers = proxy.bootstrap_servers
        with_confluent(servers, "confluent", "classic")
        with_confluent(servers, "confluent-848", "consumer")
        with_kafka_python(servers, "kafka-python")
        asyncio.run(with_aiokafka(servers, "aiokafka"))
        with_transactions(servers, "transactions")
        yield cluster, proxy


def with_confluent(servers: str, topic: str, protocol: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "client.id": topic})
    for number in range(RECORDS):
        producer.produce(topic, f"{number}", key=f"{number % 7}")
    assert producer.flush(TIMEOUT_S) == 0
    consumers = [
        Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"group-{topic}",
                "client.id": f"{topic}-{number}",
                "group.protocol": protocol,
                **HEARTBEATS[protocol],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        for number in range(2)
    ]
    for consumer in consumers:
        consumer.subscribe([topic])
    received = 0
    while received < RECORDS or not all(consumer.assignment() for consumer in consumers):
        for consumer in consumers:
            received += sum(not message.error() for message in consumer.consume(100, 0.02))
    for consumer in consumers:
        places = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        if places:
            consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


def with_kafka_python(servers: str, topic: str) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=servers, acks="all", client_id=topic)
    for future in [producer.send(topic, b"v%d" % number) for number in range(RECORDS)]:
        future.get(timeout=TIMEOUT_S)
    producer.close()
    consumer: Any = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=f"group-{topic}",
        client_id=f"reads-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    for _ in range(RECORDS):
        next(consumer)
    consumer.commit()
    consumer.close()


async def with_aiokafka(servers: str, topic: str) -> None:
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers, acks=1, client_id=topic)
    await producer.start()
    await asyncio.gather(*[producer.send_and_wait(topic, b"v%d" % i) for i in range(RECORDS)])
    await producer.stop()
    consumer: Any = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=f"group-{topic}",
        client_id=f"reads-{topic}",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    for _ in range(RECORDS):
        await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
    await consumer.stop()


def with_transactions(servers: str, topic: str) -> None:
    producer = transactional_producer(servers, "shop", client_id="shop")
    producer.init_transactions(TIMEOUT_S)
    group = Consumer({"bootstrap.servers": servers, "group.id": "group-shop", "client.id": "source"})
    for number in range(4):
        producer.begin_transaction()
        send(producer, topic, f"{number}", partition=number % 2)
        position = [TopicPartition("confluent", 0, number + 1)]
        metadata = group.consumer_group_metadata()
        producer.send_offsets_to_transaction(position, metadata, TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    group.close()
    committed, everything = read_both(servers, topic, partitions=2)
    assert (sorted(committed), len(everything)) == (["0", "2"], 4)


def both(run: tuple[Cluster, Proxy], rows: Any) -> tuple[Any, Any]:
    cluster, proxy = run
    return rows(cluster.folder), rows(proxy.folder)


def test_batches_that_were_acknowledged_and_delivered_are_the_same(run: tuple[Cluster, Proxy]) -> None:
    ours, proxied = both(run, batch_rows)
    assert proxied == ours
    for kind in (PRODUCED, FETCHED):
        topics = {dict(row)["topic"] for row in where(proxied, kind=kind)}
        assert topics == {"confluent", "confluent-848", "kafka-python", "aiokafka", "transactions"}
    filtered = [row for row in proxied if dict(row)["flags"] & FLAG_FILTERED]
    assert len(filtered) == 2, "the reader of committed data drops the two aborted transactions"


def test_offsets_of_groups_are_the_same(run: tuple[Cluster, Proxy]) -> None:
    ours, proxied = both(run, offset_rows)
    # the commit marker makes offsets of a transaction valid, which no client sees
    by_marker = Counter(
        {
            row: count
            for row, count in ours.items()
            if dict(row)["kind"] == OFFSET_COMMITTED and dict(row)["producer_id"] >= 0
        }
    )
    assert len(by_marker) == 2
    # instead, the proxy has a row that such an offset may be valid
    possible = where(proxied, kind=OFFSET_COMMITTED, error=int(ErrorCode.request_timed_out))
    assert sum(possible.values()) == 4
    assert proxied - possible == ours - by_marker
    assert sum(where(proxied, kind=OFFSET_SENT).values()) == 4


def test_transactions_are_the_same_as_far_as_the_wire_shows_them(run: tuple[Cluster, Proxy]) -> None:
    ours, proxied = both(run, transaction_rows)
    seen = Counter(
        {
            row: count
            for row, count in ours.items()
            if dict(row)["state"] <= 3 and not dict(row)["topic"].startswith("__")
        }
    )
    assert proxied == seen
    assert sum(where(proxied, state=TRANSACTION_ONGOING).values()) == 4
    assert sum(where(proxied, state=PREPARE_COMMIT).values()) == 2


def test_members_own_the_same_partitions(run: tuple[Cluster, Proxy]) -> None:
    ours, proxied = both(run, member_rows)
    # the coordinator has the assignment of a member that never asks for it again, so it may have more rows
    assert proxied - ours == Counter()
    last = {"group-confluent", "group-confluent-848", "group-kafka-python", "group-aiokafka"}
    assert {dict(row)["group"] for row in proxied} == last


def test_high_watermarks_are_the_same_as_far_as_requests_name_the_leader_epoch(run: tuple[Cluster, Proxy]) -> None:
    ours, proxied = both(run, highest_watermarks)
    assert {topic for topic, _, _ in proxied} >= {"confluent", "confluent-848", "transactions"}
    assert all(high <= ours[place] for place, high in proxied.items())
    places = [place for place in proxied if place[0] == "confluent"]
    assert {place: proxied[place] for place in places} == {place: ours[place] for place in places}
    assert sum(proxied[place] for place in places) == RECORDS


def highest_watermarks(folder: Path) -> dict[tuple[str, int, int], int]:
    """The largest high watermark that clients got, by topic, partition and leader epoch."""
    found: dict[tuple[str, int, int], int] = {}
    for path in broker_files(folder, TAP_WATERMARKS):
        names = read_names(path.with_name(TAP_NAMES))
        for row in map_coordinator_rows(path, WATERMARKS):
            topic, partition, epoch = (row[name] for name in ("topic", "partition", "leader_epoch"))
            place = (str(names[int(topic)]), int(partition), int(epoch))
            found[place] = max(found.get(place, -1), int(row["high_watermark"]))
    return found


def test_requests_are_the_same_with_their_errors_and_names(run: tuple[Cluster, Proxy], tmp_path: Path) -> None:
    cluster, proxy = run
    (ours, cut), (proxied, cut_there) = (
        said(cluster.folder, tmp_path / "ours"),
        said(proxy.folder, tmp_path / "proxied"),
    )
    for key in cut | cut_there:  # which side saw the response before the end of a connection is a race
        ours = Counter({row: count for row, count in ours.items() if row[:2] != key})
        proxied = Counter({row: count for row, count in proxied.items() if row[:2] != key})
    assert proxied == ours
    apis = {row[1] for row in proxied}
    assert {"Metadata", "FindCoordinator", "SyncGroup", "OffsetFetch", "OffsetCommit", "EndTxn"} <= apis
    assert where_api(proxied, "FindCoordinator", "group-aiokafka")
    assert where_api(proxied, "EndTxn", "shop")
    assert len({row[0] for row in proxied}) >= 8


def said(folder: Path, run: Path) -> tuple[Counter[tuple[str, str, str, str, int]], set[tuple[str, str]]]:
    """Requests with rows and responses; clients and APIs of those that ended with a connection, without response."""
    run.mkdir()
    (run / "cluster").symlink_to(folder)
    found = read_requests(run)
    counted = {(row.client, row.api) for row in count_requests(run)}
    assert found.recorded and ("confluent", "Produce") in counted
    assert {("confluent-0", "Fetch"), ("confluent-1", "Fetch")} & counted
    cut = {(row.client, row.api) for row in found.rows if row.unanswered}
    rows = (row for row in found.rows if not row.unanswered and row.api not in ("Fetch", "Heartbeat"))
    return Counter((row.client, row.api, row.error, row.subject, row.broker) for row in rows), cut


def where_api(rows: Counter[tuple[str, str, str, str, int]], api: str, subject: str) -> bool:
    return any(row[1] == api and row[3] == subject for row in rows)


def test_clients_and_topics_have_their_names(run: tuple[Cluster, Proxy]) -> None:
    _, proxy = run
    names = {name for path in broker_files(proxy.folder, TAP_NAMES) for name in read_names(path)}
    assert {"confluent", "shop", "group-aiokafka"} <= names
    assert not [name for name in names if len(name) == 36 and name.count("-") == 4 and "reads" in name]


def test_no_bug_of_the_proxy_is_in_its_trace(run: tuple[Cluster, Proxy]) -> None:
    _, proxy = run
    traces = [path.read_text() for path in broker_files(proxy.folder, "trace.jsonl")]
    assert len(traces) == 3
    assert not [line for text in traces for line in text.splitlines() if "task.failed" in line]
    until(lambda: all(row["open"] for row in proxy.brokers()), "every port is open")
