"""What must hold of a simulated seed, in plain Python over what is in memory.

Owns: the anomalies, by name. `lost`: acknowledged and not in the log, or not where the answer said. `duplicated`:
in the log twice. `reordered`: a producer's records out of order. `invented`: in the log and never sent. `diverged`:
replicas whose logs differ. `two-leaders`: one epoch, two brokers that led in it (partitions, and controllers).
`read-otherwise`: a reader was given something that the log does not hold there. The rest is told by who met it:
`producer-refused`, `reader-out-of-range`, `task-failed`, `not-converged`.

Values are `partition:number`, numbered by sequence, so that order and identity need no look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harrow.cluster.host.simulated.host import WorldTrace
from harrow.cluster.host.simulated.link import joined
from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.records import decode_records

from .producer import Lane

Anomaly = tuple[str, str]
READ_BYTES = 1 << 20


def log_bytes(log: Any) -> bytes:
    """Every byte of a replica's log."""
    at, end = log.log_start_offset, log.log_end_offset
    found: list[bytes] = []
    while at < end:
        data = log.read(Offset(at), READ_BYTES, Offset(end), at_least_one=True)
        chunk = joined(data.parts)
        assert chunk, f"{log.topic_partition} has nothing at {at} below {end}"
        found.append(chunk)
        for _, _, header in headers(chunk):
            at = header.last_offset + 1
    return b"".join(found)


def content_of(data: bytes) -> dict[int, bytes]:
    """Values by offset."""
    found: dict[int, bytes] = {}
    for at, size, header in headers(data):
        if header.is_control:
            continue
        for record in decode_records(data[at : at + size]):
            assert record.value is not None, "the workload writes values"
            found[record.offset] = record.value
    return found


def check_lane(lane: Lane, content: Mapping[int, bytes]) -> Iterable[Anomaly]:
    """One partition's log beside what its producer knows."""
    values = list(content.values())
    prefix = f"{lane.tp.partition}:".encode()
    for batch in lane.acked:
        for delta, value in enumerate(batch.values):
            if value not in values:
                yield "lost", f"{lane.tp} {value!r}, acknowledged at offset {batch.base_offset}"
            elif batch.base_offset != -1 and batch.base_offset is not None:
                offset = batch.base_offset + delta
                if content.get(offset) != value:
                    yield "lost", f"{lane.tp} {value!r} is not at its offset {offset}"
    numbers: list[int] = []
    sent = {
        value for batch in (*lane.acked, *lane.given_up, *lane.pending) for value in batch.values
    }
    for value in values:
        if value not in sent:
            yield "invented", f"{lane.tp} {value!r}"
        else:
            numbers.append(int(value.removeprefix(prefix)))
    if len(set(numbers)) != len(numbers):
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        yield "duplicated", f"{lane.tp} numbers {twice[:5]}"
    elif numbers != sorted(numbers):
        yield "reordered", f"{lane.tp}: {numbers}"


def check_delivered(
    tp: TopicPartition, delivered: Iterable[tuple[int, bytes]], content: Mapping[int, bytes]
) -> Iterable[Anomaly]:
    """A reader was given, in order, what is there."""
    last = -1
    for offset, value in delivered:
        if content.get(offset) != value:
            yield "read-otherwise", f"{tp} at {offset}: {value!r} is {content.get(offset)!r}"
        if offset <= last:
            yield "read-otherwise", f"{tp} at {offset} after {last}"
        last = offset


def check_replicas(tp: TopicPartition, logs: Mapping[int, bytes]) -> Iterable[Anomaly]:
    """All replicas hold the same bytes."""
    rows = list(logs.items())
    if not rows:
        return
    first_node, first = rows[0]
    for node, data in rows[1:]:
        if data != first:
            at = next(
                (i for i, (a, b) in enumerate(zip(first, data, strict=False)) if a != b),
                min(len(first), len(data)),
            )
            yield (
                "diverged",
                (
                    f"{tp}: broker {first_node} ({len(first)} bytes) and {node} ({len(data)}) from byte {at}"
                ),
            )


def check_trace(trace: WorldTrace) -> Iterable[Anomaly]:
    """At most one leader an epoch, and no task that failed."""
    leaders: dict[tuple[object, ...], str] = {}
    for t_ns, host, event, fields in trace.events:
        if event == "partition.leader":
            key: tuple[object, ...] = (
                f"{fields['topic']}-{fields['partition']}",
                fields["leader_epoch"],
            )
        elif event == "controller.elected":
            key = ("controller", fields["epoch"])
        else:
            if event == "task.failed":
                yield "task-failed", f"{host} at {t_ns}: {fields['name']}: {fields['error']}"
            continue
        other = leaders.setdefault(key, host)
        if other != host:
            yield "two-leaders", f"{key[0]} epoch {key[1]}: {other} and {host}"
