"""`harrow zoo`: how surely each bug of the zoo is found; `--suite`: which of them your tests would notice (M1, M2).

Each trial is a search with a budget of time: runs with the planted bug, until one has an anomaly that names it. Trials
go to worker processes. `ledger.jsonl` gets a line for each trial, the schedule that found a bug is written beside it,
and every run that had an anomaly without the bug is reported as a false alarm.

Exit code 0: every bug was found in at least `--floor` of its trials, and there was no false alarm. With `--suite`:
0 where the suite caught every bug.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from harrow.faults.schedule import Schedule
from harrow.faults.zoo.bug import Bug
from rich.console import Console
from rich.table import Table

from .. import out_folder
from ..suites import SuiteRun, check_command, shown_tests
from ..zoo.alarms import SOURCES, judge_unplanted
from ..zoo.catalog import ZOO, bug_named
from ..zoo.fewest_faults import fewest_faults
from ..zoo.suite import check_baseline, check_planted_run, run_planted
from ..zoo.table import ON_PROCESSES, SIMULATED, Measured, check_page, terminal_table, wilson_interval, write_into
from ..zoo.trial import BUDGET_S, DIRECTED, EVENTS, SEARCHES, Runs, Trial, run_trial
from .out_option import out_option
from .progress import ProgressLine
from .worker_processes import results_here_or_of

SHRUNK_MOST, SHRUNK_MOST_REAL = 3, 1
"""How many schedules of each bug are shrunk, in simulation and on real processes."""
FLOOR = 0.95
ALARM_BATCH = 120
"""The runs of the guided search among them, a third or all, are one search."""
MESSAGE_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all trials of a measurement share."""

    search: str
    budget_s: float
    shrunk: int
    """The schedules of so many trials of each bug are shrunk."""
    real: Path | None
    """The folder of runs on real processes; None: simulation."""


def trial_of(bug: Bug, number: int, settings: Settings, *, shrinks: bool) -> tuple[Trial, Schedule | None]:
    """Run one trial in a worker process; return it, and its schedule with fewer faults where it was shrunk."""
    where: Runs | None = None
    if settings.real is not None:
        from ..zoo.directed import settings_on_processes
        from ..zoo.real import RealRuns

        where = RealRuns(settings.real, f"{bug.name}-{number}", settings_on_processes(bug))
    trial = run_trial(bug, number, settings.search, budget_s=settings.budget_s, where=where)
    if trial.schedule is None or not shrinks:
        return trial, None
    fewest = fewest_faults(bug, trial.schedule, where)
    if fewest.false_alarm is not None:
        trial = replace(trial, false_alarms=(*trial.false_alarms, fewest.false_alarm))
    return trial, fewest.schedule


