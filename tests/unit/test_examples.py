"""`harrow_examples`: what each example of a property-based test gets, and what stays of many of them (J1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harrow.harness.checks import Status
from harrow.harness.plugin.examples import FAILED_MOST, PASSED_MOST, HarrowExamples
from hypothesis.errors import UnsatisfiedAssumption


class FakeRun:
    """A run of an example without a cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.closed = 0
        self.judged: list[BaseException] = []
        self.listeners: list[Callable[[Any], None]] = []
        self.made = SimpleNamespace(on_verdict=self.listeners.append)
        self.failures = SimpleNamespace(verdict_of_failure=self.verdict_of_failure)
        (folder / "cluster").mkdir(parents=True)

    @property
    def _run(self) -> FakeRun:
        """It is the `Harrow`, too."""
        return self

    def verify(self, status: Status, *reasons: str) -> None:
        verdict = SimpleNamespace(status=status, valid=status is Status.VALID, reasons=reasons)
        for call in self.listeners:
            call(verdict)

    def verdict_of_failure(self, error: BaseException) -> str:
        self.judged.append(error)
        return "INVALID: it was lost"

    def remove_data(self) -> None:
        (self.folder / "cluster").rmdir()

    def __enter__(self) -> FakeRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1


class Project:
    """A test that runs, and the fixture."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.item: Any = SimpleNamespace(nodeid="t::a", stash=pytest.Stash(), user_properties=[("own", 1)])
        self.runs: list[FakeRun] = []
        self.examples = HarrowExamples(
            lambda: self.item,
            cast("Any", self.begin),
            lambda run, verdict, number: [(f"harrow.verdict-{number}", f"{run.folder.name} {verdict.status}")],
            lambda item: False,
        )

    def begin(self, item: object, number: int) -> FakeRun:
        self.runs.append(FakeRun(self.folder / f"{number}"))
        return self.runs[-1]

    def example(self, status: Status, error: BaseException | None = None) -> None:
        with self.examples() as run:
            cast("Any", run).verify(status, "why")
            if error is not None:
                raise error

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_each_example_has_a_run_that_ends_with_its_block(project: Project) -> None:
    for _ in range(3):
        project.example(Status.VALID)
    assert [run.closed for run in project.runs] == [1, 1, 1]
    assert project.folders == ["3"]
    assert not (project.runs[-1].folder / "cluster").exists()


def test_a_bounded_number_of_folders_and_properties_stays(project: Project) -> None:
    for _ in range(FAILED_MOST + 4):
        project.example(Status.VALID)
        with pytest.raises(ValueError, match="mine"):
            project.example(Status.INVALID, ValueError("mine"))
    assert len(project.folders) == FAILED_MOST + PASSED_MOST
    names = [name for name, _ in project.item.user_properties]
    verdicts = [f"harrow.verdict-{number}" for number in range(1, FAILED_MOST + PASSED_MOST + 1)]
    assert names == ["own", *verdicts, "harrow.examples"]
    assert dict(project.item.user_properties)["harrow.examples"] == "14 (7 invalid, 7 valid)"
    assert (project.runs[-1].folder / "cluster").exists()


def test_the_error_of_an_example_gets_the_verdict_on_its_run(project: Project) -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine"):
        project.example(Status.UNKNOWN, error)
    assert project.runs[0].judged == [error]
    assert error.__notes__ == ["harrow: the verdict on this run:\nINVALID: it was lost"]
    assert project.examples.current.last_unknown == "why"


def test_an_example_that_hypothesis_rejects_is_not_judged_and_has_not_failed(project: Project) -> None:
    with pytest.raises(UnsatisfiedAssumption):
        project.example(Status.VALID, UnsatisfiedAssumption())
    assert project.runs[0].judged == []
    assert not (project.runs[0].folder / "cluster").exists()


def test_a_test_that_runs_again_begins_with_no_examples(project: Project) -> None:
    project.example(Status.VALID)
    project.item.nodeid = "t::b"
    assert project.examples.current.count == 0
