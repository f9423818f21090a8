"""`harrow chaos`: a small application under random faults for many seeds, or a program of yours under faults.

Without a program: each seed is a process of its own with a cluster of its own; all share one Spark. A line a seed, a
table at the end, and `ledger.jsonl` to which several runs may add. `--schedule FILE` replays a recorded schedule
instead, on the cluster that the file describes: its own `schedule.json`, or one that `harrow simulate` wrote. Exit code
0: every run was valid (with a `--variant` of which seeds may be invalid: always, the table is the result).

`harrow chaos -- ./my-service ARGS` runs a program of yours instead (`chaos_program.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from harrow.cluster.errors import ConfigError
from harrow.faults.schedule import Schedule
from rich.console import Console
from rich.table import Table

from .. import out_folder
from ..user_spark import UserSpark
from ..workloads.by_name import check_workload
from ..workloads.scenario import (
    REPERTOIRES,
    USUAL_BROKERS,
    VARIANTS,
    ChaosResult,
    kinds_of,
    recorded_scenario,
    run_scenario,
    run_seed,
)
from .backend_options import backend_options, take_backend
from .chaos_program import chaos_of_program
from .live_counts import RunCounter, SeedsCounter
from .out_option import out_option
from .progress import ProgressLine
from .schedule_files import read_schedule
from .settings import plant_option
from .spark_options import spark_options
from .worker_processes import results_of

OF_SEEDS = ("seeds", "jobs", "variant", "workload")
"""Options without a meaning for a program of the user's."""
OF_NO_PROGRAM = ("faults",)
"""Options without a meaning for a program of the user's under a recorded schedule."""
OF_NO_SCHEDULE = (*OF_SEEDS, *OF_NO_PROGRAM, "seed", "seconds", "brokers")
"""Options without a meaning beside a recorded schedule."""
OF_PROGRAMS = ("guarantee", "topics", "settings")


def checked(check: Callable[[str], object], value: str | None) -> str | None:
    """Return the value of an option; a click error says why it cannot be used."""
    if value is not None:
        try:
            check(value)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from None
    return value


def check_faults(_: click.Context, __: click.Parameter, value: str) -> str | None:
    """Check `--faults`."""
    return checked(kinds_of, value)


