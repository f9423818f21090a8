"""The register of a broker's metrics: names like Kafka's MBeans, values read when asked for.

Owns: `Metric` (what is measured), `Sample` (its value for one set of tags), `Metrics` (where they come from).
A source is a function that is called at each reading and gives samples; it must not await nor block.

    kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions                    as Kafka says it over JMX
    kafka_server_ReplicaManager_UnderReplicatedPartitions                              as Prometheus is told it

May fail: a source that raises leaves out its own samples and is named in `harrow.metrics:…FailedSources`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gauge", "counter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One name. A counter only grows while the broker lives (Kafka's meters: `…PerSec` without their rates)."""

    group: str
    """`kafka.server`, `kafka.controller`, `kafka.log`, …"""
    type: str
    name: str
    help: str = ""
    kind: Kind = "gauge"

    def mbean(self, tags: Mapping[str, str] | None = None) -> str:
        """Kafka's name of it over JMX."""
        rest = "".join(f",{key}={value}" for key, value in (tags or {}).items())
        return f"{self.group}:type={self.type},name={self.name}{rest}"

    @property
    def flat(self) -> str:
        """The name in Prometheus' alphabet."""
        text = f"{self.group}_{self.type}_{self.name}"
        return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A metric's value for one set of tags."""

    metric: Metric
    value: float
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


Source = Callable[[], Iterable[Sample]]

FAILED = Metric(
    group="harrow.metrics",
    type="Metrics",
    name="FailedSources",
    help="sources that could not be read",
)


class Metrics:
    """What one broker measures."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Ask `source` at each reading from now on."""
        self._sources.append(source)

    def gauge(self, metric: Metric, read: Callable[[], float]) -> None:
        """One number without tags."""
        self.add(lambda: (Sample(metric=metric, value=read()),))

    def samples(self) -> Iterator[Sample]:
        """Everything, as it is now."""
        failed = 0
        for source in self._sources:
            try:
                found = list(source())
            except Exception:  # one room's bug does not hide the others' numbers
                failed += 1
                continue
            yield from found
        yield Sample(metric=FAILED, value=failed)

    def values(self) -> dict[str, float]:
        """Everything by Kafka's names: what the control socket answers."""
        return {one.metric.mbean(one.tags): one.value for one in self.samples()}
