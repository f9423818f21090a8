"""`harrow offsets BOOTSTRAP`: shows log start offsets and high watermarks; with `--group` committed offsets and lag.

With `--json`: a list of `{"topic", "partition", "log_start_offset", "high_watermark", "leader_epoch"}`, and with
`--group` also `{"committed", "lag"}`. What is not known is null: a partition without a leader, a group that has not
committed.
"""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.table import Table

from .admin_client import (
    INTERNAL,
    ask,
    bootstrap_argument,
    earliest_offsets,
    json_option,
    latest_offsets,
    open_admin,
    print_json,
    timeout_option,
)


@click.command()
@bootstrap_argument
@click.option("--topic", "topics", multiple=True, help="only this topic; repeatable")
@click.option("--group", help="committed offsets and lag of this consumer group, too")
@click.option("--internal", is_flag=True, help="internal topics too")
@timeout_option
@json_option
def command(
    bootstrap_servers: str, topics: tuple[str, ...], group: str | None, internal: bool, timeout: float, as_json: bool
) -> None:
    """Show log start offsets, high watermarks and committed offsets of a running cluster."""
    admin = open_admin(bootstrap_servers, "offsets")
    places = ask(bootstrap_servers, lambda: partitions_of(admin, topics, internal, timeout))
    rows = ask(bootstrap_servers, lambda: rows_of(admin, places, timeout))
    if group is not None:
        committed = ask(bootstrap_servers, lambda: committed_offsets(admin, group, timeout))
        if not committed:
            raise click.ClickException(f"group {group!r} has committed no offset; `harrow groups` lists the groups")
        rows = [_with_group(row, committed) for row in rows]
    if as_json:
        print_json(rows)
    else:
        show(rows, with_group=group is not None)


def partitions_of(admin: Any, topics: tuple[str, ...], internal: bool, timeout_s: float) -> list[tuple[str, int]]:
    """Return the partitions of the requested topics; without a request, of all topics of the cluster."""
    metadata = admin.list_topics(timeout=timeout_s)
    for name in topics:
        if name not in metadata.topics:
            known = ", ".join(sorted(t for t in metadata.topics if not t.startswith(INTERNAL)))
            raise click.ClickException(f"no topic {name!r}; the cluster has: {known or 'none'}")
    chosen = topics or sorted(name for name in metadata.topics if internal or not name.startswith(INTERNAL))
    return [(name, number) for name in chosen for number in sorted(metadata.topics[name].partitions)]


def rows_of(admin: Any, places: list[tuple[str, int]], timeout_s: float) -> list[dict[str, Any]]:
    """Return log start offset, high watermark and leader epoch of each partition."""
    earliest = earliest_offsets(admin, places, timeout_s)
    latest = latest_offsets(admin, places, timeout_s)
    return [
        {
            "topic": topic,
            "partition": number,
            "log_start_offset": _offset(earliest.get((topic, number))),
            "high_watermark": _offset(latest.get((topic, number))),
            "leader_epoch": getattr(latest.get((topic, number)), "leader_epoch", None),
        }
        for topic, number in places
    ]


def _offset(result: Any) -> int | None:
    return None if result is None else int(result.offset)


def committed_offsets(admin: Any, group: str, timeout_s: float) -> dict[tuple[str, int], int]:
    """Return the offsets that a group has committed, by topic and partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    wanted = [ConsumerGroupTopicPartitions(group)]
    (future,) = admin.list_consumer_group_offsets(wanted, request_timeout=timeout_s).values()
    places = future.result(timeout_s).topic_partitions
    return {(p.topic, p.partition): p.offset for p in places if p.offset >= 0}


def _with_group(row: dict[str, Any], committed: dict[tuple[str, int], int]) -> dict[str, Any]:
    offset, end = committed.get((row["topic"], row["partition"])), row["high_watermark"]
    lag = None if offset is None or end is None else end - offset
    return {**row, "committed": offset, "lag": lag}


def show(rows: list[dict[str, Any]], *, with_group: bool) -> None:
    """Print one table row for each partition."""
    if not rows:
        click.echo("the cluster has no topics")
        return
    names = ["log_start_offset", "high_watermark", "leader_epoch"]
    names += ["committed", "lag"] if with_group else []
    table = Table("topic", "partition")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        values = ("-" if row[name] is None else f"{row[name]:,}" for name in names)
        table.add_row(row["topic"], str(row["partition"]), *values)
    Console().print(table)
