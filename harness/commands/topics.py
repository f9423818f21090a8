"""`harrow topics BOOTSTRAP`: shows topics, leaders and ISRs of any running Kafka cluster."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.table import Table


@click.command()
@click.argument("bootstrap_servers")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 300), default=10.0, show_default=True, help="seconds"
)
def command(bootstrap_servers: str, timeout: float) -> None:
    """Show topics, leaders and ISRs of a running cluster."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "client.id": "harrow-topics"})
        metadata: Any = admin.list_topics(timeout=timeout)
    except KafkaException as error:
        raise click.ClickException(
            f"{bootstrap_servers} does not respond: {error.args[0].str()}"
        ) from error
    table = Table("topic", "partition", "leader", "replicas", "ISR")
    for name, topic in sorted(metadata.topics.items()):
        for number, row in sorted(topic.partitions.items()):
            table.add_row(name, str(number), str(row.leader), _ids(row.replicas), _ids(row.isrs))
    Console().print(table)


def _ids(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))
