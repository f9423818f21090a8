"""`RunEvidence`: what a run recorded about causes, as one value. `recorded.py` reads it from the run folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...histories.program_ends import ProgramEnd
from ...histories.recorded_faults import RecordedFault, Row
from ...histories.request_rows import ClientRequest, RequestCount
from ...run_folder import RunTimes

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """What a run recorded about causes; times in nanoseconds of the monotonic clock."""

    started_ns: int
    faults: Sequence[RecordedFault] = ()
    """Faults that were injected, by the time of their injection."""
    events: Sequence[Row] = ()
    """Events of the brokers' traces with `broker`, by time: partition.leader, .isr, .truncated, group.state, and
    transaction.state of producers that began."""
    machine: Sequence[Row] = ()
    """Events of all processes that show what a busy machine did: those of `busy_machine.EVENTS`."""
    facts: Sequence[Row] = ()
    """Rows of `kernels/evidence.py`."""
    refusals: Sequence[Row] = ()
    """Produce requests that brokers refused: `topic`, `error` (a name), `records`, `first_ns`, `last_ns`."""
    delivery_errors: Sequence[Row] = ()
    """Sends that did not succeed: `topic`, `error` (a name), `refused`, `records`, `first_ns`, `last_ns`."""
    acknowledgements: Mapping[Place, Row] = field(default_factory=dict[Place, Row])
    """Of the copies of duplicated records: `client` and `time_ns` of the acknowledgement that reached the client."""
    aborted: Sequence[Row] = ()
    """Transactions that were aborted: `transactional_id`, `topic`, `transactions`, `first_ns`, `last_ns`."""
    committed: Sequence[Row] = ()
    """The same of transactions that were committed."""
    plain_commits: Sequence[Row] = ()
    """Offsets that were committed outside of transactions: `group`, `topic`, `commits`."""
    old_offset_reads: Sequence[Row] = ()
    """Committed offsets that a replaced coordinator returned; as `coordinator_facts.old_offset_reads` has them."""
    uncommitted_readers: Sequence[Row] = ()
    """Clients that read uncommitted data: `client`, `topic`."""
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
    unfinished: Sequence[Row] = ()
    """Transactions with records of `topic` without a recorded decision: `transactional_id`, `topic`, `begun_ns`."""
    unacknowledged: Mapping[Place, Row] = field(default_factory=dict[Place, Row])
    """Of the records of `places` that no client was acknowledged: `client`, `time_ns` and `lost` of the response, where
    a broker had one."""
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


def events_of_partition(fact: Row, evidence: RunEvidence, *names: str) -> list[Row]:
    """Return the events of the partition that a fact is about."""
    place = fact["topic"], fact["partition"]
    return [
        row for row in evidence.events if row["event"] in names and (row.get("topic"), row.get("partition")) == place
    ]
