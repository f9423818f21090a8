"""Causes of what became of inputs in retry topics, in the words of the verdict (H8, L5)."""

from __future__ import annotations

from typing import Any, cast

import pytest
from harrow.harness.checks.causes.evidence import RunEvidence
from harrow.harness.checks.causes.rules import causes
from harrow.harness.checks.rows import OperationRow
from harrow.harness.checks.verdict import Anomaly
from harrow.harness.histories.program_ends import ProgramEnd
from harrow.harness.histories.recorded_faults import RecordedFault

S = 1_000_000_000
KILL = "kill_program('scheduler', before='Produce')"


def anomaly(name: str, *rows: dict[str, Any], offset: int = 3) -> Anomaly:
    return Anomaly(
        name=name,
        topic="orders",
        partition=0,
        offsets=(offset,),
        operations=cast("tuple[OperationRow, ...]", rows),
        explanation="",
    )


def commit(at_s: float, topic: str = "orders-delay") -> dict[str, Any]:
    at_ns = round(at_s * S)
    return {
        "operation": "commit",
        "topic": topic,
        "partition": 0,
        "offset": 9,
        "group": "orders-scheduler",
        "completed_ns": at_ns,
    }


def retry(due_s: float, **more: Any) -> dict[str, Any]:
    return {"operation": "retry", "topic": "orders-delay", "due_ns": round(due_s * S), **more}


def killed(at_s: float) -> RunEvidence:
    fault = RecordedFault(
        id="1",
        kind="kill_program",
        label=KILL,
        nodes=(),
        begin_ns=0,
        effect_ns=round(at_s * S),
        end_ns=9 * S,
        skipped=None,
        details={"program": "scheduler"},
    )
    return RunEvidence(started_ns=0, faults=[fault])


def lost(*dues_s: float, committed_s: float = 2.0) -> list[Anomaly]:
    return [anomaly("missing-output", commit(committed_s), retry(due)) for due in dues_s]


@pytest.mark.parametrize(
    ("killed_s", "due"), [(2.5, "2 of them were due"), (3.0, "all of them were due"), (2.05, "none of them were due")]
)
def test_lost_retries_are_named_with_the_commit_the_death_of_the_program_and_what_was_due(
    killed_s: float, due: str
) -> None:
    assert causes(lost(2.1, 2.2, 2.9), killed(killed_s))["missing-output"] == (
        (
            "group orders-scheduler committed 3 shown records of orders-delay at 2.00 s, and nothing followed: its "
            f"members took them and lost them; {KILL} ended program 'scheduler' at {killed_s:.2f} s, "
            f"{killed_s - 2:.2f} s after the last commit, when {due}"
        ),
    )


def test_a_death_before_the_commit_explains_no_loss() -> None:
    (text,) = causes(lost(1.0), killed(1.5))["missing-output"]
    assert text.endswith("its members took them and lost them")


def test_a_retry_that_was_due_after_the_final_read_is_not_lost() -> None:
    waits = anomaly("missing-output", commit(2), retry(90, due_after_read=True))
    assert causes([waits], RunEvidence(started_ns=0)) == {}


def test_the_commit_of_an_input_is_early_and_that_of_a_retry_is_not() -> None:
    early = anomaly("missing-output", commit(2, "orders"))
    (text,) = causes([early], RunEvidence(started_ns=0))["missing-output"]
    assert "committed offset 9 of orders-0 at 2.00 s, before the outputs" in text


def test_a_group_that_does_not_get_past_a_record_is_named() -> None:
    poison = {"operation": "record", "offset": 3, "deliveries": 37, "stopped_group": "billing"}
    stopped = [anomaly("missing-output", poison)]
    behind = [anomaly("missing-output", offset=offset) for offset in (4, 5)]
    assert causes([*stopped, *behind], RunEvidence(started_ns=0))["missing-output"] == (
        (
            "group billing does not get past orders-0@3: clients were delivered it 37 times, and the group has "
            "committed offset 3; 2 of the inputs that are shown are behind it"
        ),
    )


def test_a_retry_that_was_sent_again_is_named_with_its_topic() -> None:
    doubled = [anomaly("duplicate-output", retry(1.0), retry(1.0)) for _ in range(2)]
    plain = anomaly("duplicate-output")
    again = (
        "orders-delay has the same retry again of 2 inputs, with the same number of attempts and due time: what was "
        "sent was sent again"
    )
    found = causes([*doubled, plain], RunEvidence(started_ns=0))
    assert found["duplicate-output"] == (again,)
    end = ProgramEnd(name="scheduler", exit_code=0, ended_ns=5 * S, by="test", started_again=True)
    found = causes(doubled, RunEvidence(started_ns=0, program_ends=[end]))
    assert found["duplicate-output"] == (f"{again}; program 'scheduler' ended at 5.00 s and was started again",)
    assert causes([plain], RunEvidence(started_ns=0, program_ends=[end])) == {}


def test_attempts_that_begin_again_name_the_programs_that_were_started_again() -> None:
    ends = [
        ProgramEnd(name=name, exit_code=0, ended_ns=at_s * S, by="test", started_again=again)
        for name, at_s, again in (("worker", 3, True), ("worker", 5, True), ("scheduler", 6, False))
    ]
    evidence = RunEvidence(started_ns=0, program_ends=ends)
    assert causes([anomaly("too-many-attempts")], evidence)["too-many-attempts"] == (
        "program 'worker' ended 2 times, from 3.00 s to 5.00 s, and was started again each time",
    )


@pytest.mark.parametrize(
    ("second", "text"),
    [((1_250, 1_090), "1.25 s to 2.70 s early, all within 0.09 s"), ((2_700, 1_049), "2.70 s early, all at once")],
)
def test_attempts_that_were_early_together_are_named_with_their_times(second: tuple[int, int], text: str) -> None:
    def attempt(early_ms: int, at_ms: int) -> Anomaly:
        row = {"operation": "attempt", "early_ms": early_ms, "timestamp_ms": at_ms}
        return anomaly("attempt-before-due", row)

    early = [attempt(2_700, 1_000), attempt(*second)]
    found = causes(early, RunEvidence(started_ns=0))["attempt-before-due"]
    assert found == (f"2 attempts were made {text}",)
    assert causes(early[:1], RunEvidence(started_ns=0)) == {}
