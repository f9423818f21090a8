"""Facts about causes that only the rows of a partition show (`kernels/evidence.py`), for the rules of `causes/`.

Times are of the monotonic clock. Brokers are node ids, clients are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something about `records` of a partition."""

    name: ClassVar[str]
    topic: str
    partition: int
    records: int

    @property
    def place(self) -> str:
        """The topic-partition."""
        return f"{self.topic}-{self.partition}"

    def to_json(self) -> dict[str, Any]:
        """Return its name as `fact`, and its fields."""
        return {"fact": self.name, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFact(Fact):
    """A fact with the times of its first and its last request."""

    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgedAndLost(TimedFact):
    """A broker acknowledged batches which no replica's log has, without a long pause."""

    name = "acknowledged-and-lost"
    broker: int
    acks: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEarly(TimedFact):
    """A broker removed segments too early."""

    name = "removed-early"
    broker: int
    reason: str
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLost(TimedFact):
    """A broker appended records which the log has twice, and the response did not reach the client."""

    name = "response-lost"
    broker: int
    client: int
    idempotent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFailed(TimedFact):
    """The same, and the response had an error code: a fault put it there after the append (`fail_response`)."""

    name = "response-failed"
    broker: int
    client: int
    error: int
    idempotent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedUnanswered(Fact):
    """Records which the log has twice were appended in a leader epoch, and no broker sent a response."""

    name = "appended-unanswered"
    leader_epoch: int
    idempotent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgedTwice(TimedFact):
    """Each copy of records which the log has twice was acknowledged."""

    name = "acknowledged-twice"
    clients: Sequence[int]
    """The first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceUsedAgain(TimedFact):
    """Batches were acknowledged, and the log has others under the same sequences, with other timestamps."""

    name = "sequence-used-again"
    broker: int
    client: int
    batches: int
    producer_id: int
    """Of the first batch, as are the two below."""
    base_sequence: int
    base_offset: int


FACTS: Mapping[str, type[Fact]] = {
    kind.name: kind
    for kind in (
        AcknowledgedAndLost,
        RemovedEarly,
        ResponseLost,
        ResponseFailed,
        AppendedUnanswered,
        AcknowledgedTwice,
        SequenceUsedAgain,
    )
}


def fact_of(fields: Mapping[str, Any]) -> Fact:
    """Return the fact that `to_json` wrote."""
    given = dict(fields)
    return FACTS[given.pop("fact")](**given)
