"""Judges the output of a simulated job, partition by partition, by the logs of all replicas.

* `missing-output`, `duplicate-output`, `unexpected-output`: not every record of the source has exactly one output;
* `replica-divergence`: the committed records of two replicas differ;
* `aborted-read`, `unseen`: the transaction index of a replica makes an aborted batch committed, or the other way round;
* `aborted-read`: a reader of committed data received a record that the final log has as aborted;
* `inconsistent-offsets`: a reader of committed data received a record that is not in the final log;
* `unseen`: the reader passed over a record that is committed, and that was not below the log start at that time.

Each key is its value, so compaction keeps the last of two committed outputs. The one that it removed is still counted
as an output, where a replica has it or the reader received it with its commit marker. Without that marker it is
judged as any other record. Only traces of log cleaners (`checks/traced_changes.py`) let compaction explain anything.

After an unclean election (`OutputFacts.unclean_epoch`) records and markers of earlier leader epochs may be gone. A
missing output is then no anomaly but a loss, unless it was sent to leaders of that epoch or later ones only. So is a
duplicate output, because an aborted batch without its marker takes the end of its producer's next transaction. So is a
difference of replicas that compaction made: a replica had removed records for what came behind them (a later output of
the same key, the marker that aborts them), and that is gone. All other anomalies stay anomalies, for every partition.

A group coordinator that was replaced and does not know it returns old committed offsets. A member that continues there
sends outputs again, and the coordinator's successor, which knows the member, commits them. Apache Kafka has this gap,
too: only the commits are fenced, not the reads of committed offsets. Such a duplicate output is a loss (`stale`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batch_header import BatchHeader, headers
from harrow.cluster.wire.records import CONTROL_KEY, decode_records

from ..backends.simulated.replicas import ReplicaLog
from .checks import FoundAnomaly
from .committed_reads import COMMIT, Record, aborted_records, dropped_batches, records_of_log

READS = 4
"""From so many offsets of a log, its transaction index is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFacts:
    """What is known of one partition of the output beside its logs."""

    offered: set[bytes]
    """All values that were ever offered to the source."""
    acknowledged: set[bytes]
    """Values of the source that were acknowledged; they may have been deleted since."""
    seen: Mapping[int, bytes]
    """What the reader of committed data received, by offset."""
    seen_markers_commit: set[int]
    """Offsets that are committed by the markers that the reader received."""
    skipped: Set[int]
    """Offsets that were below the log start when the reader wanted them."""
    position: int
    """Up to where it has read."""
    unclean_epoch: int
    """The leader epoch that the last unclean election began; -1: there was none."""
    cleaned_end: int
    """Offsets below it may have been removed by compaction, by the brokers' traces."""
    epochs: Mapping[bytes, int]
    """The lowest leader epoch that was known when a value was sent to the output."""
    stale: Set[bytes]
    """Values that were sent by a process which had begun at the offsets of a replaced group coordinator."""


class Findings:
    """What is wrong, and what an unclean election excuses."""

    def __init__(self) -> None:
        self.anomalies: list[FoundAnomaly] = []
        self.losses: list[FoundAnomaly] = []
        """Legal, and named."""


def judge_output(
    tp: TopicPartition,
    facts: OutputFacts,
    inputs: Iterable[ReplicaLog],
    outputs: Sequence[ReplicaLog],
    findings: Findings,
) -> None:
    """Judge the partition `tp` of the output by its replicas' logs and those of the same partition of the source."""
    required = set(facts.acknowledged)
    for replica in inputs:
        if replica.is_leader:
            required |= {value for _, value in records_of_log(replica.data)[0]}
    low = max((replica.low for replica in outputs), default=0)
    records = {replica.node: _records_of(replica, low, facts) for replica in outputs}
    leading = next((records[replica.node] for replica in outputs if replica.is_leader), NOTHING)
    compacted = {
        (offset, value)
        for offset, value in facts.seen.items()
        if offset in facts.seen_markers_commit and leading.has_compacted((offset, value))
    }
    for replica in outputs:
        here = records[replica.node]
        more, fewer = here.committed - leading.committed, leading.committed - here.committed
        where = f"committed records of {tp} on broker {replica.node} and the leader"
        if all(map(leading.has_compacted, more)) and all(map(here.has_compacted, fewer)):
            compacted |= more
        elif leading.lacks_old(more, here) and here.lacks_old(fewer, leading):
            compacted |= more
            findings.losses.append(("replica-divergence", where))
        else:
            findings.anomalies.append(("replica-divergence", where))
        findings.anomalies += judge_index(tp, replica)
    deleted = [value for offset, value in sorted(facts.seen.items()) if offset < low]
    written = leading.committed | {record for record in compacted if record[0] >= low}
    _count(tp, facts, required, [*deleted, *(value for _, value in written)], findings)
    leader_data = next((replica.data for replica in outputs if replica.is_leader), b"")
    findings.anomalies += judge_reads(tp, facts, leading.committed, compacted, low, leader_data)


