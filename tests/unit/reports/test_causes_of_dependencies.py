"""Causes: what faults did to what stands beside the brokers, in the words of the verdict (K2, L5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harrow.harness.checks.causes.dependencies import outages
from harrow.harness.checks.causes.evidence import RunEvidence
from harrow.harness.checks.causes.recorded import dependency_names
from harrow.harness.checks.causes.rules import causes
from harrow.harness.checks.verdict import Anomaly
from harrow.harness.histories.recorded_faults import RecordedFault

S = 1_000_000_000
WORDS = {
    "isolate_dependency": "was cut off from its clients",
    "cut_dependency": "was cut off from its clients in one direction",
    "cut_dependency in": "received nothing from its clients",
    "cut_dependency out": "could send nothing to its clients",
    "slow_dependency": "sent late",
    "throttle_dependency": "sent slowly",
    "half_open_dependency": "had connections that carried nothing any more",
    "reset_dependency": "lost its connections",
}
"""By kind of fault, and of a cut by its direction."""


def fault(
    kind: str, begin: float, end: float | None, name: str = "store", held_out_bytes: int = 0, **details: Any
) -> RecordedFault:
    return RecordedFault(
        id="1",
        kind=kind,
        label=kind,
        nodes=(),
        begin_ns=round(begin * S),
        effect_ns=round(begin * S) + 1,
        end_ns=None if end is None else round(end * S),
        skipped=None,
        evidence={"dependencies": {name: {"held_out_bytes": held_out_bytes}}} if kind.endswith("dependency") else {},
        details=details,
    )


@pytest.mark.parametrize("words", WORDS)
def test_each_fault_of_a_dependency_has_words(words: str) -> None:
    kind, _, direction = words.partition(" ")
    (text,) = outages(RunEvidence(started_ns=0, faults=[fault(kind, 1, 2.5, direction=direction)]))
    assert text.startswith(f"the dependency 'store' {WORDS[words]} ")
    assert text.endswith("at 1.00 s" if kind == "reset_dependency" else "from 1.00 s to 2.50 s")


@pytest.mark.parametrize(
    ("mode", "held_out_bytes", "end"),
    [
        ("deliver", 406, ""),
        ("reset", 0, " and then lost its connections"),
        ("reset", 406, " and then lost its connections, so that what it had sent never arrived"),
    ],
)
def test_responses_that_were_lost_with_the_connection_are_named(mode: str, held_out_bytes: int, end: str) -> None:
    cut = fault("cut_dependency", 1, 2, held_out_bytes=held_out_bytes, direction="out", mode=mode)
    assert outages(RunEvidence(started_ns=0, faults=[cut])) == [
        f"the dependency 'store' could send nothing to its clients from 1.00 s to 2.00 s{end}"
    ]


def test_all_faults_of_a_dependency_are_in_one_sentence() -> None:
    faults = [
        fault("isolate_dependency", 1, 2),
        fault("reset_dependency", 3, 3),
        fault("slow_dependency", 4, None),
        fault("throttle_dependency", 5, 6),
        fault("isolate_dependency", 2, 3, "ledger"),
        fault("kill", 1, 2),
    ]
    assert outages(RunEvidence(started_ns=0, faults=faults)) == [
        (
            "the dependency 'store' was cut off from its clients from 1.00 s to 2.00 s, lost its connections at "
            "3.00 s, sent late from 4.00 s on (and 1 more fault)"
        ),
        "the dependency 'ledger' was cut off from its clients from 2.00 s to 3.00 s",
    ]


def test_faults_of_the_program_of_a_dependency_are_those_of_the_dependency() -> None:
    faults = [
        fault("isolate_dependency", 1, 2),
        fault("kill_program", 3, 4, program="store"),
        fault("pause_program", 5, 6, program="store"),
        fault("kill_program", 7, 8, program="worker"),
    ]
    evidence = RunEvidence(started_ns=0, faults=faults, dependencies=["store"])
    assert outages(evidence) == [
        (
            "the dependency 'store' was cut off from its clients from 1.00 s to 2.00 s, was killed and dead "
            "from 3.00 s to 4.00 s, was paused from 5.00 s to 6.00 s"
        )
    ]
    assert not outages(RunEvidence(started_ns=0, faults=faults[1:]))


def test_the_dependencies_of_a_run_have_a_folder_each(tmp_path: Path) -> None:
    assert dependency_names(tmp_path) == []
    (tmp_path / "dependencies" / "store").mkdir(parents=True)
    assert dependency_names(tmp_path) == ["store"]


@pytest.mark.parametrize(("kind", "named"), [("missing-output", True), ("two-leaders", False)])
def test_an_anomaly_of_the_application_names_the_outage(kind: str, named: bool) -> None:
    anomaly = Anomaly(name=kind, topic="orders", partition=0, offsets=(1,), operations=(), explanation="")
    found = causes([anomaly], RunEvidence(started_ns=0, faults=[fault("isolate_dependency", 1, 2)]))
    assert ("store" in str(found)) is named


def test_retries_that_were_due_during_a_fault_are_counted() -> None:
    lost = [
        Anomaly(
            name="missing-output",
            topic="orders",
            partition=0,
            offsets=(n,),
            explanation="",
            operations=({"operation": "retry", "due_ns": due * S},),
        )
        for n, due in enumerate((1, 2, 5))
    ]
    evidence = RunEvidence(started_ns=0, faults=[fault("isolate_dependency", 1, 2.5)])
    assert causes(lost, evidence)["missing-output"] == (
        (
            "the dependency 'store' was cut off from its clients from 1.00 s to 2.50 s; 2 retries of these were due "
            "meanwhile"
        ),
    )
