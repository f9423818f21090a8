"""A suite of the user's against the zoo: which of Kafka's bugs it would notice (M2).

The suite's own command (`harness/suites.py`) runs once on brokers without a bug, and must pass there. Then it runs
once for each bug, planted by an option of pytest. A bug is caught when tests fail with it.

What may fail: ConfigError for a suite that fails without a bug, or that starts no brokers of Harrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harrow.cluster.errors import ConfigError
from harrow.faults.zoo.bug import Bug

from ..suites import PASSED, TESTS_FAILED, SuiteRun, run_suite


def run_planted(command: Sequence[str], bug: Bug | None, environment: Mapping[str, str]) -> SuiteRun:
    """Run the suite, with `bug` planted or without one."""
    return run_suite(command, environment, options=() if bug is None else ("--harrow-plant", bug.module))


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


def check_planted_run(run: SuiteRun, bug: Bug) -> None:
    """Raise ConfigError where a run with a bug ended for another reason than failed tests."""
    if run.exit_code not in (PASSED, TESTS_FAILED) or not run.clusters:
        raise ConfigError(
            f"--suite: the run with {bug.name} ended with exit code {run.exit_code} and "
            f"{run.clusters} clusters, which says nothing about the bug. The end of its output:\n{run.output}"
        )
