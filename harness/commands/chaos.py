"""`harrow chaos`: a small application under random faults for many seeds, two at a time, one ledger.

Each seed is a process of its own with a cluster of its own; all share one Spark. A line a seed, a table at the end, and
`ledger.jsonl` to which several runs may add. `--schedule FILE` replays a recorded schedule instead, on the cluster that
the file describes: its own `schedule.json`, or one that `harrow simulate` wrote. Exit code 0: every run was valid (with
a `--variant` other than safe: always, the table is the result).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..scenario import (
    REPERTOIRES,
    USUAL_BROKERS,
    VARIANTS,
    ChaosResult,
    recorded_scenario,
    run_scenario,
    run_seed,
)
from ..schedule_files import read_schedule
from .settings import plant_option


@click.command()
@click.option(
    "--seeds", type=click.IntRange(1, 100_000), default=20, show_default=True, help="how many"
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="the first one")
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600),
    default=5.0,
    show_default=True,
    help="of faults a seed",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="seeds at a time"
)
@click.option("--variant", type=click.Choice(list(VARIANTS)), default="safe", show_default=True)
@click.option(
    "--brokers",
    type=click.IntRange(1, 64),
    default=USUAL_BROKERS,
    show_default=True,
    help="of each seed's cluster; the topic has three replicas where they are three or more",
)
@click.option(
    "--faults",
    type=click.Choice(list(REPERTOIRES)),
    default="usual",
    show_default=True,
    help="; ".join(f"{name}: {', '.join(kinds)}" for name, kinds in REPERTOIRES.items()),
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("harrow-out"), show_default=True
)
@click.option("--spark", default="", help="your own Spark master or Connect address")
@click.option(
    "--schedule", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
    help="replay this schedule instead",
)  # fmt: skip
@plant_option
@click.option("--keep", is_flag=True, help="keep the folders of valid seeds too")
def command(
    seeds: int,
    seed: int,
    seconds: float,
    jobs: int,
    variant: str,
    brokers: int,
    faults: str,
    out: Path,
    spark: str,
    file: Path | None,
    plants: tuple[str, ...],
    keep: bool,
) -> None:
    """Run the scenario with random faults for many seeds."""
    from ..checks import SparkHandle

    console = Console()
    recorded = None if file is None else read_schedule(file)
    name = folder_name(variant, brokers, faults) if recorded is None else "chaos-recorded"
    base = (out / name).absolute()
    base.mkdir(parents=True, exist_ok=True)
    # Spark ends with this process; the seeds' processes are its clients
    SparkHandle.of_run(base).request()
    if file is not None and recorded is not None:
        scenario = recorded_scenario(recorded, f"harrow chaos --schedule {file}")
        if plants:
            scenario = replace(scenario, plants=plants)
        result = run_scenario(scenario, base / file.stem, spark=spark, keep=keep)
        console.print(_line(result, 1, 1), highlight=False)
        sys.exit(0 if result.status == "valid" else 1)
    results: list[ChaosResult] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: list[Future[ChaosResult]] = [
            pool.submit(
                run_seed,
                number,
                base / f"seed-{number}",
                seconds=seconds,
                variant=variant,
                spark=spark,
                keep=keep,
                brokers=brokers,
                repertoire=faults,
                plants=plants,
            )
            for number in range(seed, seed + seeds)
        ]
        for future in as_completed(running):
            result = future.result()
            results.append(result)
            with (base / "ledger.jsonl").open("a", encoding="utf-8") as ledger:
                ledger.write(result.to_json() + "\n")
            console.print(_line(result, len(results), seeds), highlight=False)
    console.print(summary(results))
    sys.exit(0 if variant != "safe" or all(o.status == "valid" for o in results) else 1)


def folder_name(variant: str, brokers: int, faults: str) -> str:
    """Return the folder of runs of one sort below `--out`: they share a ledger."""
    usual = (brokers, faults) == (USUAL_BROKERS, "usual")
    return f"chaos-{variant}" if usual else f"chaos-{variant}-{brokers}-{faults}"


def _line(result: ChaosResult, done: int, of: int) -> str:
    found = ", ".join(f"{n} {name}" for name, n in result.anomalies.items())
    colour = {"valid": "green", "invalid": "red"}.get(result.status, "yellow")
    why = found or "; ".join(result.reasons)
    return (
        f"{done:>4}/{of} seed {result.seed}: [{colour}]{result.status}[/{colour}] "
        f"{result.acknowledged:,} acknowledged, {_kinds(result)}, {result.elections} elections, "
        f"{result.seconds} s {why}"
    )


def _kinds(result: ChaosResult) -> str:
    shown = ", ".join(f"{count} {kind}" for kind, count in result.kinds.items())
    return f"{result.faults} faults" + (f" ({shown})" if shown else "")


def summary(results: Iterable[ChaosResult]) -> Table:
    """How many seeds were what, and which anomalies were found in how many of them."""
    rows = list(results)
    table = Table(title=f"{len(rows)} seeds", title_justify="left")
    table.add_column("what")
    table.add_column("seeds", justify="right")
    for status, count in sorted(Counter(o.status for o in rows).items()):
        table.add_row(status, str(count))
    for name, count in sorted(Counter(name for o in rows for name in o.anomalies).items()):
        table.add_row(f"  with {name}", str(count))
    table.add_row("acknowledged records", f"{sum(o.acknowledged for o in rows):,}")
    table.add_row("faults that took effect", f"{sum(o.faults for o in rows):,}")
    kinds = Counter[str]()
    for result in rows:
        kinds.update(result.kinds)
    for kind, count in sorted(kinds.items()):
        table.add_row(f"  {kind}", f"{count:,}")
    table.add_row("elections", f"{sum(o.elections for o in rows):,}")
    return table
