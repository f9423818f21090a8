"""A chaos block that an interrupt or a timeout ends heals its faults; only a failure is judged at its end (J7, K)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_system import FakeSystem
from harrow.faults import BackgroundNemesis, Schedule, ScheduledFault, broker, pause
from harrow.faults.controls import RUNNING
from harrow.harness.chaos.blocks import Chaos
from harrow.harness.checks.verdict import Status, Verdict
from harrow.harness.errors import ProgramDiedError
from harrow.harness.verdict.endings import VerdictsOfFailures
from harrow.harness.verdict.made import MadeVerdicts
from waiting import until


def test_a_timeout_while_the_block_waits_for_its_faults_heals_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = FakeSystem()
    step = ScheduledFault(id="1", fault=pause(broker(1), seconds=600))
    schedule = Schedule(steps=(step,), seed=5)
    ended: list[Schedule] = []
    block = Chaos(system, schedule, tmp_path, groups=list, on_error=lambda _: None, on_end=ended.append)

    def timeout(*_: Any) -> None:
        until(lambda: block.effects == 1)
        raise pytest.fail.Exception("Timeout (>1.0s) from pytest-timeout.")

    monkeypatch.setattr(BackgroundNemesis, "finish", timeout)
    with pytest.raises(pytest.fail.Exception, match="Timeout"), block:
        pass
    assert not block.running
    assert system.brokers[1].state == RUNNING
    assert len(ended) == 1


class Run:
    """A run whose verdict is a word."""

    needs_no_verdict = False

    def __init__(self, folder: Path) -> None:
        self.made = MadeVerdicts(folder, lambda: "seed 1")
        self.asked: list[str] = []

    def judged(self, topics: Any) -> Verdict:
        del topics
        self.asked.append("spark")
        return self.made.publish(Verdict(status=Status.VALID, guarantees=("no-loss",)))

    def judged_without_spark(self, reason: str) -> Verdict:
        self.asked.append(reason)
        return self.judged(())


@pytest.mark.parametrize(
    ("error", "judged"),
    [
        (AssertionError(), True),
        (TimeoutError(), True),
        (ProgramDiedError("exit code 3"), True),
        (pytest.exit.Exception("enough"), False),
    ],
    ids=["AssertionError", "TimeoutError", "ProgramDiedError", "pytest.exit"],
)
def test_the_end_of_a_block_judges_a_failure_and_no_interrupt(tmp_path: Path, error: Exception, judged: bool) -> None:
    run = Run(tmp_path)
    VerdictsOfFailures(run).attach_verdict(error)
    assert [note.split("\n")[:2] for note in getattr(error, "__notes__", [])] == [
        ["harrow: the verdict on this run:", "VALID: no-loss holds"]
    ] * judged
    assert run.asked == ["spark"] * judged
