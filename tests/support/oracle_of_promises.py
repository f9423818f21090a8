"""The checks of topics in plain Python: the reducers of `topic_checks.py` are tested against it (L5).

Written from the definitions in the head of `topic_checks.py`; it shares no code with the reducers. It gets ids and
order keys as texts, and returns every anomaly as a tuple that begins with its name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class PlainRecord(NamedTuple):
    """A record of the final read."""

    topic: str
    partition: int
    offset: int
    record_id: str | None
    order_key: str | None


Place = tuple[str, int, int]
Anomaly = tuple[object, ...]


def id_anomalies(records: Sequence[PlainRecord], expected: Sequence[str] | None) -> set[Anomaly]:
    """Return missing, unexpected and duplicate."""
    there = Counter(record.record_id for record in records if record.record_id is not None)
    claimed = Counter(expected or ())
    found: set[Anomaly] = set()
    if expected is not None:
        found |= {("missing", identity) for identity in claimed if there[identity] < claimed[identity]}
        found |= {("unexpected", identity) for identity in there if not claimed[identity]}
    for topic in {record.topic for record in records}:
        copies = Counter(record.record_id for record in records if record.topic == topic)
        found |= {
            ("duplicate", topic, identity)
            for identity, count in copies.items()
            if identity is not None and count > max(1, claimed[identity])
        }
    return found


def order_anomalies(
    records: Sequence[PlainRecord], expected: Sequence[str] | None, sends: Mapping[Place, int]
) -> set[Anomaly]:
    """Return split-key and out-of-order. `expected` is None, or in the order of sending; `sends`: times by place."""
    if expected is None:
        sent = dict(sends)
        keyed = [record for record in records if record.order_key is not None]
    else:
        sent = _positions(records, expected)
        keyed = [r for r in records if r.order_key is not None and r.record_id is not None]
    found: set[Anomaly] = set()
    partitions: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    last: dict[tuple[str, str, int], tuple[int, int]] = {}
    for record in sorted(keyed, key=lambda record: record[:3]):
        assert record.order_key is not None
        partitions[record.topic, record.order_key].add(record.partition)
        at = sent.get(record[:3])
        if at is None:
            continue
        group = (record.topic, record.order_key, record.partition)
        before = last.get(group)
        if before is not None and at < before[0]:
            found.add(("out-of-order", record.topic, record.partition, before[1], record.offset))
        last[group] = (at, record.offset)
    return found | {("split-key", *key) for key, used in partitions.items() if len(used) > 1}


def _positions(records: Sequence[PlainRecord], expected: Sequence[str]) -> dict[Place, int]:
    """Return the position at which each record was sent, by its place, where it is known."""
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for position, identity in enumerate(expected):
        wanted[identity].append(position)
    copies: defaultdict[str, list[Place]] = defaultdict(list)
    for record in records:
        if record.record_id is not None:
            copies[record.record_id].append(record[:3])
    known: dict[Place, int] = {}
    for identity, positions in wanted.items():
        places = sorted(copies[identity])
        if len({place[:2] for place in places}) == 1 and len(positions) in (1, len(places)):
            known.update(zip(places, positions, strict=False))
    return known
