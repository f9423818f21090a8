"""`RunEvidence`: what a run recorded about causes, as one value. `recorded.py` reads it from the run folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.partitions import PartitionEvent

from ...histories.program_ends import ProgramEnd
from ...histories.recorded_faults import RecordedFault
from ...histories.request_rows import ClientRequest, RequestCount
from ...run_folder import RunTimes
from ..facts import Fact

P = TypeVar("P", bound=PartitionEvent)
Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Produce requests to a topic that brokers refused with an error, by whether a producer was without idempotence."""

    topic: str
    error: str
    """Its name."""
    without_idempotence: bool
    records: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryErrors:
    """Sends to a topic that ended with an error of the client: refused by `produce`, or in a delivery report."""

    topic: str
    error: str
    """Its name."""
    refused: bool
    records: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResponse:
    """The response to the request that appended a record, and when it was ready."""

    client: str
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransactions:
    """How many transactions of a transactional id with records of a topic were aborted, or committed, and when."""

    transactional_id: str
    topic: str
    transactions: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedTransaction:
    """A transaction with records of a topic, without a recorded decision."""

    transactional_id: str
    topic: str
    begun_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCommits:
    """How many offsets of a topic a group committed outside of transactions."""

    group: str
    topic: str
    commits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OldOffsetRead:
    """A committed offset that a replaced coordinator (`broker`) returned, and what another one had committed."""

    group: str
    topic: str
    partition: int
    client: str
    broker: int
    offset: int
    time_ns: int
    other_broker: int
    committed: int
    committed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UncommittedReader:
    """A client that read uncommitted data of a topic."""

    client: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """What a run recorded about causes; times in nanoseconds of the monotonic clock."""

    started_ns: int
    faults: Sequence[RecordedFault] = ()
    """Faults that were injected, by the time of their injection."""
    events: Sequence[TracedEvent[TraceEvent]] = ()
    """Events of the brokers' traces, by time: leaders, ISRs, truncations, states of groups, and states of transactions
    of producers that began."""
    machine: Sequence[TracedEvent[TraceEvent]] = ()
    """Events of all processes that show what a busy machine did: those of `busy_machine.EVENTS`."""
    facts: Sequence[Fact] = ()
    """Of the kernels."""
    refusals: Sequence[Refusals] = ()
    delivery_errors: Sequence[DeliveryErrors] = ()
    acknowledgements: Mapping[Place, ClientResponse] = field(default_factory=dict[Place, ClientResponse])
    """Of the copies of duplicated records: the acknowledgement that reached the client."""
    aborted: Sequence[EndedTransactions] = ()
    committed: Sequence[EndedTransactions] = ()
    plain_commits: Sequence[PlainCommits] = ()
    old_offset_reads: Sequence[OldOffsetRead] = ()
    uncommitted_readers: Sequence[UncommittedReader] = ()
    dependencies: Collection[str] = ()
    """Names of the dependencies of the test (`harrow.dependency`)."""
    program_ends: Sequence[ProgramEnd] = ()
    """How the programs of the test ended until the verdict, by time."""
    requests: Sequence[ClientRequest] = ()
    """Requests of clients that have rows, by time (`histories/request_rows.py`)."""
    request_counts: Sequence[RequestCount] = ()
    """How many requests each client sent, by API, error and broker."""
    readers: Collection[str] = ()
    """Clients to which a record was delivered."""
    unfinished: Sequence[UnfinishedTransaction] = ()
    unacknowledged: Mapping[Place, ClientResponse | None] = field(default_factory=dict[Place, "ClientResponse | None"])
    """Of the records of `places` that no client was acknowledged: the response that was lost; None: there was none."""
    clients: Sequence[str] = field(default=())
    """Names of the clients, by the number that the facts have."""

    def at(self, time_ns: int) -> str:
        """Return a time since the start of the test: "0.14 s"."""
        return RunTimes(self.started_ns).text(time_ns)

    @property
    def times(self) -> RunTimes:
        """Show times since the start of the test."""
        return RunTimes(self.started_ns)

    def span(self, first_ns: int, last_ns: int) -> str:
        """Return "at 0.14 s" or "from 0.14 s to 0.52 s"."""
        first, last = self.at(first_ns), self.at(last_ns)
        return f"at {first}" if first == last else f"from {first} to {last}"


def events_of_partition(topic: str, partition: int, evidence: RunEvidence, *kinds: type[P]) -> list[TracedEvent[P]]:
    """Return the events of these kinds of a partition."""
    place = topic, partition
    return [
        cast("TracedEvent[P]", traced)
        for traced in evidence.events
        if isinstance(event := traced.event, kinds) and (event.topic, event.partition) == place
    ]
