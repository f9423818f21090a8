"""A test suite of the user's against the zoo: which of Kafka's bugs it would notice (M2).

The suite's own command runs once on brokers without a bug, and must pass there. Then it runs once for each bug, with
the bug planted through `PYTEST_ADDOPTS`. A bug is caught when tests fail with it. The folders of the runs say whether
the suite started brokers of Harrow at all, and what the verdicts named.

What may fail: ConfigError for a suite that fails without a bug, or that starts no brokers of Harrow.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from harrow.cluster.errors import ConfigError
from harrow.faults.zoo.bug import Bug

from .. import run_folder
from ..checks.verdict import Status, Verdict

PASSED, TESTS_FAILED = 0, 1
"""Exit codes of pytest."""
OUTPUT_LINES = 15
RUN_TIMEOUT_S = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One run of the suite."""

    bug: Bug | None
    failed: Mapping[str, str]
    """Tests that failed, as `file::test`, and the first line of what each reported."""
    tests: int
    clusters: int
    """How many clusters of Harrow its tests started."""
    anomalies: Sequence[str]
    """Names, of all verdicts that were invalid."""
    seconds: float
    exit_code: int
    output: str
    """The last lines."""


def check_command(words: str) -> list[str]:
    """Split a command as a shell does; ConfigError for one that cannot be split or is empty."""
    try:
        command = shlex.split(words)
    except ValueError as error:
        raise ConfigError(f"--suite {words!r}: {error}") from None
    if not command:
        raise ConfigError("--suite is empty; give the command that runs your tests: --suite 'pytest tests/'")
    return command


def run_suite(command: Sequence[str], bug: Bug | None, environment: Mapping[str, str]) -> SuiteRun:
    """Run the suite, with `bug` planted or without one; ConfigError for a command that cannot start."""
    with tempfile.TemporaryDirectory(prefix="harrow-suite-") as scratch:
        report, out = Path(scratch, "junit.xml"), Path(scratch, "out")
        options = [
            f"--junit-xml={report}",
            f"--harrow-out={out}",
            "-p",
            "no:cacheprovider",
            *(() if bug is None else ("--harrow-plant", bug.module)),
        ]
        options_of_user = environment.get("PYTEST_ADDOPTS", "")
        given = {**environment, "PYTEST_ADDOPTS": f"{options_of_user} {shlex.join(options)}".strip()}
        began = time.monotonic()
        try:
            ended = subprocess.run(  # noqa: S603 - the user's own command
                command, env=given, capture_output=True, text=True, errors="replace", timeout=RUN_TIMEOUT_S, check=False
            )
        except OSError as error:
            raise ConfigError(f"--suite: {command[0]} cannot be started: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise ConfigError(f"--suite: {shlex.join(command)} did not end within {RUN_TIMEOUT_S:g} s") from None
        tests, failed = tests_of(report)
        names = [name for path in out.rglob(f"{Path(run_folder.VERDICT).stem}*.json") for name in invalid_names(path)]
        lines = (ended.stdout + ended.stderr).strip().splitlines()
        return SuiteRun(
            bug=bug,
            failed=failed,
            tests=tests,
            clusters=sum(1 for _ in out.rglob(run_folder.RUN)),
            anomalies=sorted(set(names)),
            seconds=time.monotonic() - began,
            exit_code=ended.returncode,
            output="\n".join(lines[-OUTPUT_LINES:]),
        )


def tests_of(report: Path) -> tuple[int, dict[str, str]]:
    """Return how many tests a JUnit file has, and the message of each that failed; (0, {}) without a file."""
    if not report.exists():
        return 0, {}
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - written by the pytest that just ran
    failed = dict[str, str]()
    for case in cases:
        for problem in (*case.iter("failure"), *case.iter("error")):
            lines = problem.get("message", "").splitlines() or [""]
            failed[f"{case.get('classname', '')}::{case.get('name', '')}"] = lines[0]
    return len(cases), failed


def invalid_names(path: Path) -> list[str]:
    """Return the names of the anomalies of a verdict.json; none where it is not invalid."""
    try:
        verdict = Verdict.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return sorted(verdict.anomaly_names()) if verdict.status is Status.INVALID else []


def check_baseline(run: SuiteRun) -> None:
    """Raise ConfigError where the run without a bug shows that the suite cannot be measured."""
    if run.exit_code != PASSED:
        raise ConfigError(
            f"--suite: your tests do not pass on brokers without a bug (exit code {run.exit_code}); make them pass "
            f"first. The end of their output:\n{run.output}"
        )
    if not run.clusters:
        raise ConfigError(
            f"--suite: none of your {run.tests} tests started brokers of Harrow, so no bug can be planted; use the "
            "fixture `harrow`, and let the command run pytest with the options of PYTEST_ADDOPTS"
        )


def check_planted_run(run: SuiteRun) -> None:
    """Raise ConfigError where a run with a bug ended for another reason than failed tests."""
    if run.exit_code not in (PASSED, TESTS_FAILED) or not run.clusters:
        raise ConfigError(
            f"--suite: the run with {run.bug and run.bug.name} ended with exit code {run.exit_code} and "
            f"{run.clusters} clusters, which says nothing about the bug. The end of its output:\n{run.output}"
        )
