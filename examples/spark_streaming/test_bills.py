"""Every order has its bill, exactly once, although a broker is killed while the job reads (L5).

`bills.py` is the job, unchanged: the test starts it as its users do. It needs a full Java and Spark's connector for
Kafka (`fetch_connector.py` puts it beside the test).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harrow import Harrow, Record, files, kill, leader, mapped

HERE = Path(__file__).parent
JARS = sorted((HERE / "jars").glob("*.jar"))
END_TIMEOUT_S = 120


@pytest.fixture(autouse=True)
def needed() -> None:
    """Skip where the job cannot run: the Java of Harrow's own Spark is too small for classic PySpark."""
    if not JARS:
        pytest.skip(f"Spark's connector for Kafka is not there: python {HERE.name}/fetch_connector.py")
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path("java")
    try:
        listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no Java is installed, or JAVA_HOME names none: classic PySpark needs Java 17 or later")
    if "jdk.incubator.vector" not in listed.stdout:
        pytest.skip(f"{java} is no full Java 17 or later: it lacks the module jdk.incubator.vector")


@contextmanager
def running_job(servers: str, folder: Path, *arguments: str) -> Generator[None]:
    """Start the job; at the end let it finish what is there."""
    jars = ",".join(map(str, JARS))
    folder.mkdir()
    with (folder / "log").open("w") as log:
        job = subprocess.Popen(
            [sys.executable, str(HERE / "bills.py"), servers, str(folder), "--jars", jars, *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with job:
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n", (folder / "log").read_text()[-3000:]
            try:
                yield
            finally:
                job.terminate()
                ended = job.wait(END_TIMEOUT_S)
    assert ended == 0, (folder / "log").read_text()[-3000:]


def place_orders(servers: str, first: int) -> int:
    """Send a few orders; return the number of the next order."""
    shop = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 2})
    for number in range(first, first + 100):
        shop.produce("orders", json.dumps({"order": number, "amount": number / 4}), key=f"customer {number % 7}")
        shop.poll(0.002)
    assert shop.flush(60) == 0
    return first + 100


def bill_of(order: Record) -> dict[str, Any]:
    return {"total": order["amount"] * 1.2}


def test_every_order_has_one_bill_in_the_files(harrow: Harrow, tmp_path: Path) -> None:
    orders = harrow.topic("orders", partitions=3)
    placed = 0
    with (
        running_job(harrow.bootstrap_servers, tmp_path / "job"),
        harrow.chaos(kill(leader(orders)), kill(leader(orders))) as chaos,
    ):
        while chaos.running:
            placed = place_orders(harrow.bootstrap_servers, placed)
    bills = files(tmp_path / "job" / "bills")
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
