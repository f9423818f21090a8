"""The settings of listeners: what they mean, and what is refused (A7)."""

from __future__ import annotations

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ConfigError
from harrow.cluster.listeners import (
    Address,
    SecurityProtocol,
    format_listeners,
    inter_broker_listener,
    parse_address,
    parse_listeners,
)

THREE = {
    "listeners": "CLIENTS://127.0.0.1:9092, brokers://[::1]:9093,INSIDE://0.0.0.0:9094",
    "advertised.listeners": "CLIENTS://kafka.example:19092,BROKERS://[::1]:9093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:plaintext,INSIDE:PLAINTEXT",
}


def parsed(**settings: str) -> object:
    return parse_listeners(BrokerConfig.parse({name.replace("_", "."): value for name, value in settings.items()}))


def test_defaults_are_a_listener_for_clients_and_one_for_brokers() -> None:
    clients, brokers = parse_listeners(BrokerConfig.parse({}))
    assert (clients.name, brokers.name) == ("CLIENTS", "BROKERS")
    assert (clients.inter_broker, brokers.inter_broker) == (False, True)
    assert clients.at_port(9092).advertised == Address("127.0.0.1", 9092)


def test_three_listeners_are_read_with_their_bind_and_advertised_addresses() -> None:
    clients, brokers, inside = listeners = parse_listeners(BrokerConfig.parse(THREE))
    assert (clients.bind, clients.advertised) == (("127.0.0.1", 9092), ("kafka.example", 19092))
    assert (brokers.bind, brokers.advertised) == (("::1", 9093), ("::1", 9093))
    assert (inside.bind, inside.advertised) == (("0.0.0.0", 9094), None)
    assert {row.security_protocol for row in listeners} == {SecurityProtocol.PLAINTEXT}
    assert inter_broker_listener(listeners) is brokers
    text = format_listeners(listeners)
    assert text == "CLIENTS://127.0.0.1:9092,BROKERS://[::1]:9093,INSIDE://0.0.0.0:9094"
    assert parse_listeners(BrokerConfig.parse(THREE | {"listeners": text})) == listeners


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "CLIENTS:9092"}, "is not NAME://host:port"),
        ({"listeners": "CLIENTS://h:65536"}, "is not NAME://host:port"),
        ({"listeners": "CLIENTS://h:1,clients://h:2"}, "CLIENTS is named twice"),
        ({"listeners": "CLIENTS://h:1,BROKERS://h:1"}, "a port of its own"),
        ({"listeners": "CLIENTS://h:1"}, "inter.broker.listener.name=BROKERS: expected one of"),
        ({"listeners": "CLIENTS://:1,BROKERS://h:2"}, "binds every interface"),
        ({"advertised_listeners": "OTHER://h:1"}, "none of listeners CLIENTS, BROKERS"),
        ({"advertised_listeners": "BROKERS://0.0.0.0:1"}, "binds every interface"),
        ({"listeners": "BROKERS://h:9093", "advertised_listeners": "BROKERS://h:0"}, "needs a port from 1"),
        ({"advertised_listeners": "CLIENTS://h:1"}, "one of the advertised listeners CLIENTS"),
        ({"listener_security_protocol_map": "CLIENTS"}, "is not NAME:PROTOCOL"),
        ({"listener_security_protocol_map": "CLIENTS:PLAINTEXT"}, "BROKERS has no security"),
        ({"listener_security_protocol_map": "CLIENTS:TLS,BROKERS:TLS"}, "expected one of PLAIN"),
    ],
)
def test_settings_that_cannot_be_used_raise_an_error_with_the_remedy(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parsed(**settings)


def test_a_written_address_is_read_back() -> None:
    for text in ("A://h:1", "A://[fe80::1]:65535", "A://10.0.0.1:0"):
        name, address = parse_address(text)
        assert f"{name}://{address}" == text
