"""Processes of a cluster that words start: `python -m harrow.cluster up | registry | broker WORDS`.

    up        a whole cluster: the registry and all brokers, until SIGTERM or SIGINT
    registry  the registry alone
    broker    one broker alone, for a registry that runs elsewhere

Owns: the words and their meaning. The image of `containers/Dockerfile` has these words as its commands; a broker's
`listeners` and `advertised.listeners` are Kafka's settings. Each command prints one JSON line with the address for
clients, before (`broker`) or after (`up`) it serves. What may fail: ConfigError for settings that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .broker_folder import REGISTRY, broker_name
from .config import BY_NAME, BrokerConfig
from .defaults import DEFAULTS, HARROW, KAFKA, cluster_defaults, kafka_defaults
from .errors import HarrowError
from .listeners import ANY_HOST, BROKERS, CLIENTS, Address, parse_listeners
from .ports import LOOPBACK
from .process import run
from .stop_signals import stop_signals
from .supervisor import Cluster, client_address

FOLDER = "/var/lib/harrow"
PEER_PORT, REGISTRY_PORT = 29_092, 2181
DEFAULT_ADVERTISED = (Address("localhost", 9092),)


def address(text: str) -> Address:
    """Return `HOST:PORT` as an address; ValueError, which argparse shows with the text."""
    host, _, port = text.rpartition(":")
    if not host or not 0 < int(port) <= 65_535:
        raise ValueError
    return Address(host, int(port))


def setting(text: str) -> tuple[str, str]:
    """Return `NAME=VALUE` as a pair; ValueError, which argparse shows with the text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError
    return name.strip(), value.strip()


def parser() -> argparse.ArgumentParser:
    """Return the parser of all words."""
    found = argparse.ArgumentParser(
        prog="python -m harrow.cluster", description="Run Harrow's brokers by hand, or in containers."
    )
    commands = found.add_subparsers(dest="role", required=True)
    up = commands.add_parser("up", help="a whole cluster")
    registry = commands.add_parser("registry", help="the registry alone")
    registry.add_argument("--port", type=int, default=REGISTRY_PORT, help="default: %(default)s")
    broker = commands.add_parser("broker", help="one broker alone")
    broker.add_argument("--id", type=int, required=True, help="the node id")
    broker.add_argument("--registry", type=address, required=True, metavar="HOST:PORT")
    broker.add_argument("--host", help="the name by which other brokers reach it (default: broker-ID)")
    for command in (up, broker):
        command.add_argument(
            "--advertise",
            type=address,
            action="append",
            metavar="HOST:PORT",
            help="where clients reach it (default: localhost:9092); the next brokers of `up` have the next ports; give "
            "it again for clients in another network",
        )
        command.add_argument("--brokers", type=int, default=3, help="how many the cluster has (default: %(default)s)")
        command.add_argument(
            "--set",
            type=setting,
            action="append",
            default=[],
            dest="settings",
            metavar="NAME=VALUE",
            help="a broker setting by Kafka's name",
        )
        command.add_argument(
            "--defaults",
            choices=DEFAULTS,
            default=HARROW,
            help="whose defaults the other settings have: Harrow's (the default) or Apache Kafka's own",
        )
        command.add_argument(
            "--as-version",
            choices=[name for name in BY_NAME["harrow.as.version"].choices if name],
            help="list and serve to clients what this release of Kafka does; all by default",
        )
    for command in (up, registry, broker):
        command.add_argument("--data", default=FOLDER, help="default: %(default)s")
        command.add_argument("--seed", type=int, default=0, help="of all random choices")
    return found


def main(words: Sequence[str]) -> int:
    """Run what the words name until a signal stops it; returns the exit code."""
    given = parser().parse_args(words)
    try:
        if given.role == "up":
            return up(given)
        options = registry_options(given) if given.role == "registry" else broker_options(given)
    except HarrowError as error:
        return _failed(error)
    os.makedirs(options["folder"], exist_ok=True)
    if given.role == "broker":
        servers = str(client_address(parse_listeners(BrokerConfig.parse(options["config"]))))
        _say({"event": "starting", "bootstrap_servers": servers})
    return run(options, 1)


