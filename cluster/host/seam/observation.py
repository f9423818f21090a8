"""What a host records: the trace of events and log lines, and the tap of what was acknowledged and decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .buffers import Buffer

if TYPE_CHECKING:
    from ...events import TraceEvent
    from ...ids import TopicPartition


class Committer(NamedTuple):
    """Who committed offsets: the member in its generation, and the producer whose transaction has them."""

    client: str = ""
    member: str = ""
    generation: int = -1
    producer_id: int = -1
    producer_epoch: int = -1


OFFSET_COMMITTED, OFFSET_SENT, OFFSET_READ = 1, 2, 3
"""An offset that a group committed, one that waits for the end of its transaction, one that OffsetFetch returned."""
TRANSACTION_ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = 1, 2, 3, 4, 5
"""States of a transaction, with Kafka's numbers."""
END_UNKNOWN = 16
"""No state of Kafka's: the coordinator may have decided from that time on, and its response did not arrive."""
GROUP_STATES = (
    "Unknown",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
"""Kafka's names of the states of groups, of both protocols; a row of the tap has the place in this table."""


class TappedGroup(NamedTuple):
    """A group as its coordinator has it."""

    state: str
    """One of `GROUP_STATES`."""
    generation: int
    """The generation, or the group epoch where the group has the protocol of KIP-848."""
    members: int
    timeout_ms: int
    """The longest rebalance or session timeout of its members: until then the coordinator may wait for one of them."""


(
    SHARE_ACQUIRED,
    SHARE_ACCEPTED,
    SHARE_RELEASED,
    SHARE_REJECTED,
    SHARE_RENEWED,
    SHARE_EXPIRED,
    SHARE_ARCHIVED,
    SHARE_LOADED,
    SHARE_COPIED,
) = range(1, 10)
"""What happened to records of a share group: a ShareFetch delivered them to a member under a lock; the member's
acknowledgement (accept, release, reject, renew) has its result; the lock expired; they were given up, because they were
delivered as often as is allowed or because the log lost them; a leader loaded the share-partition, or its start offset
was set: `first_offset` is its start offset, `last_offset` the one before it, and `delivery_count` how often a record is
delivered at most; the dead-letter queue of the group has them, or `error` says why not."""


class SharedRecords(NamedTuple):
    """Records of one partition, from `first_offset` to `last_offset`, as one share group consumes them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int = 0
    """How often they were delivered, with this time; 0: not known (an acknowledgement on a foreign broker)."""
    leader_epoch: int = -1
    """In which the leader decided it; -1: not known."""


class Watermarks(NamedTuple):
    """Where the log of one partition begins and ends, as its leader says; an offset that a response lacks is -1."""

    topic: str
    partition: int
    leader_epoch: int
    """In which the leader read the values; -1: not known, or not the leader."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    topic_id: int = 0
    """CRC-32 of the topic's id; 0: not known."""

    @classmethod
    def listed(
        cls, topic: str, partition: int, leader_epoch: int, offset: int, *, committed: bool, topic_id: int = 0
    ) -> Watermarks:
        """Return what the latest offset of a ListOffsets response says to a reader of all or of committed data."""
        high, stable = (-1, offset) if committed else (offset, -1)
        return cls(topic, partition, leader_epoch, high, stable, topic_id=topic_id)


REQUEST_LOST, REQUEST_UNANSWERED, REQUEST_HIT = 1, 2, 4
"""Flags of a request: a fault dropped its response; no response left until its connection ended or a fault dropped it;
a fault of requests acted on it (refused, lost, dropped, delayed or served twice)."""
CONNECTION_OPENED, CONNECTION_CLOSED = -1, -2
"""Two values of `TappedRequest.api` that are about the connection: its first request has named the client; it has
ended, with the same `invoked_ns`."""


class TappedRequest(NamedTuple):
    """A request of a client whose response leaves, or that ends without one."""

    client: str
    api: int
    """Kafka's key."""
    error: int
    """The first error in the response; 0 without one."""
    invoked_ns: int
    completed_ns: int
    flags: int = 0
    subject: str | None = None
    """The group, transactional id or coordinator key that it names."""


UNKNOWN_COMMITTER = Committer()
"""A committer that is not known."""


class Trace(Protocol):
    """Structured events of this host: what changed and why."""

    def emit(self, event: TraceEvent, /) -> None:
        """Append the row of `event`; time and host are added here."""
        ...

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """Write a line for people to the broker's log file; level is debug, info, warning or error."""
        ...


class Tap(Protocol):
    """Records what responses acknowledged or delivered, and what coordinators decided (J6); off by default."""

    enabled: bool

    def produced(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        base_offset: int,
        error: int,
        acks: int,
        invoked_ns: int,
        batches: Buffer,
        lost: bool,
    ) -> None:
        """One partition of a produce response, just before its bytes are sent (`lost`: a fault drops the response)."""
        ...

    def fetched(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        offset: int,
        invoked_ns: int,
        batches: Sequence[Buffer],
        aborted: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """One partition of a consumer's fetch response, just before its bytes are sent; `aborted`: as it says."""
        ...

    def watermarks(self, client: str, found: Iterable[Watermarks], *, invoked_ns: int, listed: bool = False) -> None:
        """The partitions of a consumer's Fetch response, or of a ListOffsets response (`listed`), before it leaves."""
        ...

    def committed(
        self,
        group: str,
        offsets: Iterable[tuple[TopicPartition, int]],
        *,
        error: int,
        invoked_ns: int,
        by: Committer = UNKNOWN_COMMITTER,
        kind: int = OFFSET_COMMITTED,
    ) -> None:
        """The result of writing or reading a group's offsets, before the response is sent (`OFFSET_COMMITTED`, …)."""
        ...

    def transaction(
        self,
        transactional_id: str,
        partitions: Iterable[TopicPartition],
        *,
        state: int,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        since_ns: int = 0,
    ) -> None:
        """A transaction is in `state` (Kafka's number) in the coordinator's log, before what follows from it.

        `since_ns`: the earliest time at which it may have been in this state; 0: now.
        """
        ...

    def shared(
        self,
        group: str,
        member: str,
        client: str,
        records: Iterable[SharedRecords],
        *,
        kind: int,
        error: int = 0,
        invoked_ns: int = 0,
        lock_until_ns: int = 0,
        lost: bool = False,
    ) -> None:
        """Records of a share group (`SHARE_ACQUIRED`, …), before the response that says so leaves.

        `member` and `client` are empty where no member is known. `error`: what the response says of the
        acknowledgement. `lock_until_ns`: when the lock of acquired or renewed records ends, on the monotonic clock; 0:
        not known. `lost`: a fault drops the response.
        """
        ...

    def group(self, group: str, now: TappedGroup, *, partition: int, leader_epoch: int) -> None:
        """A group changed, or its coordinator loaded it from `partition` of `__consumer_offsets`."""
        ...

    def member(
        self,
        group: str,
        member: str,
        client: str,
        *,
        generation: int,
        partitions: Iterable[TopicPartition],
        leader_epoch: int = -1,
        instance: str | None = None,
    ) -> None:
        """From now on the member owns these partitions and no others; none when it left, expired or was replaced.

        `leader_epoch`: in which the coordinator began to lead the group's partition, -1 where that is not known.
        """
        ...

    def requested(self, row: TappedRequest) -> None:
        """A client's request, before its response leaves or when it ends without one; OSError for a full disk."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class NoTap:
    """The tap of a host that records nothing."""

    enabled = False

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Record nothing."""

    produced = fetched = watermarks = committed = transaction = shared = group = member = requested = close = _nothing
