"""The register in Prometheus' text format, by the prometheus-client library.

Owns: `prometheus_text`. The library is imported at the first reading: a broker that nobody scrapes never loads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .register import Metrics, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(metrics: Metrics) -> bytes:
    """Everything, as it is now."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics.samples()))
    return generate_latest(registry)


class _Collected:
    """Samples as the library wants them: by family."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)

    def collect(self) -> Iterator[Family]:
        """Called by the library once a reading."""
        from prometheus_client.core import Metric as Family

        families: dict[str, Family] = {}
        for sample in self._samples:
            metric = sample.metric
            family = families.get(metric.flat)
            if family is None:
                family = families[metric.flat] = Family(metric.flat, metric.help, metric.kind)
            suffix = "_total" if metric.kind == "counter" else ""
            family.add_sample(metric.flat + suffix, dict(sample.tags), sample.value)
        yield from families.values()

    def describe(self) -> Iterable[Family]:
        """Nothing is known before a reading."""
        return ()
