"""One line of cause for each kind of anomaly: which fault, which broker and which setting led to it.

`causes` is a pure function of what the run recorded (`RunEvidence`, which `run_evidence.py` reads). A rule in `RULES`
makes sentences for one kind. It states facts that were recorded, in the order in which they happened; where a fact is
missing, its part of the sentence is left out, and without the first fact there is no sentence. A rule never guesses.

The facts: acknowledged batches that no log has, and the requests that appended a record twice (`kernels/evidence.py`,
from taps and logs); faults (`faults.jsonl`); leaders, ISRs, truncations and states of groups (traces); refused Produce
requests (taps); errors of delivery reports (histories); commits (rows of an anomaly).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..histories.recorded_faults import RecordedFault, Row
from .verdict import Anomaly

SENTENCES_MOST = 3
"""Sentences for one kind: those on the most records."""
FAULT_WORDS: Mapping[str, str] = {
    "kill": "was killed",
    "terminate": "was shut down",
    "restart": "was restarted",
    "power_loss": "lost power",
    "pause": "was paused",
    "isolate": "was isolated",
    "cut": "was cut off in one direction",
    "slow_link": "had slow links",
    "reset": "lost its connections",
    "disk_error": "had a disk that failed",
    "slow_disk": "had a slow disk",
    "lose_response": "lost responses",
}
"""What happened to a broker, by kind of fault."""
AT_ONCE = frozenset({"kill", "terminate", "restart", "power_loss", "reset"})
"""Kinds that happen at a time; the other kinds last from a time to a time."""
TAKES_LEADERSHIP = frozenset(
    {"kill", "terminate", "restart", "power_loss", "pause", "isolate", "cut", "disk_error"}
)
"""Kinds after which another broker becomes leader; such a fault is named before a slow link or disk."""
NEVER_NS = 2**63
ACKS = {-1: "acks=all", 0: "acks=0", 1: "acks=1"}


Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """What a run recorded about causes; times in nanoseconds of the monotonic clock."""

    started_ns: int
    faults: Sequence[RecordedFault] = ()
    """Faults that were injected, by the time of their injection."""
    events: Sequence[Row] = ()
    """Events of the brokers' traces with `broker`, by time: partition.leader, .isr, .truncated and group.state."""
    facts: Sequence[Row] = ()
    """Rows of `kernels/evidence.py`."""
    refusals: Sequence[Row] = ()
    """Produce requests that brokers refused: `topic`, `error` (a name), `records`, `first_ns`, `last_ns`."""
    delivery_errors: Sequence[Row] = ()
    """Sends that did not succeed: `topic`, `error` (a name), `refused`, `records`, `first_ns`, `last_ns`."""
    acknowledgements: Mapping[Place, Row] = field(default_factory=dict[Place, Row])
    """Of the copies of duplicated records: `client` and `time_ns` of the acknowledgement that reached the client."""
    clients: Sequence[str] = field(default=())
    """Names of the clients, by the number that the facts have."""

    def at(self, time_ns: int) -> str:
        """Return a time since the start of the test: "0.14 s"."""
        return f"{(time_ns - self.started_ns) / 1e9:.2f} s"

    def span(self, first_ns: int, last_ns: int) -> str:
        """Return "at 0.14 s" or "from 0.14 s to 0.52 s"."""
        first, last = self.at(first_ns), self.at(last_ns)
        return f"at {first}" if first == last else f"from {first} to {last}"


Rule = Callable[[Sequence[Anomaly], RunEvidence], Iterable[tuple[int, str]]]
"""From the shown anomalies of a kind to sentences, each with the number of records that it is about."""


def causes(anomalies: Iterable[Anomaly], evidence: RunEvidence) -> dict[str, tuple[str, ...]]:
    """Return the sentences for each kind among `anomalies` for which there is evidence, the most records first."""
    by_name: dict[str, list[Anomaly]] = {}
    for anomaly in anomalies:
        by_name.setdefault(anomaly.name, []).append(anomaly)
    found: dict[str, tuple[str, ...]] = {}
    for name, shown in by_name.items():
        sentences = sorted(RULES[name](shown, evidence), key=_weight) if name in RULES else []
        if sentences:
            found[name] = tuple(dict.fromkeys(text for _, text in sentences))[:SENTENCES_MOST]
    return found


