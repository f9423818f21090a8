"""What must hold of a simulated run: the oracle's verdict on its history, and what the oracle cannot say.

The oracle judges each topic-partition: what clients recorded, the log that the final leader has, every replica's
log, and what compaction, retention and elections changed in it, by the brokers' traces (`checks/traced_changes.py`).
The rest is here, for a simulation knows more than a history says:

* `two-leaders`, `two-controllers`, `fenced-in-isr`: by the trace, as `checks/traces.py` says it of real brokers;
* `unexpected`: a record is in the log that no client of the simulation sent;
* `task-failed`: a broker's task ended with an exception (a bug of ours).

`send-refused` and `offset-out-of-range` come from the clients, `not-converged` from the run (`run.py`). All names
are those of `checks/guarantees.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harrow.cluster.events.processes import TaskFailed
from harrow.cluster.host.simulated.host import EPOCH_MS, WorldTrace
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.ids import TopicPartition
from harrow.cluster.replication.partition import Partition
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.view import ClusterView
from harrow.cluster.view import parse as parse_tree
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.records import decode_records

from ..checks.guarantees import forbidden, parse
from ..checks.log_changes import LogChanges
from ..checks.oracle import Oracle
from ..checks.oracle_of_removals import first_removed_early
from ..checks.traced_changes import CHANGE_EVENTS, log_changes
from ..checks.traces import claims_of_brokers
from ..histories.format import OperationFunction, OperationType
from ..histories.memory import MemoryHistory, hash_of, hash_of_key
from ..histories.segments import LOG_COLUMNS, batches_in

FoundAnomaly = tuple[str, str]
"""Name, and where it was found."""


def registry_view(cluster: SimulatedCluster) -> ClusterView:
    """Return what the registry says of the cluster; an empty view while it does not run."""
    process = cluster.registry
    if process.state != "running" or process.machine.host is None:
        return ClusterView()
    return parse_tree(process.machine.host.control.call("tree")["tree"])


def registry_agrees(cluster: SimulatedCluster, leaders: Mapping[TopicPartition, Partition]) -> bool:
    """Whether the registry has the leader, the leader epoch and the ISR that the leaders of partitions have."""
    view = registry_view(cluster)
    for tp, leader in leaders.items():
        stored = view.partition(tp.topic, tp.partition)
        if stored is None or (stored.leader, stored.leader_epoch, set(stored.isr)) != (
            leader.leader,
            leader.leader_epoch,
            set(leader.isr),
        ):
            return False
    return True


def acknowledged_values(history: MemoryHistory, tp: TopicPartition, offered: Iterable[bytes]) -> set[bytes]:
    """Return the values of acknowledged sends, of those that were offered."""
    hashes = {
        row["value_hash"]
        for row in history.completions(tp.topic, tp.partition)
        if row["kind"] == OperationFunction.SEND and row["outcome"] == OperationType.OK
    }
    return {value for value in offered if hash_of(value) in hashes}


def log_rows(data: bytes, name: str) -> list[dict[str, Any]]:
    """A log's bytes as the rows that a verdict reads from segment files."""
    return [dict(zip(LOG_COLUMNS, row, strict=True)) for row in batches_in(data, name)]


def read_finally(history: MemoryHistory, tp: TopicPartition, data: bytes, low: int, high: int) -> None:
    """Record the final read of a partition: what its leader's log holds from the log start offset `low` on."""
    client, topic = history.name("final-read"), history.name(tp.topic)
    for at, size, header in headers(data):
        if header.is_control:
            continue
        for record in decode_records(data[at : at + size]):
            if record.offset < low:
                continue  # DeleteRecords may stop inside a batch
            assert record.value is not None, "the workload writes values"
            history.append(
                OperationFunction.POLL,
                OperationType.OK,
                client,
                topic,
                tp.partition,
                record.offset,
                record.offset,
                key_hash=hash_of_key(record.key),
                value_hash=hash_of(record.value),
            )
    history.append(OperationFunction.BOUNDS, OperationType.OK, client, topic, tp.partition, high, low)


def legal_start(low: int, changes: LogChanges, sent: Sequence[Mapping[str, Any]]) -> int:
    """Return up to where a log that starts at `low` may lack records: `low`, or where a removal was too early."""
    early = first_removed_early(changes, sent)
    return low if early is None else min(early, low)


def judge_partition(
    tp: TopicPartition,
    recorded: MemoryHistory,
    drained: MemoryHistory,
    logs: Mapping[int, list[dict[str, Any]]],
    guarantee: str,
    low: int = 0,
    epochs: Mapping[int, list[tuple[int, int]]] | None = None,
    changes: LogChanges | None = None,
    sent: Sequence[Mapping[str, Any]] = (),
) -> Iterable[FoundAnomaly]:
    """What the oracle finds in one partition, of what `guarantee` forbids, and what no client sent.

    `low`: the log start offset; what was written or read below it was deleted on request, and is not judged. `epochs`:
    the leader epoch cache of each log. `changes`: what the brokers changed in the logs legally, by their traces.
    `sent`: the acknowledged sends as rows of `untapped`.
    """
    final = drained.completions(tp.topic, tp.partition)
    operations = [row for row in recorded.completions(tp.topic, tp.partition) if not 0 <= row["offset"] < low]
    pending = recorded.uncompleted(tp.topic, tp.partition)
    wrong = forbidden(parse(guarantee))
    found = Oracle([*operations, *final], pending, (), logs, epochs=epochs, changes=changes, sent=sent).judge()
    for name, offsets in sorted(found):
        if name in wrong:
            yield name, f"{tp} at offsets {list(offsets)}"
    offered = {row["value_hash"] for row in [*operations, *pending] if row["kind"] == OperationFunction.SEND}
    for row in final:
        if row["kind"] == OperationFunction.POLL and row["value_hash"] not in offered:
            yield "unexpected", f"{tp} at offset {row['offset']}"


def changes_of(trace: WorldTrace, topics: Iterable[str], *, wrong_clocks: bool) -> dict[tuple[str, int], LogChanges]:
    """Return what brokers changed in their logs legally, by topic and partition, as a verdict on real brokers knows it.

    `wrong_clocks`: whether the run changed the clocks of brokers.
    """
    events = (row for row in trace.events if isinstance(row.event, CHANGE_EVENTS))
    found = log_changes((row._replace(wall_ms=EPOCH_MS + row.t_ns // NS_PER_MS) for row in events), topics)
    for changes in found.values():
        changes.wrong_clocks |= wrong_clocks
    return found


def check_trace(trace: WorldTrace, topic: str) -> Iterable[FoundAnomaly]:
    """At most one leader and one controller an epoch, no fenced broker in an ISR, and no task that failed."""
    for row in trace.events:
        if isinstance(row.event, TaskFailed):
            yield "task-failed", f"{row.process} at {row.t_ns}: {row.event.name}: {row.event.error}"
    for claim in claims_of_brokers(trace.events, {topic}):
        hosts = ", ".join(sorted({str(row["broker"]) for row in claim.operations}))
        yield claim.name, f"{claim.explanation}: {hosts}"
