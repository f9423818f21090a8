"""Pipelines on a real cluster: right jobs are valid, and their wrong twins are invalid with the right name (L5).

All tests share a cluster of one broker; each has topics of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from harrow import Harrow, Record, Topic, VerdictError, files, filtered, folded, identity, mapped, table
from long_runs import long_run
from pipeline_jobs import ORDERS, CrashError, Job, bill_of, expected_anomalies, explanations, place_orders, to_topic


@pytest.fixture(scope="module")
def harrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harrow]:
    with Harrow(tmp_path_factory.mktemp("shop") / "run", brokers=1) as shop:
        yield shop


_numbers = itertools.count()


@pytest.fixture
def orders(harrow: Harrow) -> Topic:
    return harrow.topic(f"orders{next(_numbers)}", partitions=2)


@pytest.fixture
def bills(harrow: Harrow) -> Topic:
    return harrow.topic(f"bills{next(_numbers)}", partitions=2)


def test_correct_job_into_a_topic_is_valid(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    assert Job(harrow, orders, to_topic(harrow, bills)).run(ORDERS) == ORDERS
    verdict = harrow.verify_pipeline(
        orders, bills, guarantee="exactly-once, ordered", record_id="order", relation=mapped(bill_of)
    )
    assert verdict.operation_counts["pipeline_matched"] == ORDERS
    assert any("group billing" in note for note in verdict.notes), verdict
    harrow.verify_pipeline(orders, bills, record_id="order")
    harrow.verify_pipeline(orders, bills, relation=mapped(bill_of))


def test_job_that_commits_before_it_writes_is_invalid(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    job = Job(harrow, orders, to_topic(harrow, bills))
    job.commit_first = True
    assert job.run(ORDERS) == ORDERS
    with expected_anomalies("commit-before-output") as caught:
        harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=mapped(bill_of))
    assert "group billing committed offset" in explanations(caught[0])
    harrow.verify_pipeline(orders, bills, guarantee="at-most-once", record_id="order")


def test_job_that_commits_first_and_crashes_loses_outputs(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    job = Job(harrow, orders, to_topic(harrow, bills))
    job.commit_first, job.crash_after = True, ORDERS // 2
    with pytest.raises(CrashError):
        job.run(ORDERS)
    job.crash_after = -1
    job.run(ORDERS)
    with expected_anomalies("commit-before-output", "missing-output") as caught:
        harrow.verify_pipeline(orders, bills, record_id="order", relation=mapped(bill_of))
    assert "will not be read again" in explanations(caught[0])


def test_job_that_writes_again_after_a_restart_doubles_outputs(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    job = Job(harrow, orders, to_topic(harrow, bills))
    job.crash_after = ORDERS // 2
    with pytest.raises(CrashError):
        job.run(ORDERS)
    job.crash_after = -1
    job.run(ORDERS)
    harrow.verify_pipeline(
        orders, bills, guarantee="at-least-once, ordered", record_id="order", relation=mapped(bill_of)
    )
    with expected_anomalies("duplicate-output"):
        harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))


def test_job_that_commits_beyond_the_end_of_a_partition_is_invalid_although_it_lost_nothing_yet(
    harrow: Harrow, orders: Topic, tmp_path: Path
) -> None:
    place_orders(harrow, orders)
    rows: list[dict[str, Any]] = []

    def write(batch: list[Message]) -> None:
        rows.extend(bill_of(json.loads(message.value() or b"")) for message in batch)

    assert Job(harrow, orders, write).run(ORDERS) == ORDERS
    promise = partial(harrow.verify_pipeline, orders, rows, record_id="order", relation=mapped(bill_of))
    promise(guarantee="at-least-once")
    consumer = Consumer({"bootstrap.servers": harrow.bootstrap_servers, "group.id": "billing"})
    beyond = TopicPartition(orders.name, 0, ORDERS + 5)
    consumer.commit(offsets=[beyond], asynchronous=False)
    consumer.close()
    promise(guarantee="at-most-once")
    for guarantee in ("at-least-once", "exactly-once"):
        with expected_anomalies("commit-beyond-lso") as caught:
            promise(guarantee=guarantee)
        assert f"group billing committed offset {ORDERS + 5}" in explanations(caught[0])


def test_job_that_begins_at_the_end_loses_what_was_placed_before(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    job = Job(harrow, orders, to_topic(harrow, bills))
    job.reset = "latest"
    job.run(ORDERS)
    with pytest.raises(VerdictError, match="missing-output") as raised:
        harrow.verify_pipeline(orders, bills, record_id="order")
    assert raised.value.verdict is not None
    assert raised.value.verdict.anomaly_counts["missing-output"] == ORDERS
    assert "produced nothing" in str(raised.value)


def test_job_that_drops_a_batch_after_an_error_loses_its_rest(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    write = to_topic(harrow, bills)

    def fragile(batch: list[Message]) -> None:
        numbers = [json.loads(message.value() or b"")["order"] for message in batch]
        write(batch[: numbers.index(30)] if 30 in numbers else batch)

    Job(harrow, orders, fragile).run(ORDERS)
    with expected_anomalies("missing-output", "commit-before-output") as caught:
        harrow.verify_pipeline(orders, bills, record_id="order", relation=mapped(bill_of))
    assert "order 3" in explanations(caught[0])


def test_dead_job_is_invalid_and_said_to_have_produced_nothing(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    with pytest.raises(VerdictError, match="the job produced nothing") as raised:
        harrow.verify_pipeline(orders, bills, guarantee="at-most-once", record_id="order")
    assert raised.value.verdict is not None
    assert raised.value.verdict.status.value == "unknown"
    with pytest.raises(VerdictError, match="missing-output"):
        harrow.verify_pipeline(orders, bills, record_id="order")


def test_verdict_on_a_job_that_has_not_finished_says_how_far_it_got(
    harrow: Harrow, orders: Topic, bills: Topic
) -> None:
    place_orders(harrow, orders)
    Job(harrow, orders, to_topic(harrow, bills)).run(ORDERS // 3)
    with expected_anomalies("missing-output") as caught:
        harrow.verify_pipeline(orders, bills, record_id="order")
    assert "the job has not finished, because group billing has committed" in explanations(caught[0])


def test_job_that_computes_wrong_outputs_is_shown_the_field(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)

    def wrong_bill(order: dict[str, Any]) -> dict[str, Any]:
        return bill_of(order) | ({"total": 99} if order["order"] == 17 else {})

    Job(harrow, orders, to_topic(harrow, bills, wrong_bill)).run(ORDERS)
    with expected_anomalies("wrong-output") as caught:
        harrow.verify_pipeline(orders, bills, record_id="order", relation=mapped(bill_of))
    assert "order 17 is wrong: total expected 9, is 99" in explanations(caught[0])


def test_commits_of_another_group_leave_a_doubt_until_the_group_is_named(
    harrow: Harrow, orders: Topic, bills: Topic
) -> None:
    place_orders(harrow, orders)
    auditor = harrow.consumer(group_id="audit", enable_auto_commit=False)
    auditor.subscribe([orders.name])
    seen = 0
    while seen < ORDERS:
        seen += sum(message.error() is None for message in auditor.consume(ORDERS, 1.0))
    auditor.commit(asynchronous=False)
    Job(harrow, orders, to_topic(harrow, bills)).run(ORDERS)
    with pytest.raises(VerdictError, match="never by group billing"):
        harrow.verify_pipeline(orders, bills, record_id="order")
    harrow.verify_pipeline(orders, bills, record_id="order", group="billing")


def to_table(path: Path, statement: str) -> Callable[[list[Message]], None]:
    """Write the bills of a batch into SQLite, in a transaction for each bill."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("create table if not exists bills (number integer, total integer, paid boolean)")
        connection.execute("create unique index if not exists one on bills (number) where paid")

    def write(batch: list[Message]) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for message in batch:
                bill = bill_of(json.loads(message.value() or b""))
                connection.execute(statement, (bill["order"], bill["total"], True))

    return write


