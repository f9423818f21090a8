"""The register of a broker's metrics: names like those of Kafka's MBeans, values collected at each reading.

Owns: `Metric` (the name and meaning), `Sample` (its value for a set of tags), `Metrics` (the sample sources).
A sample source is a function that returns samples at each reading; it must neither await nor block.

    kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions                    Kafka's name over JMX
    kafka_server_ReplicaManager_UnderReplicatedPartitions                              the name for Prometheus

A source that raises an exception loses its own samples only, and `harrow.metrics:…FailedSources` counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

MetricKind = Literal["gauge", "counter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The name and meaning of a metric.

    A counter only grows while the broker runs. Kafka's meters (`…PerSec`) are counters here, without their rates.
    """

    group: str
    """`kafka.server`, `kafka.controller`, `kafka.log`, …"""
    type: str
    name: str
    help: str = ""
    kind: MetricKind = "gauge"

    def mbean(self, tags: Mapping[str, str] | None = None) -> str:
        """Returns Kafka's name of the metric over JMX."""
        rest = "".join(f",{key}={value}" for key, value in (tags or {}).items())
        return f"{self.group}:type={self.type},name={self.name}{rest}"

    @property
    def flat(self) -> str:
        """The name with only the characters that Prometheus allows."""
        text = f"{self.group}_{self.type}_{self.name}"
        return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The value of a metric for a set of tags."""

    metric: Metric
    value: float
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


SampleSource = Callable[[], Iterable[Sample]]

FAILED = Metric(
    group="harrow.metrics",
    type="Metrics",
    name="FailedSources",
    help="sample sources that raised an exception at this reading",
)


class Metrics:
    """The register of a broker's metrics."""

    def __init__(self) -> None:
        self._sources: list[SampleSource] = []

    def add(self, source: SampleSource) -> None:
        """Registers `source`; each later reading calls it."""
        self._sources.append(source)

    def gauge(self, metric: Metric, read: Callable[[], float]) -> None:
        """Registers a metric with a single value and no tags."""
        self.add(lambda: (Sample(metric=metric, value=read()),))

    def samples(self) -> Iterator[Sample]:
        """Reads all sources and yields their samples."""
        failed = 0
        for source in self._sources:
            try:
                samples = list(source())
            except MemoryError:
                raise  # ends the process
            except Exception:  # a bug in one source must not hide the samples of the others
                failed += 1
                continue
            yield from samples
        yield Sample(metric=FAILED, value=failed)

    def values(self) -> dict[str, float]:
        """Reads all metrics, by Kafka's names, for the control socket."""
        return {sample.metric.mbean(sample.tags): sample.value for sample in self.samples()}
