"""Checks of an extension: groups on Spark, findings, doubts, and their place in a verdict (J4, L5, L6)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from added_extensions import added
from harrow import AnomalyKind, Finding, Record, RecordCheck
from harrow.cluster.errors import ConfigError
from harrow.harness.checks import SparkHandle, Status, Verdict, judge
from harrow.harness.checks.guarantees import added_checks, checks_for, parse
from harrow.harness.checks.known_anomalies import described, rank
from harrow.harness.checks.promise_findings import PromiseFindings, read_findings, write_findings
from harrow.harness.checks.rows import AnomalyRow
from harrow.harness.checks.verdict_text import summary_line
from harrow.harness.promises import join
from harrow.harness.promises.check_join import judge_checks, with_findings
from harrow.harness.reports.findings import verdict_model
from judged_runs import RunFolder
from promised_runs import TOPIC, PromisedRun

TWICE = AnomalyKind(
    name="billed-twice",
    singular="order has more bills than one",
    plural="orders have more bills than one",
    after="duplicate",
)


class BilledOnce(RecordCheck):
    """Finds orders with several bills."""

    guarantee: ClassVar[str] = "billed-once"
    anomalies: ClassVar[Sequence[AnomalyKind]] = (TWICE,)

    def group(self, record: Record) -> Any:
        return record.get("order")

    def findings(self, group: str, records: Sequence[Record]) -> Iterable[Finding]:
        if len(records) > 1:
            offsets = [record.offset for record in records]
            yield Finding(
                anomaly="billed-twice", explanation=f"order {group}: {offsets}", records=records, count=len(records) - 1
            )


class Always(BilledOnce):
    """Judges every run."""

    guarantee: ClassVar[str] = "always-billed-once"
    always: ClassVar[bool] = True


class Raises(BilledOnce):
    """Fails in a task."""

    def group(self, record: Record) -> Any:
        return record["no such field"]


class RaisesLater(BilledOnce):
    """Fails in a task for one group."""

    def findings(self, group: str, records: Sequence[Record]) -> Iterable[Finding]:
        yield from super().findings(group, records)
        if group == "3":
            raise KeyError("three")


class FindsStrangeThings(BilledOnce):
    """Names an anomaly that it does not have."""

    def findings(self, group: str, records: Sequence[Record]) -> Iterable[Finding]:
        yield Finding(anomaly="lost-write", explanation="?")


@pytest.fixture(autouse=True)
def extension() -> Iterator[None]:
    with added(harrow_checks=lambda: [BilledOnce()]):
        yield


@pytest.fixture
def billed(tmp_path: Path) -> PromisedRun:
    """Orders 1 to 5 in two partitions; order 2 has three bills and order 3 has two."""
    run = PromisedRun(tmp_path / "run")
    for order, partition in ((1, 0), (2, 0), (2, 1), (3, 0), (3, 0), (4, 1), (5, 2), (2, 0)):
        run.record({"order": order}, partition=partition)
    run.record({"remark": "no order"})
    return run


def found(run: PromisedRun, check: RecordCheck | None = None, **given: Any) -> PromiseFindings:
    chosen = check or BilledOnce()
    arguments: dict[str, Any] = {"engine": "inline", **given}
    return judge_checks(run.write(), [TOPIC], {chosen.guarantee: chosen}, **arguments)


def test_records_of_a_group_are_judged_together_across_partitions(billed: PromisedRun) -> None:
    findings = found(billed)
    assert findings.anomaly_counts == {"billed-twice": 3}
    assert findings.operation_counts == {"records_judged_by_billed-once": 8}
    assert findings.reasons == []
    assert findings.added_guarantees == {"billed-once": ("billed-twice",)}
    shown = {row.explanation: row for row in findings.anomalies}
    assert set(shown) == {"order 2: [1, 4, 0]", "order 3: [2, 3]"}
    assert (shown["order 3: [2, 3]"].topic, shown["order 3: [2, 3]"].partition) == (TOPIC, 0)
    assert shown["order 2: [1, 4, 0]"].partition == -1
    (first, *_) = shown["order 3: [2, 3]"].operations
    assert (first["value"], first["record_id"], first["offset"]) == ('{"order": 3}', "3", 2)


def test_spark_finds_the_same_in_one_task_and_in_several(
    billed: PromisedRun, spark: SparkHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = found(billed)
    assert found(billed, engine="spark", spark=spark) == local
    monkeypatch.setattr(join, "TASK_ROWS", 1)
    monkeypatch.setattr(join, "BUCKET_ROWS", 2)
    assert found(billed, engine="spark", spark=spark) == local


def test_only_the_first_findings_leave_the_tasks_but_all_are_counted(tmp_path: Path) -> None:
    run = PromisedRun(tmp_path / "run")
    for order in range(50):
        run.record({"order": order})
        run.record({"order": order})
    findings = found(run, limit=4)
    assert findings.anomaly_counts == {"billed-twice": 50}
    assert len(findings.anomalies) == 4


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (Raises(), "the check billed-once failed 9 times: group() raised KeyError('no such field')"),
        (RaisesLater(), "the check billed-once failed 1 time: findings() raised KeyError('three') on the group 3"),
        (FindsStrangeThings(), "the check has no anomaly 'lost-write'; it has billed-twice"),
    ],
)
def test_a_check_that_fails_is_a_reason(billed: PromisedRun, check: RecordCheck, said: str) -> None:
    findings = found(billed, check)
    (reason,) = findings.reasons
    assert said in reason
    assert "lost-write" not in findings.anomaly_counts


def test_a_check_that_met_no_record_is_a_reason(tmp_path: Path) -> None:
    run = PromisedRun(tmp_path / "run")
    run.record({"remark": "no order"})
    assert found(run).reasons == ["the check billed-once found no record to judge in orders"]


def test_records_that_were_removed_are_a_reason(billed: PromisedRun) -> None:
    billed.remove(3)
    (reason,) = found(billed).reasons
    assert "the check billed-once cannot judge 3 records that retention" in reason


# ------------------------------------------------------------------------------------ the verdict


FOUND = PromiseFindings(
    anomaly_counts={"billed-twice": 2},
    anomalies=[
        AnomalyRow(name="billed-twice", topic="bills", partition=0, offsets=[1, 2], explanation="order 2 has two bills")
    ],
    added_guarantees={"billed-once": ("billed-twice",)},
)


def verdict_with(run: RunFolder, guarantee: str | None, findings: PromiseFindings | None) -> Verdict:
    """Judge a run in which nothing else is wrong."""
    run.producer(acks=-1, idempotent=False)
    for offset, value in enumerate("abc"):
        run.send(value, offset)
        run.read(value, offset)
    run.final(dict(enumerate("abc")))
    folder = run.done()
    return judge(folder, topics=["orders"], guarantee=guarantee, engine="inline", promised=findings)


def test_a_finding_makes_the_verdict_invalid_in_every_output(run: RunFolder) -> None:
    verdict = verdict_with(run, "no-loss, billed-once", FOUND)
    assert verdict.status is Status.INVALID
    assert verdict.anomalies[0].explanation == "order 2 has two bills"
    raw = json.loads((run.folder / "verdict.json").read_text())
    page = verdict_model(raw)
    assert page is not None
    assert page["kinds"][0]["text"] == "2 orders have more bills than one (billed-twice)"
    assert not page["kinds"][0]["allowed"]


def test_a_check_of_every_run_is_a_guarantee_of_the_verdict(run: RunFolder) -> None:
    verdict = verdict_with(run, None, FOUND)
    assert verdict.guarantees == ("no-loss", "billed-once")
    assert verdict.status is Status.INVALID


def test_a_check_that_found_nothing_lets_the_verdict_be_valid(run: RunFolder) -> None:
    nothing = replace(FOUND, anomaly_counts={}, anomalies=[])
    assert verdict_with(run, "no-loss, billed-once", nothing).valid


def test_a_guarantee_whose_check_did_not_run_is_unknown(run: RunFolder) -> None:
    verdict = verdict_with(run, "no-loss, billed-once", None)
    assert verdict.status is Status.UNKNOWN
    assert "billed-once could not be judged: its check runs when a test calls verify()" in str(verdict)


def test_the_words_and_the_severity_of_an_anomaly_are_those_of_the_extension() -> None:
    assert described("billed-twice", 1) == "1 order has more bills than one (billed-twice)"
    assert described("billed-twice", 2) == "2 orders have more bills than one (billed-twice)"
    assert rank("duplicate") < rank("billed-twice") < rank("duplicate-output")


def test_a_guarantee_of_an_extension_is_known_while_it_is_there() -> None:
    assert parse("no-loss, billed-once") == ["no-loss", "billed-once"]
    with pytest.raises(ConfigError, match=r"unknown guarantee 'billed-twice'; use .*, billed-once"):
        parse("billed-twice")
    assert list(checks_for("no-loss")) == []
    assert list(checks_for(None)) == []
    assert list(checks_for("billed-once")) == ["billed-once"]


def test_the_verdict_text_says_which_guarantee_is_broken_also_without_the_extension() -> None:
    verdict = Verdict(
        status=Status.INVALID,
        guarantees=("no-loss", "billed-once"),
        anomaly_counts={"billed-twice": 2},
        added_guarantees={"billed-once": ("billed-twice",)},
    )
    text = str(Verdict.from_json(verdict.to_json()))
    assert text.startswith("INVALID: billed-once does not hold; judged: no-loss, billed-once")
    assert "2 orders have more bills than one (billed-twice)" in text
    assert "allows this" not in text
    assert "invalid (no-loss, billed-once) · 2 orders have" in summary_line(verdict)


def test_an_older_verdict_file_is_read() -> None:
    old = json.loads(Verdict(status=Status.VALID, guarantees=("no-loss",)).to_json())
    del old["added_guarantees"]
    assert Verdict.from_json(json.dumps(old)).added_guarantees == {}


def test_findings_of_checks_join_those_of_promises_and_are_kept(tmp_path: Path) -> None:
    promised = PromiseFindings(anomaly_counts={"missing": 1}, replaces=frozenset({"duplicate"}), reasons=["a"])
    merged = with_findings(promised, replace(FOUND, reasons=["b"]))
    assert merged.anomaly_counts == {"missing": 1, "billed-twice": 2}
    assert merged.reasons == ["a", "b"]
    assert merged.replaces == {"duplicate"}
    write_findings(tmp_path, ["orders"], merged)
    again = read_findings(tmp_path, ["orders"])
    assert again is not None
    assert {name: tuple(kinds) for name, kinds in again.added_guarantees.items()} == FOUND.added_guarantees


# ------------------------------------------------------------------------------ checks that are wrong


class NoAnomalies(BilledOnce):
    anomalies: ClassVar[Sequence[AnomalyKind]] = ()


class OwnName(BilledOnce):
    anomalies: ClassVar[Sequence[AnomalyKind]] = (AnomalyKind(name="missing", singular="a", plural="b"),)


class OddName(BilledOnce):
    guarantee: ClassVar[str] = "Billed once"


class AfterNothing(BilledOnce):
    anomalies: ClassVar[Sequence[AnomalyKind]] = (replace(TWICE, name="billed-thrice", after="no-such"),)


class OwnGuarantee(BilledOnce):
    guarantee: ClassVar[str] = "no-loss"
    anomalies: ClassVar[Sequence[AnomalyKind]] = (replace(TWICE, name="billed-thrice"),)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (BilledOnce, "is not an instance of a subclass of RecordCheck"),
        (NoAnomalies(), "NoAnomalies.anomalies is (), expected AnomalyKind values"),
        (OwnName(), "the anomaly 'missing' of OwnName: expected a name such as 'billed-twice' that is new"),
        (OddName(), "OddName.guarantee is 'Billed once', expected a name such as 'billed-once'"),
        (AfterNothing(), "is after 'no-such', which is no anomaly of Harrow"),
        (OwnGuarantee(), "adds 'no-loss' by harrow_checks(), which Harrow has already"),
        (Always(), "the anomaly 'billed-twice' is also found by the check 'billed-once'"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_a_check_that_cannot_be_used_is_refused_with_the_reason(check: Any, said: str) -> None:
    with added(harrow_checks=lambda: [check]), pytest.raises(ConfigError) as error:
        added_checks()
    assert said in str(error.value)
