"""The example of the README as a test of a user's project, with its reports and its failures (J1, J5, J8)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from long_runs import long_run

USER = """
    from confluent_kafka import Producer
    from harrow import Harrow, controller, kill, leader, pause

    def place_orders(bootstrap_servers, count={count}, **config):
        producer = Producer({{"bootstrap.servers": bootstrap_servers, "linger.ms": 1,
                              "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200, **config}})
        for number in range(count):
            producer.produce("orders", f"order {{number}}", key=str(number % 7))
            producer.poll(0.002)
        assert producer.flush(60) == 0

    def test_no_order_is_lost(harrow: Harrow) -> None:
        orders = harrow.topic("orders", partitions=3)
        with harrow.chaos(kill(leader(orders)), pause(controller(), seconds=(0.5, 4))) as chaos:
            place_orders(harrow.bootstrap_servers)
            {inside}
            while chaos.running and {count}:
                place_orders(harrow.bootstrap_servers, 200)
        harrow.verify(orders, guarantee="no-loss")
"""


def write(pytester: pytest.Pytester, *, count: int = 500, inside: str = "") -> None:
    pytester.makepyfile(USER.format(count=count, inside=inside))


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def run_folders(pytester: pytest.Pytester) -> list[Path]:
    return sorted(path.parent for path in pytester.path.glob("harrow-out/**/verdict.json"))


def test_the_users_test_passes_and_leaves_a_verdict_and_a_report(pytester: pytest.Pytester) -> None:
    write(pytester)
    result = run(pytester, "--junitxml=junit.xml", "--harrow-seed=2")  # the controller is paused for a short time
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*harrow verdicts*", "*test_no_order_is_lost: valid (no-loss) · *"])
    (folder,) = run_folders(pytester)
    assert json.loads((folder / "verdict.json").read_text())["status"] == "valid"
    assert {path.name for path in folder.iterdir()} >= {"report.html", "faults.jsonl", "schedule.json"}
    assert not (folder / "cluster").exists()
    junit = (pytester.path / "junit.xml").read_text()
    assert 'name="harrow.verdict"' in junit
    assert 'name="harrow.seed"' in junit


@long_run
def test_two_workers_share_a_spark_server(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xdist")
    for name in ("HARROW_RENDEZVOUS", "HARROW_CONTROLLER"):  # its own, not the suite's
        monkeypatch.delenv(name, raising=False)
    write(pytester)
    second = USER.format(count=3000, inside="").replace("test_no_order", "test_none_either")
    pytester.makepyfile(test_second=second)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n2")
    result.assert_outcomes(passed=2)
    assert result.stdout.str().count(": valid (no-loss)") == 2
    assert len(run_folders(pytester)) == 2
    assert len(list(pytester.path.glob("harrow-out/*/spark.log"))) == 1
    index = (pytester.path / "harrow-out" / "index.html").read_text()
    assert index.count(">VALID<") == 2
    assert "test_second.py::test_none_either" in index


def test_a_run_that_is_interrupted_has_an_index_with_the_test_that_did_not_end(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_first(harrow):
            assert not harrow.topic("orders").name

        def test_interrupted(harrow):
            harrow.topic("orders")
            raise KeyboardInterrupt
        """
    )
    result = run(pytester, "-p", "no:randomly")  # in this order
    assert result.ret == pytest.ExitCode.INTERRUPTED
    index = (pytester.path / "harrow-out" / "index.html").read_text()
    assert index.index(">FAILED<") < index.index(">INTERRUPTED<")
    assert "::test_first" in index
    assert "test_interrupted-" in index


@long_run
def test_a_test_without_traffic_fails_because_no_fault_fires(pytester: pytest.Pytester) -> None:
    write(pytester, count=0)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert "never fired: no traffic was detected" in result.stdout.str()
    assert re.search(r"repeat with: pytest .*::test_no_order_is_lost --harrow-seed=\d+", result.stdout.str())


@long_run
def test_a_failure_of_the_users_test_includes_the_verdict(pytester: pytest.Pytester) -> None:
    write(pytester, inside="raise RuntimeError('my own bug')")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert "RuntimeError: my own bug" in said
    assert "the verdict on this run" in said


def test_a_lost_write_fails_with_the_command_that_repeats_it(pytester: pytest.Pytester) -> None:
    # acks=1 and a leader that dies between its append and the followers' fetch
    source = USER.format(count=500, inside="").replace(
        "kill(leader(orders)), pause(controller(), seconds=(0.5, 4))",
        'isolate(leader(orders, 0), seconds=4, heals_by="reset")',
    )
    source = source.replace("controller, kill, leader, pause", "isolate, leader")
    source = source.replace("(harrow.bootstrap_servers)", "(harrow.bootstrap_servers, acks=1)")
    source = source.replace("partitions=3", "partitions=1")
    pytester.makepyfile(source)
    result = run(pytester, "--harrow-seed=3")
    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert "lost-write" in said
    assert "VerdictError: INVALID: no-loss" in said
    assert "harness/run/harrow" not in said
    assert said.rindex("repeat with: pytest") > said.index("VerdictError: INVALID: no-loss")
