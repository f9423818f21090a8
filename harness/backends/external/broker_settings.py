"""The settings of brokers that Harrow did not start: read from them, and compared with those that a test asks for.

A test cannot change them. It runs where every setting that it asks for has that value already, else it is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ConfigError, ErrorCode
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.faults.errors import CapabilityError

from ...requests.raw import ask
from ...topics import setting_text

DESCRIBE_CONFIGS_VERSION = 4
BROKER_RESOURCE = 4
NEEDED = ("min.insync.replicas", "offsets.topic.num.partitions")
"""What Harrow itself asks of `BrokerConfig`."""
SESSION_TIMEOUTS = ("broker.session.timeout.ms", "zookeeper.session.timeout.ms")
SESSION_TIMEOUT_MS = 9_000
"""Kafka's default of `broker.session.timeout.ms`."""


def read_settings(node: int, address: Address) -> dict[str, str]:
    """Return the settings of one broker; empty where it does not permit that. ClusterError without a response."""
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(node), "configuration_keys": None}
    request = client_request(ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, resources=[resource])
    response: Any = ask(address, request)
    return {
        str(config.name): str(config.value)
        for result in response.results
        if result.error_code is ErrorCode.none
        for config in result.configs
        if config.value is not None
    }


def check_settings(wanted: Mapping[str, object], actual: Mapping[str, str]) -> None:
    """Raise CapabilityError for a setting that a test asks for, and that the brokers do not have."""
    for name, value in wanted.items():
        text, found = setting_text(value), actual.get(name)
        if found != text:
            has = "is not known" if found is None else f"is {found}"
            raise CapabilityError(
                f"the test asks for brokers with {name}={text}, and {name} of these brokers {has}; Harrow does not "
                "change brokers that it did not start: set it there, give it to the topic, or use another backend"
            )


def known_config(actual: Mapping[str, str]) -> BrokerConfig:
    """Return what Harrow needs of the settings; Kafka's defaults where they are not known."""
    try:
        return BrokerConfig.parse({name: actual[name] for name in NEEDED if name in actual})
    except ConfigError:  # a value that Harrow's own brokers do not implement
        return BrokerConfig.parse({})


def session_timeout_ms(actual: Mapping[str, str]) -> int:
    """After which time without a heartbeat a broker counts as dead."""
    found = [actual[name] for name in SESSION_TIMEOUTS if actual.get(name, "").isdigit()]
    return int(found[0]) if found else SESSION_TIMEOUT_MS
