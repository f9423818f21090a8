"""A verdict says where an ISR shrank, or a session ended, without a fault, and what was measured then (L6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.controllers import session_name
from harrow.harness.checks.busy_machine import AFTER_FAULT_NS, departures, machine_notes
from harrow.harness.checks.causes.evidence import Refusals, RunEvidence
from harrow.harness.checks.causes.rules import causes
from harrow.harness.checks.traces import judged_events
from harrow.harness.checks.verdict import Anomaly
from harrow.harness.histories.recorded_faults import RecordedFault
from harrow.harness.run_folder import RunTimes
from traced_rows import traced

Row = dict[str, Any]
START_S = 100.0
ALWAYS_S = 10_000.0


def at(seconds: float) -> int:
    """A time of the run on the monotonic clock."""
    return round((START_S + seconds) * 1e9)


def row(event: str, seconds: float, process: int | str, **fields: Any) -> Row:
    name = process if isinstance(process, str) else f"broker-{process}"
    return {"event": event, "t_ns": at(seconds), "broker": name, **fields}


def leads(seconds: float, isr: Sequence[int], partition: int = 0, topic: str = "orders") -> Row:
    place = {"topic": topic, "partition": partition, "leader": 1, "leader_epoch": 0}
    return row("partition.leader", seconds, 1, **place, isr=list(isr))


def isr(
    seconds: float, members: Sequence[int], cause: str = "shrink", *, partition: int = 0, topic: str = "orders"
) -> Row:
    place = {"topic": topic, "partition": partition, "leader_epoch": 0}
    return row("partition.isr", seconds, 1, **place, isr=list(members), cause=cause)


def stalled(seconds: float, process: int | str, late_s: float, cpu_s: float) -> Row:
    return row("process.stalled", seconds, process, late_ms=round(late_s * 1000), cpu_ms=round(cpu_s * 1000))


def session_lost(seconds: float, node: int) -> list[Row]:
    """The registry ends a session, and the living broker notices it."""
    return [
        row("registry.expired", seconds, "registry", session=5, name=session_name(node)),
        row("broker.session-expired", seconds + 0.1, node, node_id=node),
    ]


def notes(events: Sequence[Row], *windows_s: tuple[float, float]) -> list[str]:
    return notes_of(list(map(traced, events)), *windows_s)


def notes_of(events: Sequence[TracedEvent[TraceEvent]], *windows_s: tuple[float, float]) -> list[str]:
    windows = [(at(start), at(end)) for start, end in windows_s]
    return machine_notes(events, windows, RunTimes(at(0)))


LEFT = "broker 2 left the ISR of orders-0 at 3.10 s although no fault was active"
SHRUNK = [leads(0, [1, 2, 3]), isr(3.1, [1, 3])]


def test_a_broker_that_left_an_isr_while_its_process_stood_still_is_noted_with_the_measure() -> None:
    expected = (
        f"{LEFT}: the machine was too busy, or something other than Harrow stopped processes (the process of broker 2 "
        "did not advance for 1.9 s, with 0.1 s of CPU time meanwhile)"
    )
    assert notes([*SHRUNK, stalled(3.0, 2, 1.9, 0.1)]) == [expected]


def test_a_process_that_used_its_time_was_busy_itself() -> None:
    (note,) = notes([*SHRUNK, stalled(3.0, 1, 0.5, 0.1), stalled(2.5, 3, 1.9, 1.2)])
    assert note.endswith(
        "too busy (the process of broker 3 did not advance for 1.9 s, with 1.2 s of CPU time meanwhile)"
    )


def test_a_stall_that_ends_after_the_isr_shrank_and_began_before_is_the_reason() -> None:
    (note,) = notes([*SHRUNK, stalled(4.0, 2, 1.9, 0.1)])
    assert "did not advance for 1.9 s" in note


@pytest.mark.parametrize("events", [[], [stalled(6.0, 2, 1.9, 0.1)]], ids=["none", "later"])
def test_without_a_stall_before_it_nothing_is_said_about_the_machine(events: list[Row]) -> None:
    assert notes([*SHRUNK, *events]) == [
        f"{LEFT}: it did not keep up; no process of the cluster is known to have been held up before"
    ]


def test_partitions_of_one_broker_are_one_note_and_internal_topics_come_last() -> None:
    events: list[Row] = []
    for partition in range(5):
        events += [leads(0, [1, 2], partition), isr(3.1, [1], partition=partition)]
    events += [leads(0, [1, 2], topic="__consumer_offsets"), isr(2, [1], topic="__consumer_offsets")]
    (note,) = notes(events)
    assert note.startswith(
        "broker 2 left the ISR of orders-0, orders-1, orders-2 and 3 other partitions at 2.00 s although"
    )


def test_a_session_that_ended_while_its_broker_lived_is_noted() -> None:
    events = [*session_lost(3, 2), *session_lost(9, 2), stalled(3.2, "registry", 2.0, 0.2)]
    (note,) = notes(events)
    assert note.startswith(
        "the registry ended the session of broker 2 at 3.10 s and 1 time later although no fault was active: "
    )
    assert "the process of the registry did not advance for 2.0 s" in note


@pytest.mark.parametrize(
    "events",
    [
        [leads(0, [1, 2, 3]), isr(3.1, [1, 3], "leader-and-isr")],
        [leads(0, [1, 3]), isr(3.1, [1, 2, 3], "expand")],
        [isr(3.1, [1, 3])],
        [stalled(3.0, 2, 1.9, 0.1)],
        [*SHRUNK, row("registry.expired", 3, "registry", session=5, name=session_name(2))],
        [*SHRUNK, row("registry.expired", 50, "registry", session=5, name=session_name(2))],
    ],
    ids=["by the controller", "grew", "unknown before", "no change", "died", "died later"],
)
def test_what_is_no_departure_of_a_live_broker_gives_no_note(events: list[Row]) -> None:
    assert notes(events) == []


@pytest.mark.parametrize("window", [(3.0, 3.2), (1.0, 3.0), (0.5, 1.0), (2.0, ALWAYS_S)])
def test_a_departure_during_or_soon_after_a_fault_gives_no_note(window: tuple[float, float]) -> None:
    assert notes([*SHRUNK, stalled(3.0, 2, 1.9, 0.1)], window) == []


def test_a_departure_before_or_long_after_a_fault_is_noted() -> None:
    assert notes(SHRUNK, (3.2, 4.0))
    late_s = 5 + AFTER_FAULT_NS / 1e9
    assert notes([leads(0, [1, 2]), isr(late_s + 0.1, [1])], (4.0, 5.0))


def test_the_stall_of_a_fault_is_no_evidence_about_the_machine() -> None:
    paused = stalled(5.0, 2, 3.0, 0.0)
    events = [leads(0, [1, 2, 3]), paused, isr(20, [1, 3])]
    (note,) = notes(events, (2.0, 5.0))
    assert note.endswith("held up before")


def test_the_same_broker_leaves_once_for_each_shrink() -> None:
    events = [leads(0, [1, 2]), isr(1, [1]), isr(2, [1, 2], "expand"), isr(3, [1])]
    assert [departure.t_ns for departure in departures(map(traced, events), [])] == [at(1), at(3)]


def test_events_are_read_from_the_traces_of_brokers_and_registry(tmp_path: Path) -> None:
    for name in ("broker-1", "broker-2", "registry"):
        folder = tmp_path / "cluster" / name
        folder.mkdir(parents=True)
        own = [event for event in [*SHRUNK, *session_lost(5, 2)] if event["broker"] == name]
        lines = [json.dumps({key: event[key] for key in event if key != "broker"}) for event in own]
        (folder / "trace.jsonl").write_text("\n".join(lines) + "\n")
    assert len(notes_of(judged_events(tmp_path))) == 2


# ------------------------------------------------------------------- causes


def caused(name: str, error: str, *, idempotent: bool = False, last_s: float = 4.0, **more: Any) -> tuple[str, ...]:
    anomaly = Anomaly(name=name, topic="orders", partition=0, offsets=(1,), operations=(), explanation="", records=1)
    refusals = [
        Refusals(
            topic="orders",
            error=error,
            without_idempotence=not idempotent,
            records=87,
            first_ns=at(3.2),
            last_ns=at(last_s),
        )
    ]
    fields: dict[str, Any] = {"machine": list(map(traced, [*SHRUNK, stalled(3.0, 2, 1.9, 1.5)])), "refusals": refusals}
    evidence = RunEvidence(started_ns=at(0), **{**fields, **more})
    return causes([anomaly], evidence).get(name, ())


def test_doubled_records_after_an_isr_that_shrank_without_a_fault_have_the_machine_as_cause() -> None:
    expected = (
        f"{LEFT}: the machine was too busy (the process of broker 2 did not advance for 1.9 s, with 1.5 s of CPU time "
        "meanwhile); brokers refused 87 records of orders with NOT_ENOUGH_REPLICAS_AFTER_APPEND from 3.20 s to 4.00 s; "
        "the log has them all the same, and a producer without idempotence appends them again when it sends them again"
    )
    assert caused("duplicate", "NOT_ENOUGH_REPLICAS_AFTER_APPEND") == (expected,)


def test_records_that_were_refused_and_given_up_have_the_machine_as_cause() -> None:
    found = caused("missing", "NOT_ENOUGH_REPLICAS", idempotent=True)
    assert any("although no fault was active" in text and "all the same" not in text for text in found)


@pytest.mark.parametrize(
    ("name", "error", "more"),
    [
        ("duplicate", "MESSAGE_TOO_LARGE", {}),
        ("lost-write", "NOT_ENOUGH_REPLICAS", {}),
        ("duplicate", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", {"last_s": 3.05}),
        ("duplicate", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", {"machine": []}),
        (
            "duplicate",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            {
                "faults": [
                    RecordedFault(
                        id="1",
                        kind="isolate",
                        label="isolate",
                        nodes=(2,),
                        begin_ns=at(1),
                        effect_ns=at(1),
                        end_ns=None,
                        skipped=None,
                    )
                ]
            },
        ),
    ],
    ids=["other error", "other anomaly", "refused before", "nothing left", "during a fault"],
)
def test_the_machine_is_no_cause_without_evidence(name: str, error: str, more: dict[str, Any]) -> None:
    assert not any("no fault was active" in text for text in caused(name, error, **more))
