"""`harrow check` on run folders with and without their data: the verdict of the run is never replaced (L6, N1)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from harrow import Harrow, VerdictError, lose_response
from harrow.harness.checks import Status, Verdict, judge
from harrow.harness.checks.partition_jobs import read_replicas
from harrow.harness.commands import cli
from harrow.harness.run.harrow import run_of
from harrow.harness.run_folder import verdict_files
from long_runs import some

HARROW = str(Path(sys.executable).with_name("harrow"))


def check(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `harrow check`, in this process, which has the suite's Spark."""
    ran = CliRunner().invoke(cli, ["check", str(folder), *arguments])
    return ran.exit_code, ran.output


@pytest.fixture
def judged(harrow: Harrow) -> Harrow:
    """A run with two topics and a valid verdict."""
    producer = harrow.producer()
    for name in ("orders", "bills"):
        topic = harrow.topic(name)
        for number in range(20):
            producer.produce(topic.name, f"{name} {number}", key="k")
    producer.flush(30)
    harrow.verify(guarantee="exactly-once")
    return harrow


def test_all_topics_of_the_run_are_judged_by_its_guarantees(judged: Harrow) -> None:
    before = (judged.folder / "verdict.json").read_text()
    judged.close()
    code, said = check(judged.folder)
    assert code == 0, said
    assert said.startswith("VALID: exactly-once")
    assert "judged 40 records acknowledged" in said
    code, said = check(judged.folder, "--topic", "bills", "--guarantee", "no-loss")
    assert code == 0, said
    assert said.startswith("VALID: no-loss")
    assert "judged 20 records acknowledged" in said
    assert (judged.folder / "verdict.json").read_text() == before


def test_a_stored_verdict_survives_the_removal_of_the_data(judged: Harrow) -> None:
    before = (judged.folder / "verdict.json").read_text()
    judged.close()
    run_of(judged).remove_data()
    code, said = check(judged.folder)
    assert code == 0
    assert said.startswith("VALID: exactly-once")
    assert "the data of this run is gone" in said
    code, said = check(judged.folder, "--guarantee", "ordered")
    assert code == 1
    assert "'ordered' cannot be judged; the stored verdict is valid (exactly-once)" in said
    assert (judged.folder / "verdict.json").read_text() == before


def test_each_verdict_of_a_run_is_judged_again_with_its_own_promise(harrow: Harrow) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    producer = harrow.producer()
    for number in range(5):
        producer.produce(orders.name, f'{{"order": {number}}}')
        producer.produce(bills.name, str(number))
    producer.flush(30)
    harrow.verify(bills, guarantee="ordered")
    with pytest.raises(VerdictError, match=r"report-2\.html"):
        harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=range(6))
    harrow.verify(orders, guarantee="no-loss")
    before = [path.read_text() for path in verdict_files(harrow.folder)]
    assert [Verdict.from_json(text).status.value for text in before] == ["valid", "invalid", "valid"]
    harrow.close()
    code, said = check(harrow.folder)
    assert code == 1, said
    assert [line for line in said.splitlines() if re.match("verdict|[A-Z]+:", line)] == [
        "verdict 1 of 3:",
        "VALID: ordered holds",
        "verdict 2 of 3:",
        "INVALID: exactly-once does not hold",
        "verdict 3 of 3:",
        "VALID: no-loss holds",
    ]
    assert "the final read of a later verdict, on other topics, replaced its own" in said
    assert "1 record that the application counts as sent is not in the topic (missing)" in said
    assert [path.read_text() for path in verdict_files(harrow.folder)] == before
    code, said = check(harrow.folder, "--guarantee", "at-most-once", "--topic", "orders")
    assert code == 0, said
    assert said.startswith("VALID: at-most-once holds")


def test_a_run_that_ended_before_its_verdict_is_not_valid(harrow: Harrow) -> None:
    """The log has a record twice, and only the final read, which a killed test does not make, can show it."""
    orders = harrow.topic("orders")
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "acks": "all", "linger.ms": 0})
    with harrow.chaos(lose_response("Produce", nth=3)) as chaos:
        while chaos.running:
            producer.produce(orders.name, f"order {time.monotonic_ns()}")
            producer.flush(30)
    harrow.close()
    code, said = check(harrow.folder, "--topic", "orders", "--guarantee", "exactly-once")
    assert code == 1, said
    assert said.startswith("UNKNOWN: exactly-once")
    assert "duplicate" in said
    assert "it needs the final read, which a test makes by harrow.verify(…)" in said


def test_a_run_of_which_any_part_was_removed_is_not_valid(judged: Harrow, tmp_path: Path) -> None:
    folder = judged.folder
    judged.close()
    (folder / "verdict.json").unlink()
    whole = judge(folder, topics=["orders"], guarantee="exactly-once", engine="inline")
    assert whole.valid, str(whole)
    (folder / "verdict.json").unlink()
    brokers = [path.relative_to(folder) for path in (folder / "cluster").glob("broker-*")]
    assert len(brokers) == 3
    files = [path.relative_to(folder) for path in (folder / brokers[0]).glob("*ta*")]
    assert {path.name for path in files} >= {"tap.bin", "tap.commits", "tap.members", "data"}
    parts = [Path(name) for name in ("run.json", "groups.json", "history", "drain", "cluster")]
    for part in [*parts, *some([*brokers, *files], 5)]:
        if part.name in {"tap.groups", "tap.requests", "tap.request_counts", "tap.refused"}:
            # all groups are at rest; requests explain, and no anomaly needs them; tap.bin has every refusal, too
            continue
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.sock"))
        path = copy / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        verdict = judge(
            copy,
            topics=["orders"],
            guarantee="exactly-once",
            engine="inline",
            replicas=read_replicas(copy, ["orders"]) or None,
        )
        assert verdict.status is Status.UNKNOWN, (str(part), str(verdict))
        shutil.rmtree(copy)


def test_a_folder_without_a_run_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    code, said = check(tmp_path)
    assert code == 1
    assert "is no folder of a run" in said
    assert not list(tmp_path.iterdir())


def test_the_command_needs_no_argument_but_the_folder(judged: Harrow) -> None:
    judged.close()
    ran = subprocess.run(
        [HARROW, "check", str(judged.folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("VALID: exactly-once")
