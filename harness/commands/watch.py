"""`harrow watch BOOTSTRAP`: a live view of leaders, ISRs and high watermarks of any Kafka cluster, until Ctrl-C.

On a terminal: a table that is drawn again, in which what changed lately is marked. Elsewhere: one line for each change
of a leader, of a leader epoch or of an ISR. With `--json`: one JSON object a line for each change of a partition, also
of its high watermark: `{"elapsed_s", "topic", "partition", "leader", "leader_epoch", "isr", "replicas",
"high_watermark"}`; the first lines describe every partition. `leader` is -1 where there is none; leader epoch and high
watermark are null while no leader responds.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .admin_client import INTERNAL, ask, bootstrap_argument, json_option, latest_offsets, open_admin, timeout_option

MARKED_S = 3.0
"""How long the table marks what changed."""
RESPONSE_TIMEOUT_S = 1.0
"""How long one look waits for a broker: a paused broker must not stop the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPartition:
    """One partition as the cluster describes it to clients."""

    topic: str
    partition: int
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    leader_epoch: int | None = None
    high_watermark: int | None = None

    @property
    def leadership(self) -> tuple[object, ...]:
        """What a line reports: everything except the high watermark."""
        return (self.leader, self.leader_epoch, self.isr)


@click.command()
@bootstrap_argument
@click.option("--topic", "topics", multiple=True, help="only this topic; repeatable")
@click.option("--internal", is_flag=True, help="internal topics too")
@click.option(
    "--interval", type=click.FloatRange(0.05, 60), default=0.5, show_default=True, help="seconds between two looks"
)
@click.option("--seconds", type=click.FloatRange(0.1), help="end after this time instead of at Ctrl-C")
@timeout_option
@json_option
def command(
    bootstrap_servers: str,
    topics: tuple[str, ...],
    internal: bool,
    interval: float,
    seconds: float | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Watch leaders, ISRs and high watermarks of a running cluster."""
    admin = open_admin(bootstrap_servers, "watch")
    ask(bootstrap_servers, lambda: admin.list_topics(timeout=timeout))
    looks = _looks(admin, topics, internal, interval, seconds)
    with contextlib.suppress(KeyboardInterrupt):
        console = Console()
        if as_json:
            _print_changes(looks, _json_line, everything=True)
        elif console.is_terminal:
            _draw(looks, console)
        else:
            _print_changes(looks, _text_line, everything=False)


Look = tuple[float, dict[tuple[str, int], WatchedPartition] | None]
"""Seconds since the start, and the partitions; None when no broker responded."""


def _looks(
    admin: Any, topics: tuple[str, ...], internal: bool, interval: float, seconds: float | None
) -> Iterator[Look]:
    began, pause = time.monotonic(), threading.Event()
    while seconds is None or time.monotonic() - began < seconds:
        yield time.monotonic() - began, look(admin, topics, internal)
        pause.wait(interval)


def look(
    admin: Any, topics: tuple[str, ...] = (), internal: bool = False
) -> dict[tuple[str, int], WatchedPartition] | None:
    """Return the partitions as they are now; None when no broker responds."""
    from confluent_kafka import KafkaException

    try:
        metadata: Any = admin.list_topics(timeout=RESPONSE_TIMEOUT_S)
    except KafkaException:
        return None
    found = {
        (name, number): part
        for name, topic in sorted(metadata.topics.items())
        if name in topics or (not topics and (internal or not name.startswith(INTERNAL)))
        for number, part in sorted(topic.partitions.items())
    }
    led = [place for place, part in found.items() if part.leader >= 0]
    ends = latest_offsets(admin, led, RESPONSE_TIMEOUT_S)
    return {
        place: WatchedPartition(
            topic=place[0],
            partition=place[1],
            leader=part.leader,
            isr=tuple(sorted(part.isrs)),
            replicas=tuple(part.replicas),
            leader_epoch=getattr(ends.get(place), "leader_epoch", None),
            high_watermark=getattr(ends.get(place), "offset", None),
        )
        for place, part in found.items()
    }


# ----------------------------------------------------------------------------------------- as lines


def _print_changes(looks: Iterator[Look], line: Any, *, everything: bool) -> None:
    before: dict[tuple[str, int], WatchedPartition] = {}
    responded = True
    for elapsed_s, found in looks:
        if found is None:
            if responded and not everything:
                click.echo(f"{elapsed_s:8.2f} s  no broker responds")
            responded = False
            continue
        responded = True
        for place, now in found.items():
            was = before.get(place)
            if was is None or (now != was if everything else _moved(was, now)):
                click.echo(line(elapsed_s, now, was))
                before[place] = now
        for place in [place for place in before if place not in found]:
            if not everything:
                click.echo(f"{elapsed_s:8.2f} s  {place[0]}-{place[1]}: deleted")
            del before[place]


def _moved(was: WatchedPartition, now: WatchedPartition) -> bool:
    """Whether leadership or ISR changed; an epoch that no leader reports at the moment is no change."""
    if now.leader_epoch is None:
        return (now.leader, now.isr) != (was.leader, was.isr)
    return now.leadership != was.leadership


def _json_line(elapsed_s: float, now: WatchedPartition, was: WatchedPartition | None) -> str:
    del was
    return json.dumps({"elapsed_s": round(elapsed_s, 3), **asdict(now)})


def _text_line(elapsed_s: float, now: WatchedPartition, was: WatchedPartition | None) -> str:
    leader, epoch, isr = str(now.leader), _number(now.leader_epoch), _ids(now.isr)
    if was is not None:
        leader = _change(str(was.leader), leader)
        epoch = _change(_number(was.leader_epoch), epoch)
        isr = _change(_ids(was.isr), isr)
    return (
        f"{elapsed_s:8.2f} s  {now.topic}-{now.partition}: leader {leader}, epoch {epoch}, ISR {isr}, "
        f"HW {_number(now.high_watermark)}"
    )


def _change(was: str, now: str) -> str:
    return now if was == now else f"{was} -> {now}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _ids(nodes: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, nodes)) + "]"


# ----------------------------------------------------------------------------------------- as a table


def _draw(looks: Iterator[Look], console: Console) -> None:
    changed: dict[tuple[str, int], float] = {}
    before: dict[tuple[str, int], WatchedPartition] = {}
    with Live(console=console, auto_refresh=False) as live:
        for elapsed_s, found in looks:
            for place, now in (found or {}).items():
                was = before.get(place)
                if was is not None and _moved(was, now):
                    changed[place] = elapsed_s
                before[place] = now
            if found is not None:
                before = {place: before[place] for place in found}
            live.update(_table(before, changed, elapsed_s, responds=found is not None), refresh=True)


def _table(
    rows: dict[tuple[str, int], WatchedPartition],
    changed: dict[tuple[str, int], float],
    elapsed_s: float,
    *,
    responds: bool,
) -> Table:
    title = f"{elapsed_s:.0f} s, Ctrl-C ends it" + ("" if responds else "; no broker responds")
    table = Table("partition", "leader", "ISR", "not in sync", title=title, title_justify="left")
    for name in ("epoch", "high watermark"):
        table.add_column(name, justify="right")
    for place, row in rows.items():
        lately = elapsed_s - changed.get(place, -MARKED_S) < MARKED_S
        leader = Text("none", style="bold red") if row.leader < 0 else Text(str(row.leader))
        missing = sorted(set(row.replicas) - set(row.isr))
        table.add_row(
            f"{row.topic}-{row.partition}",
            leader,
            ", ".join(map(str, row.isr)),
            Text(", ".join(map(str, missing)), style="red"),
            _number(row.leader_epoch),
            "-" if row.high_watermark is None else f"{row.high_watermark:,}",
            style="bold yellow" if lately else None,
        )
    return table
