"""A program that had died is the first line of every cause and of an unknown verdict, by hand-made ends (K8, L6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import HarrowError
from harrow.harness.checks.anomaly_kinds import SEVERITY
from harrow.harness.checks.causes.evidence import RunEvidence
from harrow.harness.checks.causes.programs import deaths, quiet_ends
from harrow.harness.checks.causes.rules import causes
from harrow.harness.checks.facts import AcknowledgedAndLost
from harrow.harness.checks.verdict import Anomaly
from harrow.harness.histories.program_ends import (
    WORD_MOST,
    ProgramEnd,
    last_words,
    read_program_ends,
    write_program_ends,
)
from harrow.harness.run_folder import RunTimes

TIMES = RunTimes(0)
ISOLATED = AcknowledgedAndLost(
    topic="orders",
    partition=0,
    broker=3,
    acks=1,
    records=31,
    first_ns=1,
    last_ns=2,
    first_offset=100,
    last_offset=130,
)


def end(**fields: Any) -> ProgramEnd:
    usual: dict[str, Any] = {
        "name": "billing",
        "exit_code": 1,
        "ended_ns": 4_200_000_000,
        "by": "itself",
        "started_again": False,
        "last_words": ("Traceback (most recent call last):", "KeyError: 'amount'"),
    }
    return ProgramEnd(**(usual | fields))


def cause(name: str, *ends: ProgramEnd, **evidence: Any) -> tuple[str, ...]:
    anomaly = Anomaly(name=name, topic="orders", partition=0, offsets=(1,), operations=(), explanation="")
    known = RunEvidence(started_ns=0, program_ends=ends, **evidence)
    return causes([anomaly], known).get(name, ())


@pytest.mark.parametrize("kind", SEVERITY, ids=lambda kind: kind.name)
def test_a_program_that_died_is_the_first_cause_of_every_kind(kind: Any) -> None:
    found = cause(kind.name, end(), facts=[ISOLATED])
    assert found[0] == (
        "program 'billing' ended by itself at 4.20 s with exit code 1; neither a fault nor the test ended it; its last "
        "lines: Traceback (most recent call last): | KeyError: 'amount'"
    )
    assert (len(found) == 2) == (kind.name in ("lost-write", "missing"))


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (end(exit_code=139), "with SIGSEGV, exit code 139; neither"),
        (end(exit_code=255), "with exit code 255; neither"),
        (end(started_again=True), "with exit code 1, and was started again; neither"),
        (end(ended_ns=0), "ended by itself with exit code 1"),
        (end(by="fault", exit_code=137), "was ended by a fault at 4.20 s (SIGKILL, exit code 137) and was not started"),
    ],
)
def test_a_death_says_how_the_program_ended(ended: ProgramEnd, words: str) -> None:
    (found,) = deaths([ended], TIMES)
    assert words in found


@pytest.mark.parametrize(
    "ended",
    [
        end(by="fault", exit_code=137, started_again=True),
        end(by="test", exit_code=143),
        end(by="test", exit_code=1),
        end(exit_code=0),
    ],
    ids=["a fault that starts it again", "stop", "stop with an error", "it had finished"],
)
def test_an_end_that_the_test_wanted_is_no_cause(ended: ProgramEnd) -> None:
    assert cause("lost-write", ended) == ()


def test_a_program_that_died_often_is_named_once_with_its_last_death() -> None:
    (found,) = deaths([end(started_again=True, ended_ns=1), end(last_words=())], TIMES)
    assert found.endswith("at 4.20 s with exit code 1; neither a fault nor the test ended it (it ended so 2 times)")


def test_a_program_that_finished_is_named_last_where_outputs_are_missing() -> None:
    ends = [end(exit_code=0, last_words=()), end(name="audit")]
    found = cause("missing-output", *ends)
    assert [text.split("'")[1] for text in found] == ["audit", "billing"]
    assert quiet_ends([end(exit_code=0, started_again=True)], TIMES) == []


def test_last_words_are_the_last_lines_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    assert last_words(path) == ()
    path.write_bytes(b"x" * 100_000 + b"\nfirst\n\n  second\n" + b"y" * 1000 + b"\n\xff\n")
    words = last_words(path)
    assert words == ("second", "y" * WORD_MOST, "�")


def test_ends_are_written_and_read_by_time(tmp_path: Path) -> None:
    assert read_program_ends(tmp_path) == []
    late, early = end(), end(name="audit", ended_ns=7)
    write_program_ends(tmp_path, [late, early])
    assert read_program_ends(tmp_path) == [early, late]


@pytest.mark.parametrize("text", ["{", '{"schema_version": 99}', '{"schema_version": 1, "ends": [{}]}'])
def test_a_file_that_cannot_be_read_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "programs.json").write_text(text)
    with pytest.raises(HarrowError, match="run the test again"):
        read_program_ends(tmp_path)
