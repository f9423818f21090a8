"""`--harrow-shrink`: a failed test runs again with ever fewer faults, and its report has the smallest schedule (K9)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from long_runs import long_run

SUPPORT = Path(__file__).parents[1] / "support"
ALONE = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
FAILS_AFTER_A_KILL = """
    import pytest
    from harrow import kill, one, reset

    runs = []

    @pytest.fixture
    def number():
        runs.append(len(runs))
        return runs[-1]

    @pytest.mark.harrow(brokers=1)
    def test_orders(harrow, number):
        orders = harrow.topic("orders", partitions=1, replication_factor=1, config={"min.insync.replicas": 1})
        producer = harrow.producer(**{"log_level": 0, "reconnect.backoff.max.ms": 100})
        faults = kill(one, seconds=0.1), reset(one, clients=True)
        with harrow.chaos(*faults) as chaos:
            while chaos.running:
                producer.produce(orders.name, b"order")
                producer.poll(0.01)
        producer.flush(20)
        assert harrow.cluster.brokers[1].incarnations == 1, f"run {number}"
"""

FAILS_WITHOUT_ITS_STORE = """
    import pytest
    from echo_service import EchoService
    from harrow import dependency, isolate, one, pause, reset
    from store_client import asking

    @pytest.mark.harrow(brokers=1)
    def test_orders(harrow):
        orders = harrow.topic("orders", partitions=1, replication_factor=1, config={"min.insync.replicas": 1})
        producer, service = harrow.producer(log_level=0), EchoService()
        cut_off = isolate(dependency("store"), seconds=0.2, heals_by="reset")
        with asking(harrow.dependency("store", str(service.address))) as client:
            with harrow.chaos(pause(one, seconds=0.1), cut_off, reset(one, clients=True)) as chaos:
                while chaos.running:
                    producer.produce(orders.name, b"order")
                    producer.poll(0.01)
            client.await_answer()
        producer.flush(20)
        service.close()
        assert not client.errors
"""


def test_the_fault_that_a_failure_needs_remains(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILS_AFTER_A_KILL)
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-seed=5", "--harrow-shrink=40", "--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert re.search(r"AssertionError; 2 faults shrunk to 1 in \d+ runs\.", text)
    assert re.findall(r"ScheduledFault\(.*?fault=(\w+)\(one", text) == ["terminate"], "which does less"
    assert "run 0" in text
    assert "run 1" not in text, "only the first run is reported"
    (last,) = re.findall(r"^repeat with: .*$", text, re.MULTILINE)
    assert text.index("harrow shrunk schedule") < text.rindex(last)
    assert (pytester.path / "junit.xml").read_text().count("<testcase") == 1
    assert not list(pytester.path.glob("harrow-out/*/*-shrink"))


@long_run
def test_the_fault_of_a_store_that_a_failure_needs_remains(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    pytester.makepyfile(FAILS_WITHOUT_ITS_STORE)
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-seed=5", "--harrow-shrink=20")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert re.search(r"AssertionError; 3 faults shrunk to 1 in \d+ runs\.", text)
    (fault,) = re.findall(r"fault=(isolate|cut)\(dependency\('store'\), seconds=0.2, heals_by='reset'", text)
    assert f"from harrow.faults import Schedule, ScheduledFault, {', '.join(sorted(['dependency', fault]))}" in text


@long_run
def test_a_failure_without_a_fault_says_so_and_passed_tests_run_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from harrow import one, reset

        runs = []

        def traffic(harrow):
            orders = harrow.topic("orders", partitions=1, replication_factor=1, config={"min.insync.replicas": 1})
            producer = harrow.producer(log_level=0)
            with harrow.chaos(reset(one, clients=True)) as chaos:
                while chaos.running:
                    producer.produce(orders.name, b"order")
                    producer.poll(0.01)
            producer.flush(20)

        @pytest.mark.harrow(brokers=1)
        def test_fails(harrow):
            traffic(harrow)
            raise ValueError("always")

        @pytest.mark.harrow(brokers=1)
        def test_passes(harrow):
            runs.append(1)
            traffic(harrow)
            assert runs == [1]

        def test_before_a_cluster(harrow):
            raise ValueError("early")

        def test_without_harrow():
            raise ValueError("plain")
        """
    )
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-seed=5", "--harrow-shrink=8")
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.fnmatch_lines(["harrow: seed 5, *, shrink 8"])
    text = result.stdout.str()
    assert "ValueError needs no fault: the test fails without any" in text
    assert "not shrunk: the test ended before a chaos block did" in text
    assert text.count("harrow shrunk schedule") == 2
