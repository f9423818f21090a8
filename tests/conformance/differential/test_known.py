"""The rows of known differences: when a row explains a difference, and that the page has the table of the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from .cases import Case, Step
from .known import DATA, PAGE, Known, known_differences, page_with, table, unexplained
from .normal import Difference, differences

ROW = Known(
    request="Produce", versions="3-7", field="responses.partitions.errorCode", kafka="-1 or 2", harrow="87", reason="r"
)
FOUND = Difference(
    step=1, api="Produce", version=5, role="target", path="responses.partitions.errorCode", kafka=2, harrow=87
)


@pytest.mark.parametrize(
    ("changed", "explained"),
    [
        ({}, True),
        ({"kafka": -1}, True),
        ({"kafka": 3}, False),
        ({"harrow": 0}, False),
        ({"version": 8}, False),
        ({"api": "Fetch"}, False),
        ({"path": "responses.partitions.baseOffset"}, False),
    ],
)
def test_a_row_explains_its_request_versions_field_and_values_only(changed: dict[str, Any], explained: bool) -> None:
    assert ROW.explains(replace(FOUND, **changed)) is explained
    assert bool(unexplained([replace(FOUND, **changed)], [ROW])) is not explained


def test_a_star_stands_for_any_value_and_for_the_end_of_a_field() -> None:
    row = replace(ROW, request="*", versions="0+", field="responses.*", kafka="*", harrow="*")
    assert row.explains(replace(FOUND, kafka={"name": "a"}, harrow=None))
    assert not row.explains(replace(FOUND, path="topics.errorCode"))


def test_a_list_in_braces_stands_for_each_of_its_names_and_no_other(tmp_path: Path) -> None:
    data = tmp_path / "rows.toml"
    text = (
        '[names]\nsome = ["a.b", "c"]\n[[difference]]\nrequest = "*"\nversions = "0+"\nfield = "configs.{some}"\n'
        'kafka = "*"\nharrow = "*"\nreason = "r"\n'
    )
    data.write_text(text)
    (row,) = known_differences(data)
    paths = ("configs.a.b", "configs.c", "configs.a", "configs.a.b.value", "configs.", "a.b")
    assert [row.explains(replace(FOUND, path=path)) for path in paths] == [True, True, *[False] * 4]
    assert table([row]).endswith("\n\n`{some}`: `a.b`, `c`.")
    data.write_text(text.replace("{some}", "{other}"))
    with pytest.raises(ValueError, match="a list that"):
        known_differences(data)


def test_a_row_without_a_column_is_refused_by_name(tmp_path: Path) -> None:
    data = tmp_path / "rows.toml"
    data.write_text('[[difference]]\nrequest = "Fetch"\n')
    with pytest.raises(ValueError, match=r"rows.toml: row .*Fetch.* has the columns"):
        known_differences(data)


def test_the_page_has_the_table_of_the_rows() -> None:
    rows = known_differences(DATA)
    assert len(rows) == len(set(rows)) > 0
    assert all(len(row.reason) > 10 for row in rows)
    page = PAGE.read_text()
    remedy = "write the page: PYTHONPATH=tests/conformance:tests/support .venv/bin/python -m differential.known"
    assert page == page_with(page, rows), remedy


def test_an_assignment_is_the_assignors_choice_only_among_several_members() -> None:
    def differing(*members: str) -> list[str]:
        body = {"groupId": "g%", "memberEpoch": 0}
        steps = [
            Step(api="ConsumerGroupHeartbeat", version=1, role="target", body={**body, "memberId": each})
            for each in members
        ]
        case = Case(steps=tuple(steps))
        theirs, ours = (
            {"outcome": "response", "memberEpoch": epoch, "assignment": {"topicPartitions": [{"partitions": [number]}]}}
            for number, epoch in ((0, 1), (1, 2))
        )
        found = differences(case, [theirs] * len(steps), [ours] * len(steps))
        return sorted({each.path for each in unexplained(found, known_differences())})

    assert differing("a", "a") == ["assignment.topicPartitions.partitions", "memberEpoch"]
    assert differing("a", "b") == ["memberEpoch"]
