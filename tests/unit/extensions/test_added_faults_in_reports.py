"""A fault of an extension is drawn, named and searched for as Harrow's own: each fact is on its class (J4)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import pytest
from added_extensions import added
from harrow.faults.network_faults import Isolate
from harrow.faults.spec import Hold
from harrow.faults.targets import one
from harrow.harness.checks.causes.evidence import RunEvidence
from harrow.harness.checks.causes.faults import happened
from harrow.harness.histories.recorded_faults import RecordedFault
from harrow.harness.reports.beside import lanes_beside
from harrow.harness.reports.page_model import FaultModel
from harrow.harness.reports.recorded_run import RecordedRun
from harrow.harness.reports.summary import fault_marks
from harrow.harness.reports.timeline import Timeline
from harrow.harness.simulation.coverage import letter_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplug(Isolate):
    kind: ClassVar[str] = "unplug"
    words: ClassVar[str] = "was unplugged"
    own_mark: ClassVar[str] = "U"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowTill(Isolate):
    kind: ClassVar[str] = "slow_till"
    holds: ClassVar[Hold | None] = Hold.SLOW
    lane_words: ClassVar[str] = "out of paper"
    moves_leaders: ClassVar[bool] = False


@pytest.fixture(autouse=True)
def _shop() -> Iterator[None]:
    with added(harrow_faults=lambda: [Unplug, SlowTill]):
        yield


def recorded(kind: str, **details: str) -> RecordedFault:
    return RecordedFault(
        id="1",
        kind=kind,
        label=kind,
        nodes=(1,),
        begin_ns=10**9,
        effect_ns=10**9,
        end_ns=3 * 10**9,
        skipped=None,
        details=dict(details),
    )


def test_a_cause_says_its_words_and_those_of_a_kind_without_words_name_it() -> None:
    evidence = RunEvidence(started_ns=0)
    assert happened(recorded("unplug"), evidence) == "was unplugged from 1.00 s to 3.00 s"
    assert happened(recorded("gone_with_its_distribution"), evidence).startswith(
        "was hit by the fault gone_with_its_distribution from "
    )


def test_the_terminal_draws_its_mark_and_that_of_its_state() -> None:
    rows = [{"kind": kind, "s": at, "e": at, "skipped": None} for at, kind in enumerate(("unplug", "slow_till", "x"))]
    assert fault_marks(cast("list[FaultModel]", rows), 4.0, 4) == "U≈● "


def test_the_lane_of_its_broker_shows_the_state_in_which_it_holds_it(tmp_path: Path) -> None:
    rows = [
        {"id": kind, "event": event, "fault": kind, "targets": [1], "t_ns": at * 10**9}
        for kind in ("unplug", "slow_till")
        for event, at in (("inject", 1), ("effect", 1), ("healed", 3))
    ]
    (tmp_path / "faults.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    timeline = Timeline(0, 4 * 10**9, 10**8)
    timeline.read(RecordedRun(tmp_path))
    states = [(span["state"], span["s"], span["e"]) for span in timeline.broker_lane(1)["spans"]]
    assert ("isolated", 1.0, 3.0) in states
    assert "slow" not in [state for state, _, _ in states], "a lane of a broker has no such state"


def test_the_lane_of_what_it_hits_beside_the_brokers_shows_its_words() -> None:
    (lane,) = lanes_beside([recorded("slow_till", dependency="till")], (), lambda ns: ns / 1e9, 4.0)
    assert lane["spans"] == [{"s": 1.0, "e": 3.0, "state": "slow", "text": "out of paper"}]


def test_a_guided_search_knows_what_it_does_to_its_brokers() -> None:
    assert [letter_of(kind) for kind in ("unplug", "slow_till", "no_such_kind")] == ["c", "s", "no_such_kind"]


def test_the_mix_of_simulations_draws_its_parameters() -> None:
    drawn = {Unplug.simulated(one, random.Random(seed)).clients for seed in range(20)}
    assert drawn == {True, False}
