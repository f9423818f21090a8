"""`harrow shrink FILE`: the smallest schedule that still fails in simulation, as a file and as a test to paste (K9)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..search.shrinking import RUNS_MOST
from .schedule_files import read_schedule


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--runs", type=click.IntRange(1, 100_000), default=RUNS_MOST, show_default=True, help="candidates at most"
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="where to write the schedule  [default: FILE with the ending .shrunk.json]",
)
def command(file: Path, runs: int, out: Path | None) -> None:
    """Make a failing schedule of a simulation as small as possible.

    FILE: what `harrow simulate` wrote for a seed that is invalid. For a test on real processes: pytest --harrow-shrink.
    """
    from ..search.pasted import pasted_simulation
    from ..search.simulated import shrink_simulated

    schedule = read_schedule(file)
    shrunk, result = shrink_simulated(schedule, runs_most=runs)
    target = file.with_suffix(".shrunk.json") if out is None else out
    target.write_text(shrunk.schedule.to_json(), encoding="utf-8")
    name, where = result.anomalies[0]
    click.echo(f"{shrunk.summary()}: {name}: {where}")
    click.echo(f"written to {target}; repeat with: harrow simulate --schedule {target}")
    click.echo()
    found = f"{name}; {shrunk.summary()}."
    text = pasted_simulation(f"no_{name.replace('-', '_')}", shrunk.schedule, found)
    click.echo(text, nl=False)
    sys.exit(0)
