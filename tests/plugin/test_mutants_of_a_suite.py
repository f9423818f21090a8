"""`harrow mutants --suite`: a mutant is killed, another is never executed; and each makes a correct service wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from long_runs import long_run

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulated_gallery"
SUITE = """
    import json
    import pytest
    from aiokafka import AIOKafkaProducer
    from harrow import Harrow

    @pytest.mark.harrow(backend="simulated", seeds=1, brokers=1)
    async def test_orders_arrive_once(harrow: Harrow) -> None:
        orders = harrow.topic("orders", partitions=1)
        producer = AIOKafkaProducer(bootstrap_servers=harrow.bootstrap_servers, enable_idempotence=True)
        await producer.start()
        for number in range(3):
            await producer.send_and_wait("orders", json.dumps({"order": number}).encode())
        await producer.stop()
        harrow.verify(orders, guarantee="exactly-once", record_id="order")
"""
TWINS = {
    "acks-of-leader": ("acks_one", 20, {"missing"}),
    "no-idempotence": ("no_idempotence", 40, {"duplicate"}),
    "sent-twice": ("sends_again", 2, {"duplicate"}),
    "failed-is-sent": ("gives_up", 40, set[str]()),
    "offset-too-far": ("commits_at_shutdown", 20, set[str]()),
    "offsets-left-out": ("offsets_outside", 20, set[str]()),
    "read-uncommitted": ("reads_uncommitted", 40, {"duplicate-output"}),
    "early-commit": ("begins_at_the_end", 40, {"commit-before-output"}),
    "lost-error": ("delivery_errors", 40, {"missing"}),
}
"""The twin in the simulated gallery that each mutant makes wrong, how many seeds it gets, anomalies of its verdict."""


def mutants(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    harrow = str(Path(sys.executable).with_name("harrow"))
    return subprocess.run(
        [harrow, "mutants", *words, "--out", str(folder / "out")],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=folder,
        env={**os.environ, "COLUMNS": "240"},
    )


def results_in(folder: Path) -> dict[str, dict[str, object]]:
    document = json.loads((folder / "out" / "mutants.json").read_text())
    return {row["mutant"]: row for row in document["mutants"]}


def test_a_suite_kills_a_mutant_that_its_verdict_forbids(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    suite = f"{sys.executable} -m pytest -p no:randomly -p no:xdist"
    ended = mutants(pytester.path, "sent-twice", "read-uncommitted", "--suite", suite, "--threshold", "100")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 tests passed without a mutant" in ended.stdout
    assert "score: 1 of 1 executed mutants killed (100 %)" in ended.stdout
    found = results_in(pytester.path)
    assert found["sent-twice"]["state"] == "killed"
    assert found["sent-twice"]["anomalies"] == ["duplicate"]
    assert found["sent-twice"]["tests"] == [
        "test_a_suite_kills_a_mutant_that_its_verdict_forbids::test_orders_arrive_once"
    ]
    assert found["read-uncommitted"]["state"] == "never executed"


def test_a_suite_that_fails_without_a_mutant_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it():\n    raise LookupError('no orders')\n")
    ended = mutants(pytester.path, "--suite", f"{sys.executable} -m pytest -p no:randomly -p no:xdist")
    assert ended.returncode == 1
    assert "your tests do not pass without a mutant (1 tests, exit code 1)" in ended.stderr
    assert "no orders" in ended.stderr


@long_run
@pytest.mark.parametrize("mutant", TWINS)
def test_each_mutant_makes_a_correct_service_wrong(tmp_path: Path, mutant: str) -> None:
    name, seeds, anomalies = TWINS[mutant]
    suite = (
        f"{sys.executable} -m pytest -p no:randomly -p no:xdist -k right {EXAMPLES / f'test_{name}.py'} "
        f"--harrow-seed=7 --harrow-seeds={seeds} --harrow-jobs=1 --harrow-shrink=0"
    )
    ended = mutants(tmp_path, mutant, "--suite", suite)
    found = results_in(tmp_path)[mutant]
    assert found["state"] == "killed", ended.stdout + ended.stderr
    assert anomalies <= set(found["anomalies"]), found  # type: ignore[call-overload]