def row_of(order: Record) -> dict[str, Any]:
    return {"number": order["order"], "total": order["amount"] * 3, "paid": True}


@pytest.mark.parametrize(
    "crash_after", [pytest.param(-1, id="no crash", marks=long_run), pytest.param(ORDERS // 2, id="crash")]
)
def test_correct_job_into_a_table_is_valid(harrow: Harrow, orders: Topic, tmp_path: Path, crash_after: int) -> None:
    place_orders(harrow, orders)
    write = to_table(tmp_path / "shop.db", "insert or replace into bills values (?, ?, ?)")
    job = Job(harrow, orders, write)
    job.crash_after = crash_after
    with contextlib.suppress(CrashError):
        job.run(ORDERS)
    job.crash_after = -1
    job.run(ORDERS)
    sink = table(f"sqlite:///{tmp_path}/shop.db", "select * from bills")
    harrow.verify_pipeline(
        orders, sink, guarantee="exactly-once", relation=mapped(row_of), record_id=lambda r: r["number"]
    )


def test_job_that_inserts_again_after_a_restart_doubles_rows(harrow: Harrow, orders: Topic, tmp_path: Path) -> None:
    place_orders(harrow, orders)
    path = tmp_path / "shop.db"
    job = Job(harrow, orders, to_table(path, "insert into bills values (?, ?, not ?)"))
    job.crash_after = ORDERS // 2
    with pytest.raises(CrashError):
        job.run(ORDERS)
    job.crash_after = -1
    job.run(ORDERS)

    def unpaid(order: Record) -> dict[str, Any]:
        return row_of(order) | {"paid": False}

    sink = table(path, "bills")
    harrow.verify_pipeline(orders, sink, relation=mapped(unpaid), record_id="number")
    with expected_anomalies("duplicate-output"):
        harrow.verify_pipeline(orders, sink, guarantee="exactly-once", relation=mapped(unpaid), record_id="number")


def total(state: int, order: Record) -> int:
    return state + int(order["amount"])


@pytest.mark.parametrize("doubled", [False, True], ids=["right", "counts again after a restart"])
def test_running_sums_are_compared_with_the_fold(harrow: Harrow, orders: Topic, bills: Topic, doubled: bool) -> None:
    place_orders(harrow, orders)
    sums: dict[str, int] = {}
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})

    def write(batch: list[Message]) -> None:
        for message in batch:
            order = json.loads(message.value() or b"")
            sums[order["customer"]] = sums.get(order["customer"], 0) + order["amount"]
            producer.produce(bills.name, str(sums[order["customer"]]), key=order["customer"])
        assert producer.flush(30) == 0

    job = Job(harrow, orders, write)
    if doubled:
        job.crash_after = ORDERS // 2
        with pytest.raises(CrashError):
            job.run(ORDERS)
        job.crash_after = -1
    job.run(ORDERS)
    if not doubled:
        harrow.verify_pipeline(orders, bills, guarantee="exactly-once", relation=folded(total, 0))
        return
    with pytest.raises(VerdictError, match=r"wrong-output[\s\S]*is wrong: expected \d+, is \d+"):
        harrow.verify_pipeline(orders, bills, guarantee="exactly-once", relation=folded(total, 0))