def _weight(sentence: tuple[int, str]) -> int:
    return -sentence[0]


def records(count: int) -> str:
    """Return "1 record" or "31 records"."""
    return f"{count:,} record{'' if count == 1 else 's'}"


# ------------------------------------------------------------------------------------ lost records


def lost(_: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return a sentence for each broker and setting of acks that acknowledged what no log has."""
    for fact in evidence.facts:
        if fact["fact"] == "acknowledged-and-lost":
            yield fact["records"], _lost_sentence(fact, evidence)


def _lost_sentence(fact: Row, evidence: RunEvidence) -> str:
    place = f"{fact['topic']}-{fact['partition']}"
    broker, acks = fact["broker"], ACKS.get(fact["acks"], f"acks={fact['acks']}")
    leader = _next_leader(fact, evidence)
    fault = _fault_of(fact, evidence, None if leader is None else leader["t_ns"])
    verb = "appended" if fact["acks"] == 0 else "acknowledged"
    what = f"{verb} {records(fact['records'])} of {place}"
    when = evidence.span(fact["first_ns"], fact["last_ns"])
    if fault is None:
        text = f"with {acks} broker {broker} {what} {when}"
    elif fault.begin_ns > fact["last_ns"]:
        text = f"with {acks} broker {broker} {what} {when}; then it {happened(fault, evidence)}"
    else:
        text = f"broker {broker} {happened(fault, evidence)}; with {acks} it {what} {when}"
    isr = _isr_at(fact, evidence)
    if isr == [broker]:
        text += ", while the ISR had no other broker"
    if leader is not None:
        text += (
            f"; broker {leader['leader']} became leader in leader epoch {leader['leader_epoch']} "
            f"at {evidence.at(leader['t_ns'])} without them"
        )
    cut = _truncation(fact, evidence)
    if cut is not None:
        text += f", and broker {broker} discarded them at {evidence.at(cut['t_ns'])}"
    return text


def _of_partition(fact: Row, evidence: RunEvidence, *names: str) -> list[Row]:
    """Return the events of the partition that a fact is about."""
    place = fact["topic"], fact["partition"]
    return [
        row
        for row in evidence.events
        if row["event"] in names and (row.get("topic"), row.get("partition")) == place
    ]


def _next_leader(fact: Row, evidence: RunEvidence) -> Row | None:
    """Return the event of the first other leader after the first acknowledgement."""
    rows = _of_partition(fact, evidence, "partition.leader")
    return next(
        (
            row
            for row in rows
            if row["t_ns"] > fact["first_ns"] and row.get("leader") not in (None, fact["broker"])
        ),
        None,
    )


def _isr_at(fact: Row, evidence: RunEvidence) -> list[int] | None:
    """Return the ISR of the last acknowledgement, as the acknowledging broker traced it."""
    rows = _of_partition(fact, evidence, "partition.leader", "partition.isr")
    known = [
        row["isr"]
        for row in rows
        if row["broker"] == fact["broker"] and row["t_ns"] <= fact["first_ns"] and row.get("isr")
    ]
    return sorted(known[-1]) if known else None


def _truncation(fact: Row, evidence: RunEvidence) -> Row | None:
    """Return the event in which the broker cut the lost records off its log."""
    rows = _of_partition(fact, evidence, "partition.truncated")
    return next(
        (
            row
            for row in rows
            if row["broker"] == fact["broker"]
            and row["t_ns"] > fact["first_ns"]
            and row.get("to", 0) <= fact["first_offset"] < row.get("from", 0)
        ),
        None,
    )


def _fault_of(fact: Row, evidence: RunEvidence, next_leader_ns: int | None) -> RecordedFault | None:
    """Return the fault of the acknowledging broker: during the acknowledgements, else before the next leader."""
    own = [fault for fault in evidence.faults if fact["broker"] in fault.nodes]
    limit = next_leader_ns if next_leader_ns is not None else NEVER_NS
    during = [
        fault
        for fault in own
        if fault.begin_ns <= fact["last_ns"] and (fault.end_ns or NEVER_NS) >= fact["first_ns"]
    ]
    after = [fault for fault in own if fact["last_ns"] < fault.begin_ns < limit]
    chosen = [*reversed(during), *after]
    return next((f for f in chosen if f.kind in TAKES_LEADERSHIP), next(iter(chosen), None))


def happened(fault: RecordedFault, evidence: RunEvidence) -> str:
    """Return what a fault did to its broker, and when: "was isolated from 0.14 s to 4.16 s"."""
    words = FAULT_WORDS.get(fault.kind, f"was hit by the fault {fault.kind}")
    begin_ns = fault.begin_ns if fault.effect_ns is None else fault.effect_ns
    if fault.kind in AT_ONCE:
        return f"{words} at {evidence.at(begin_ns)}"
    if fault.end_ns is None:
        return f"{words} from {evidence.at(begin_ns)} on"
    return f"{words} from {evidence.at(begin_ns)} to {evidence.at(fault.end_ns)}"


def same_offsets(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which leader wrote other records at the offsets of lost ones."""
    places = {(anomaly.topic, anomaly.partition) for anomaly in anomalies}
    for fact in evidence.facts:
        if (
            fact["fact"] != "acknowledged-and-lost"
            or (fact["topic"], fact["partition"]) not in places
        ):
            continue
        leader = _next_leader(fact, evidence)
        if leader is not None:
            place = f"{fact['topic']}-{fact['partition']}"
            text = (
                f"broker {leader['leader']} became leader of {place} in leader epoch {leader['leader_epoch']} at "
                f"{evidence.at(leader['t_ns'])}, and wrote other records at the offsets that broker {fact['broker']} "
                "had acknowledged"
            )
            yield fact["records"], text


# ------------------------------------------------------------------------------------ never stored


def not_stored(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return what became of records that the application believes to have sent: lost, refused, given up."""
    topics = {anomaly.topic for anomaly in anomalies}
    yield from lost(anomalies, evidence)
    for row in evidence.delivery_errors:
        if row["topic"] in topics:
            what = "produce() refused" if row["refused"] else "the delivery reports of"
            said = "with the error" if row["refused"] else "had the error"
            when = evidence.span(row["first_ns"], row["last_ns"])
            yield (
                row["records"],
                f"{what} {records(row['records'])} of {row['topic']} {said} {row['error']} {when}",
            )
    for row in evidence.refusals:
        if row["topic"] in topics:
            yield row["records"], _refusal(row, evidence)


def _refusal(row: Row, evidence: RunEvidence) -> str:
    when = evidence.span(row["first_ns"], row["last_ns"])
    return f"brokers refused {records(row['records'])} of {row['topic']} with {row['error']} {when}"


# ------------------------------------------------------------------------------------- duplicates


def duplicated(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return why a record was appended twice: a lost response, a broker without response, a client that sent twice."""
    for fact in evidence.facts:
        sentence = DUPLICATIONS.get(fact["fact"])
        text = sentence(fact, evidence) if sentence is not None else ""
        if text:
            yield fact["records"], text
    yield from _sent_by_application(anomalies, evidence)


def _sent_by_application(
    anomalies: Sequence[Anomaly], evidence: RunEvidence
) -> Iterable[tuple[int, str]]:
    """Return that a record id was sent in several requests, each of which was acknowledged to its client."""
    for anomaly in anomalies:
        copies = [
            evidence.acknowledgements.get((row["topic"], row["partition"], row["offset"]))
            for row in anomaly.operations
            if row.get("operation") == "record" and "offset" in row
        ]
        known = [copy for copy in copies if copy is not None]
        if len(known) < 2 or len(known) < len(copies):
            continue
        times = sorted(copy["time_ns"] for copy in known)
        names = ", ".join(sorted({str(copy["client"]) for copy in known}))
        text = (
            f"the copies of record id {anomaly.operations[0].get('record_id')} were all acknowledged to the client "
            f"({names}), {evidence.span(times[0], times[-1])}, and no response was lost: the application sent the "
            "record more than once"
        )
        yield 1, text
        return


def _sender(fact: Row) -> str:
    return "an idempotent producer" if fact["idempotent"] else "a producer without idempotence"


def _response_lost(fact: Row, evidence: RunEvidence) -> str:
    when = evidence.span(fact["first_ns"], fact["last_ns"])
    return (
        f"{_sender(fact)} ({_client(fact['client'], evidence)}) sent {records(fact['records'])} of "
        f"{fact['topic']}-{fact['partition']} again, after the responses of broker {fact['broker']} to its Produce "
        f"requests were lost {when}"
    )


def _acknowledged_twice(fact: Row, evidence: RunEvidence) -> str:
    names = ", ".join(_client(number, evidence) for number in fact["clients"])
    when = evidence.span(fact["first_ns"], fact["last_ns"])
    return (
        f"the brokers acknowledged every copy of these records {when}: the client ({names}) sent them more than once, "
        "and not because a response was lost"
    )


def _client(number: int, evidence: RunEvidence) -> str:
    return evidence.clients[number] if number < len(evidence.clients) else f"client {number}"


def _unanswered(fact: Row, evidence: RunEvidence) -> str:
    """Return the sentence on a leader that appended records and was hit by a fault before it answered."""
    leaders = [
        row
        for row in _of_partition(fact, evidence, "partition.leader")
        if row.get("leader_epoch") == fact["leader_epoch"]
    ]
    if not leaders:
        return ""
    leader = leaders[0]["leader"]
    fault = next(
        (f for f in evidence.faults if leader in f.nodes and f.begin_ns >= leaders[0]["t_ns"]), None
    )
    if fault is None:
        return ""
    return (
        f"broker {leader} appended {records(fact['records'])} of {fact['topic']}-{fact['partition']} in leader epoch "
        f"{fact['leader_epoch']} and never answered: it {happened(fault, evidence)}; {_sender(fact)} sent them again"
    )


DUPLICATIONS: Mapping[str, Callable[[Row, RunEvidence], str]] = {
    "response-lost": _response_lost,
    "appended-unanswered": _unanswered,
    "acknowledged-twice": _acknowledged_twice,
}


def reordered(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which batches were refused, where the records of a producer without idempotence changed their order."""
    rows = [row for anomaly in anomalies for row in anomaly.operations]
    if any((row.get("producer_id") or -1) >= 0 for row in rows):
        return
    topics = {anomaly.topic for anomaly in anomalies}
    for row in evidence.refusals:
        if row["topic"] in topics and row.get("without_idempotence"):
            text = (
                f"{_refusal(row, evidence)}; a producer without idempotence sends a refused batch again after batches "
                "that were accepted meanwhile"
            )
            yield row["records"], text


# -------------------------------------------------------------------------------------- pipelines


def committed_early(
    anomalies: Sequence[Anomaly], evidence: RunEvidence
) -> Iterable[tuple[int, str]]:
    """Return which commit covered inputs that have no output yet, and the rebalance that followed."""
    inputs: dict[tuple[Any, ...], int] = {}
    for anomaly in anomalies:
        for row in anomaly.operations:
            when = row.get("completed_ns") or row.get("time_ns")
            if row.get("operation") == "commit" and row.get("group") and when:
                key = (
                    row["group"],
                    row.get("topic"),
                    row.get("partition"),
                    row.get("offset"),
                    when,
                )
                inputs[key] = inputs.get(key, 0) + anomaly.records
                break
    for (group, topic, partition, offset, when), count in inputs.items():
        text = (
            f"group {group} committed offset {offset} of {topic}-{partition} at {evidence.at(when)}, before the "
            "outputs of all records below it were written"
        )
        rebalance = _rebalance_after(group, when, evidence)
        if rebalance is not None:
            text += f"; the group rebalanced at {evidence.at(rebalance['t_ns'])}"
        yield count, text


def _rebalance_after(group: str, time_ns: int, evidence: RunEvidence) -> Row | None:
    """Return the first event after a commit in which the group lost or gained members."""
    return next(
        (
            row
            for row in evidence.events
            if row["event"] == "group.state"
            and row.get("group") == group
            and row["t_ns"] > time_ns
            and str(row.get("state")).lower().replace("_", "") in ("preparingrebalance", "empty")
        ),
        None,
    )


RULES: Mapping[str, Rule] = {
    "missing": not_stored,
    "lost-write": lost,
    "missing-output": committed_early,
    "commit-before-output": committed_early,
    "duplicate": duplicated,
    "inconsistent-offsets": same_offsets,
    "nonmonotonic-send": reordered,
    "out-of-order": reordered,
}
"""The rule of each kind for which there can be evidence; the other kinds explain themselves by their operations."""
