"""`harrow demo`: a shop that loses orders, its correct twin, and Spark's verdict on both.

Each shop takes orders while the leader of its topic is isolated from the other brokers. The verdict on the shop with
acks=1 names the orders that it lost; the verdict on the shop with acks=all is valid. Exit code 0: both verdicts are as
described. 1: a verdict is not, or the demo could not run. The command prints a live line, the events from the brokers'
traces, the verdicts and the paths of the reports.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.controllers import ControllerElected
from harrow.cluster.events.partitions import IsrChanged, PartitionEvent, PartitionLeader, PartitionTruncated
from harrow.faults import isolate, leader
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .. import out_folder, run_folder
from ..errors import VerdictError
from ..histories.trace_events import events_of_cluster
from ..run.harrow import Harrow
from ..running_cluster import RunningCluster
from ..seeds import fresh_seed
from .demo_shop import RIGHT_SHOP, WRONG_SHOP, Order, Shop, ShopKind
from .out_option import out_option
from .settings import plant_option

CALM_S = 0.7
ISOLATED_S = (2.0, 2.2)
"""How long the leader is isolated, in seconds: longer than the session timeout, so that a new leader is elected."""
GUARANTEE = "no-loss"


@click.command()
@click.option("--seed", type=click.IntRange(0), help="seed of a run to repeat; random by default")
@out_option
@plant_option
def command(seed: int | None, out: Path, plants: tuple[str, ...]) -> None:
    """Isolate a leader under a shop that loses orders and under one that does not, and judge both."""
    chosen = fresh_seed() if seed is None else seed
    console = Console()
    folder = out_folder.claim(out / "demo")
    console.print(f"[bold]harrow demo[/bold]  seed {chosen}")
    begun = time.monotonic()
    repeat = " ".join(["harrow demo", f"--seed {chosen}", *(f"--plant {name}" for name in plants)])
    valid = [play(kind, folder / kind.name, chosen, plants, repeat, console) for kind in (WRONG_SHOP, RIGHT_SHOP)]
    console.print(f"the demo took {time.monotonic() - begun:.0f} s")
    sys.exit(0 if valid == [False, True] else 1)


def play(
    kind: ShopKind, folder: Path, seed: int, plants: tuple[str, ...], repeat: str, console: Console
) -> bool | None:
    """Run a shop under the fault; return whether its verdict is valid, None when it is unknown."""
    from ..checks import SparkHandle

    SparkHandle.of_run(folder.parent).request()  # it starts in the background
    console.print(f"\n[bold]{kind.story}[/bold]", highlight=False)
    with Harrow(folder, seed=seed, plants=plants, repeat=repeat) as harrow:
        cluster = harrow.cluster
        pids = ", ".join(f"{i} (pid {b.pid})" for i, b in cluster.brokers.items())
        for plant in cluster.plants:
            console.print(f"[bold magenta]PLANTED BUG[/bold magenta] {plant}")
        console.print(f"brokers {pids} run")
        placed = take_orders(harrow, kind, console)
        return judge(harrow, placed, console)


def take_orders(harrow: Harrow, kind: ShopKind, console: Console) -> list[Order]:
    """Let the shop take orders while its leader is isolated; return the orders that it counts as placed."""
    orders = harrow.topic("orders")
    with DemoProgress(console, harrow.cluster) as progress, Shop(kind, harrow.bootstrap_servers, orders.name) as shop:
        progress.follow(shop)
        progress.wait(CALM_S, "traffic")
        fault = isolate(leader(orders, 0), seconds=ISOLATED_S, heals_by="reset")
        with harrow.chaos(fault) as chaos:
            while chaos.running:
                progress.wait(0.1, "the leader is isolated" if chaos.effects else "traffic")
        progress.wait(CALM_S, "the leader is connected again: it truncates and catches up")
    console.print("what happened:")
    for line in story(harrow.folder, orders.name):
        console.print(f"  {line}", highlight=False)
    return shop.placed


def judge(harrow: Harrow, placed: list[Order], console: Console) -> bool | None:
    """Print Spark's verdict and where its report is; return whether it is valid, None when it is unknown."""
    console.print(f"{len(placed):,} orders were placed; judging on Spark …", highlight=False)
    try:
        verdict = harrow.verify("orders", guarantee=GUARANTEE, record_id="order", expected=placed)
    except VerdictError as error:
        console.print(f"[bold red]{error}[/bold red]", highlight=False)
        return False if error.verdict.status.value == "invalid" else None
    from ..reports import terminal_summary

    terminal_summary(harrow.folder, console)
    console.print(f"[bold green]{verdict}[/bold green]", highlight=False)
    console.print(f"report: {harrow.folder / run_folder.REPORT}", highlight=False)
    return True


class DemoProgress:
    """The live line: elapsed time, orders, faults."""

    def __init__(self, console: Console, cluster: RunningCluster) -> None:
        self._begun = time.monotonic()
        self._cluster = cluster
        self._shop: Shop | None = None
        self._live = Live(console=console, refresh_per_second=10, transient=not console.is_terminal)

    def __enter__(self) -> DemoProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def follow(self, shop: Shop) -> None:
        """Show the number of orders of this shop."""
        self._shop = shop

    def wait(self, seconds: float, what: str) -> None:
        """Show the line for this many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._live.update(self._line(what))
            threading.Event().wait(0.1)

    def _line(self, what: str) -> Text:
        elapsed = time.monotonic() - self._begun
        dead = [str(i) for i, b in self._cluster.brokers.items() if not b.alive]
        done = f"{len(self._shop.placed):,} orders placed" if self._shop is not None else ""
        line = Text(f"{elapsed:5.1f} s  {done}  ")
        line.append(what, style="yellow" if dead else "green")
        if dead:
            line.append(f"  broker {', '.join(dead)} down", style="bold red")
        return line


SHOWN = (ControllerElected, PartitionLeader, IsrChanged, PartitionTruncated)


def story(folder: Path, topic: str) -> list[str]:
    """Return leader changes, ISR changes and truncations of `topic` and the faults, in order of time."""
    events: list[tuple[int, str]] = []
    for line in _lines(folder / run_folder.FAULTS):
        if line["event"] in ("effect", "healed"):
            done = "took effect" if line["event"] == "effect" else "healed"
            events.append((line["t_ns"], f"{line['label']} on broker {line['targets']}: {done}"))
    traced = events_of_cluster(folder, SHOWN)
    events += [(row.t_ns, text) for row in traced if (text := _description(row, topic))]
    events.sort()
    first = events[0][0] if events else 0
    return [f"{(at - first) / 1e9:7.3f} s  {text}" for at, text in events]


def _description(traced: TracedEvent[TraceEvent], topic: str) -> str:
    event = traced.event
    if isinstance(event, ControllerElected):
        return f"{traced.process} is the controller, epoch {event.epoch}"
    if not isinstance(event, PartitionEvent) or event.topic != topic:
        return ""
    where = f"{event.topic}-{event.partition}"
    match event:
        case PartitionLeader():
            return f"{where}: leader {event.leader}, epoch {event.leader_epoch}, ISR {list(event.isr)}"
        case IsrChanged():
            return f"{where}: ISR {list(event.isr)} ({event.cause})"
        case PartitionTruncated():
            return f"{where}: {traced.process} truncated {event.from_offset} -> {event.to_offset}"
        case _:
            return ""


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
