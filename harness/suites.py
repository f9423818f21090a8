"""A test suite of the user's, run by its own command: which tests failed, and what the verdicts named.

`harrow zoo --suite` plants a bug of Kafka in the brokers, `harrow mutants` a bug in the clients; both run the suite
once without one first. Options reach pytest through `PYTEST_ADDOPTS`, whatever the command is; the folders of the runs
say whether the suite started brokers of Harrow at all.

What may fail: ConfigError for a command that cannot start, and for one that does not end in time.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from harrow.cluster.errors import ConfigError

from . import run_folder
from .checks.verdict import Status, Verdict

PASSED, TESTS_FAILED = 0, 1
"""Exit codes of pytest."""
OUTPUT_LINES = 15
RUN_TIMEOUT_S = 3_600.0
END_S = 20.0
"""How long the processes of a suite have between SIGTERM and SIGKILL."""
TESTS_SHOWN = 2


class SuiteTimeoutError(ConfigError):
    """The suite did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One run of the suite."""

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


def run_suite(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    timeout_s: float = RUN_TIMEOUT_S,
) -> SuiteRun:
    """Run the suite with more options of pytest; ConfigError for a command that cannot start or does not end."""
    with tempfile.TemporaryDirectory(prefix="harrow-suite-") as scratch:
        report, out = Path(scratch, "junit.xml"), Path(scratch, "out")
        added = [f"--junit-xml={report}", f"--harrow-out={out}", "-p", "no:cacheprovider", *options]
        options_of_user = environment.get("PYTEST_ADDOPTS", "")
        given = {**environment, "PYTEST_ADDOPTS": f"{options_of_user} {shlex.join(added)}".strip()}
        began = time.monotonic()
        code, text = _run(command, given, timeout_s)
        tests, failed = tests_of(report)
        names = [name for path in out.rglob(f"{Path(run_folder.VERDICT).stem}*.json") for name in invalid_names(path)]
        lines = text.strip().splitlines()
        return SuiteRun(
            failed=failed,
            tests=tests,
            clusters=sum(1 for _ in out.rglob(run_folder.RUN)),
            anomalies=sorted(set(names)),
            seconds=time.monotonic() - began,
            exit_code=code,
            output="\n".join(lines[-OUTPUT_LINES:]),
        )


def _run(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
    """Run a command; its exit code and what it printed. It ends with its processes when the time is over."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(f"--suite: {command[0]} cannot be started: {error.strerror}") from None
    try:
        text, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise SuiteTimeoutError(f"--suite: {shlex.join(command)} did not end within {timeout_s:g} s") from None
    except BaseException:
        _end(process)
        raise
    return process.returncode, text


def _end(process: subprocess.Popen[str]) -> None:
    """End a suite: its processes get SIGTERM, and SIGKILL when they do not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)
            return


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


def shown_tests(tests: Sequence[str]) -> str:
    """Return the first tests, and how many more there are, for a cell of a table."""
    more = f" and {len(tests) - TESTS_SHOWN} more" if len(tests) > TESTS_SHOWN else ""
    return ", ".join(tests[:TESTS_SHOWN]) + more
