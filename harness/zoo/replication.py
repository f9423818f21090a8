"""Bugs of replication and elections, and what makes each of them visible."""

from __future__ import annotations

from ..simulation import SimulationOptions
from .bug import Bug

BUGS: tuple[Bug, ...] = (
    Bug(
        number=1,
        name="kip_101",
        known_as="KIP-101, first case",
        seen_as=frozenset({"lost-write"}),
        options=SimulationOptions(),
    ),
    Bug(
        number=5,
        name="kafka_7128",
        known_as="KAFKA-7128",
        seen_as=frozenset({"lost-write"}),
        options=SimulationOptions(),
    ),
)
