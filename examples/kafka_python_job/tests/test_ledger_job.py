"""The job copies every payment once, whatever happens to its brokers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harrow import Harrow, kill, leader, lose_response, mapped, table
from kafka.errors import KafkaError
from ledger_job import copy_payments

PACE_S = 0.01


def send_payments(harrow: Harrow, running: Callable[[], bool]) -> list[int]:
    """Send payments while `running()`; return the numbers of those that Kafka acknowledged."""
    bank: Any = harrow.kafka_python.producer(client_id="bank", request_timeout_ms=2_000)
    sent: list[int] = []
    pace = threading.Event()
    while running() or len(sent) < 20:
        payment = {"payment": len(sent), "account": f"account {len(sent) % 3}", "cents": len(sent)}
        future = bank.send("payments", json.dumps(payment).encode(), key=b"%d" % (len(sent) % 3))
        future.get(60)
        sent.append(len(sent))
        pace.wait(PACE_S)
    return sent


def run_job(harrow: Harrow, database: str) -> None:
    """Run the job as its scheduler does: again, when it fails."""
    for _ in range(10):
        with contextlib.suppress(KafkaError):
            copy_payments(harrow.bootstrap_servers, database)
            return
    raise AssertionError("the job failed ten times")


def test_every_payment_is_in_the_ledger_once(harrow: Harrow, tmp_path: Path) -> None:
    payments = harrow.topic("payments", partitions=2)
    database = str(tmp_path / "ledger.sqlite")
    with ThreadPoolExecutor(1) as bank:
        with harrow.chaos(lose_response("Produce", nth=5, client="bank"), kill(leader(payments))) as chaos:
            sent = bank.submit(send_payments, harrow, lambda: chaos.running)
            while chaos.running:
                run_job(harrow, database)
        expected = sent.result()
    run_job(harrow, database)  # the payments since its last run
    harrow.verify(payments, guarantee="exactly-once, ordered", record_id="payment", expected=expected)
    rows = table(f"sqlite:///{database}", "SELECT payment, account, cents FROM ledger")
    harrow.verify_pipeline(payments, rows, guarantee="exactly-once", record_id="payment", relation=mapped(dict))
