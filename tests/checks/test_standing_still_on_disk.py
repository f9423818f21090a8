"""Standing still, from the files of a run folder to the verdict, its text and its page (L4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harrow.cluster.tap.layouts import FETCHED, PRODUCED, TAP_DTYPE
from harrow.harness import run_folder
from harrow.harness.checks import Status, Verdict, judge
from harrow.harness.checks.progress import reading
from harrow.harness.checks.progress.reading import PROGRESS_EVENTS
from harrow.harness.checks.traces import WANTED_EVENTS
from harrow.harness.reports.findings import verdict_model

SECOND = 10**9
START = 1_000 * SECOND
NAMES = ("bills", "orders", "job")
Row = dict[str, Any]


class Run:
    """A run folder with one broker: a producer `job` of bills that rests from 10 s to 25 s."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = folder / "cluster" / "broker-1"
        self.broker.mkdir(parents=True)
        self._tap: list[Row] = []
        (self.broker / "tap.names").write_text("".join(f"{number}\t{name}\n" for number, name in enumerate(NAMES)))
        leader = {
            "event": "partition.leader",
            "t_ns": START,
            "topic": "bills",
            "partition": 0,
            "topic_id": "id",
            "leader": 1,
            "leader_epoch": 0,
            "isr": [1],
            "leo": 0,
            "hw": 0,
        }
        (self.broker / "trace.jsonl").write_text(json.dumps(leader) + "\n")
        self.fault(9, 10)
        for half in range(20):
            self.row(PRODUCED, half / 2, half, made_s=half / 2)
        self.row(PRODUCED, 25, 20, made_s=10.5)

    def row(self, kind: int, at_s: float, offset: int, *, made_s: float, topic: str = "bills") -> None:
        at, made = START + round(at_s * SECOND), START + round(made_s * SECOND)
        self._tap.append(
            {
                "kind": kind,
                "client": 2,
                "topic": NAMES.index(topic),
                "base_offset": offset,
                "last_offset": offset,
                "count": 1,
                "producer_id": -1,
                "acks": -1,
                "invoked_ns": at,
                "completed_ns": at,
                "created_ns": made,
                "base_timestamp_ms": made // 10**6,
                "max_timestamp_ms": made // 10**6,
            }
        )

    def fault(self, begin_s: int, end_s: int) -> None:
        rows = [("inject", begin_s), ("effect", begin_s), ("heal", end_s), ("healed", end_s)]
        (self.folder / run_folder.FAULTS).write_text(
            "".join(
                json.dumps(
                    {
                        "t_ns": START + at * SECOND,
                        "event": event,
                        "id": "1",
                        "fault": "pause",
                        "label": "pause(2)",
                        "targets": [2],
                        "evidence": {},
                    }
                )
                + "\n"
                for event, at in rows
            )
        )

    def judge(self, within_s: float | None) -> Verdict:
        tap = np.zeros(len(self._tap), np.dtype(TAP_DTYPE))
        for number, row in enumerate(self._tap):
            for name, value in row.items():
                tap[name][number] = value
        tap.tofile(self.broker / "tap.bin")
        facts: Row = {"schema_version": 1, "started_ns": START, "config": {}, "log_dirs": {}}
        if within_s is not None:
            facts["progress"] = {"recovers_within_s": within_s}
        (self.folder / run_folder.RUN).write_text(json.dumps(facts))
        return judge(self.folder, topics=["bills"], guarantee="best-effort", engine="inline")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_producer_that_rests_breaks_the_bound(run: Run) -> None:
    verdict = run.judge(5)
    assert verdict.status is Status.INVALID
    assert verdict.anomaly_names() == {"stalled"}
    assert verdict.guarantees == ("best-effort", "recovery within 5 s")
    (anomaly,) = verdict.anomalies
    assert (anomaly.place, anomaly.offsets) == ("bills-0", (20,))
    assert "producer job made no progress for 14.5 s, from 10.50 s to 25.00 s" in anomaly.explanation
    assert "INVALID: recovery within 5 s does not hold" in str(verdict)


def test_without_a_bound_it_is_reported_and_forbidden_by_nothing(run: Run) -> None:
    verdict = run.judge(None)
    assert verdict.status is not Status.INVALID
    assert verdict.anomaly_names() == {"stalled"}
    assert "standing still: at fault 1, pause(2), producer job in bills-0" in str(verdict)


def test_timestamps_that_were_copied_from_records_that_it_read_are_no_wait(run: Run) -> None:
    """The order of 10.5 s was delivered at 24.9 s only, and the bill has its timestamp."""
    run.row(FETCHED, 24.9, 7, made_s=10.5, topic="orders")
    assert not run.judge(5).anomaly_names()


def test_an_order_that_was_delivered_at_once_does_not_excuse_its_bill(run: Run) -> None:
    run.row(FETCHED, 10.51, 7, made_s=10.5, topic="orders")
    assert run.judge(5).anomaly_names() == {"stalled"}


@pytest.mark.parametrize(("bound", "doubted"), [(5.0, True), (None, False)])
def test_without_traces_a_bound_leaves_a_doubt(run: Run, bound: float | None, doubted: bool) -> None:
    (run.broker / "trace.jsonl").unlink()
    verdict = run.judge(bound)
    assert not verdict.anomaly_names()
    found = [reason for reason in verdict.reasons if "could not be judged: no trace" in reason]
    assert bool(found) is doubted


@pytest.mark.parametrize("bound", [5.0, None])
def test_a_crash_of_the_check_is_a_doubt_only_where_a_bound_is_given(
    run: Run, monkeypatch: pytest.MonkeyPatch, bound: float | None
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(reading, "judge_progress", crash)
    verdict = run.judge(bound)
    texts = verdict.reasons if bound else verdict.notes
    assert "the check of progress crashed: ZeroDivisionError()" in texts


def test_without_fault_and_bound_nothing_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise AssertionError("the check of progress ran")

    monkeypatch.setattr(reading, "judge_or_doubt", crash)
    (run.folder / run_folder.FAULTS).unlink()
    assert run.judge(None).progress == ()


def test_the_trace_reader_keeps_every_event_that_the_checks_of_progress_need() -> None:
    assert set(PROGRESS_EVENTS) <= set(WANTED_EVENTS)


def test_the_text_has_four_lines_of_many_standstills_and_the_page_has_a_table(run: Run) -> None:
    verdict = run.judge(5)
    (row,) = verdict.progress
    many = Verdict(
        status=Status.VALID,
        guarantees=("no-loss",),
        progress=tuple({**row, "client": f"job-{number}"} for number in range(100)),
    )
    lines = [line for line in str(many).splitlines() if "standing still" in line]
    assert len(lines) == 4
    assert "96 more pairs of a fault and a client" in str(many)
    model = verdict_model(json.loads(many.to_json()))
    assert model is not None
    assert len(model["progress"]) == 60
    shown = model["progress"][0]
    assert (shown["client"], shown["without_progress_s"]) == ("job-0", 14.5)
    assert "although the cluster could serve it" in shown["why"]


def test_a_stored_verdict_without_the_table_still_loads(run: Run) -> None:
    stored = json.loads(run.judge(None).to_json())
    del stored["progress"]
    assert Verdict.from_json(json.dumps(stored)).progress == ()
