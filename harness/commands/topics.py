"""`harrow topics BOOTSTRAP`: shows topics, leaders and ISRs of any running Kafka cluster.

With `--json`: a list of `{"topic", "partition", "leader", "replicas", "isr"}`; `leader` is -1 where there is none.
"""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.table import Table

from .admin_client import ask, bootstrap_argument, json_option, open_admin, print_json, timeout_option


@click.command()
@bootstrap_argument
@timeout_option
@json_option
def command(bootstrap_servers: str, timeout: float, as_json: bool) -> None:
    """Show topics, leaders and ISRs of a running cluster."""
    admin = open_admin(bootstrap_servers, "topics")
    rows = rows_of(ask(bootstrap_servers, lambda: admin.list_topics(timeout=timeout)))
    if as_json:
        print_json(rows)
        return
    table = Table("topic", "partition", "leader", "replicas", "ISR")
    for row in rows:
        table.add_row(row["topic"], str(row["partition"]), str(row["leader"]), _ids(row["replicas"]), _ids(row["isr"]))
    Console().print(table)


def rows_of(metadata: Any) -> list[dict[str, Any]]:
    """Return one row for each partition of a metadata response."""
    return [
        {
            "topic": name,
            "partition": number,
            "leader": found.leader,
            "replicas": list(found.replicas),
            "isr": sorted(found.isrs),
        }
        for name, topic in sorted(metadata.topics.items())
        for number, found in sorted(topic.partitions.items())
    ]


def _ids(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))
