"""Listeners: the addresses at which a broker serves requests, under Kafka's settings and rules.

Owns: `Listener` (Kafka's EndPoint with what `inter.broker.listener.name` adds), `SecurityProtocol`, and
`parse_listeners`, which reads

    listeners                       NAME://host:port, comma separated: where the broker binds
    advertised.listeners            the addresses that clients and brokers are given; default: `listeners`
    listener.security.protocol.map  NAME:PROTOCOL, comma separated
    inter.broker.listener.name      the listener on which the brokers of the cluster talk to each other

Every room that speaks about listeners (wire, network, controller, metadata, the supervisor) imports this module, so
it lies beside `config/` and imports nothing heavy.

Rules, as Kafka's KafkaConfig.validateValues: names and ports are distinct; a name has a security protocol; advertised
names are among the listeners' names; 0.0.0.0 is not advertised; the inter-broker listener is advertised.
A listener that is not advertised is served, and no answer names it.

What may fail: ConfigError, which names the setting, its value and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from .errors import ConfigError

if TYPE_CHECKING:
    from .config import BrokerConfig

__all__ = [
    "ANY_HOST",
    "BROKERS",
    "CLIENTS",
    "HARROW",
    "Address",
    "Listener",
    "SecurityProtocol",
    "format_listeners",
    "inter_broker_listener",
    "inter_broker_listener_name",
    "parse_address",
    "parse_listeners",
]

CLIENTS = "CLIENTS"
"""The listener for clients of a cluster that sets no `listeners`."""
BROKERS = "BROKERS"
"""The inter-broker listener of a cluster that sets no `listeners`."""
HARROW = "HARROW"
"""The listener for clients of Harrow's own, of a cluster whose other clients need credentials."""
ANY_HOST = "0.0.0.0"  # noqa: S104 - compared, not bound
PORT_MOST = 65_535

_ADDRESS = re.compile(r"([A-Za-z0-9_.\-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9_.\-]*)):(\d{1,5})")


class SecurityProtocol(IntEnum):
    """Kafka's protocols of a listener, with their ids in UpdateMetadata."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        """True where the bytes of a connection are TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True where clients log in before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Address(NamedTuple):
    """Where a listener is bound, or where it is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener of a broker; `name` is in upper case, as Kafka normalises it."""

    name: str
    bind: Address
    advertised: Address | None
    """The address in Metadata and in the registration; None for a listener that is not advertised."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    inter_broker: bool = False

    def __post_init__(self) -> None:
        assert self.name == self.name.upper(), f"listener name {self.name!r} is not in upper case"
        assert self.advertised is not None or not self.inter_broker, "brokers must find each other"

    def __str__(self) -> str:
        return f"{self.name}://{self.bind}"

    @property
    def has_sasl(self) -> bool:
        """True when clients log in before anything else."""
        return self.security_protocol.has_sasl

    def at_port(self, port: int) -> Listener:
        """The same listener at the port that port 0 was resolved to."""
        assert self.bind.port == 0, f"{self} has a port"
        advertised = self.advertised
        if advertised is not None and advertised.port == 0:
            advertised = advertised._replace(port=port)
        return replace(self, bind=self.bind._replace(port=port), advertised=advertised)


def parse_listeners(config: BrokerConfig) -> tuple[Listener, ...]:
    """The listeners of a broker, in the order of the setting; ConfigError for what cannot be used."""
    bound = _addresses("listeners", config.text("listeners"))
    if not bound:
        raise ConfigError("listeners='': expected at least one listener, as CLIENTS://127.0.0.1:9092")
    _refuse_shared_ports(bound)
    advertised = _advertised(config.text("advertised.listeners"), bound)
    inter_broker = inter_broker_listener_name(config)
    if inter_broker not in advertised:
        raise ConfigError(
            f"inter.broker.listener.name={inter_broker}: expected one of the advertised listeners "
            f"{', '.join(advertised)}"
        )
    protocols = _protocols(config.text("listener.security.protocol.map"))
    return tuple(
        Listener(
            name=name,
            bind=address,
            advertised=advertised.get(name),
            security_protocol=_protocol_of(name, protocols),
            inter_broker=name == inter_broker,
        )
        for name, address in bound.items()
    )


def inter_broker_listener_name(config: BrokerConfig) -> str:
    """The name of the listener on which the brokers of the cluster talk to each other."""
    return config.text("inter.broker.listener.name").upper()


def inter_broker_listener(listeners: Iterable[Listener]) -> Listener:
    """The listener on which brokers talk to each other."""
    found = [listener for listener in listeners if listener.inter_broker]
    assert len(found) == 1, f"{len(found)} inter-broker listeners: {found}"
    return found[0]


def format_listeners(listeners: Sequence[Listener]) -> str:
    """The value of `listeners` that says where these are bound."""
    return ",".join(str(listener) for listener in listeners)


def parse_address(text: str) -> tuple[str, Address]:
    """`(name, address)` of one `NAME://host:port`; ValueError for anything else."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found[4]) > PORT_MOST:
        raise ValueError(f"{text!r} is not NAME://host:port")
    return found[1].upper(), Address(found[2] or found[3], int(found[4]))


def _addresses(setting: str, text: str) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            name, address = parse_address(part)
        except ValueError as error:
            raise ConfigError(f"{setting}: {error}, as CLIENTS://127.0.0.1:9092") from None
        if name in found:
            raise ConfigError(f"{setting}={text!r}: listener {name} is named twice")
        found[name] = address._replace(host=address.host or ANY_HOST)
    return found


def _refuse_shared_ports(bound: dict[str, Address]) -> None:
    ports = [address.port for address in bound.values() if address.port]
    if len(set(ports)) != len(ports):
        raise ConfigError(f"listeners: each listener needs a port of its own, not {sorted(ports)}")


def _advertised(text: str, bound: dict[str, Address]) -> dict[str, Address]:
    advertised = _addresses("advertised.listeners", text) if text.strip() else dict(bound)
    for name, address in advertised.items():
        if name not in bound:
            raise ConfigError(f"advertised.listeners names {name}, which is none of listeners {', '.join(bound)}")
        if address.host == ANY_HOST:
            raise ConfigError(
                f"listener {name} binds every interface ({ANY_HOST}), an address that no client can connect to: "
                "give the address to connect to in advertised.listeners"
            )
        if address.port == 0 and bound[name].port != 0:
            raise ConfigError(
                f"advertised.listeners: {name} needs a port from 1 to {PORT_MOST}, or 0 like its listener"
            )
    return advertised


def _protocols(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = part.partition(":")
        if not colon or not name or not protocol:
            raise ConfigError(f"listener.security.protocol.map: {part!r} is not NAME:PROTOCOL, as CLIENTS:PLAINTEXT")
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def _protocol_of(name: str, protocols: dict[str, str]) -> SecurityProtocol:
    text = protocols.get(name)
    if text is None:
        raise ConfigError(
            f"listener {name} has no security protocol: add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    if text not in SecurityProtocol.__members__:
        raise ConfigError(
            f"listener.security.protocol.map gives {name} the protocol {text}: expected one of "
            f"{', '.join(SecurityProtocol.__members__)}"
        )
    return SecurityProtocol[text]