class _ReplicaRecords(NamedTuple):
    """The records that a replica has."""

    committed: Set[Record]
    offsets: Set[int]
    """Also those of open and aborted transactions, and of markers."""
    last: Mapping[bytes, int]
    """For each value, the last offset at which it is committed."""
    old: Set[int]
    """Offsets of leader epochs before the last unclean election."""
    cleaned_end: int
    """As in `OutputFacts`."""

    def has_compacted(self, record: Record) -> bool:
        """Whether the record is gone, its value is committed behind it, and a cleaner was there."""
        offset, value = record
        gone = offset < self.cleaned_end and offset not in self.offsets
        return gone and self.last.get(value, -1) > offset

    def lacks_old(self, records: Set[Record], other: _ReplicaRecords) -> bool:
        """Whether compaction may have removed each of these records of `other` before an unclean election."""
        end = max(self.offsets, default=-1)
        return all(
            offset in other.old and offset not in self.offsets and offset < min(end, self.cleaned_end)
            for offset, value in records
            if not self.has_compacted((offset, value))
        )


NOTHING = _ReplicaRecords(frozenset(), frozenset(), {}, frozenset(), 0)


def _records_of(replica: ReplicaLog, low: int, facts: OutputFacts) -> _ReplicaRecords:
    committed = [record for record in records_of_log(replica.data)[0] if record[0] >= low]
    epochs = {
        record.offset: header.leader_epoch
        for at, size, header in headers(replica.data)
        for record in decode_records(replica.data[at : at + size])
    }
    old = {offset for offset, epoch in epochs.items() if epoch < facts.unclean_epoch}
    last = {value: offset for offset, value in committed}
    return _ReplicaRecords(frozenset(committed), epochs.keys(), last, old, facts.cleaned_end)


def _count(
    tp: TopicPartition, facts: OutputFacts, required: set[bytes], values: Iterable[bytes], findings: Findings
) -> None:
    counts = Counter(values)
    for value in sorted(required | set(counts)):
        excused = facts.epochs.get(value, -1) < facts.unclean_epoch
        found = findings.losses if excused else findings.anomalies
        if not counts[value]:
            found.append(("missing-output", f"{tp}: {value.decode()}"))
        elif counts[value] > 1:
            if value in facts.stale:
                found = findings.losses
            found.append(("duplicate-output", f"{tp}: {value.decode()}, {counts[value]} times"))
        elif value not in facts.offered:
            findings.anomalies.append(("unexpected-output", f"{tp}: {value.decode()}"))


def judge_reads(
    tp: TopicPartition, facts: OutputFacts, final: Set[Record], compacted: Set[Record], low: int, data: bytes
) -> Iterator[FoundAnomaly]:
    """Compare what the reader received at `low` and above with the committed records, `final` and `compacted`.

    `data`: the leader's log, which says whether a record that is not committed is aborted.
    """
    known = final | compacted
    wrong = [row for row in sorted(facts.seen.items()) if row[0] >= low and row not in known]
    aborted = aborted_records(data) if wrong else set[Record]()
    for offset, value in wrong:
        name = "aborted-read" if (offset, value) in aborted else "inconsistent-offsets"
        yield name, f"{tp} at {offset}: {value.decode()} was read as committed"
    for offset in sorted({offset for offset, _ in final} - set(facts.seen) - facts.skipped):
        if offset < facts.position:
            yield "unseen", f"{tp} at {offset}"


# ---------------------------------------------------------------------------- the transaction index


def judge_index(tp: TopicPartition, replica: ReplicaLog) -> Iterator[FoundAnomaly]:
    """Compare what a replica's markers say of its batches with the aborted transactions that it lists for readers."""
    log = replica.log
    stable = log.last_stable_offset(log.high_watermark())
    batches = [(header, replica.data[at : at + size]) for at, size, header in headers(replica.data)]
    aborted = _aborted_by_markers(batches)
    step = max(1, (stable - replica.low) // READS)
    for start in range(replica.low, stable, step):
        listed = [(row.producer_id, row.first_offset) for row in log.aborted_transactions(start, stable)]
        found = dropped_batches((header for header, _ in batches if start <= header.last_offset < stable), listed)
        wanted = {at for at, last in aborted.items() if start <= last < stable}
        where = f"{tp} on broker {replica.node}, by its transaction index from {start} to {stable}"
        if wanted - found:
            yield "aborted-read", f"{where}: the batches at {sorted(wanted - found)} are aborted"
        if found - set(aborted):
            yield ("unseen", f"{where}: the batches at {sorted(found - set(aborted))} are not aborted")


def _aborted_by_markers(batches: Iterable[tuple[BatchHeader, Any]]) -> dict[int, int]:
    """Return the aborted batches: base offset and last offset."""
    opened: dict[int, dict[int, int]] = {}
    aborted: dict[int, int] = {}
    for header, data in batches:
        if header.is_control:
            mine = opened.pop(header.producer_id, {})
            for record in decode_records(data):
                assert record.key is not None, "a marker has a key"
                if CONTROL_KEY.unpack(record.key)[1] != COMMIT:
                    aborted |= mine
        elif header.is_transactional:
            opened.setdefault(header.producer_id, {})[header.base_offset] = header.last_offset
    return aborted
