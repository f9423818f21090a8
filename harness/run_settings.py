"""`RunSettings`: the cluster and the workload of a schedule, with which its file alone repeats a run.

A simulation needs all of it. A run on real processes has its own workload: it uses brokers, settings, topic and
producer of these settings, and ignores `batches`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from harrow.cluster.argument_types import json_object, place_of
from harrow.cluster.errors import ConfigError
from harrow.faults.runs import CLASSIC, LEADER, ORDERS, TOPIC

from .checks.guarantees import GUARANTEE_OF_SIMULATIONS
from .clients.producer_settings import acks_of, by_first_name, is_idempotent

if TYPE_CHECKING:
    from harrow.faults import Schedule

OPERATIONS = ("alter", "alter", "delete-records", "elect")
"""What the operator of a simulation did before there was a choice: stored schedules mean this."""

REQUEST_TIMEOUT_MS, IN_FLIGHT = 30_000, 5
"""librdkafka's defaults."""


def fields_of_producer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `RunSettings` that the settings of a producer decide."""
    used = by_first_name(settings)
    return {
        "acks": acks_of(settings),
        "idempotent": is_idempotent(settings),
        "in_flight": int(used.get("max.in.flight", IN_FLIGHT)),
        "request_timeout_ms": int(used.get("request.timeout.ms", REQUEST_TIMEOUT_MS)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Cluster, topic, producer and seeds of one run."""

    seed: int = 0
    """Of the simulated world; of a real run's clients."""
    brokers: int = 5
    seconds: float = 8.0
    """Of faults, from the first traffic on."""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """Kafka's broker settings by name."""
    topic: str = TOPIC
    partitions: int = 2
    replication_factor: int = 3
    topic_config: Mapping[str, object] = field(default_factory=dict[str, object])
    acks: int = -1
    idempotent: bool = True
    in_flight: int = IN_FLIGHT
    """Most batches that a producer has in flight."""
    resends: bool = False
    """After OUT_OF_ORDER_SEQUENCE_NUMBER a simulated producer sends unconfirmed batches again under a new id.

    On real processes the application sends each record again whose delivery report is an error."""
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    """`request.timeout.ms` of the producer on real processes: how long a broker waits for the ISR to have a batch."""
    batches: int = 90
    """How many a simulated producer is offered in all."""
    workload: str = ORDERS
    """Which of `faults.runs.WORKLOADS` the clients do."""
    keys: int = 0
    """How many keys a simulated producer writes at a time (`simulation/producer.py`); 0: its records have no key."""
    producers: int = 1
    """How many simulated producers share the batches."""
    reads_from: str = LEADER
    """One of `READS_FROM`, for the reader of a simulated topic."""
    operations: Sequence[str] = OPERATIONS
    """What the operator of a simulated job does, each as often as it is named here (`simulation/operator.py`)."""
    group_protocol: str = CLASSIC
    """Of the members of a simulated job: one of `GROUP_PROTOCOLS`."""
    transaction_timeout_ms: int = 4_000
    """`transaction.timeout.ms` of a job: the transaction of a killed process ends within it."""
    transaction_version: int = 2
    """Of a simulated job's producers: 1 keeps the producer epoch, 2 has one for each transaction (KIP-890)."""
    aborted_part: float = 0.15
    """How many of its transactions a simulated job itself aborts."""
    job_pause_ms: int = 0
    """Processes of a simulated job are paused for up to so long, one at a time; 0: never."""
    job_outage_ms: int = 0
    """At half of the run all processes of a simulated job are dead for so long; 0: one is killed now and then."""
    clock_jump_ms: int = 0
    """By so much the wall clocks of simulated brokers jump ahead at half of the run."""
    unclean_sink: bool = False
    """Unclean elections may take records from the output of a simulated job: they are then no anomaly, but named."""
    plants: Sequence[str] = ()
    """Modules of planted bugs (`cluster/planting.py`)."""
    guarantee: str = GUARANTEE_OF_SIMULATIONS
    """Which the verdict is held to."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of a run of a user's test: its sizes that were smaller than the test says (`run/sizes.py`)."""

    def number(self, setting: str, usual: int | None = None) -> int:
        """Return a broker setting of the run, `usual` where it is not given; KeyError where there is neither."""
        return int(str(self.config[setting] if usual is None else self.config.get(setting, usual)))

    @property
    def session_ms(self) -> int:
        """How long the registry waits for a broker, 1,000 where the run does not say."""
        return self.number("zookeeper.session.timeout.ms", 1_000)

    @property
    def lag_ms(self) -> int:
        """How long a follower may lag, 1,000 where the run does not say."""
        return self.number("replica.lag.time.max.ms", 1_000)

    @property
    def flushes(self) -> bool:
        """Whether brokers sync records before they acknowledge them."""
        return "log.flush.interval.messages" in self.config

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` reads them back."""
        found = {**asdict(self), "plants": list(self.plants), "operations": list(self.operations)}
        if not self.sizes:
            del found["sizes"]
        return found

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> RunSettings:
        """Read what `to_json` wrote; ConfigError names a field that does not exist."""
        known = [row.name for row in fields(cls)]
        for name in raw:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ConfigError(f"run settings of a schedule: no field {name!r}{hint}")
        with place_of("run of a schedule"):
            values = json_object(dict(raw), cls)
        values["plants"] = tuple(values.get("plants", ()))
        values["operations"] = tuple(values.get("operations", OPERATIONS))
        return cls(**values)


def settings_of(schedule: Schedule) -> RunSettings:
    """Return the settings of a schedule; ConfigError where its file has none."""
    if not schedule.run:
        raise ConfigError(
            "this schedule does not say what it ran on (`run` is empty); replay it in a test: "
            "harrow.chaos(schedule=Schedule.from_json(…))"
        )
    return RunSettings.from_json(schedule.run)
