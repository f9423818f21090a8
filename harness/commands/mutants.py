"""`harrow mutants --suite COMMAND`: which bugs of a service's Kafka clients its tests notice, and why not the others.

The command runs once without a mutant, and must pass. Then it runs once with each mutant, in the brokers (any
language) or in the Python clients of all its processes. A table says which tests killed each, or why it survived;
`mutants.json` in the out folder has the same.

Exit code 0: the score is at least `--threshold`; 1: it is lower, or the tests do not pass without a mutant.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from harrow.cluster.errors import ConfigError
from harrow.cluster.mutants.changing_link import MUTANT
from rich.console import Console
from rich.table import Table

from .. import out_folder
from ..mutant_rows import ROWS, read_rows
from ..mutants import injected
from ..mutants.catalogue import CLIENT, Mutant, mutants_named
from ..mutants.score import KILLED, SURVIVED, MutantResult, result_of, score
from ..suites import PASSED, TESTS_FAILED, SuiteRun, SuiteTimeoutError, check_command, run_suite, shown_tests
from .out_option import out_option
from .progress import ProgressLine

FILE = "mutants.json"
TIMES_LONGER, AT_LEAST_S = 5, 300.0
"""A run with a mutant may take so many times as long as the one without, and so long in any case."""
TEXT_SHOWN = 160
INJECTED = Path(next(iter(injected.__path__)))


@click.command()
@click.argument("names", nargs=-1, metavar="[MUTANT]...")
@click.option("--suite", metavar="COMMAND", default=None, help="what runs your tests, such as --suite 'pytest tests/'")
@click.option("--list", "listing", is_flag=True, help="list the mutants, and end")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="mutants at a time")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 100),
    default=0,
    show_default=True,
    help="least score in percent: killed of those that your tests execute",
)
@out_option
def command(names: tuple[str, ...], suite: str | None, listing: bool, jobs: int, threshold: float, out: Path) -> None:
    """Put bugs of Kafka clients into your services, one at a time, and say which of them your tests notice.

    MUTANT: a name of the list (harrow mutants --list); by default all of them.
    """
    mutants = mutants_named(names)
    if listing:
        Console().print(listed(mutants))
        return
    if suite is None:
        raise click.UsageError("give the command that runs your tests: --suite 'pytest tests/'")
    words = check_command(suite)
    console = Console()
    with ProgressLine(lambda: "your tests, without a mutant"):
        baseline = run_suite(words, os.environ)
    check_baseline(baseline)
    console.print(f"{baseline.tests} tests passed without a mutant, in {baseline.seconds:.0f} s", highlight=False)
    results = run_all(words, mutants, baseline, jobs)
    console.print(table_of(results))
    killed, executed = score(results)
    percent = 100 * killed / executed if executed else 0.0
    console.print(f"score: {killed} of {executed} executed mutants killed ({percent:.0f} %)", highlight=False)
    out_folder.prepare(out)
    document = {"suite": suite, "score": percent, "mutants": [result.to_json() for result in results]}
    (out / FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    console.print(f"{out / FILE}", highlight=False)
    if not executed:
        console.print("no test has a client that any mutant changes", style="red")
    sys.exit(0 if executed and percent >= threshold else 1)


def listed(mutants: Sequence[Mutant]) -> Table:
    """Return the list of mutants."""
    table = Table(title="mutants of Kafka clients", title_justify="left")
    for name in ("name", "what it does", "in", "breaks", "shown by"):
        table.add_column(name)
    for mutant in mutants:
        where = "Python clients" if mutant.where == CLIENT else "any client"
        table.add_row(mutant.name, mutant.words, where, ", ".join(sorted(mutant.breaks)), mutant.shown_by or "no fault")
    return table


def check_baseline(run: SuiteRun) -> None:
    """Raise ConfigError where the run without a mutant shows that the suite cannot be measured."""
    if run.exit_code != PASSED or not run.tests:
        raise ConfigError(
            f"--suite: your tests do not pass without a mutant ({run.tests} tests, exit code {run.exit_code}); make "
            f"them pass first. The end of their output:\n{run.output}"
        )


def run_all(words: Sequence[str], mutants: Sequence[Mutant], baseline: SuiteRun, jobs: int) -> list[MutantResult]:
    """Run the suite with each mutant."""
    timeout_s = max(AT_LEAST_S, TIMES_LONGER * baseline.seconds)
    done: list[str] = []

    def run(mutant: Mutant) -> MutantResult:
        result = run_with(words, mutant, timeout_s)
        done.append(mutant.name)
        return result

    with ProgressLine(lambda: f"{len(done)} of {len(mutants)} mutants"), ThreadPoolExecutor(jobs) as threads:
        return list(threads.map(run, mutants))


def run_with(words: Sequence[str], mutant: Mutant, timeout_s: float) -> MutantResult:
    """Run the suite with one mutant; ConfigError where it ended for another reason than failed tests."""
    with tempfile.TemporaryDirectory(prefix="harrow-mutant-") as scratch:
        rows = Path(scratch, "rows.jsonl")
        try:
            run = run_suite(words, environment_of(mutant, rows), timeout_s=timeout_s)
        except SuiteTimeoutError:
            return result_of(mutant, {}, read_rows(rows), seconds=timeout_s, endless=True)
        if run.exit_code not in (PASSED, TESTS_FAILED) or not run.tests:
            raise ConfigError(
                f"--suite: the run with {mutant.name} ended with exit code {run.exit_code} and {run.tests} tests, "
                f"which says nothing about the mutant. The end of its output:\n{run.output}"
            )
        return result_of(mutant, run.failed, read_rows(rows), anomalies=run.anomalies, seconds=run.seconds)


def environment_of(mutant: Mutant, rows: Path) -> Mapping[str, str]:
    """Return the environment of a suite with a mutant."""
    given = dict(os.environ) | {MUTANT: mutant.name, ROWS: str(rows)}
    if mutant.where == CLIENT:
        given["PYTHONPATH"] = os.pathsep.join(filter(None, (str(INJECTED), os.environ.get("PYTHONPATH", ""))))
    return given


def table_of(results: Sequence[MutantResult]) -> Table:
    """Return what happened to each mutant."""
    table = Table(title="your tests against mutants of Kafka clients", title_justify="left")
    for name in ("mutant", "state", "by, or why not"):
        table.add_column(name)
    styles = {KILLED: "green", SURVIVED: "red"}
    for result in results:
        text = result.reason[:TEXT_SHOWN]
        if result.state == KILLED:
            seen = ", ".join(result.anomalies) or text
            text = f"{shown_tests(result.tests)}: {seen}" if result.tests else text
        table.add_row(result.mutant.name, result.state, text, style=styles.get(result.state, "dim"))
    return table
