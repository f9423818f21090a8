"""What the settings of a producer ask of Kafka: acknowledgements and idempotence, by librdkafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALIASES = {"request.required.acks": "acks", "max.in.flight.requests.per.connection": "max.in.flight"}
"""Second names of settings; kafka-python and aiokafka have some of them, with underscores."""


def by_first_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with one name for each."""
    return {ALIASES.get(name, name): value for name, value in settings.items()}


def is_true(value: object) -> bool:
    """Parse a Boolean setting like librdkafka."""
    return str(value).lower() in {"true", "1", "yes", "on", "t"}


def acks_of(settings: Mapping[str, Any]) -> int:
    """Return how many acknowledgements a producer waits for; -1: of all in-sync replicas, the default."""
    acks = str(by_first_name(settings).get("acks", "all"))
    return -1 if acks == "all" else int(acks)


def is_idempotent(settings: Mapping[str, Any]) -> bool:
    """Whether a producer is idempotent, as each with a transactional id is."""
    return is_true(settings.get("enable.idempotence")) or bool(settings.get("transactional.id"))
