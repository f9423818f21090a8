"""`harrow simulate`: whole clusters on a virtual clock under random faults, many seeds, some at a time.

Each seed is five brokers and the registry in one process, a function of its number: `--replay` prints the trace of
one, the same bytes every time. Seeds go in small batches to worker processes; what is not valid is printed at once,
the rest counted; `ledger.jsonl` in the output folder gets a line a seed, and several runs may add to it.

Exit code 0: no seed was invalid, and at least one was valid.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..simulation import Outcome, SimulationOptions, run_seed

BATCH = 20
"""Seeds that a worker runs for each errand."""
PROGRESS = 200
ANOMALIES_SHOWN = 4


def run_batch(seeds: Sequence[int], options: SimulationOptions) -> list[Outcome]:
    """Some seeds, one after the other; what a worker process does."""
    return [run_seed(seed, options) for seed in seeds]


@click.command()
@click.option(
    "--seeds", type=click.IntRange(1, 10_000_000), default=200, show_default=True, help="how many"
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="the first one")
@click.option(
    "--jobs", type=click.IntRange(1, 256), default=2, show_default=True, help="worker processes"
)
@click.option(
    "--brokers", type=click.IntRange(3, 25), default=5, show_default=True, help="of each cluster"
)
@click.option(
    "--seconds", type=click.FloatRange(0.5, 600), default=8.0, show_default=True,
    help="of faults a seed, virtual",
)  # fmt: skip
@click.option(
    "--power", is_flag=True, help="power cuts too; brokers then sync before they acknowledge"
)
@click.option("--replay", type=click.IntRange(0), default=None, help="print the trace of this seed")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("harrow-out"), show_default=True
)
def command(
    seeds: int,
    seed: int,
    jobs: int,
    brokers: int,
    seconds: float,
    power: bool,
    replay: int | None,
    out: Path,
) -> None:
    """Run simulated clusters under random faults for many seeds."""
    options = SimulationOptions(
        brokers=brokers, seconds=seconds, power=power, keep_trace=replay is not None
    )
    if replay is not None:
        outcome = run_seed(replay, options)
        click.echo(outcome.trace, nl=False)
        click.echo(line_of(outcome), err=True)
        sys.exit(1 if outcome.status == "invalid" else 0)
    folder = out / "simulate"
    folder.mkdir(parents=True, exist_ok=True)
    console, began = Console(), time.monotonic()
    outcomes: list[Outcome] = []
    with (folder / "ledger.jsonl").open("a", encoding="utf-8") as ledger:
        for batch in batches(range(seed, seed + seeds), options, jobs):
            for outcome in batch:
                outcomes.append(outcome)
                ledger.write(outcome.to_json() + "\n")
                if outcome.status != "valid":
                    console.print(line_of(outcome), highlight=False, markup=False)
            ledger.flush()
            if len(outcomes) % PROGRESS < BATCH or len(outcomes) == seeds:
                console.print(progress(outcomes, seeds, time.monotonic() - began), highlight=False)
    console.print(summary(outcomes))
    counts = Counter(outcome.status for outcome in outcomes)
    sys.exit(0 if counts["valid"] and not counts["invalid"] else 1)


def batches(seeds: range, options: SimulationOptions, jobs: int) -> Iterator[list[Outcome]]:
    """Outcomes as they come, a batch at a time; one job needs no other process."""
    errands = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    if jobs == 1:
        yield from (run_batch(errand, options) for errand in errands)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run_batch, errand, options) for errand in errands]
        for future in as_completed(running):
            yield future.result()


def line_of(outcome: Outcome) -> str:
    """One seed in a few lines."""
    found = "".join(f"\n    {name}: {text}" for name, text in outcome.anomalies[:ANOMALIES_SHOWN])
    return (
        f"seed {outcome.seed}: {outcome.status}, {outcome.acknowledged} acknowledged, {len(outcome.faults)} faults, "
        f"well after {outcome.converged_ms} ms, trace {outcome.trace_sha256[:12]}{found}"
    )


def progress(outcomes: Sequence[Outcome], of: int, seconds: float) -> str:
    """Where a run is."""
    counts = Counter(outcome.status for outcome in outcomes)
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{len(outcomes)}/{of} seeds in {seconds:.0f} s: {said}"


def summary(outcomes: Iterable[Outcome]) -> Table:
    """How many seeds were what, which anomalies were found, and what happened in them."""
    rows = list(outcomes)
    table = Table(title=f"{len(rows)} simulated seeds", title_justify="left")
    table.add_column("what")
    table.add_column("number", justify="right")
    for status, count in sorted(Counter(row.status for row in rows).items()):
        table.add_row(status, f"{count:,}")
    names = Counter(name for row in rows for name in {anomaly for anomaly, _ in row.anomalies})
    for name, count in sorted(names.items()):
        table.add_row(f"  with {name}", f"{count:,}")
    table.add_row("acknowledged records", f"{sum(row.acknowledged for row in rows):,}")
    table.add_row("faults that took effect", f"{sum(len(row.faults) for row in rows):,}")
    kinds = Counter(fault.split(" ")[0] for row in rows for fault in row.faults)
    for kind, count in sorted(kinds.items()):
        table.add_row(f"  {kind}", f"{count:,}")
    table.add_row("leaders elected", f"{sum(row.elections for row in rows):,}")
    well = [row.converged_ms for row in rows if row.converged_ms >= 0]
    if well:
        table.add_row("longest from healing to all well, virtual ms", f"{max(well):,}")
    return table