@click.command()
@click.argument("names", nargs=-1, metavar="[BUG]...")
@click.option("--list", "listing", is_flag=True, help="list the bugs, and end")
@click.option(
    "--trials", type=click.IntRange(1, 10_000), default=None, help="for each bug  [default: 30; with --suite 1]"
)
@click.option(
    "--first",
    type=click.IntRange(0, 100_000),
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="number of the first trial, or of the first run of --alarms; each number has seeds of its own",
)
@click.option(
    "--search",
    type=click.Choice(list(SEARCHES)),
    default=None,
    show_default=f"{DIRECTED}; with --alarms three in turn",
    help="directed: faults in the order that the bug needs, at random times; events: the same without times, each "
    "fault waits for what it needs; random: faults, application and settings "
    "are drawn, whichever bug is planted; guided: as random, and runs that reached something new are mutated",
)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(1, 86_400),
    default=BUDGET_S,
    show_default=True,
    help="seconds of a trial: processor time in simulation, wall time with --real",
)
@click.option("--real", is_flag=True, help="on real processes, with the application of harrow chaos")
@click.option("--jobs", type=click.IntRange(1, 256), default=2, show_default=True, help="trials at a time")
@click.option(
    "--shrink/--no-shrink",
    default=True,
    show_default=True,
    help=f"leave out faults of the schedules that the first {SHRUNK_MOST} trials of each bug found, with --real of the "
    "first one's, as long as they find the bug",
)
@click.option("--floor", type=click.FloatRange(0, 1), default=FLOOR, show_default=True, help="least rate of each bug")
@click.option(
    "--write",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="write the rows of the measured bugs into the table of this page, such as docs/zoo.md",
)
@click.option(
    "--suite",
    metavar="COMMAND",
    default=None,
    help="run your tests against each bug instead, such as --suite 'pytest tests/'",
)
@click.option(
    "--alarms",
    "alarms",
    type=click.IntRange(1, 10_000_000),
    default=None,
    metavar="RUNS",
    help="judge so many runs of the searches on brokers without a bug instead, where each anomaly is a false alarm",
)
@out_option
def command(names: tuple[str, ...], **given: Any) -> None:
    """Search for bugs that Kafka really had, and print how surely and how soon each is found.

    BUG: a number or a name of the list (harrow zoo --list); by default all of them.
    """
    bugs = [bug_named(name) for name in names] or list(ZOO)
    if given["listing"]:
        Console().print(listed(bugs))
        return
    trials: int | None = given["trials"]
    if given["suite"] is not None:
        sys.exit(zoo_of_suite(bugs, given["suite"], 1 if trials is None else trials))
    if given["alarms"] is not None:
        if given["search"] not in (None, *SOURCES):
            raise click.UsageError(f"--alarms judges runs of these searches: {', '.join(SOURCES)}")
        numbers = range(given["first"], given["first"] + given["alarms"])
        sys.exit(alarms_of_zoo(bugs, numbers, given["search"], given["jobs"], given["out"]))
    if given["page"] is not None:
        check_page(given["page"], ON_PROCESSES if given["real"] else SIMULATED)
    if given["real"]:
        if given["search"] not in (None, EVENTS):
            raise click.UsageError("--real has a search of its own, by events; leave --search out")
        given["search"] = EVENTS
    out_folder.prepare(given["out"])
    folder: Path = given["out"] / "zoo"
    folder.mkdir(exist_ok=True)
    settings = Settings(
        search=given["search"] or DIRECTED,
        budget_s=given["budget_s"],
        shrunk=(SHRUNK_MOST_REAL if given["real"] else SHRUNK_MOST) if given["shrink"] else 0,
        real=(folder / "real").absolute() if given["real"] else None,
    )
    if settings.real is not None:
        from ..verdict.verifier import spark_of_run

        # it ends with this process; the processes of the trials are its clients
        spark_of_run(settings.real).request()
    numbers = range(given["first"], given["first"] + (30 if trials is None else trials))
    rows = measure(bugs, numbers, given["jobs"], settings, folder)
    title = f"{settings.search} search{' on real processes' if given['real'] else ' in simulation'}"
    Console().print(terminal_table(rows, title))
    if given["page"] is not None:
        write_into(given["page"], rows, ON_PROCESSES if given["real"] else SIMULATED)
    alarms = [trial for row in rows for trial in row.trials if trial.false_alarms]
    sys.exit(0 if not alarms and all(row.rate >= given["floor"] for row in rows) else 1)


def listed(bugs: Iterable[Bug]) -> Table:
    """Return the list of bugs."""
    table = Table(title="the zoo", title_justify="left")
    for name in ("number", "name", "known as", "seen as"):
        table.add_column(name)
    for bug in bugs:
        table.add_row(str(bug.number), bug.name, bug.known_as, ", ".join(sorted(bug.seen_as)))
    return table


def measure(bugs: Sequence[Bug], numbers: range, jobs: int, settings: Settings, folder: Path) -> list[Measured]:
    """Run all trials; write the ledger and the schedules, and report false alarms as they come."""
    console = Console()
    tasks = [
        partial(trial_of, bug, number, settings, shrinks=number - numbers.start < settings.shrunk)
        for bug in bugs
        for number in numbers
    ]
    done = defaultdict[str, list[Trial]](list)
    shrunk = defaultdict[str, list[int]](list)

    def describe() -> str:
        ended = [trial for of_bug in list(done.values()) for trial in list(of_bug)]
        found = sum(trial.found for trial in ended)
        return f"{len(ended)} of {len(tasks)} trials, {found} found"

    with (folder / "ledger.jsonl").open("a", encoding="utf-8") as ledger, ProgressLine(describe) as line:
        for trial, smaller in results_here_or_of(jobs, tasks):
            done[trial.bug].append(trial)
            if smaller is not None:
                shrunk[trial.bug].append(len(smaller.steps))
            ledger.write(ledger_line(trial, smaller) + "\n")
            ledger.flush()
            for file in write_schedules(trial, smaller, folder):
                with line.hidden():
                    console.print(f"false alarm without a bug: harrow simulate --schedule {file}", style="red")
    return [Measured(bug=bug, trials=done[bug.name], shrunk=shrunk[bug.name]) for bug in bugs]


