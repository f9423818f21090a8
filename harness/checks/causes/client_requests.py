"""What a client did last, and what it repeated: causes from the requests of each client.

These rules know no anomaly. They are asked where records or outputs are missing, or where something waits, and their
sentences stand behind all others:

* a request that failed, after which the client sent neither it again with success nor what must follow it: a refused
  OffsetFetch, and no Fetch after it;
* an error that needs another request, again and again, and never that request: NOT_COORDINATOR without FindCoordinator;
* a coordinator whose process a fault ended, after which a client that goes on sent nothing to its group;
* a client that asked the same question very often, and received no record and had none acknowledged.

A request that ended because the client closed its connection is no failure, and what a client did not do is said only
where it went on, or where an error or a fault ended its work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ...histories.recorded_faults import RecordedFault
from ...histories.request_rows import ClientRequest, RequestCount
from ...wording import counted, times
from .evidence import RunEvidence
from .faults import happened

NEXT = {
    "FindCoordinator": ("JoinGroup", "InitProducerId", "OffsetFetch", "OffsetCommit", "ConsumerGroupHeartbeat"),
    "JoinGroup": ("SyncGroup",),
    "SyncGroup": ("Heartbeat", "OffsetFetch", "Fetch"),
    "OffsetFetch": ("Fetch",),
    "ListOffsets": ("Fetch",),
    "InitProducerId": ("Produce", "AddPartitionsToTxn"),
    "AddPartitionsToTxn": ("Produce",),
    "AddOffsetsToTxn": ("TxnOffsetCommit",),
    "TxnOffsetCommit": ("EndTxn",),
    "EndTxn": ("AddPartitionsToTxn", "InitProducerId"),
    "OffsetCommit": (),
    "Produce": (),
    "Fetch": (),
}
"""What follows a request of an API that succeeded."""
NEEDED = {
    "NOT_COORDINATOR": "FindCoordinator",
    "COORDINATOR_NOT_AVAILABLE": "FindCoordinator",
    "NOT_LEADER_OR_FOLLOWER": "Metadata",
    "UNKNOWN_TOPIC_OR_PARTITION": "Metadata",
    "FENCED_LEADER_EPOCH": "Metadata",
    "UNKNOWN_MEMBER_ID": "JoinGroup",
    "ILLEGAL_GENERATION": "JoinGroup",
    "OFFSET_OUT_OF_RANGE": "ListOffsets",
}
"""What a client sends after an error, before it tries again."""
OF_GROUPS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "ConsumerGroupHeartbeat")
ASKS = frozenset({"Metadata", "FindCoordinator", "ListOffsets", "OffsetFetch", "JoinGroup", "InitProducerId"})
AGAIN_LEAST = 3
"""So often an error must arrive without the request that it needs."""
OFTEN_LEAST = 50
"""So often a client must ask the same."""


def stopped_clients(evidence: RunEvidence) -> Iterator[tuple[int, str]]:
    """Yield a sentence for each client whose requests show where its work ended."""
    rows: dict[str, list[ClientRequest]] = defaultdict(list)
    counts: dict[str, list[RequestCount]] = defaultdict(list)
    for row in evidence.requests:
        rows[row.client].append(row)
    for count in evidence.request_counts:
        counts[count.client].append(count)
    for client in sorted(counts):
        known = _Client(client, rows[client], counts[client], evidence)
        text = (
            known.without_what_an_error_needs()
            or known.after_a_failure()
            or known.without_its_coordinator()
            or known.asking_again_and_again()
        )
        if text:
            yield 0, text


class _Client:
    """The requests of one client, by time."""

    def __init__(
        self, name: str, rows: Sequence[ClientRequest], counts: Sequence[RequestCount], evidence: RunEvidence
    ) -> None:
        self.name = name
        self._rows = rows
        self._counts = counts
        self._evidence = evidence

    def without_what_an_error_needs(self) -> str:
        """Return an error that arrived again and again without the request that it needs."""
        seen: dict[tuple[str, str], list[ClientRequest]] = defaultdict(list)
        for row in self._rows:
            if row.error in NEEDED:
                seen[row.api, row.error].append(row)
        for (api, error), own in seen.items():
            needed = NEEDED[error]
            first, last = own[0].completed_ns, own[-1].completed_ns
            if len(own) >= AGAIN_LEAST and not self._sent((needed,), first) and not self._succeeded(api, last):
                return (
                    f"client {self.name} got {error} for {api}{_subject(own[0])} {times(len(own))}, "
                    f"{self._evidence.span(first, last)}, and never sent {needed} after the first"
                )
        return ""

    def after_a_failure(self) -> str:
        """Return the last request that failed, where neither it nor what follows it was sent with success later."""
        for row in reversed(self._rows):
            if row.api not in NEXT or not self._failed(row):
                continue
            if self._succeeded(row.api, row.completed_ns) or self._sent(NEXT[row.api], row.completed_ns):
                continue
            follow = "".join(f", and never {api}" for api in NEXT[row.api][-1:])
            return f"{self._failure(row)}; after that it never sent {row.api} with success{follow}{self._last(row)}"
        return ""

    def without_its_coordinator(self) -> str:
        """Return the fault that ended a coordinator, where the client went on without a request of its group."""
        for fault in self._evidence.faults:
            before = [c for c in self._counts if c.api in OF_GROUPS and c.first_ns < fault.begin_ns]
            if not fault.says.moves_leaders or not before:
                continue
            last = max(before, key=lambda count: min(count.last_ns, fault.begin_ns))
            goes_on = max(count.last_ns for count in self._counts)
            apis = ("FindCoordinator", *OF_GROUPS)
            if last.broker not in fault.nodes or self._sent(apis, fault.begin_ns) or not self._goes_on(fault):
                continue
            hit = f"broker {last.broker}, the coordinator of client {self.name}, {happened(fault, self._evidence)}"
            return (
                f"{hit}; after that the client never sent FindCoordinator or a request of its group, although it sent "
                f"requests until {self._evidence.at(goes_on)}"
            )
        return ""

    def asking_again_and_again(self) -> str:
        """Return the question that the client asked most, where it received no record and had none acknowledged."""
        if self.name in self._evidence.readers or self._succeeded("Produce", 0):
            return ""
        by_api: dict[str, list[RequestCount]] = defaultdict(list)
        for count in self._counts:
            by_api[count.api].append(count)
        asked = [(sum(c.count for c in own), api) for api, own in by_api.items() if api in ASKS]
        number, api = max(asked, default=(0, ""))
        if number < OFTEN_LEAST:
            return ""
        own = by_api[api]
        when = self._evidence.span(min(c.first_ns for c in own), max(c.last_ns for c in own))
        fetched = sum(c.count for c in by_api.get("Fetch", ()))
        read = f"none of its {counted(fetched, 'Fetch', 'Fetch requests')} returned" if fetched else "it never received"
        return f"client {self.name} sent {api} {times(number)} {when}, and {read} a record"

    # ------------------------------------------------------------------------------------- parts

    def _failed(self, row: ClientRequest) -> bool:
        """Whether a request failed by its response or by a fault, and not because the client ended."""
        return bool(row.error) or row.lost or (row.unanswered and row.hit)

    def _succeeded(self, api: str, after_ns: int) -> bool:
        rows = any(
            row.api == api and row.completed_ns > after_ns and not (row.error or row.lost or row.unanswered)
            for row in self._rows
        )
        return rows or any(c.api == api and not c.error and c.last_ns > after_ns for c in self._counts)

    def _sent(self, apis: Iterable[str], after_ns: int) -> bool:
        return any(count.api in apis and count.last_ns > after_ns for count in self._counts)

    def _goes_on(self, fault: RecordedFault) -> bool:
        return any(count.last_ns > (fault.end_ns or fault.begin_ns) for count in self._counts)

    def _failure(self, row: ClientRequest) -> str:
        at = self._evidence.at(row.completed_ns)
        what = f"{row.api}{_subject(row)} of client {self.name}"
        by = " (a fault of the run did it)" if row.hit else ""
        if row.error:
            return f"broker {row.broker} returned {row.error} to {what} at {at}{by}"
        how = "lost its response" if row.lost else "got no response"
        return f"{what} {how} from broker {row.broker} at {at}{by}"

    def _last(self, row: ClientRequest) -> str:
        """Return what the client sent most after a request that failed."""
        later = [count for count in self._counts if count.last_ns > row.completed_ns]
        if not later:
            return "; it sent nothing more"
        most = max(later, key=lambda count: (count.count, count.last_ns))
        until = self._evidence.at(most.last_ns)
        return f"; it went on with {most.api}, {times(most.count)} in the whole run, until {until}"


def _subject(row: ClientRequest) -> str:
    return f" of {row.subject}" if row.subject else ""
