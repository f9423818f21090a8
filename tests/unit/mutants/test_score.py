"""`harrow mutants`: killed, survived and why, never executed; and the score."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ConfigError
from harrow.harness.mutant_rows import MutantRow
from harrow.harness.mutants.catalogue import MUTANTS, Mutant, mutants_named
from harrow.harness.mutants.score import KILLED, NEVER_EXECUTED, SURVIVED, result_of, score

(ACKS, TWICE, UNCOMMITTED) = mutants_named(["acks-of-leader", "sent-twice", "read-uncommitted"])


def row(*guarantees: str, faults: tuple[str, ...] = (), changed: int = 2, test: str = "test_a") -> MutantRow:
    return MutantRow(test=test, changed=changed, faults=faults, guarantees=guarantees)


def test_a_mutant_with_a_failed_test_is_killed() -> None:
    found = result_of(ACKS, {"t::a": "INVALID", "t::b": "no"}, [row("no-loss")], anomalies=["missing"], seconds=3)
    assert (found.state, found.reason, list(found.tests)) == (KILLED, "INVALID", ["t::a", "t::b"])
    assert found.to_json()["anomalies"] == ["missing"]


def test_a_mutant_with_which_the_suite_does_not_end_is_killed() -> None:
    found = result_of(ACKS, {}, [], endless=True)
    assert (found.state, found.reason) == (KILLED, "the suite did not end")


@pytest.mark.parametrize("rows", [[], [row("no-loss", changed=0)]])
def test_a_mutant_that_changed_nothing_was_never_executed(rows: list[MutantRow]) -> None:
    assert result_of(ACKS, {}, rows).state == NEVER_EXECUTED


@pytest.mark.parametrize(
    ("mutant", "rows", "reason"),
    [
        (ACKS, [row()], "no verdict: none of 1 test verifies"),
        (
            UNCOMMITTED,
            [row("at-least-once")],
            "no guarantee forbids it: at-least-once was verified, and it breaks",
        ),
        (ACKS, [row("no-loss"), row("no-loss", test="test_b")], "no fault that shows it: none took effect in 2 tests"),
        (ACKS, [row("no-loss", faults=("pause",))], "not noticed under pause; it needs a leader that dies"),
        (TWICE, [row("exactly-once")], "not noticed by 1 test, although it needs no fault"),
        (ACKS, [row("no-loss", faults=("kill",), changed=0, test="test_b"), row("no-loss")], "no fault that shows it"),
        (ACKS, [MutantRow(changed=1), row("no-loss", changed=0)], "no fault that shows it"),
    ],
    ids=["no verdict", "no guarantee", "no fault", "another fault", "no fault needed", "of other tests", "of a client"],
)
def test_why_a_mutant_survived(mutant: Mutant, rows: list[MutantRow], reason: str) -> None:
    found = result_of(mutant, {}, rows)
    assert found.state == SURVIVED
    assert found.reason.startswith(reason)


def test_the_score_has_only_mutants_that_were_executed() -> None:
    results = [result_of(ACKS, {"t": ""}, []), result_of(TWICE, {}, [row("no-loss")]), result_of(UNCOMMITTED, {}, [])]
    assert score(results) == (1, 2)


def test_mutants_have_names_of_their_own_and_an_unknown_one_is_an_error() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert mutants_named([]) == list(MUTANTS)
    assert mutants_named(["sent-twice", "sent-twice"]) == [TWICE]
    with pytest.raises(ConfigError, match=r"no mutant is named 'acks'; there are: acks-of-leader, "):
        mutants_named(["acks"])
