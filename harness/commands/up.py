"""`harrow up`: runs a cluster in the terminal until SIGINT or SIGTERM.

With `--json` the command prints one line when the cluster is ready:
`{"bootstrap_servers": "…", "brokers": [{"id": 1, "host": "127.0.0.1", "port": …, "pid": …}, …],
"registry": {"pid": …}, "data": "…", "planted": [{"module": …, "title": …}]}`.
"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import click
from harrow.cluster.forkserver import fork_server

from .settings import parse_settings, plant_option

if TYPE_CHECKING:
    from harrow.cluster import Cluster

HOST = "127.0.0.1"


@click.command()
@click.option("--brokers", type=click.IntRange(1, 64), default=3, show_default=True)
@click.option(
    "--port",
    type=click.IntRange(1, 65000),
    help="broker i listens on PORT + i; free ports by default",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    help="folder for the data, which is kept; a temporary folder by default",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="a broker setting by Kafka's name",
)
@plant_option
@click.option("--json", "as_json", is_flag=True, help="print one JSON line when ready")
def command(
    brokers: int,
    port: int | None,
    data: str | None,
    settings: tuple[str, ...],
    plants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a cluster in this terminal until Ctrl-C."""
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(
        signal.SIG_BLOCK, stops
    )  # sigwait below receives them, also when they arrive early
    config = parse_settings(settings)
    fork_server().begin()  # it imports the broker code while this process imports the rest
    from harrow.cluster import Cluster

    cluster = Cluster(
        brokers=brokers, port=port, folder=data, config=config, plants=plants, name="up"
    )
    cluster.start()
    try:
        click.echo(json.dumps(describe(cluster)) if as_json else banner(cluster))
        signal.sigwait(stops)
    finally:
        if not as_json:
            click.echo("stopping")
        cluster.stop(graceful=data is not None)


def describe(cluster: Cluster) -> dict[str, Any]:
    """Return the values of the JSON line."""
    brokers = [
        {"id": node_id, "host": HOST, "port": broker.port, "pid": broker.pid}
        for node_id, broker in cluster.brokers.items()
    ]
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": brokers,
        "registry": {"pid": cluster.registry.pid},
        "data": str(cluster.folder),
        "planted": [plant.to_json() for plant in cluster.plants],
    }


def banner(cluster: Cluster) -> str:
    """Return the text for a terminal."""
    rows = [f"  broker {i}  {HOST}:{b.port}  pid {b.pid}" for i, b in cluster.brokers.items()]
    return "\n".join(
        [
            f"bootstrap.servers={cluster.bootstrap_servers}",
            *(f"  PLANTED BUG {plant}" for plant in cluster.plants),
            *rows,
            f"  data      {cluster.folder}",
            "Ctrl-C ends it",
        ]
    )
