"""A consume-transform-produce job in three processes under faults: each input has one output (F3, F6, G3, L5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow import Harrow, kill, leader
from harrow.harness.workloads.exactly_once import CONFIG, TransformWorkload, job_processes, workload
from harrow.harness.workloads.exactly_once.end_state import held_back, left_open, open_transactions
from transactional_clients import TIMEOUT_S, send, transactional_producer
from waiting import until


@pytest.mark.harrow(config=dict(CONFIG))
def test_each_order_has_one_bill_while_a_leader_and_processes_of_the_job_are_killed(
    harrow: Harrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "KILL_EVERY_S", 1.2)
    orders = harrow.topic("orders", partitions=6)
    job = TransformWorkload(harrow, orders, {})
    with job, harrow.chaos(kill(leader(orders)), duration=3) as chaos:
        while chaos.running:
            job.jobs.wait(0.05)
    assert not job.problems
    assert job.jobs.killed, "a process was killed while the faults lasted"
    verdict = job.judge()
    assert verdict.operation_counts["pipeline_matched"] > 0


def test_an_open_transaction_and_the_partition_that_it_holds_back_are_named(harrow: Harrow) -> None:
    sink = harrow.topic("sink")
    producer = transactional_producer(harrow.bootstrap_servers, "shop")
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, sink.name, "open")
    opened = open_transactions(harrow.bootstrap_servers)
    assert [line.partition(" at ")[0] for line in opened] == ["transaction shop is Ongoing"]
    assert held_back(harrow.cluster) == ["sink-0: last stable offset 0, high watermark 1"]
    producer.commit_transaction(TIMEOUT_S)
    until(lambda: not left_open(harrow.cluster), "no transaction is open")


def test_a_job_that_makes_no_progress_is_reported(
    harrow: Harrow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    idle = tmp_path / "idle.py"
    idle.write_text("import signal\nsignal.pause()\n", encoding="utf-8")
    monkeypatch.setattr(job_processes, "PROGRAM", idle)
    monkeypatch.setattr(workload, "FINISH_S", 0.5)
    job = TransformWorkload(harrow, harrow.topic("orders"), {})
    with job:
        until(lambda: job.placed > 0, "orders are placed")
    (problem,) = job.problems
    assert "it is not true that the group has committed every order, and nothing changes: orders-0" in problem