def settings_of(given: argparse.Namespace) -> dict[str, object]:
    """Return the settings of a command: what was set, over the defaults of Apache Kafka where these were chosen."""
    usual: dict[str, object] = {**kafka_defaults()} if given.defaults == KAFKA else {}
    if given.as_version is not None:
        usual["harrow.as.version"] = given.as_version
    return {**usual, **dict(given.settings)}


def registry_options(given: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the registry's process (head of `process.py`)."""
    return {
        "role": "registry",
        "name": REGISTRY,
        "folder": os.path.join(given.data, REGISTRY),
        "seed": given.seed,
        "listeners": {"registry": given.port},
        "host": ANY_HOST,
    }


def broker_options(given: argparse.Namespace) -> dict[str, Any]:
    """Return the options of one broker's process; ConfigError for settings that cannot be used."""
    name = broker_name(given.id)
    inside = Address(given.host or name, PEER_PORT)
    listeners = listeners_of(given.advertise or DEFAULT_ADVERTISED, inside, bound_host=ANY_HOST)
    settings = settings_of(given)
    config = BrokerConfig.parse(cluster_defaults(given.brokers, settings) | dict(listeners) | settings)
    parse_listeners(config)
    return {
        "role": "broker",
        "name": name,
        "folder": os.path.join(given.data, name),
        "seed": given.seed,
        "node_id": given.id,
        "registry": list(given.registry),
        "config": config.overrides(),
        "tap": config.flag("harrow.tap"),
    }


def listeners_of(advertised: Sequence[Address], inside: Address, *, bound_host: str) -> Mapping[str, str]:
    """Return the settings of one broker's listeners: one for each address of clients, and `inside` for brokers.

    The listeners for clients are bound at all interfaces, that for brokers at `bound_host`.
    """
    names = [CLIENTS, *(f"{CLIENTS}{number}" for number in range(2, len(advertised) + 1))]
    given = dict(zip(names, advertised, strict=True)) | {BROKERS: inside}
    hosts = {BROKERS: bound_host}
    bound = {name: Address(hosts.get(name, ANY_HOST), where.port) for name, where in given.items()}
    return {
        "listeners": ",".join(f"{name}://{where}" for name, where in bound.items()),
        "advertised.listeners": ",".join(f"{name}://{where}" for name, where in given.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in given),
    }


def shared_listeners(node: int, advertised: Sequence[Address]) -> Mapping[str, str]:
    """Return the settings of one of the brokers that share a container: each has ports of its own."""
    own = [Address(host, port + node - 1) for host, port in advertised]
    return listeners_of(own, Address(LOOPBACK, PEER_PORT + node - 1), bound_host=LOOPBACK)


def up(given: argparse.Namespace) -> int:
    """Run a whole cluster until SIGTERM or SIGINT; its data stays, and is used again."""
    advertised = given.advertise or DEFAULT_ADVERTISED
    with stop_signals() as wait_for_stop:
        cluster = Cluster(
            brokers=given.brokers,
            config=settings_of(given),
            folder=given.data,
            seed=given.seed,
            broker_config={node: shared_listeners(node, advertised) for node in range(1, given.brokers + 1)},
        )
        try:
            cluster.start()
            _say({"event": "ready", "bootstrap_servers": cluster.bootstrap_servers})
            wait_for_stop()
        except HarrowError as error:
            return _failed(error)
        finally:
            cluster.stop(graceful=True)
    return 0


def _failed(error: HarrowError) -> int:
    _say({"event": "failed", "error": f"{type(error).__name__}: {error}"})
    return 1


def _say(row: Mapping[str, Any]) -> None:
    print(json.dumps(row), flush=True)
