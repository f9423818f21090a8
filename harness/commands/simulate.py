"""`harrow simulate`: whole clusters on a virtual clock under random faults, many seeds, some at a time.

Each seed is five brokers and the registry in one process, a function of its number: `--replay` prints the trace
of a single seed, the same bytes every time; `--record FILE` writes its schedule, resolved. `--schedule FILE` runs
such a file, or one that `harrow chaos` recorded on real processes, and prints its trace. Seeds go in small
batches to worker processes. What is not valid is printed at once, and its schedule is written beside
`ledger.jsonl`, which gets a line a seed and to which several runs may add. `--workload exactly-once` adds a job with
transactions and what an operator does (`simulation/transform_workload.py`); `--workload shares` adds a share group
(`simulation/share_workload.py`). `--search guided` changes the given seeds:
their faults come closer together, and some runs are mutations of runs that reached something new (`search/guided.py`).
Each job has a search of its own.

Exit code 0: no seed was invalid, and at least one was valid.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from harrow.cluster.broker import preload
from harrow.faults.runs import ORDERS, SIMULATED_WORKLOADS, SimulationOptions
from harrow.faults.schedule import Schedule
from rich.console import Console
from rich.table import Table

from .. import out_folder
from ..search.guided import SEEDS_A_RUN, GuidedSearch
from ..simulation import SimulationResult, plan_seed, run_schedule, run_seed
from ..simulation.coverage import Coverage
from .out_option import out_option
from .progress import ProgressLine
from .schedule_files import read_schedule
from .settings import plant_option
from .worker_processes import results_here_or_of

BATCH = 20
"""Seeds that a worker runs for each task."""
GUIDED_BATCH = 400
"""Runs of one guided search: one task of a worker."""
RANDOM, GUIDED = "random", "guided"
ANOMALIES_SHOWN = 4


def run_batch(seeds: Sequence[int], options: SimulationOptions) -> list[SimulationResult]:
    """Run some seeds, one after the other, in a worker process."""
    prepare_process()
    return [run_seed(seed, options) for seed in seeds]


def run_guided(seeds: Sequence[int], options: SimulationOptions) -> list[SimulationResult]:
    """Run a guided search of as many runs as there are seeds, in a worker process; searches share no plans."""
    prepare_process()
    search = GuidedSearch(seeds[0] * SEEDS_A_RUN, lambda seed: plan_seed(seed, options))
    results = list[SimulationResult]()
    for _ in seeds:
        result = run_schedule(search.propose(), keep_coverage=True)
        search.learn(result)
        reached = Coverage() if result.coverage is None else result.coverage
        results.append(replace(result, coverage=replace(reached, moments=())))
    return results


def prepare_process() -> None:
    """Import everything, and let the collection at the end of each seed not visit modules."""
    preload()
    gc.collect()
    gc.freeze()


@click.command()
@click.option("--seeds", type=click.IntRange(1, 10_000_000), default=200, show_default=True, help="how many")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="the first one")
@click.option("--jobs", type=click.IntRange(1, 256), default=2, show_default=True, help="worker processes")
@click.option("--brokers", type=click.IntRange(3, 25), default=5, show_default=True, help="of each cluster")
@click.option(
    "--seconds", type=click.FloatRange(0.5, 600), default=8.0, show_default=True, help="of faults a seed, virtual"
)
@click.option("--power-loss", is_flag=True, help="power losses too; brokers then sync before they acknowledge")
@click.option(
    "--workload",
    type=click.Choice(SIMULATED_WORKLOADS),
    default=ORDERS,
    show_default=True,
    help="orders: a producer and a reader; exactly-once: also a job with transactions, in three processes that are "
    "killed, and changed settings, deleted records, compaction and power losses; shares: also a share group of three "
    "processes that are killed, and that accept, release and reject records",
)
@click.option(
    "--search",
    type=click.Choice((RANDOM, GUIDED)),
    default=RANDOM,
    show_default=True,
    help="random: one seed after the other; guided: the densest of several plans each time, and "
    "changes of runs that reached something new",
)
@plant_option
@click.option("--replay", type=click.IntRange(0), default=None, help="print the trace of this seed")
@click.option(
    "--schedule",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="run this schedule and print its trace",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="write what was done: a schedule that --schedule repeats byte for byte",
)
@out_option
def command(
    seeds: int,
    seed: int,
    jobs: int,
    brokers: int,
    seconds: float,
    power_loss: bool,
    workload: str,
    search: str,
    plants: tuple[str, ...],
    replay: int | None,
    file: Path | None,
    record: Path | None,
    out: Path,
) -> None:
    """Run simulated clusters under random faults for many seeds."""
    options = SimulationOptions(
        brokers=brokers, seconds=seconds, power_loss=power_loss, plants=plants, workload=workload
    )
    if replay is not None and file is not None:
        raise click.UsageError("--replay names a seed and --schedule a file; give one of the two")
    if file is not None:
        sys.exit(run_once(read_schedule(file), record))
    if replay is not None:
        sys.exit(run_once(plan_seed(replay, options), record))
    if record is not None:
        raise click.UsageError("--record needs --replay SEED or --schedule FILE")
    out_folder.prepare(out)
    folder = out / "simulate"
    folder.mkdir(exist_ok=True)
    results = run_seeds(range(seed, seed + seeds), options, jobs, folder, guided=search == GUIDED)
    Console().print(summary(results))
    counts = Counter(result.status for result in results)
    sys.exit(0 if counts["valid"] and not counts["invalid"] else 1)


def run_seeds(
    seeds: range, options: SimulationOptions, jobs: int, folder: Path, *, guided: bool = False
) -> list[SimulationResult]:
    """Run the seeds; print what is not valid and write its schedule, and a line a seed in the ledger.

    Several runs of a guided search may have one seed, so their schedules are numbered: `guided-17.json`.
    """
    console, results = Console(), list[SimulationResult]()
    with (
        (folder / "ledger.jsonl").open("a", encoding="utf-8") as ledger,
        ProgressLine(lambda: progress(results, len(seeds))) as line,
    ):
        for batch in batches(seeds, options, jobs, guided=guided):
            for result in batch:
                results.append(result)
                ledger.write(result.to_json() + "\n")
                if result.status != "valid":
                    name = f"guided-{len(results)}" if guided else f"seed-{result.seed}"
                    path = folder / f"{name}.json"
                    path.write_text(result.schedule.to_json(), encoding="utf-8")
                    text = f"{path.name}: {line_of(result)}" if guided else line_of(result)
                    with line.hidden():
                        console.print(text, highlight=False, markup=False)
            ledger.flush()
    return results


def run_once(planned: Schedule, record: Path | None) -> int:
    """Run one schedule and print its trace; return the exit code."""
    result = run_schedule(planned, keep_trace=True)
    click.echo(result.trace, nl=False)
    click.echo(line_of(result), err=True)
    if record is not None:
        record.write_text(result.schedule.to_json(), encoding="utf-8")
    return 1 if result.status == "invalid" else 0


def batches(
    seeds: range, options: SimulationOptions, jobs: int, *, guided: bool = False
) -> Iterator[list[SimulationResult]]:
    """Yield the results batch by batch, in the order in which batches end; a single job runs in this process."""
    size = min(GUIDED_BATCH, -(-len(seeds) // jobs)) if guided else BATCH
    run = run_guided if guided else run_batch
    tasks = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    yield from results_here_or_of(jobs, [partial(run, task, options) for task in tasks])


def line_of(result: SimulationResult) -> str:
    """One seed in a few lines."""
    lines = [f"PLANTED BUG {bug}" for bug in result.planted]
    lines += [f"{name}: {text}" for name, text in result.anomalies[:ANOMALIES_SHOWN]]
    found = "".join(f"\n    {line}" for line in [*lines, *result.reasons])
    return (
        f"seed {result.seed}: {result.status}, {result.acknowledged} acknowledged, {len(result.faults)} faults, "
        f"well after {result.converged_ms} ms, trace {result.trace_sha256[:12]}{found}"
    )


def progress(results: Sequence[SimulationResult], of: int) -> str:
    """Return the text of the line that a run shows."""
    seen = list(results)
    counts = Counter(result.status for result in seen)
    shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "none yet"
    return (
        f"{len(seen):,} of {of:,} seeds: {shown}; {sum(r.acknowledged for r in seen):,} records acknowledged, "
        f"{sum(len(r.faults) for r in seen):,} faults"
    )


def summary(results: Iterable[SimulationResult]) -> Table:
    """How many seeds were what, which anomalies were found, and what happened in them."""
    rows = list(results)
    table = Table(title=f"{len(rows)} simulated seeds", title_justify="left")
    table.add_column("what")
    table.add_column("number", justify="right")
    for status, count in sorted(Counter(row.status for row in rows).items()):
        table.add_row(status, f"{count:,}")
        same = [row for row in rows if row.status == status]
        names = Counter(name for row in same for name in {anomaly for anomaly, _ in row.anomalies})
        for name, seeds in sorted(names.items()):
            table.add_row(f"  with {name}", f"{seeds:,}")
        lossy = sum(bool(row.losses) for row in same)
        if lossy:
            table.add_row("  with outputs lost by unclean elections that the topic allows", f"{lossy:,}")
    table.add_row("acknowledged records", f"{sum(row.acknowledged for row in rows):,}")
    table.add_row("faults that took effect", f"{sum(len(row.faults) for row in rows):,}")
    kinds = Counter[str]()
    for row in rows:
        kinds.update(row.kinds)
    for kind, count in sorted(kinds.items()):
        table.add_row(f"  {kind}", f"{count:,}")
    reached = {name for row in rows if row.coverage is not None for name in row.coverage.features}
    if reached:
        table.add_row("features of the cluster's behaviour that were reached", f"{len(reached):,}")
    table.add_row("leaders elected", f"{sum(row.elections for row in rows):,}")
    well = [row.converged_ms for row in rows if row.converged_ms >= 0]
    if well:
        table.add_row("longest from healing to all well, virtual ms", f"{max(well):,}")
    return table
