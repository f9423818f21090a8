"""`harrow up`: runs a cluster in the terminal until SIGINT or SIGTERM.

With `--json` the command prints one line when the cluster is ready:
`{"bootstrap_servers": "…", "brokers": [{"id": 1, "host": "127.0.0.1", "port": …, "pid": …}, …],
"registry": {"pid": …}, "data": "…", "planted": [{"module": …, "title": …}]}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from harrow.cluster.forkserver import fork_server
from harrow.cluster.stop_signals import stop_signals

from .settings import defaults_option, parse_settings_of_brokers, plant_option

if TYPE_CHECKING:
    from collections.abc import Collection

    from harrow.cluster import Cluster

HOST = "127.0.0.1"


@click.command()
@click.option("--brokers", type=click.IntRange(1, 64), default=3, show_default=True)
@click.option("--port", type=click.IntRange(1, 65000), help="broker i listens on PORT + i; free ports by default")
@click.option(
    "--data", type=click.Path(file_okay=False), help="folder for the data, which is kept; a temporary folder by default"
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[ID:]NAME=VALUE",
    help="a broker setting by Kafka's name, of all brokers or, as in 2:broker.rack=b, of one; repeatable",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="the host name or address by which clients reach the brokers, which then listen on all interfaces; "
    "127.0.0.1 by default",
)
@defaults_option
@plant_option
@click.option("--json", "as_json", is_flag=True, help="print one JSON line when ready")
def command(
    brokers: int,
    port: int | None,
    data: str | None,
    settings: tuple[str, ...],
    advertise: str | None,
    defaults: str,
    plants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a cluster in this terminal until Ctrl-C."""
    with stop_signals() as wait_for_stop:
        config, own = parse_settings_of_brokers(settings, brokers)
        advertised = {} if advertise is None else advertised_listeners(advertise, {*config}.union(*own.values()))
        fork_server().begin()  # it imports the broker code while this process imports the rest
        from harrow.cluster import Cluster
        from harrow.cluster.defaults import KAFKA, kafka_defaults

        usual = kafka_defaults() if defaults == KAFKA else {}
        cluster = Cluster(
            brokers=brokers,
            port=port,
            folder=data,
            config={**usual, **advertised, **config},
            broker_config=own,
            plants=plants,
            name="up",
        )
        cluster.start()
        try:
            host = advertise or HOST
            click.echo(json.dumps(describe(cluster, host)) if as_json else banner(cluster, host))
            wait_for_stop()
        finally:
            if not as_json:
                click.echo("stopping")
            cluster.stop(graceful=data is not None)


def advertised_listeners(host: str, settings: Collection[str]) -> dict[str, str]:
    """Return the settings of brokers that clients reach at `host`; a usage error beside settings of listeners."""
    for name in ("listeners", "advertised.listeners"):
        if name in settings:
            raise click.BadParameter(f"give --advertise or --set {name}=…, not both", param_hint="--advertise")
    bound = HOST if host in ("localhost", HOST) else "0.0.0.0"  # noqa: S104 - the user asked for it
    where = f"[{host}]" if ":" in host else host
    return {
        "listeners": f"CLIENTS://{bound}:0,BROKERS://{HOST}:0",
        "advertised.listeners": f"CLIENTS://{where}:0,BROKERS://{HOST}:0",
    }


def describe(cluster: Cluster, host: str = HOST) -> dict[str, Any]:
    """Return the values of the JSON line."""
    brokers = [
        {"id": node_id, "host": host, "port": broker.port, "pid": broker.pid}
        for node_id, broker in cluster.brokers.items()
    ]
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": brokers,
        "registry": {"pid": cluster.registry.pid},
        "data": str(cluster.folder),
        "planted": [plant.to_json() for plant in cluster.plants],
    }


def banner(cluster: Cluster, host: str = HOST) -> str:
    """Return the text for a terminal."""
    rows = [f"  broker {i}  {host}:{b.port}  pid {b.pid}" for i, b in cluster.brokers.items()]
    return "\n".join(
        [
            f"bootstrap.servers={cluster.bootstrap_servers}",
            *(f"  PLANTED BUG {plant}" for plant in cluster.plants),
            *rows,
            f"  data      {cluster.folder}",
            "Ctrl-C ends it",
        ]
    )