def write_schedules(trial: Trial, smaller: Schedule | None, folder: Path) -> list[Path]:
    """Write the schedule that found the bug, that with fewer faults, and false alarms; return the files of these."""
    name = f"{trial.bug}-{trial.number}"
    for ending, schedule in (("json", trial.schedule), ("shrunk.json", smaller)):
        if schedule is not None:
            (folder / f"{name}.{ending}").write_text(schedule.to_json(), encoding="utf-8")
    alarms: list[Path] = []
    for number, schedule in enumerate(trial.false_alarms, 1):
        alarms.append(folder / f"false-alarm-{name}-{number}.json")
        alarms[-1].write_text(schedule.to_json(), encoding="utf-8")
    return alarms


def ledger_line(trial: Trial, smaller: Schedule | None) -> str:
    """Return one trial as JSON, without schedules."""
    names = ("bug", "search", "number", "found", "seconds", "runs", "faults", "anomalies", "others")
    row: Mapping[str, Any] = {
        **{name: getattr(trial, name) for name in names},
        "false_alarms": len(trial.false_alarms),
        "shrunk_to": None if smaller is None else len(smaller.steps),
    }
    return json.dumps(row, separators=(",", ":"))


def alarms_of_zoo(bugs: Sequence[Bug], numbers: range, search: str | None, jobs: int, out: Path) -> int:
    """Judge runs without a bug; print and write each that has an anomaly; return the exit code."""
    out_folder.prepare(out)
    folder = out / "zoo"
    folder.mkdir(exist_ok=True)
    counts, alarms = Counter[str](), 0
    tasks = [
        partial(judge_unplanted, numbers[at : at + ALARM_BATCH], bugs, search)
        for at in range(0, len(numbers), ALARM_BATCH)
    ]
    console = Console()
    with ProgressLine(lambda: f"{counts.total():,} of {len(numbers):,} runs, {alarms} false alarms") as line:
        for results_of_task in results_here_or_of(jobs, tasks):
            for result in results_of_task:
                counts[result.status] += 1
                if not result.anomalies:
                    continue
                alarms += 1
                file = folder / f"false-alarm-{result.source}-{alarms}.json"
                file.write_text(result.schedule.to_json(), encoding="utf-8")
                names = ", ".join(result.anomalies)
                with line.hidden():
                    console.print(f"{names}: harrow simulate --schedule {file}", style="red", highlight=False)
    most = wilson_interval(alarms, len(numbers))[1]
    shown = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
    console.print(
        f"{len(numbers):,} runs without a bug: {shown}; {alarms} false alarms (95 %: at most {most:.2%} of the runs)",
        highlight=False,
    )
    return 1 if alarms else 0


# ------------------------------------------------------------------------------------- a suite of the user's


def zoo_of_suite(bugs: Sequence[Bug], words: str, runs: int) -> int:
    """Run the user's tests without a bug and then with each; print what they caught; return the exit code."""
    words_of_command = check_command(words)
    console = Console()
    with ProgressLine(lambda: "your tests, on brokers without a bug"):
        baseline = run_planted(words_of_command, None, os.environ)
    check_baseline(baseline)
    console.print(
        f"{baseline.tests} tests passed on brokers without a bug, on {baseline.clusters} clusters, "
        f"in {baseline.seconds:.0f} s",
        highlight=False,
    )
    measured: list[tuple[Bug, list[SuiteRun]]] = []
    for number, bug in enumerate(bugs, 1):
        with ProgressLine(partial("{} of {}: {}".format, number, len(bugs), bug.known_as)):
            of_bug = [run_planted(words_of_command, bug, os.environ) for _ in range(runs)]
        for run in of_bug:
            check_planted_run(run, bug)
        measured.append((bug, of_bug))
    console.print(table_of_suite(measured))
    missed = [bug for bug, of_bug in measured if not any(run.failed for run in of_bug)]
    if missed:
        console.print(
            f"let through: {', '.join(bug.known_as for bug in missed)}; see docs/zoo.md for what each needs",
            highlight=False,
        )
    return 1 if missed else 0


def table_of_suite(measured: Iterable[tuple[Bug, Sequence[SuiteRun]]]) -> Table:
    """Return which bugs the suite caught, by which tests, and by which anomaly or else which error."""
    table = Table(title="your tests against the zoo", title_justify="left")
    for name in ("bug", "caught", "by", "seen as"):
        table.add_column(name)
    for bug, runs in measured:
        caught = [run for run in runs if run.failed]
        tests = sorted({name for run in caught for name in run.failed})
        seen_as = sorted({name for run in caught for name in run.anomalies}) or [
            message[:MESSAGE_SHOWN] for run in caught[:1] for message in list(run.failed.values())[:1]
        ]
        table.add_row(
            bug.known_as,
            f"{len(caught)} of {len(runs)}" if caught else "let through",
            shown_tests(tests),
            ", ".join(seen_as),
        )
    return table
