"""The features of a trace: what they name, and what they do not depend on (K9)."""

from __future__ import annotations

from typing import Any

from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.faults import kill, pause
from harrow.faults.schedule import Schedule, ScheduledFault
from harrow.faults.targets import controller, leader
from harrow.harness.simulation.coverage import coverage_of, magnitude
from harrow.harness.simulation.events import FaultEvent
from hypothesis import given
from hypothesis import strategies as st
from traced_rows import traced

Event = TracedEvent[TraceEvent]
MS = 1_000_000
SCHEDULE = Schedule(
    steps=(
        ScheduledFault(id="1", fault=kill(leader("orders")), fired_ms=100, nodes=(2,)),
        ScheduledFault(id="2", fault=pause(controller()), fired_ms=900, nodes=(1,)),
    )
)


def trace(*, first: int = 0, offset: int = 10, start_ms: int = 1_000_000) -> list[Event]:
    """A leader is killed, its session expires, a follower is elected; then the controller is paused.

    `first`: how far node ids are rotated; `offset`: the log end offset; `start_ms`: the time of the first traffic.
    """

    def node(number: int) -> int:
        return (number - 1 + first) % 5 + 1

    def row(at_ms: int, number: int | str, event: str, **fields: Any) -> Event:
        host = number if isinstance(number, str) else f"broker-{node(number)}"
        return traced({"t_ns": (start_ms + at_ms) * MS, "event": event, "broker": host, **fields})

    def part(isr: list[int], **fields: Any) -> dict[str, Any]:
        return {"topic": "orders", "partition": 0, "isr": [node(number) for number in isr], "leader": 1, **fields}

    def fault(step_id: str, kind: str, target: int) -> dict[str, Any]:
        return {"id": step_id, "fault": kind, "label": kind, "targets": [node(target)], "evidence": {}}

    return [
        row(-50, 1, "controller.elected", epoch=1),
        row(-40, 2, "partition.leader", **part([2, 3, 4], leader_epoch=0, leo=0, hw=0)),
        row(100, "world", "fault.inject", **fault("1", "kill", 2)),
        row(110, "world", "fault.effect", **fault("1", "kill", 2)),
        row(700, "registry", "registry.expired", session=7, name=f"broker {node(2)}"),
        row(710, 3, "partition.leader", **part([3, 4], leader_epoch=1, leo=offset, hw=offset - 2)),
        row(800, "world", "fault.healed", **fault("1", "kill", 2)),
        row(820, 2, "partition.truncated", topic="orders", partition=0, **{"from": offset + 3, "to": offset}),
        row(850, 3, "partition.isr", **part([3, 4, 2], leader_epoch=1)),
        row(900, "world", "fault.inject", **fault("2", "pause", 1)),
    ]


def features(events: list[Event]) -> frozenset[str]:
    return coverage_of(events, SCHEDULE).features


def test_features_name_elections_truncations_faults_and_pairs_of_faults() -> None:
    assert features(trace()) >= {
        "c|>",
        "s|>Ln3",
        "x|Lx",
        "s|Ln3>Li2x?",
        "s|Li2x?>!To",
        "s|To>!E3",
        "f|kill:L",
        "f|x:l:sLn3!",
        "f|pause:C",
        "h|xL|pC",
    }


def test_moments_count_from_the_first_traffic_and_name_the_broker_and_the_partition() -> None:
    found = coverage_of(trace(), SCHEDULE).moments
    times = {moment.label: moment.at_ms for moment in found}
    assert times == {"+kill:L": 110, "xLx": 700, "sLi2x?": 710, "-kill:L": 800, "sTo": 820, "sE3": 850}
    election = next(moment for moment in found if moment.label == "sLi2x?")
    assert (election.node, election.topic, election.partition) == (3, "orders", 0)


def test_a_run_without_a_fault_has_no_moments() -> None:
    events = [row for row in trace() if not isinstance(row.event, FaultEvent)]
    assert coverage_of(events, SCHEDULE).moments == ()
    assert coverage_of([], SCHEDULE).features == frozenset()


@given(first=st.integers(0, 4), offset=st.integers(3, 10**9), start_ms=st.integers(100, 10**9))
def test_features_do_not_depend_on_node_ids_offsets_and_times(first: int, offset: int, start_ms: int) -> None:
    assert features(trace(first=first, offset=offset, start_ms=start_ms)) == features(trace())


def test_a_state_that_differs_gives_other_features() -> None:
    events = trace()
    without_kill = [row for row in events if not (isinstance(row.event, FaultEvent) and row.event.id == "1")]
    assert "s|Ln3>Li2?" in features(without_kill)
    assert not any("x" in name.partition("|")[2] for name in features(without_kill))


def test_transactions_and_groups_are_followed_over_coordinators() -> None:
    def change(at_ms: int, host: str, event: str, **fields: Any) -> Event:
        return traced({"t_ns": at_ms * MS, "event": event, "broker": host, **fields})

    def transaction(at_ms: int, host: str, state: str, epoch: int) -> Event:
        fields = {"transactional_id": "job-1", "state": state, "epoch": epoch, "producer_id": 7, "partitions": 1}
        return change(at_ms, host, "transaction.state", **fields)

    def group(at_ms: int, host: str, state: str, members: int) -> Event:
        fields = {"group": "billing", "state": state, "generation": at_ms, "members": members, "partition": 3}
        return change(at_ms, host, "group.state", **fields)

    events = [
        transaction(1, "broker-1", "Ongoing", 0),
        transaction(2, "broker-1", "PrepareCommit", 0),
        transaction(3, "broker-4", "CompleteCommit", 1),
        group(4, "broker-2", "Stable", 2),
        group(5, "broker-2", "Empty", 0),
    ]
    assert features(events) >= {"t|Ongoing>PrepareCommit|", "t|PrepareCommit>CompleteCommit|em", "g|Stable2>Empty0|e"}


def test_magnitudes() -> None:
    assert [magnitude(number) for number in (-1, 0, 1, 2, 900)] == ["0", "0", "1", "2", "2"]