def check_workload_option(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Check `--workload`."""
    return checked(check_workload, value)


@click.command()
@click.option("--seeds", type=click.IntRange(1, 100_000), default=20, show_default=True, help="how many")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="the first one")
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600),
    default=5.0,
    show_default=True,
    help="of faults a seed; for a program, which then receives SIGTERM, by default as long as it lives",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="seeds at a time")
@click.option("--variant", type=click.Choice(list(VARIANTS)), default="safe", show_default=True)
@click.option(
    "--workload",
    metavar="NAME",
    callback=check_workload_option,
    help="orders, exactly-once, or a workload of an extension (default: that of the variant)",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 64),
    default=USUAL_BROKERS,
    show_default=True,
    help="of each seed's cluster; the topic has three replicas where they are three or more",
)
@click.option(
    "--faults",
    metavar="NAME",
    default="usual",
    show_default=True,
    callback=check_faults,
    help="; ".join(f"{name}: {', '.join(kinds)}" for name, kinds in REPERTOIRES.items())
    + "; or kinds with commas, also those of extensions",
)
@out_option
@spark_options
@backend_options
@click.option(
    "--schedule",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="replay this schedule instead",
)
@plant_option
@click.option("--keep", is_flag=True, help="keep the data of valid runs too")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="for a program: create this topic before it starts; repeatable",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="for a program: a broker setting by Kafka's name; repeatable",
)
@click.option("--guarantee", help="for a program: such as no-loss or exactly-once,ordered; derived by default")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, /, program: tuple[str, ...], **given: Any) -> None:
    """Run a small application under random faults for many seeds, or PROGRAM under faults.

    PROGRAM follows after `--`. It finds the cluster in the environment variable KAFKA_BOOTSTRAP_SERVERS; {bootstrap} in
    its arguments is replaced by the same address.
    """
    explicit = {name for name in given if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for name in OF_SEEDS if program else OF_PROGRAMS:
        if name in explicit:
            option = {"topics": "topic", "settings": "set"}.get(name, name)
            why = "has no meaning for a program" if program else "needs a program: harrow chaos … -- ./my-service"
            raise click.UsageError(f"--{option} {why}")
    recorded = None if given["file"] is None else read_schedule(given["file"])
    given["spark"] = UserSpark(given["spark"], given.pop("spark_data"), given.pop("engine"))
    given["backend"] = take_backend(given)
    if recorded is not None:
        refuse_beside_schedule(explicit & set(OF_NO_PROGRAM if program else OF_NO_SCHEDULE))
    if program:
        sys.exit(chaos_of_program(program, recorded, explicit, given))
    if recorded is not None:
        sys.exit(chaos_of_schedule(recorded, given))
    sys.exit(chaos_of_seeds(given))


def refuse_beside_schedule(names: Iterable[str]) -> None:
    """Raise UsageError for the first option that a recorded schedule replaces."""
    for name in sorted(names):
        raise click.UsageError(f"--{name} has no meaning beside --schedule: the file says it")


# ------------------------------------------------------------------------------------- many seeds


def chaos_of_schedule(recorded: Schedule, given: Mapping[str, Any]) -> int:
    """Replay a recorded schedule; return the exit code."""
    base = _claim(given, "chaos-recorded")
    file: Path = given["file"]
    scenario = recorded_scenario(recorded, f"harrow chaos --schedule {file}")
    if given["plants"]:
        scenario = replace(scenario, plants=given["plants"])
    folder = base / file.stem
    counter = RunCounter(folder)
    with ProgressLine(lambda: str(counter.counts())):
        result = run_scenario(scenario, folder, spark=given["spark"], keep=given["keep"], backend=given["backend"])
    Console().print(_line(result, file.name), highlight=False)
    return 0 if result.status == "valid" else 1


def chaos_of_seeds(given: Mapping[str, Any]) -> int:
    """Run the scenario for many seeds; return the exit code."""
    first, count, variant = given["seed"], given["seeds"], given["variant"]
    base = _claim(given, folder_name(variant, given["brokers"], given["faults"], given["workload"]))
    console, results = Console(), list[ChaosResult]()
    counter = SeedsCounter(base / f"seed-{number}" for number in range(first, first + count))

    def describe() -> str:
        return f"{len(results)} of {count} seeds, {counter.counts()}"

    tasks = [
        partial(
            run_seed,
            number,
            base / f"seed-{number}",
            seconds=given["seconds"],
            variant=variant,
            spark=given["spark"],
            keep=given["keep"],
            brokers=given["brokers"],
            repertoire=given["faults"],
            plants=given["plants"],
            backend=given["backend"],
            workload=given["workload"],
        )
        for number in range(first, first + count)
    ]
    with ProgressLine(describe) as progress:
        for result in results_of(given["jobs"], tasks):
            results.append(result)
            with (base / "ledger.jsonl").open("a", encoding="utf-8") as ledger:
                ledger.write(result.to_json() + "\n")
            with progress.hidden():
                number = f"{len(results):>4}/{count} seed {result.seed}"
                console.print(_line(result, number), highlight=False)
    console.print(summary(results))
    bound = VARIANTS[variant].must_be_valid
    return 0 if not bound or all(o.status == "valid" for o in results) else 1


def _claim(given: Mapping[str, Any], name: str) -> Path:
    """Return the folder of these runs, and let Spark start for them."""
    from ..verdict.verifier import spark_of_run

    base = out_folder.claim((given["out"] / name).absolute())
    # it ends with this process; the seeds' processes are its clients
    spark_of_run(base, given["spark"]).request()
    return base


# -------------------------------------------------------------------------------------- results


def folder_name(variant: str, brokers: int, faults: str, workload: str | None = None) -> str:
    """Return the folder of runs of one sort below `--out`: they share a ledger."""
    usual = (brokers, faults) == (USUAL_BROKERS, "usual")
    name = f"chaos-{variant}" if workload is None else f"chaos-{variant}-{workload}"
    return name if usual else f"{name}-{brokers}-{faults.replace(',', '-')}"


def _line(result: ChaosResult, name: str) -> str:
    found = ", ".join(f"{n} {name}" for name, n in result.anomalies.items())
    colour = {"valid": "green", "invalid": "red"}.get(result.status, "yellow")
    why = found or "; ".join(result.reasons)
    return (
        f"{name}: [{colour}]{result.status}[/{colour}] "
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
        found = Counter(name for o in rows if o.status == status for name in o.anomalies)
        for name, seeds in sorted(found.items()):
            table.add_row(f"  with {name}", str(seeds))
    table.add_row("acknowledged records", f"{sum(o.acknowledged for o in rows):,}")
    table.add_row("faults that took effect", f"{sum(o.faults for o in rows):,}")
    kinds = Counter[str]()
    for result in rows:
        kinds.update(result.kinds)
    for kind, count in sorted(kinds.items()):
        table.add_row(f"  {kind}", f"{count:,}")
    table.add_row("elections", f"{sum(o.elections for o in rows):,}")
    return table
