"""Groups that are stuck: hand-made histories, a second reading of the definition, and files of a run folder (L4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import HarrowError
from harrow.cluster.host.seam import TappedGroup
from harrow.cluster.tap.recorder import FileTap
from harrow.harness import run_folder
from harrow.harness.checks.causes.evidence import RunEvidence
from harrow.harness.checks.causes.groups import group_waits
from harrow.harness.checks.stuck_groups import stuck_groups
from harrow.harness.checks.verdict import Anomaly
from harrow.harness.histories.group_states import GroupRow, GroupsAtTheEnd, read_group_rows, read_groups, write_groups
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from manual_host import ManualHost

SECOND = 10**9
PREPARING, COMPLETING, STABLE, EMPTY = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty")
ASSIGNING, RECONCILING = "Assigning", "Reconciling"


def row(
    at_s: float,
    state: str,
    *,
    generation: int = 1,
    members: int = 2,
    timeout_s: float = 10,
    epoch: int = 1,
    group: str = "billing",
) -> GroupRow:
    return GroupRow(
        group=group,
        state=state,
        node=epoch,
        partition=7,
        generation=generation,
        leader_epoch=epoch,
        members=members,
        timeout_ms=int(timeout_s * 1_000),
        time_ns=int(at_s * SECOND),
    )


def end(at_s: float, state: str | None, problems: tuple[str, ...] = ()) -> GroupsAtTheEnd:
    states = {} if state is None else {"billing": state}
    return GroupsAtTheEnd(asked_ns=int(at_s * SECOND), states=states, problems=problems)


def found(rows: list[GroupRow], last: GroupsAtTheEnd, healed_s: float = 0) -> tuple[list[str], int]:
    """Names of anomalies and the number of doubts; the second reading must agree on the anomalies."""
    windows = [(0, int(healed_s * SECOND))] if healed_s else []
    findings = stuck_groups(rows, last, windows)
    names = [anomaly.name for anomaly in findings.anomalies]
    assert len(names) == oracle(rows, last, windows)
    return names, len(findings.doubts)


def oracle(rows: list[GroupRow], last: GroupsAtTheEnd, windows: list[tuple[int, int]]) -> int:
    """Count the stuck groups from the definition: walk over the rows, with the time at which each wait began."""
    stuck = 0
    for group, state in last.states.items():
        waiting: tuple[Any, ...] | None = None
        since = limit = members = 0
        for change in sorted(rows, key=lambda r: (r.leader_epoch, r.time_ns)):
            if change.group != group or change.time_ns > last.asked_ns:
                continue
            key = change.state, change.generation, change.leader_epoch
            if key != waiting:
                waiting, since, limit = key, change.time_ns, 0
            limit = max(limit, change.timeout_ms * 1_000_000)
            members = change.members
        if waiting is None or waiting[0] != state or state in (STABLE, EMPTY, "Dead") or not members:
            continue
        healed = [until for _, until in windows if until <= last.asked_ns]
        waited = last.asked_ns - max([since, *healed])
        stuck += waited > limit + 30 * SECOND
    return stuck


STUCK = {
    "a member never joins": [row(0, STABLE), row(5, PREPARING, members=3)],
    "a leader never syncs": [row(0, PREPARING), row(1, COMPLETING, generation=2)],
    "a partition is not given": [row(0, STABLE), row(5, RECONCILING, generation=2)],
    "an assignor does not run": [row(0, STABLE), row(5, ASSIGNING, generation=2)],
    "members change meanwhile": [row(0, PREPARING), row(20, PREPARING, members=3)],
    "a late row of the deposed coordinator": [
        row(0, STABLE),
        row(3, PREPARING, epoch=2),
        row(40, STABLE, generation=1),
    ],
}


@pytest.mark.parametrize("rows", STUCK.values(), ids=STUCK)
def test_a_group_that_waits_beyond_the_timeouts_of_its_members_is_stuck(rows: list[GroupRow]) -> None:
    state = max(rows, key=lambda r: (r.leader_epoch, r.time_ns)).state
    assert found(rows, end(60, state)) == (["stuck-group"], 0)


GOOD = {
    "stable": ([row(0, PREPARING), row(1, COMPLETING), row(2, STABLE)], end(600, STABLE)),
    "no members": ([row(0, STABLE), row(5, PREPARING, members=0)], end(600, PREPARING)),
    "within the timeout of a slow member": ([row(0, STABLE), row(5, PREPARING, timeout_s=300)], end(334, PREPARING)),
    "a member with a longer timeout joined": (
        [row(0, PREPARING), row(5, PREPARING, members=3, timeout_s=300)],
        end(200, PREPARING),
    ),
    "a new generation": ([row(0, PREPARING), row(50, PREPARING, generation=2)], end(60, PREPARING)),
    "a new coordinator": ([row(0, RECONCILING), row(50, RECONCILING, epoch=2)], end(60, RECONCILING)),
    "it changed while brokers were asked": ([row(0, PREPARING), row(60, STABLE, generation=2)], end(59, PREPARING)),
    "it was stable when brokers were asked": ([row(0, PREPARING)], end(60, STABLE)),
    "it was deleted": ([row(0, PREPARING)], end(60, None)),
}


@pytest.mark.parametrize(("rows", "last"), GOOD.values(), ids=GOOD)
def test_a_group_that_may_still_end_its_rebalance_is_not_stuck(rows: list[GroupRow], last: GroupsAtTheEnd) -> None:
    # the row of the change that came while brokers were asked
    if rows[-1].time_ns > last.asked_ns:
        last = GroupsAtTheEnd(asked_ns=rows[-1].time_ns, states=last.states)
    assert found(rows, last) == ([], 0)


def test_the_time_of_a_fault_does_not_count() -> None:
    rows = [row(0, STABLE), row(5, PREPARING)]
    assert found(rows, end(60, PREPARING), healed_s=25) == ([], 0)
    assert found(rows, end(66, PREPARING), healed_s=25) == (["stuck-group"], 0)


def test_without_rows_and_without_a_response_there_is_a_doubt() -> None:
    assert found([], end(60, RECONCILING)) == ([], 1)
    assert found([], end(60, STABLE)) == ([], 0)
    assert found([row(0, PREPARING)], end(60, None, ("broker 1 did not answer",))) == ([], 1)
    assert found([row(0, STABLE)], end(60, None, ("broker 1 did not answer",))) == ([], 0)


STATES = st.sampled_from([PREPARING, PREPARING, COMPLETING, RECONCILING, STABLE, EMPTY])
ROWS = st.lists(
    st.builds(
        row,
        st.integers(0, 70),
        STATES,
        generation=st.integers(1, 2),
        members=st.integers(0, 2),
        timeout_s=st.sampled_from([1, 10]),
        epoch=st.integers(1, 2),
        group=st.sampled_from(["billing", "other"]),
    ),
    max_size=6,
    unique_by=lambda r: (r.group, r.leader_epoch, r.time_ns),
)


@examples(133, 400)
@given(ROWS, st.integers(30, 120), STATES, st.integers(0, 50))
def test_the_check_agrees_with_a_second_reading_of_its_definition(
    rows: list[GroupRow], at_s: int, state: str, healed_s: int
) -> None:
    found(rows, end(at_s, state), healed_s)


def test_the_cause_says_since_when_and_what_the_group_was_before() -> None:
    rows = [row(1, STABLE), row(5, PREPARING, members=3, epoch=2)]
    (anomaly,) = stuck_groups(rows, end(60, PREPARING), ()).anomalies
    shown = Anomaly(
        name=anomaly.name,
        topic=anomaly.topic,
        partition=7,
        offsets=(),
        operations=tuple(anomaly.operations),
        explanation=str(anomaly.explanation),
    )
    ((_, cause),) = group_waits([shown], RunEvidence(started_ns=SECOND))
    assert cause.startswith(
        "group billing has been in PreparingRebalance with 3 members since 4.00 s; before, it was Stable with 2 members"
    )
    assert cause.endswith("at broker 1, and broker 2 is its coordinator now")


# ------------------------------------------------------------------------------------- files


def test_rows_of_a_tap_are_read_with_their_names_and_their_coordinator(tmp_path: Path) -> None:
    broker = tmp_path / run_folder.CLUSTER / "broker-3"
    broker.mkdir(parents=True)
    host = ManualHost()
    tap = FileTap(str(broker), host.clock)
    tap.group("billing", TappedGroup(RECONCILING, 4, 2, 9_000), partition=7, leader_epoch=5)
    tap.close()
    with (broker / "tap.groups").open("ab") as file:
        file.write(b"torn")
    (only,) = read_group_rows(tmp_path)
    assert only == GroupRow(
        group="billing",
        state=RECONCILING,
        node=3,
        partition=7,
        generation=4,
        leader_epoch=5,
        members=2,
        timeout_ms=9_000,
        time_ns=host.clock.monotonic_ns(),
    )


def test_what_brokers_said_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_groups(tmp_path) is None
    last = end(60, STABLE, ("broker 1 did not answer",))
    write_groups(tmp_path, last)
    assert read_groups(tmp_path) == last
    for damaged in ("{", "[]", json.dumps({"schema_version": 99})):
        (tmp_path / run_folder.GROUPS).write_text(damaged, encoding="utf-8")
        with pytest.raises(HarrowError, match=r"groups\.json"):
            read_groups(tmp_path)
