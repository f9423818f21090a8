"""The checks of topics on odd records: missing fields, unreadable values, removed records and empty topics (L5, L6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harrow import Record
from harrow.cluster.errors import ConfigError
from harrow.harness import run_folder
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.histories import contents
from harrow.harness.histories.contents import ContentsError, read_contents
from harrow.harness.promises.chunk_records import rows_of_table
from harrow.harness.promises.topic_promise import TopicPromise
from harrow.harness.promises.topic_results import judge_topics
from promised_runs import TOPIC, PromisedRun


def field(name: str) -> Callable[[Record], Any]:
    """A function of a user that returns None for records without the field."""
    return lambda record: record.get(name)


@pytest.fixture
def run(tmp_path: Path) -> PromisedRun:
    return PromisedRun(tmp_path / "run")


def judged(run: PromisedRun, spark: SparkHandle | None = None, **given: Any) -> PromiseFindings:
    arguments = {"guarantee": "exactly-once", "record_id": "order", "expected": None, "order_key": None}
    promise = TopicPromise.of(**{**arguments, **given})
    assert promise is not None
    engine: Any = {"engine": "inline"} if spark is None else {"spark": spark}
    return judge_topics(run.write(), [TOPIC], promise, **engine)


def test_contents_keep_every_field_in_bounded_chunks(run: PromisedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "CHUNK_ROWS", 1)
    run.record({"a": 1}, key="k", headers=[("trace", b"\x01"), ("none", None)])
    run.record(None, key=None, partition=2)
    (chunk,) = read_contents(run.write() / run_folder.DRAIN).chunks
    first, second = rows_of_table(chunk.topic, chunk.table()).records()
    assert (first.partition, first.offset, first.key, first.value) == (0, 0, b"k", b'{"a": 1}')
    assert first.headers == (("trace", b"\x01"), ("none", None))
    assert first["a"] == 1
    assert (second.place, second.key, second.value, second.headers) == ("orders-2@0", None, None, ())
    assert second.timestamp_ms == 1_700_000_000_000


def test_without_a_complete_final_read_there_is_nothing_to_judge(tmp_path: Path) -> None:
    with pytest.raises(ContentsError, match="could not be read completely"):
        read_contents(tmp_path)


@pytest.mark.parametrize("on_spark", [True, False])
def test_records_without_the_field_are_named_and_make_the_verdict_unknown(
    run: PromisedRun, spark: SparkHandle, on_spark: bool
) -> None:
    run.record({"order": 1})
    run.record({"ordre": 2}, partition=1)
    run.record(b"no json", partition=1)
    run.record(None, partition=2)
    run.record({"order": None})
    findings = judged(run, spark if on_spark else None, expected=[1])
    assert not findings.anomaly_counts
    (reason,) = findings.reasons
    assert reason.startswith("record_id= could not be read from 4 records of orders: ")
    assert "no such field in orders-1@0" in reason
    assert "orders-1@1 is not JSON" in reason
    assert "orders-2@0 has no value (a tombstone)" in reason


def test_records_whose_id_cannot_be_read_may_be_the_missing_ones(run: PromisedRun) -> None:
    run.record({"order": 1})
    run.record({"ordre": 2})
    withheld = judged(run, expected=[1, 2])
    assert not withheld.anomaly_counts
    assert "the id of 1 record could not be read" in withheld.doubts["missing"]
    certain = judged(run, expected=[1, 2, 3])
    assert certain.anomaly_counts == {"missing": 2}
    assert "up to 1 of the 2 missing records" in certain.notes[0]


def test_removed_records_are_a_doubt_about_everything_but_what_was_found(run: PromisedRun) -> None:
    run.record({"order": 1})
    run.remove(2)
    run.record({"order": 1})
    findings = judged(run, expected=[1, 2], guarantee="exactly-once, ordered")
    assert findings.anomaly_counts == {"duplicate": 1}
    assert set(findings.doubts) == {"missing", "duplicate", "unexpected", "out-of-order", "split-key"}
    assert "orders-0 (log start offset 0, high watermark 4, 2 records)" in findings.doubts["duplicate"]
    assert findings.doubts_about(frozenset({"duplicate", "unexpected"})) == [findings.doubts["duplicate"]]


def test_a_function_may_say_that_a_record_is_none_of_the_applications(run: PromisedRun) -> None:
    run.record({"heartbeat": True})
    run.record({"order": 1})
    findings = judged(run, record_id=field("order"), expected=[1])
    assert not findings.reasons
    assert list(findings.notes) == ["record_id= returned None for 1 record, which were not judged by an id"]
    nothing = judged(run, record_id=field("ordre"))
    assert nothing.reasons == ["record_id= returned None for all 2 records: no record was judged by its id"]


def test_nothing_believed_and_nothing_there_are_reasons(run: PromisedRun) -> None:
    findings = judged(run, expected=[])
    assert findings.reasons == [
        "expected= is empty: the application believes that it sent nothing",
        "topic orders is empty: it has no record that could be judged",
    ]
    lost = judged(run, expected=[1])
    assert lost.anomaly_counts == {"missing": 1}, "the application believes that it sent a record"


def test_ids_are_compared_as_text_whatever_their_types_are(run: PromisedRun) -> None:
    for order in (1, "2", 3.0, "ü€", [1, "a"], "\ud800"):
        run.record({"order": order})
    findings = judged(run, expected=["1", 2, b"3", "ü€", ("1", "a"), "\ud800"])
    assert not findings.anomaly_counts
    assert findings.operation_counts["matched"] == 6


def test_keys_are_judged_as_they_are_and_records_without_key_have_no_order(run: PromisedRun) -> None:
    for partition, key in enumerate([None, None, b"\xff\xfe"]):
        run.record({"order": partition}, key=key, partition=partition)
    assert not judged(run, guarantee="ordered").anomaly_counts
    run.record({"order": 3}, key=b"\xff\xfe", partition=1)
    run.record({"order": 4}, key=b"", partition=0)
    run.record({"order": 5}, key=b"", partition=1)
    findings = judged(run, guarantee="ordered")
    assert findings.anomaly_counts == {"split-key": 2}
    shown = findings.anomalies[0]
    assert shown.explanation == (
        "the records of key  are in 2 partitions of orders, so they have no order: orders-0@1, orders-1@2"
    )
    assert findings.anomalies[1].operations[0]["key"] == "0xfffe"


def test_an_order_key_may_be_a_field_that_not_every_record_has(run: PromisedRun) -> None:
    run.record({"order": 1, "account": "a"}, partition=0)
    run.record({"order": 2, "account": "a"}, partition=1)
    run.record({"order": 3}, partition=1)
    by_path = judged(run, record_id=None, guarantee=None, order_key="account")
    assert by_path.anomaly_counts == {"split-key": 1}
    assert "order_key= could not be read from 1 record of orders" in by_path.reasons[0]
    assert by_path.demands == {"ordered": "order_key= says which records have an order"}
    by_function = judged(run, record_id=None, guarantee=None, order_key=field("account"))
    assert by_function.anomaly_counts == {"split-key": 1}
    assert not by_function.reasons


def test_a_pair_out_of_order_is_shown_with_both_records(run: PromisedRun) -> None:
    for order in (1, 3, 2):
        run.record({"order": order}, key="c-1")
    (shown,) = judged(run, guarantee="ordered", expected=[1, 2, 3]).anomalies
    assert shown.explanation == (
        "order 2 was sent before order 3 of the same key c-1, but is after it in the log: orders-0@2, after orders-0@1"
    )
    assert [(row["record_id"], row["offset"], row["key"]) for row in shown.operations] == [
        ("3", 1, "c-1"),
        ("2", 2, "c-1"),
    ]
    assert not judged(run, guarantee="ordered", expected={1, 2, 3}).anomaly_counts


def test_only_the_first_anomalies_are_shown_and_all_are_counted(run: PromisedRun) -> None:
    for order in range(30):
        run.record({"order": order}, partition=order % 3)
        run.record({"order": order}, partition=order % 3)
    findings = judged(run)
    assert findings.anomaly_counts == {"duplicate": 30}
    shown = [(anomaly.partition, anomaly.offsets) for anomaly in findings.anomalies]
    assert shown == [(0, [n, n + 1]) for n in range(0, 20, 2)] + [(1, [n, n + 1]) for n in range(0, 20, 2)]


def raising(record: Record) -> object:
    return {"one": 1}[str(record["order"])]


def test_an_exception_of_a_function_is_reported_with_the_record(run: PromisedRun, spark: SparkHandle) -> None:
    run.record({"order": 7}, key="c-1")
    (reason,) = judged(run, spark, record_id=raising).reasons
    assert reason == (
        "record_id= could not be read from 1 record of orders: record_id= raised KeyError('7') on "
        'orders-0@0 key=c-1 value={"order": 7}'
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"expected": [1]}, "expected= needs record_id="),
        ({"record_id": ""}, "record_id=''"),
        ({"order_key": 7}, "order_key=7"),
        ({"record_id": "a", "expected": "abc"}, "expected='abc'"),
    ],
)
def test_wrong_arguments_are_refused_with_the_remedy(given: dict[str, Any], said: str) -> None:
    none = {"guarantee": None, "record_id": None, "expected": None, "order_key": None}
    with pytest.raises(ConfigError, match=said):
        TopicPromise.of(**{**none, **given})


def test_without_arguments_and_without_order_there_is_no_promise() -> None:
    none: dict[str, Any] = {"record_id": None, "expected": None, "order_key": None}
    assert TopicPromise.of(guarantee=None, **none) is None
    assert TopicPromise.of(guarantee="exactly-once", **none) is None
    ordered = TopicPromise.of(guarantee="exactly-once, ordered", **none)
    assert ordered is not None
    assert ordered.judges_order
