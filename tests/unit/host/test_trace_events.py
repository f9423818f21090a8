"""Every kind of trace event is emitted somewhere, is read back as it was emitted, and rows of other versions are read.

Kinds: all subclasses of `TraceEvent` in `cluster/events` and `harness/simulation/events.py`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from harrow.cluster.events import EVENT_KINDS, TracedEvent, TraceEvent, UnknownEvent, traced_line
from harrow.cluster.events.logs import LogCleaning, SegmentsDeleted
from harrow.cluster.events.partitions import (
    FollowerLogEndMoved,
    HighWatermarkMoved,
    IsrChanged,
    LogEndMoved,
    PartitionLeader,
    PartitionTruncated,
)
from harrow.cluster.events.processes import LogLine
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.simulated.host import WorldTrace
from harrow.cluster.host.trace import RealTrace
from harrow.harness.histories.trace_events import UnreadEvent, read_trace, read_whole_trace
from harrow.harness.simulation import events as simulation_events
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import examples
from source_trees import nodes_of, tree_of

ROOT = Path(__file__).parents[3]
KINDS = {name: kind for name, kind in EVENT_KINDS.items() if kind.__module__.startswith("harrow.")}
TEXTS = st.text(max_size=9)
NUMBERS = st.integers(-(2**63), 2**63)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "int": NUMBERS,
    "str": TEXTS,
    "bool": st.booleans(),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "int | None": st.none() | NUMBERS,
    "str | None": st.none() | TEXTS,
    "tuple[int, ...]": st.lists(NUMBERS, max_size=3).map(tuple),
    "tuple[str, ...]": st.lists(TEXTS, max_size=3).map(tuple),
    "tuple[Mapping[str, str], ...]": st.lists(st.dictionaries(TEXTS, TEXTS, max_size=2), max_size=2).map(tuple),
    "tuple[tuple[str, str], ...]": st.just(()),
    "Mapping[str, Any]": st.dictionaries(st.text("xyz", min_size=1, max_size=3), NUMBERS, max_size=2),
}


def new_events(kind: type[TraceEvent]) -> st.SearchStrategy[TraceEvent]:
    """Events of one kind with any values."""
    parts = fields(cast("Any", kind))
    return st.builds(kind, **{part.name: VALUES[str(part.type)] for part in parts})


def names_used(folder: Path, *, without: Path) -> Iterator[str]:
    """Yields the names that the modules of a folder use, other than in an import or an annotation."""
    for path in sorted(folder.rglob("*.py")):
        if not path.is_relative_to(without):
            for node in nodes_of(tree_of(path)):
                if isinstance(node, ast.Call):
                    names = [node.func, *node.args]
                elif isinstance(node, ast.Dict):
                    names = node.values
                else:
                    continue
                yield from (name.id for name in names if isinstance(name, ast.Name))


def test_every_kind_of_event_is_emitted() -> None:
    cluster = set(names_used(ROOT / "cluster", without=ROOT / "cluster" / "events"))
    simulation = set(names_used(ROOT / "harness" / "simulation", without=ROOT / "harness" / "simulation" / "events.py"))
    simulation |= {kind.__name__ for kind in simulation_events.FAULT_EVENTS.values()}
    emitted = {"harrow.cluster": cluster, "harrow.harness": simulation}
    unused = [
        kind.__name__ for kind in KINDS.values() if kind.__name__ not in emitted[kind.__module__.rsplit(".", 2)[0]]
    ]
    assert len(KINDS) > 60
    assert unused == []


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(examples(10, 1_000), deadline=None)
@given(data=st.data())
def test_an_event_is_read_as_it_was_emitted(name: str, data: st.DataObject, tmp_path_factory: Any) -> None:
    event = data.draw(new_events(KINDS[name]))
    folder = tmp_path_factory.mktemp("trace") / "broker-2"
    folder.mkdir()
    trace = RealTrace("broker-2", str(folder), RealClock())
    trace.emit(event)
    trace.close()
    ((t_ns, process, read, wall_ms, host),) = read_whole_trace(folder / "trace.jsonl")
    assert (read, process, host) == (event, "broker-2", "broker-2")
    assert t_ns > 0
    assert wall_ms is not None
    world = WorldTrace()
    world.write(5, "broker-2", event)
    assert traced_line(world.lines[0].encode(), "broker-2") == TracedEvent(5, "broker-2", event, host="broker-2")


ROW: dict[str, Any] = {"t_ns": 7, "wall_ms": 8, "host": "broker-1", "event": "partition.leader"}
LED: dict[str, Any] = {"topic": "orders", "partition": 0, "leader": 1, "leader_epoch": 4, "isr": [1, 2]}


def read(**row: object) -> TraceEvent:
    traced = traced_line(json.dumps(row).encode(), "broker-1")
    assert traced is not None
    return traced.event


def test_a_row_is_repeated_with_its_process() -> None:
    traced = traced_line(json.dumps({**ROW, **LED}).encode() + b"\n", "broker-1")
    assert traced is not None
    assert traced.row() == {**ROW, **LED, "broker": "broker-1"}
    assert (traced.node, traced._replace(process="registry").node) == (1, -1)


def test_rows_of_other_versions_are_read() -> None:
    led = read(**ROW, **LED)
    assert led == PartitionLeader(topic="orders", partition=0, leader=1, leader_epoch=4, isr=(1, 2))
    assert read(**ROW, **LED, later=3) == led, "a field that is not known is left out"
    without_leader = {key: value for key, value in LED.items() if key != "leader"}
    assert isinstance(read(**ROW, **without_leader), UnknownEvent)
    assert read(t_ns=7, event="partition.split", at=3) == UnknownEvent(name="partition.split", values={"at": 3})
    assert read(t_ns=7, event="log", level="info", message="x", a=1) == LogLine(
        level="info", message="x", values={"a": 1}
    )


def test_events_of_a_foreign_broker_lack_what_only_harrow_traces() -> None:
    place = {"topic": "orders", "partition": 0}
    assert LogCleaning(topic="orders", partition=0, first_uncleanable=9).fields() == {**place, "first_uncleanable": 9}
    deleted = SegmentsDeleted(topic="orders", partition=0, base_offsets=(8,))
    assert read(t_ns=7, event="log.segments-deleted", **place, base_offsets=[8]) == deleted


@pytest.mark.parametrize(
    "line", [b"", b"3", b"[]", b'"x"', b"{", b'{"t_ns": 1}', b'{"event": "x"}', b'{"t_ns": 1, "event": "x"} {', b"\xff"]
)
def test_a_line_that_is_no_row_has_no_event(line: bytes) -> None:
    assert traced_line(line, "broker-1") is None


def test_a_reader_gets_the_kinds_that_it_names_and_a_whole_trace_all(tmp_path: Path) -> None:
    moved = HighWatermarkMoved(topic="orders", partition=0, hw=3, leo=5, cause="append")
    cut = PartitionTruncated(topic="orders", partition=0, cause="kip-320", from_offset=5, to_offset=3)
    end = LogEndMoved(topic="orders", partition=0, hw=3, leo=5, cause="append")
    unknown = UnknownEvent(name="partition.split", values={"at": 3})
    world = WorldTrace()
    for t_ns, event in enumerate((moved, cut, end, unknown)):
        world.write(t_ns, "broker-1", event)
    short = '{"t_ns":9,"event":"partition.truncated","topic":"orders"}\n'
    path = tmp_path / "trace.jsonl"
    path.write_text(world.text() + short + '{"t_ns":10,"event":"partition.hw","to')
    assert [row.event for row in read_trace(path, kinds=(PartitionTruncated, IsrChanged))] == [cut]
    assert [row.event for row in read_trace(path, kinds=(PartitionTruncated,), since=len(world.lines[0]) + 1)] == [cut]
    rows = list(read_whole_trace(path, times_of=(LogEndMoved, FollowerLogEndMoved)))
    lacks = UnknownEvent(name="partition.truncated", values={"topic": "orders"})
    assert [row.event for row in rows] == [moved, cut, UnreadEvent(), unknown, lacks]
    assert [row.t_ns for row in rows] == [0, 1, 2, 3, 9]


def test_an_extension_has_its_own_events() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class CacheWarmed(TraceEvent):
        EVENT: ClassVar[str] = "shop.cache-warmed"
        took_ms: int

    assert read(t_ns=7, event="shop.cache-warmed", took_ms=4) == CacheWarmed(took_ms=4)
    with pytest.raises(TypeError, match="'broker\\.ready' is BrokerReady already"):

        class SecondReady(TraceEvent):  # pyright: ignore[reportUnusedClass]
            EVENT: ClassVar[str] = "broker.ready"
