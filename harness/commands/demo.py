"""`harrow demo`: kills a leader under traffic and prints Spark's verdict.

Exit code 0: the verdict is valid. 1: it is not valid, or the demo could not run. The command prints a live line, the
events from the brokers' traces, the verdict and the path of the report.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click
from harrow.cluster import Cluster
from harrow.faults import kill, leader
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .. import out_folder, run_folder
from ..errors import VerdictError
from ..run import Harrow
from ..seeds import fresh_seed
from ..workload import Workload
from .out_option import out_option
from .settings import plant_option

CALM_S = 2.0
DOWN_S = (2.5, 3.0)
"""How long the leader stays dead, in seconds: longer than the session timeout, so that a new leader is elected."""


@click.command()
@click.option("--seed", type=click.IntRange(0), help="seed of a run to repeat; random by default")
@out_option
@plant_option
def command(seed: int | None, out: Path, plants: tuple[str, ...]) -> None:
    """Kill a leader under traffic and prove that no record was lost."""
    chosen = fresh_seed() if seed is None else seed
    console = Console()
    folder = out_folder.claim(out / "demo")
    console.print(f"[bold]harrow demo[/bold]  seed {chosen}")
    begun = time.monotonic()
    repeat = " ".join(["harrow demo", f"--seed {chosen}", *(f"--plant {name}" for name in plants)])
    with Harrow(folder, seed=chosen, plants=plants, repeat=repeat) as harrow:
        valid = play(harrow, console, begun)
    sys.exit(0 if valid else 1)


def play(harrow: Harrow, console: Console, begun: float) -> bool:
    """Run the demo; return True when the verdict is valid."""
    from ..checks import SparkHandle

    SparkHandle.of_run(harrow.folder.parent).request()  # it starts in the background
    cluster = harrow.cluster
    pids = ", ".join(f"{i} (pid {b.pid})" for i, b in cluster.brokers.items())
    for plant in cluster.plants:
        console.print(f"[bold magenta]PLANTED BUG[/bold magenta] {plant}")
    console.print(f"brokers {pids} ready after {time.monotonic() - begun:.1f} s")
    orders = harrow.topic("orders", partitions=2)
    with DemoProgress(console, cluster) as progress, Workload(harrow, orders) as workload:
        progress.follow(workload)
        progress.wait(CALM_S, "traffic")
        with harrow.chaos(kill(leader(orders, 0), seconds=DOWN_S)) as chaos:
            while chaos.running:
                progress.wait(
                    0.1, "the leader of orders-0 is dead" if chaos.effects else "about to kill"
                )
        progress.wait(CALM_S, "the broker is back: it truncates and catches up")
    console.print("what happened:")
    for line in story(harrow.folder, orders.name):
        console.print(f"  {line}", highlight=False)
    console.print("judging on Spark …")
    try:
        verdict = harrow.verify(orders, guarantee="exactly-once,ordered")
    except VerdictError as error:
        console.print(f"[bold red]{error}[/bold red]")
        return False
    from ..reports import terminal_summary

    terminal_summary(harrow.folder, console)
    console.print(f"[bold green]{verdict}[/bold green]", highlight=False)
    console.print(f"report: {harrow.folder / 'report.html'}")
    return True


class DemoProgress:
    """The live line: elapsed time, operations, faults."""

    def __init__(self, console: Console, cluster: Cluster) -> None:
        self._begun = time.monotonic()
        self._cluster = cluster
        self._workload: Workload | None = None
        self._live = Live(console=console, refresh_per_second=10, transient=not console.is_terminal)

    def __enter__(self) -> DemoProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def follow(self, workload: Workload) -> None:
        """Show the counts of this workload."""
        self._workload = workload

    def wait(self, seconds: float, what: str) -> None:
        """Show the line for this many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._live.update(self._line(what))
            threading.Event().wait(0.1)

    def _line(self, what: str) -> Text:
        elapsed = time.monotonic() - self._begun
        dead = [str(i) for i, b in self._cluster.brokers.items() if not b.alive]
        counts = self._workload.counts if self._workload is not None else None
        done = (
            f"{counts.acknowledged:,} acknowledged, {counts.received:,} received" if counts else ""
        )
        line = Text(f"{elapsed:5.1f} s  {done}  ")
        line.append(what, style="yellow" if dead else "green")
        if dead:
            line.append(f"  broker {', '.join(dead)} down", style="bold red")
        return line


def story(folder: Path, topic: str) -> list[str]:
    """Return leader changes, ISR changes and truncations of `topic` and the faults, in order of time."""
    events: list[tuple[int, str]] = []
    for line in _lines(folder / run_folder.FAULTS):
        if line["event"] in ("effect", "healed"):
            done = "took effect" if line["event"] == "effect" else "healed"
            events.append((line["t_ns"], f"{line['label']} on broker {line['targets']}: {done}"))
    for trace in sorted(folder.glob("cluster/*/trace.jsonl")):
        events += [(e["t_ns"], text) for e in _lines(trace) if (text := _description(e, topic))]
    events.sort()
    first = events[0][0] if events else 0
    return [f"{(at - first) / 1e9:7.3f} s  {text}" for at, text in events]


def _description(event: dict[str, Any], topic: str) -> str:
    where = f"{event.get('topic')}-{event.get('partition')}"
    if event["event"] == "controller.elected":
        return f"{event['host']} is the controller, epoch {event['epoch']}"
    if event.get("topic") != topic:
        return ""
    if event["event"] == "partition.leader":
        return (
            f"{where}: leader {event['leader']}, epoch {event['leader_epoch']}, ISR {event['isr']}"
        )
    if event["event"] == "partition.isr":
        return f"{where}: ISR {event['isr']} ({event['cause']})"
    if event["event"] == "partition.truncated":
        return f"{where}: {event['host']} truncated {event['from']} -> {event['to']}"
    return ""


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
