"""`scope="session"` shares a cluster between tests with the same options; a failed task fails the running test."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.harness.backends.clusters import failed_tasks, trace_ends


def test_session_scope_shares_the_cluster_and_not_the_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.harrow(brokers=1, scope="session")
        seen = []

        @pytest.mark.parametrize("n", range(2))
        def test_it(harrow, n):
            topic = harrow.topic("orders")
            seen.append((topic.name, harrow.cluster.registry.pid, harrow.bootstrap_servers))
            assert topic.name.startswith("orders-")
            assert (harrow.folder / "cluster" / "broker-1" / "trace.jsonl").exists()

        def test_what_they_saw(harrow):
            (name, *cluster), (other_name, *other_cluster) = seen
            assert name != other_name
            assert cluster == other_cluster
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)


def test_a_failed_task_of_a_broker_fails_the_running_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.harrow(brokers=1)
        def test_it(harrow):
            harrow.topic("orders")
            with open(harrow.folder / "cluster" / "broker-1" / "trace.jsonl", "a") as trace:
                trace.write('{"t_ns": 1, "event": "task.failed", "name": "fetcher", "error": "boom"}\\n')
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*broker-1: a task of the broker failed, which is a bug in Harrow: fetcher: boom*"])
    assert list(pytester.path.glob("harrow-out/*/*/cluster/broker-1/data"))


def test_only_tasks_that_failed_during_the_test_count(tmp_path: Path) -> None:
    trace = tmp_path / "broker-1" / "trace.jsonl"
    trace.parent.mkdir()
    trace.write_text('{"t_ns": 1, "event": "task.failed", "name": "old", "error": "x"}\n')
    since = trace_ends(tmp_path)
    assert not failed_tasks(tmp_path, since)
    with trace.open("a") as file:
        file.write('{"t_ns": 2, "event": "broker.metrics", "port": 1}\n')
        file.write('{"t_ns": 3, "event": "task.failed", "name": "new", "error": "y"}\n')
    (line,) = failed_tasks(tmp_path, since)
    assert "new: y" in line