def test_filtered_copies_into_files_are_valid_until_a_file_is_lost(
    harrow: Harrow, orders: Topic, tmp_path: Path
) -> None:
    place_orders(harrow, orders)
    out = tmp_path / "out"
    out.mkdir()

    def write(batch: list[Message]) -> None:
        lines = [message.value() or b"" for message in batch]
        kept = [line for line in lines if json.loads(line)["amount"] > 2]
        (out / f"part-{len(list(out.iterdir()))}.jsonl").write_bytes(b"\n".join(kept))

    Job(harrow, orders, write).run(ORDERS)
    relation = filtered(lambda order: order["amount"] > 2)
    harrow.verify_pipeline(orders, files(out), guarantee="exactly-once", record_id="order", relation=relation)
    (out / "part-1.jsonl").unlink()
    with expected_anomalies("missing-output", "commit-before-output"):
        harrow.verify_pipeline(orders, files(out), record_id="order", relation=relation)


def test_a_function_that_raises_is_reported_with_the_record(harrow: Harrow, orders: Topic, bills: Topic) -> None:
    place_orders(harrow, orders)
    Job(harrow, orders, to_topic(harrow, bills, lambda order: order)).run(ORDERS)
    with pytest.raises(VerdictError) as raised:
        harrow.verify_pipeline(orders, bills, relation=mapped(lambda order: order["price"]), record_id="order")
    assert "raised KeyError for 60 records" in str(raised.value)
    assert f"the record is {orders.name}-" in str(raised.value)
    assert raised.value.verdict is not None
    assert raised.value.verdict.status.value == "unknown"
    harrow.verify_pipeline(orders, bills, relation=mapped(dict), record_id="order")
    with expected_anomalies("wrong-output"):
        harrow.verify_pipeline(orders, bills, relation=identity, record_id="order")
