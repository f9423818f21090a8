"""`harrow zoo --suite`: the checks around the runs of a user's suite (M2)."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from harrow.cluster.errors import ConfigError
from harrow.harness.suites import SuiteRun, check_command
from harrow.harness.zoo.catalog import ZOO
from harrow.harness.zoo.suite import check_baseline, check_planted_run, run_planted

RUN = SuiteRun(failed={}, tests=3, clusters=1, anomalies=(), seconds=1.0, exit_code=0, output="3 passed")
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:xdist"]


def test_a_suite_that_fails_without_a_bug_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match=r"do not pass on brokers without a bug(.|\n)*1 failed"):
        check_baseline(replace(RUN, exit_code=1, failed={"t::a": "no"}, output="1 failed"))


def test_a_suite_without_brokers_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match="none of your 3 tests started brokers"):
        check_baseline(replace(RUN, clusters=0))


@pytest.mark.parametrize(("exit_code", "clusters"), [(2, 1), (5, 1), (-9, 1), (0, 0), (1, 0)])
def test_a_planted_run_that_says_nothing_is_an_error(exit_code: int, clusters: int) -> None:
    with pytest.raises(ConfigError, match="says nothing about the bug"):
        check_planted_run(replace(RUN, exit_code=exit_code, clusters=clusters), ZOO[0])


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_planted_run_may_pass_or_fail(exit_code: int) -> None:
    check_planted_run(replace(RUN, exit_code=exit_code), ZOO[0])


@pytest.mark.parametrize("words", ["", "  ", "pytest 'tests"])
def test_a_command_that_cannot_be_run_is_an_error(words: str) -> None:
    with pytest.raises(ConfigError, match="--suite"):
        check_command(words)


def test_a_program_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no-such-program cannot be started"):
        run_planted(["no-such-program"], None, os.environ)


def test_a_run_reads_what_pytest_reports_and_adds_its_own_options(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_plant(request):\n    assert request.config.getoption('--harrow-plant') == []\n"
        "def test_user(request):\n    assert request.config.getoption('--maxfail') == 7\n"
    )
    run = run_planted([*PYTEST, str(tmp_path)], ZOO[0], {**os.environ, "PYTEST_ADDOPTS": "--maxfail=7"})
    assert (run.tests, run.clusters, run.anomalies, run.exit_code) == (2, 0, [], 1)
    ((name, message),) = run.failed.items()
    assert name.endswith("::test_plant")
    assert message.startswith("AssertionError: assert ['harrow.faults.zoo")
    assert "1 failed, 1 passed" in run.output
