"""What a running broker accepts as its dynamic settings (KIP-226).

Owns: `check_broker_settings`, the rules beyond type and bounds.

A name that no broker has is stored, because other software of the cluster may read it: brokers describe it as
sensitive. `listener.name.NAME.` before a setting gives a value for one listener.

May fail: KafkaError(invalid_request) names the settings and the rule. Source: Kafka's `DynamicBrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..config import (
    BY_NAME,
    KAFKA_ONLY,
    LISTENER_PREFIX,
    THREAD_COUNTS,
    BrokerConfig,
    Change,
    Setting,
    Value,
    setting_of,
)
from ..errors import ConfigError, ErrorCode, KafkaError

_DEDUPE_BYTES_LEAST = 1_048_576
_LISTENERS = ("listeners", "listener.security.protocol.map")


def typed_settings(texts: Mapping[str, str]) -> dict[str, Value]:
    """The values of the settings that brokers read; ConfigError for a value that does not fit."""
    return {name: BY_NAME[name].parse(text) for name, text in texts.items() if name in BY_NAME}


def check_broker_settings(texts: Mapping[str, str], config: BrokerConfig, node: str) -> None:
    """Check all dynamic settings of a broker, or of all brokers (`node` is empty)."""
    rows = {name: setting_of(name) for name in texts}
    fixed = [name for name, row in rows.items() if _is_fixed(name, row)]
    if fixed:
        raise _refused("Cannot update these configs dynamically", fixed)
    of_listeners = [name for name, row in rows.items() if row and name == row.name and row.change is Change.LISTENER]
    if of_listeners:
        raise _refused(
            "These security configs can be dynamically updated only per-listener using the listener prefix",
            of_listeners,
        )
    of_brokers = [name for name, row in rows.items() if not node and _is_for_one_broker(name, row)]
    if of_brokers:
        raise _refused("Cannot update these configs at default cluster level, broker id must be specified", of_brokers)
    try:
        for name, text in texts.items():
            row = rows[name]
            if row is not None:
                row.parse(text)
        values = typed_settings(texts)
        if not node:  # what the broker's own settings override does not take effect
            values = {name: value for name, value in values.items() if name not in config.dynamic}
        _check_values(values, config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_request, str(error)) from error


def _is_fixed(name: str, row: Setting | None) -> bool:
    if row is None:
        return name in KAFKA_ONLY
    return name == row.name and not row.is_dynamic  # Kafka stores any value of one listener


def _is_for_one_broker(name: str, row: Setting | None) -> bool:
    if name.startswith(LISTENER_PREFIX):
        return row is None or row.change is not Change.CLUSTER
    return row is not None and row.change in (Change.BROKER, Change.LISTENER)


def _refused(rule: str, names: list[str]) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, f"{rule}: {', '.join(sorted(names))}")


def _check_values(values: Mapping[str, Value], config: BrokerConfig) -> None:
    def number(name: str) -> int:
        value = values.get(name)
        return value if isinstance(value, int) else config.number(name)

    for name in THREAD_COUNTS & values.keys():
        threads, present = number(name), config.number(name)
        if not present <= threads * 2 or not threads <= present * 2:
            raise ConfigError(
                f"{name}={threads}: a running broker at least halves and at most doubles its threads, now {present}"
            )
    for name in _LISTENERS:
        if name in values and values[name] != config.value(name):
            raise ConfigError(f"{name}: a running broker cannot change its listeners; restart it with the new ones")
    if values.get("max.connections") == 0:
        raise ConfigError("max.connections=0: expected at least 1, else no client can connect")
    others = values.get("max.connections.per.ip.overrides", config.text("max.connections.per.ip.overrides"))
    if values.get("max.connections.per.ip") == 0 and not others:
        raise ConfigError("max.connections.per.ip=0: set max.connections.per.ip.overrides, too")
    if values.get("log.retention.ms") == 0:
        raise ConfigError("log.retention.ms=0: expected -1 (never) or at least 1")
    _check_cleaner(values, number)
    for kind in ("consumer", "share", "streams"):
        name, least, most = (f"group.{kind}.{prefix}assignment.interval.ms" for prefix in ("", "min.", "max."))
        if name in values and not config.number(least) <= number(name) <= config.number(most):
            raise ConfigError(f"{name}={number(name)}: expected a number from {least} to {most}")
    local_ms, total_ms = number("log.local.retention.ms"), number("log.retention.ms")
    if "log.local.retention.ms" in values and local_ms > total_ms > -1:
        raise ConfigError(f"log.local.retention.ms={local_ms}: expected at most log.retention.ms ({total_ms})")


def _check_cleaner(values: Mapping[str, Value], number: Callable[[str], int]) -> None:
    if not values.keys() & {"log.cleaner.threads", "log.cleaner.dedupe.buffer.size"}:
        return
    threads, size = number("log.cleaner.threads"), number("log.cleaner.dedupe.buffer.size")
    if threads < 1 or size < threads * _DEDUPE_BYTES_LEAST:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size={size}, log.cleaner.threads={threads}: expected at least one thread, and "
            "at least 1 MiB of the buffer for each"
        )
