"""Durations of requests, by API: two additions for each response, read as Kafka's RequestMetrics.

Owns: `RequestTimes`, which keeps for each API key the number of responses, and their total and longest time in
nanoseconds. The time runs from the arrival of the frame until the response is passed to the link, as in Kafka's
TotalTimeMs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..wire.api_keys import ApiKey
from .register import Metric, Sample

_REQUESTS = Metric(
    group="kafka.network",
    type="RequestMetrics",
    name="RequestsPerSec",
    kind="counter",
    help="number of answered requests",
)
_TOTAL = Metric(
    group="kafka.network",
    type="RequestMetrics",
    name="TotalTimeMs",
    kind="counter",
    help="sum of the milliseconds from arrival to response; divide it by RequestsPerSec for the mean",
)
_LONGEST = Metric(
    group="kafka.network",
    type="RequestMetrics",
    name="TotalTimeMsMax",
    help="longest time from arrival to response since the broker started, in milliseconds",
)
_KNOWN = {int(key): "".join(part.title() for part in key.name.split("_")) for key in ApiKey}


class RequestTimes:
    """The durations of a broker's requests, on all its listeners."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def took(self, api_key: int, took_ns: int) -> None:
        """Counts a response that took `took_ns` nanoseconds."""
        row = self._rows.get(api_key)
        if row is None:
            self._rows[api_key] = [1, took_ns, took_ns]
            return
        row[0] += 1
        row[1] += took_ns
        if took_ns > row[2]:
            row[2] = took_ns

    def samples(self) -> Iterator[Sample]:
        """Yields the samples of every API that had a request."""
        for api_key, (count, total_ns, longest_ns) in sorted(self._rows.items()):
            tags = {"request": _KNOWN.get(api_key, str(api_key))}
            yield Sample(metric=_REQUESTS, value=count, tags=tags)
            yield Sample(metric=_TOTAL, value=total_ns / 1e6, tags=tags)
            yield Sample(metric=_LONGEST, value=longest_ns / 1e6, tags=tags)
