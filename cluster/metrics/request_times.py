"""How long requests took, by API: kept by two additions a response, read as Kafka's RequestMetrics.

Owns: `RequestTimes`: for each API key the number of responses, their total and longest time in nanoseconds, from
the frame's arrival to the moment its response was given to the link. Kafka's TotalTimeMs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..wire.api_keys import ApiKey
from .register import Metric, Sample

_REQUESTS = Metric(
    group="kafka.network", type="RequestMetrics", name="RequestsPerSec", kind="counter",
    help="requests answered",
)  # fmt: skip
_TOTAL = Metric(
    group="kafka.network", type="RequestMetrics", name="TotalTimeMs", kind="counter",
    help="milliseconds from arrival to answer, added up; divide by RequestsPerSec for the mean",
)  # fmt: skip
_LONGEST = Metric(
    group="kafka.network", type="RequestMetrics", name="TotalTimeMsMax",
    help="the longest of them since the broker began",
)  # fmt: skip
_KNOWN = {int(key): "".join(part.title() for part in key.name.split("_")) for key in ApiKey}


class RequestTimes:
    """Counts of one broker, of all its listeners."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def took(self, api_key: int, took_ns: int) -> None:
        """One response left."""
        row = self._rows.get(api_key)
        if row is None:
            self._rows[api_key] = [1, took_ns, took_ns]
            return
        row[0] += 1
        row[1] += took_ns
        if took_ns > row[2]:
            row[2] = took_ns

    def samples(self) -> Iterator[Sample]:
        """Every API that was asked for."""
        for api_key, (count, total_ns, longest_ns) in sorted(self._rows.items()):
            tags = {"request": _KNOWN.get(api_key, str(api_key))}
            yield Sample(metric=_REQUESTS, value=count, tags=tags)
            yield Sample(metric=_TOTAL, value=total_ns / 1e6, tags=tags)
            yield Sample(metric=_LONGEST, value=longest_ns / 1e6, tags=tags)
