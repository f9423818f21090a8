"""A chaos block that an interrupt or a timeout ends heals its faults; only a failure is judged at its end (J7, K)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_system import FakeSystem
from harrow.faults import BackgroundNemesis, Schedule, ScheduledFault, broker, pause
from harrow.faults.controls import RUNNING
from harrow.harness.chaos.blocks import Chaos
from harrow.harness.errors import ProgramDiedError
from harrow.harness.verdict.endings import VerdictsOfFailures
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


class Run(VerdictsOfFailures):
    """A run whose verdict is a word."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    @property
    def _needs_no_verdict(self) -> bool:
        return False

    def _judged(self, topics: Any) -> Any:
        self.asked.append("spark")

    def _judged_without_spark(self, reason: str) -> Any:
        self.asked.append(reason)

    def _explain(self, verdict: Any) -> str:
        return "the verdict"

    def end_block(self, error: Exception) -> None:
        self._attach_verdict(error)


@pytest.mark.parametrize(
    ("error", "notes"),
    [
        (AssertionError(), ["harrow: the verdict on this run:\nthe verdict"]),
        (TimeoutError(), ["harrow: the verdict on this run:\nthe verdict"]),
        (ProgramDiedError("exit code 3"), ["harrow: the verdict on this run:\nthe verdict"]),
        (pytest.exit.Exception("enough"), []),
    ],
    ids=["AssertionError", "TimeoutError", "ProgramDiedError", "pytest.exit"],
)
def test_the_end_of_a_block_judges_a_failure_and_no_interrupt(error: Exception, notes: list[str]) -> None:
    run = Run()
    run.end_block(error)
    assert getattr(error, "__notes__", []) == notes
    assert run.asked == ["spark"] * len(notes)
