"""Writes the metrics in the text format of Prometheus, with the prometheus-client library.

Owns: `prometheus_text`. It imports the library at the first reading, so that a broker without a scraper never loads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .register import Metrics, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(metrics: Metrics) -> bytes:
    """Reads all metrics and returns them in the text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics.samples()))
    return generate_latest(registry)


class _Collected:
    """A collector for the library: the samples, grouped into metric families."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)

    def collect(self) -> Iterator[Family]:
        """Returns the families; the library calls it once for each reading."""
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
        """Returns nothing: the families are known only at a reading."""
        return ()
