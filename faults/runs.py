"""The runs of schedules: the words of their applications, and the options from which simulated runs are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TOPIC, SINK = "orders", "bills"
"""The topic of every run; the output of a job."""
ORDERS, EXACTLY_ONCE = "orders", "exactly-once"
WORKLOADS = (ORDERS, EXACTLY_ONCE)
"""A producer and a reader; or beside them a consume-transform-produce job in several processes."""
SHARES = "shares"
SIMULATED_WORKLOADS = (*WORKLOADS, SHARES)
"""Simulations also have a producer, a reader, and a share group of several processes."""
CLASSIC, CONSUMER = "classic", "consumer"
GROUP_PROTOCOLS = (CLASSIC, CONSUMER)
"""Values of Kafka's `group.protocol`."""
LEADER, SAME_BROKER = "leader", "same-broker"
READS_FROM = (LEADER, SAME_BROKER)
"""Which broker the reader of a simulation fetches from: the leader, or the one that it began with, until an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Options that all seeds of a series share; where it says so, as in `RunSettings` (`harness/run_settings.py`)."""

    brokers: int = 5
    seconds: float = 8.0
    """Virtual time in which faults happen."""
    partitions: int = 2
    replication_factor: int = 3
    """At most the number of brokers."""
    batches: int = 90
    power_loss: bool = False
    """Adds power losses: unsynced writes are lost, so brokers fsync before they acknowledge."""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """Broker settings over the drawn ones; for a run that is expected to fail."""
    acks: int = -1
    """Fewer than all (-1) guarantees less: for a run that is expected to fail."""
    topic_config: Mapping[str, str] = field(default_factory=dict[str, str])
    in_flight: int | None = None
    """As in `RunSettings`; None: drawn."""
    resends: bool = False
    """As in `RunSettings`."""
    plants: Sequence[str] = ()
    """Modules of planted bugs."""
    workload: str = ORDERS
    """As in `RunSettings`. With `exactly-once` some seeds have power losses without `power_loss`."""
    job: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `RunSettings` about the job and the operator, over the drawn ones."""
    keys: int = 0
    """As in `RunSettings`."""
    producers: int = 1
    """As in `RunSettings`."""
    reads_from: str = LEADER
    """As in `RunSettings`."""
    weights: Mapping[str, int] | None = None
    """How often each kind of fault is drawn; None: as `planning.WEIGHTS` says."""
