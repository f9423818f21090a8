"""High watermarks, last stable offsets and latest offsets over time: what is legal, and what is found (L2, L6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from oracle_of_watermarks import watermark_regressions
from watermark_histories import FETCHED, LISTED, Row, anomalies_of, kernels_find, row

LEGAL: dict[str, list[Row]] = {
    "a high watermark that rises": [row(10, 1, 5), row(20, 1, 5), row(30, 1, 9)],
    "two responses at the same time": [row(10, 1, 9, lasts=20), row(20, 1, 5, lasts=20)],
    "a response that was sent when the next request was read": [row(10, 1, 9, lasts=10), row(20, 1, 5)],
    "a Fetch of a new leader that is behind": [row(10, 1, 9), row(20, 2, 5, node=2)],
    "a listing of a new leader": [row(10, 1, 9, kind=LISTED), row(20, 2, 9, node=2, kind=LISTED)],
    "a leader that was deposed and lists what it knows": [
        row(10, 2, 9, kind=LISTED),
        row(20, 1, 5, node=2, kind=LISTED),
    ],
    "readers of committed data see less": [
        row(10, 1, 9),
        row(20, 1, -1, stable=9, kind=LISTED),
        row(30, 1, 9, kind=LISTED),
    ],
    "a topic that was created again": [row(10, 3, 9, topic_id=70), row(20, 3, 0, topic_id=71)],
}
WRONG: dict[str, tuple[list[Row], str, tuple[int, int]]] = {
    "a high watermark goes back": ([row(10, 1, 9), row(20, 1, 5, stable=9)], "high-watermark-regression", (5, 9)),
    "a listing is below a fetch": ([row(10, 1, 9), row(20, 1, 5, kind=LISTED)], "high-watermark-regression", (5, 9)),
    "a last stable offset goes back": ([row(10, 1, 9, stable=8), row(20, 1, 9, stable=4)], "lso-regression", (4, 8)),
    "a log start offset goes back": ([row(10, 1, 9, start=6), row(20, 1, 9, start=2)], "log-start-regression", (2, 6)),
    "a new leader lists less than was fetched": (
        [row(10, 1, 9), row(20, 2, 5, node=2, kind=LISTED)],
        "end-offset-regression",
        (5, 9),
    ),
    "a new leader lists less committed data": (
        [row(10, 1, -1, stable=9, kind=LISTED), row(20, 4, -1, stable=5, node=2, kind=LISTED)],
        "end-offset-regression",
        (5, 9),
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_history_has_no_anomaly(name: str) -> None:
    assert anomalies_of(kernels_find(LEGAL[name])) == set()
    assert watermark_regressions(LEGAL[name]) == set()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_has_its_anomaly(name: str) -> None:
    rows, anomaly, offsets = WRONG[name]
    assert anomalies_of(kernels_find(rows)) == {(anomaly, offsets)}
    assert watermark_regressions(rows) == {(anomaly, offsets)}


def test_after_an_unclean_election_a_lower_latest_offset_is_legal() -> None:
    rows = [row(10, 1, 9), row(20, 3, 5, node=2, kind=LISTED)]
    assert anomalies_of(kernels_find(rows, (2,))) == watermark_regressions(rows, (2,)) == set()
    earlier = (1,)
    assert anomalies_of(kernels_find(rows, earlier)) == {("end-offset-regression", (5, 9))}


def test_a_regression_is_counted_once_for_each_larger_offset() -> None:
    rows = [row(10, 1, 9), row(20, 1, 5), row(30, 1, 5), row(40, 1, 7), row(50, 1, 12), row(60, 1, 11)]
    found = kernels_find(rows)
    assert found.anomaly_counts["high-watermark-regression"] == 2
    first = found.result().anomalies[0]
    assert "said the high watermark 5 in a Fetch response, after it had said 9" in str(first.explanation)
    assert [said["invoked_ns"] for said in first.operations] == [10, 20]


OFFSETS = st.integers(0, 4)
SAID: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([FETCHED, FETCHED, LISTED]),
        "client": st.just(0),
        "leader_epoch": st.integers(0, 3),
        "topic_id": st.sampled_from([0, 0, 0, 0, 7, 8]),
        "high_watermark": st.one_of(OFFSETS, st.just(-1)),
        "last_stable_offset": st.one_of(OFFSETS, st.just(-1)),
        "log_start_offset": st.one_of(OFFSETS, st.just(-1)),
        "invoked_ns": st.integers(1, 12),
        "lasts": st.integers(0, 4),
        "node": st.integers(1, 2),
    }
).map(lambda said: {**said, "completed_ns": said["invoked_ns"] + said["lasts"]})


@examples(133, 400)
@given(rows=st.lists(SAID, max_size=9), unclean=st.lists(st.integers(0, 3), max_size=2))
def test_kernels_find_the_same_regressions_as_the_oracle(rows: list[Row], unclean: list[int]) -> None:
    given_rows = [{name: said[name] for name in said if name != "lasts"} for said in rows]
    found = anomalies_of(kernels_find(given_rows, tuple(unclean)))
    assert found == watermark_regressions(given_rows, unclean)
