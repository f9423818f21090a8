"""`harrow up`: runs a cluster in the terminal until SIGINT or SIGTERM.

With `--json` the command prints one line when the cluster is ready:
`{"bootstrap_servers": "…", "brokers": [{"id": 1, "host": "127.0.0.1", "port": …, "pid": …}, …],
"registry": {"pid": …}, "data": "…", "planted": [{"module": …, "title": …}]}`; with `--security` also
`"users": {"app": {"security.protocol": …}}`, the settings of librdkafka of each user.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from harrow.cluster.errors import ConfigError
from harrow.cluster.forkserver import fork_server
from harrow.cluster.stop_signals import stop_signals

from ..security.choice import INSECURE, Security
from .settings import as_version_option, defaults_option, parse_settings_of_brokers, plant_option

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from harrow.cluster import Cluster

    from ..security.cluster_security import ClusterSecurity

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
@click.option(
    "--security",
    default="none",
    metavar="PROTOCOL",
    help="how clients reach the brokers: none, ssl, mtls, sasl_plaintext or sasl_ssl, with a mechanism as in "
    "sasl_ssl:PLAIN; their settings are printed",
)
@click.option("--user", "users", multiple=True, metavar="NAME", help="a user beside `app`, with --security; repeatable")
@defaults_option
@as_version_option
@plant_option
@click.option("--json", "as_json", is_flag=True, help="print one JSON line when ready")
def command(
    brokers: int,
    port: int | None,
    data: str | None,
    settings: tuple[str, ...],
    advertise: str | None,
    security: str,
    users: tuple[str, ...],
    defaults: str,
    as_version: str | None,
    plants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a cluster in this terminal until Ctrl-C."""
    chosen = parse_security(security, users, alone=data is None and advertise is None)
    with stop_signals() as wait_for_stop, contextlib.ExitStack() as closing:
        config, own = parse_settings_of_brokers(settings, brokers)
        advertised = {} if advertise is None else advertised_listeners(advertise, {*config}.union(*own.values()))
        secured = None if chosen == INSECURE else secured_in(closing, chosen, {*config}.union(*own.values()))
        fork_server().begin()  # it imports the broker code while this process imports the rest
        from harrow.cluster import Cluster
        from harrow.cluster.defaults import KAFKA, kafka_defaults

        usual: dict[str, object] = {**kafka_defaults()} if defaults == KAFKA else {}
        usual |= {} if as_version is None else {"harrow.as.version": as_version}
        usual |= {} if secured is None else secured.broker_settings
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
            found = {} if secured is None else settings_of_users(secured, cluster.bootstrap_servers)
            files = [] if secured is None else property_files(secured, found)
            click.echo(json.dumps(describe(cluster, host) | found) if as_json else banner(cluster, host, files))
            wait_for_stop()
        finally:
            if not as_json:
                click.echo("stopping")
            cluster.stop(graceful=data is not None)


def parse_security(text: str, users: tuple[str, ...], *, alone: bool) -> Security:
    """Return the security of the brokers; a usage error for what cannot be, and unless it stands `alone`."""
    try:
        chosen = Security(text, users=users)
    except ConfigError as error:
        raise click.BadParameter(str(error).removeprefix("security="), param_hint="--security") from None
    if chosen != INSECURE and not alone:
        raise click.BadParameter(
            "certificates and passwords are made for one run on this machine: leave out --data and --advertise",
            param_hint="--security",
        )
    return chosen


def secured_in(closing: contextlib.ExitStack, chosen: Security, settings: Collection[str]) -> ClusterSecurity:
    """Make files that end with `closing`; a usage error where `--set` has a setting of `--security`, too."""
    from ..security.cluster_security import ClusterSecurity

    folder = closing.enter_context(tempfile.TemporaryDirectory("-harrow"))
    secured = ClusterSecurity(chosen, Path(folder))
    for name in secured.broker_settings.keys() & {*settings}:
        raise click.BadParameter(f"--security sets {name}: leave it out", param_hint="--set")
    return secured


def settings_of_users(secured: ClusterSecurity, servers: str) -> dict[str, dict[str, Any]]:
    """Return `users` of the JSON line."""
    from ..security.client_settings import client_settings

    names = secured.first_users
    return {"users": {name: client_settings(secured.access(name, servers), "librdkafka") for name in names}}


def property_files(secured: ClusterSecurity, found: dict[str, dict[str, Any]]) -> list[tuple[str, Path]]:
    """Write the settings of each user into a file, as kcat and other programs over librdkafka read it."""
    paths: list[tuple[str, Path]] = []
    for name, settings in found["users"].items():
        path = secured.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        paths.append((name, path))
    return paths


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


def banner(cluster: Cluster, host: str = HOST, users: Sequence[tuple[str, Path]] = ()) -> str:
    """Return the text for a terminal."""
    rows = [f"  broker {i}  {host}:{b.port}  pid {b.pid}" for i, b in cluster.brokers.items()]
    return "\n".join(
        [
            f"bootstrap.servers={cluster.bootstrap_servers}",
            *(f"  PLANTED BUG {plant}" for plant in cluster.plants),
            *rows,
            f"  data      {cluster.folder}",
            *(f"  user {name}  {path}" for name, path in users),
            "Ctrl-C ends it",
        ]
    )
