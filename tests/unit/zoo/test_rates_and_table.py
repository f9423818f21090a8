"""The zoo's rates and its table (M1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.errors import ConfigError
from harrow.faults.zoo.bug import Bug
from harrow.harness.simulation import SimulationOptions
from harrow.harness.zoo.catalog import ZOO, bug_named
from harrow.harness.zoo.table import ON_PROCESSES, SIMULATED, Measured, markdown, wilson_interval, write_into
from harrow.harness.zoo.trial import Trial
from hypothesis import given
from hypothesis import strategies as st

BUG = Bug(
    number=99,
    module="harrow.faults.zoo.kafka_99",
    title="KAFKA-99: a bug",
    versions="0.9",
    needs="a fault",
    seen_as=frozenset({"lost-write"}),
    options=SimulationOptions(),
)


def trial(number: int, *, seconds: float, anomalies: tuple[str, ...] = ()) -> Trial:
    return Trial(
        bug=BUG.name,
        search="directed",
        number=number,
        found=bool(anomalies),
        seconds=seconds,
        runs=3,
        faults=4,
        anomalies=anomalies,
        others=(),
        false_alarms=(),
        schedule=None,
    )


@pytest.mark.parametrize(
    ("found", "trials", "low", "high"),
    [(30, 30, 0.8865, 1.0), (0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1.0)],
)
def test_wilson_intervals_are_those_of_the_literature(found: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(found, trials) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(0, 500), st.integers(0, 500))
def test_an_interval_holds_the_rate_and_is_symmetric(found: int, missed: int) -> None:
    trials = found + missed
    low, high = wilson_interval(found, trials)
    rate = found / trials if trials else 0.5
    assert 0 <= low <= rate + 1e-12
    assert rate - 1e-12 <= high <= 1
    assert wilson_interval(missed, trials) == pytest.approx((1 - high, 1 - low))


def test_more_found_than_tried_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        wilson_interval(3, 2)


def test_a_row_names_the_bugs_own_anomaly_first() -> None:
    rows = Measured(
        bug=BUG,
        trials=[
            trial(0, seconds=1.0, anomalies=("duplicate", "lost-write")),
            trial(1, seconds=3.0, anomalies=("duplicate", "lost-write")),
            trial(2, seconds=60.0),
        ],
        shrunk=[1, 2, 3],
    )
    assert rows.rate == pytest.approx(2 / 3)
    assert markdown([rows]).splitlines()[2] == (
        "| 99 | KAFKA-99 | 2 of 3 | 21-94 | 2.0 | 4 | 2 | `lost-write`, `duplicate` |"
    )


def test_a_bug_that_was_not_found_has_no_median() -> None:
    row = Measured(bug=BUG, trials=[trial(0, seconds=60.0)])
    assert markdown([row]).splitlines()[2] == ("| 99 | KAFKA-99 | 0 of 1 | 0-79 | none | none | none | none |")


def test_a_page_keeps_what_stands_around_the_table_and_rows_that_were_not_measured(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    rest = "| x | 1 of 1 | 21-100 | 1.0 | 1 | 1 | `lost-write` |"
    page.write_text(f"before\n{SIMULATED[0]}\n| 99 {rest}\n| 100 {rest}\n| 7 {rest}\n{SIMULATED[1]}\nafter\n")
    measured = Measured(bug=BUG, trials=[trial(0, seconds=60.0)])
    write_into(page, [measured])
    *head, new = markdown([measured]).splitlines()
    table = "\n".join([*head, f"| 7 {rest}", new, f"| 100 {rest}"])
    assert page.read_text() == f"before\n{SIMULATED[0]}\n\n{table}\n\n{SIMULATED[1]}\nafter\n"


@pytest.mark.parametrize(
    "text", [None, "", f"{SIMULATED[1]}\n{SIMULATED[0]}\n", f"{SIMULATED[0]}\n{SIMULATED[0]}\n{SIMULATED[1]}\n"]
)
def test_a_page_without_a_place_is_an_error_and_stays_as_it_is(tmp_path: Path, text: str | None) -> None:
    page = tmp_path / "zoo.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(ConfigError, match="add the two lines"):
        write_into(page, [])
    assert (page.read_text() if page.exists() else None) == text


def test_a_page_has_a_table_of_simulations_and_one_of_real_processes(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    page.write_text("\n".join((*SIMULATED, *ON_PROCESSES)) + "\n")
    found = Measured(bug=BUG, trials=[trial(0, seconds=1.0)])
    write_into(page, [found], ON_PROCESSES)
    table = markdown([found])
    first, last = ON_PROCESSES
    expected = "\n".join((*SIMULATED, first, "", table, "", last))
    assert page.read_text() == f"{expected}\n"


def test_each_bug_has_its_own_number_and_module() -> None:
    assert len({bug.number for bug in ZOO}) == len({bug.name for bug in ZOO}) == len(ZOO)
    for bug in ZOO:
        assert bug_named(str(bug.number)) is bug_named(bug.name) is bug


def test_an_unknown_bug_is_named_with_one_that_resembles_it() -> None:
    with pytest.raises(ConfigError, match="did you mean kip_101"):
        bug_named("kip101")
