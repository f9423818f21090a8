"""The tap of one foreign broker, written from the requests and responses that pass (J6): rows as a broker writes them.

Owns: which requests are kept until their responses (`KEPT`), and the dispatch to the parts:

    tap_records.py        batches that were acknowledged and delivered; high watermarks
    tap_offsets.py        offsets that groups committed and read
    tap_transactions.py   transactions
    tap_members.py        members of groups and their partitions
    tap_shares.py         records that members of share groups acquired and acknowledged (KIP-932)

What the wire does not show has no row: the offsets of batches sent with acks=0; locks of share groups that expired,
and records that they gave up; the end of a transaction (COMPLETE states), and a decision that the coordinator made by
itself, after a timeout or for a new producer; partitions of internal topics in transactions; offsets of a transaction
when its commit makes them valid; members that expired or were replaced. A member owns partitions from the response
that says so.

Invariant: rows are written before the response leaves. May fail: `WireError` for a message that does not decode,
OSError for a full disk; the connection is closed then, and the response does not leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..host.seam import Tap
from ..wire.api_keys import ApiKey
from ..wire.topic_ids import UUID
from .fetch_sessions import Offsets
from .pending import PendingRequest
from .tap_members import TappedMembers
from .tap_offsets import TappedOffsets
from .tap_records import TappedFetches, TappedListings, TappedProduces
from .tap_shares import SHARE_ACKNOWLEDGE, SHARE_FETCH, TappedShares
from .tap_transactions import TappedTransactions, TransactionViews
from .topic_names import TopicNames

Forwarded = Callable[[PendingRequest], object]
"""Takes a request that is about to be forwarded."""
Answered = Callable[[PendingRequest, bytes, int], int | None]
"""Takes a request, its response, and where the response's body begins; returns the first error where it knows it."""

LOST_TOO = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.INIT_PRODUCER_ID,
        SHARE_FETCH,
        SHARE_ACKNOWLEDGE,
    )
)
"""APIs whose rows say what the broker did, so that they are written also for a response that a fault drops."""


class ProxyTap:
    """The tap of one broker; `names` and `transactions` belong to all brokers of the proxy."""

    def __init__(self, tap: Tap, names: TopicNames, transactions: TransactionViews) -> None:
        self._enabled = tap.enabled
        self._names = names
        self._produces = TappedProduces(tap, names, transactions)
        self._fetches = fetches = TappedFetches(tap, names)
        offsets = TappedOffsets(tap, names)
        ends = TappedTransactions(tap, transactions)
        members = TappedMembers(tap, names)
        self._offsets, self._ends = offsets, ends
        self._shares = shares = TappedShares(tap, names)
        self._forwarded: dict[int, Forwarded] = {
            ApiKey.PRODUCE: self._produces.forwarded,
            ApiKey.FETCH: fetches.forwarded,
            ApiKey.END_TXN: ends.end_forwarded,
        }
        self._answered: dict[int, Answered] = {
            ApiKey.PRODUCE: self._produces.answered,
            ApiKey.FETCH: fetches.answered,
            ApiKey.LIST_OFFSETS: TappedListings(tap, names).answered,
            ApiKey.OFFSET_COMMIT: offsets.committed,
            ApiKey.TXN_OFFSET_COMMIT: offsets.sent,
            ApiKey.OFFSET_FETCH: offsets.read,
            ApiKey.INIT_PRODUCER_ID: ends.initialised,
            ApiKey.ADD_PARTITIONS_TO_TXN: ends.partitions_added,
            ApiKey.END_TXN: ends.ended,
            ApiKey.JOIN_GROUP: members.joined,
            ApiKey.SYNC_GROUP: members.synced,
            ApiKey.LEAVE_GROUP: members.left,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: members.heartbeat,
            SHARE_FETCH: shares.answered,
            SHARE_ACKNOWLEDGE: shares.answered,
        }

    def forwarded(self, request: PendingRequest) -> None:
        """Prepare for the response; keeps the request's bytes only where the rows need them."""
        key = request.api_key
        if key not in self._answered or not self._enabled:
            # a fault of its response may ask for the whole request, of which a Produce keeps no copy
            request.frame = request.frame if key == ApiKey.PRODUCE else b""
        elif key in self._forwarded:
            self._forwarded[key](request)

    def answered(self, request: PendingRequest, response: bytes, body_at: int, *, lost: bool) -> int | None:
        """Write the rows of a response, and return its first error where it is known.

        `lost`: no client gets it; `request.error`: a client gets it with this error instead.
        """
        if not self._enabled:
            return None
        key, version = request.api_key, request.version
        if self._names.learns_from(key, version):
            self._names.learn(key, version, response, body_at)
        write = self._answered.get(key)
        changed = lost or request.error != 0
        if write is not None and (not changed or key in LOST_TOO):
            request.lost = lost
            return write(request, response, body_at)
        if key == ApiKey.FETCH and not lost:
            self._fetches.failed(request, response, body_at)
        return None

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic, as far as a response said it."""
        return self._names.name(topic_id)

    def session_partitions(self, session_id: int) -> Iterable[tuple[str | UUID, int]]:
        """The partitions of a fetch session; empty without a tap."""
        return self._fetches.session_partitions(session_id)

    def asked_partitions(self, request: PendingRequest) -> Iterable[tuple[str | UUID, int]] | None:
        """The partitions that a Fetch asks for, with those of its session; None where they are not known."""
        if request.api_key != ApiKey.FETCH or request.tapped is None:
            return None
        offsets: Offsets = request.tapped[0]
        return offsets

    def refused(self, request: PendingRequest, error: int) -> None:
        """Write the rows of a request that the proxy refuses."""
        if self._enabled and request.api_key == ApiKey.PRODUCE:
            self._produces.refused(request, error)

    def unanswered(self, request: PendingRequest) -> None:
        """The connection ended before the response: what the broker did is not known."""
        if not self._enabled or request.own_response is not None:
            return
        if request.api_key == ApiKey.OFFSET_COMMIT:
            self._offsets.unanswered(request)
        elif request.api_key == ApiKey.END_TXN:
            self._ends.unanswered(request)
        elif request.api_key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            self._shares.unanswered(request)

    def connection_ended(self, client: str) -> None:
        """The connection of a client to the broker ended; its requests without a response were `unanswered`."""
        if self._enabled:
            self._shares.connection_ended(client)
