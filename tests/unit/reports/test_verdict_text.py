"""The text of a verdict, as a user reads it under a failed test: golden texts, and bounds for any content (L6)."""

from __future__ import annotations

from typing import cast

import pytest
from harrow.harness.checks.anomaly_kinds import SEVERITY
from harrow.harness.checks.guarantees import ALL_ANOMALIES, FORBIDDEN, SIMULATED
from harrow.harness.checks.known_anomalies import described
from harrow.harness.checks.rows import OperationRow
from harrow.harness.checks.verdict import Anomaly, Status, Verdict
from harrow.harness.checks.verdict_text import TEXT_MOST, kinds_by_severity, summary_line

START_NS = 7_000_000_000_000


def at(seconds: float) -> int:
    return START_NS + round(seconds * 1e9)


def send(order: int, sent_s: float, offset: int) -> OperationRow:
    return {
        "operation": "send",
        "outcome": "ok",
        "client": "shop@412.1",
        "op": order,
        "offset": offset,
        "key_hash": "00",
        "value_hash": "01",
        "key": f"order-{order}",
        "value": f'{{"order": {order}}}',
        "invoked_ns": at(sent_s),
        "completed_ns": at(sent_s + 0.01),
        "timestamp_ms": 1_700_000_000_000,
    }


LOST = Anomaly(
    name="lost-write",
    topic="orders",
    partition=0,
    offsets=(194,),
    operations=(send(81, 0.40, 194),),
    explanation="a record was acknowledged at offset 194, but no replica has it",
)
FINAL: OperationRow = {
    "operation": "final read",
    "key": "order-71",
    "value": '{"order": 71}',
    "client": "harrow-drain",
}
TWICE = Anomaly(
    name="duplicate",
    topic="orders",
    partition=0,
    offsets=(70, 71),
    operations=(
        send(71, 0.26, 71),
        {**FINAL, "offset": 70},
        {**FINAL, "offset": 71},
    ),
    explanation="a record was sent once, but the log has it 2 times",
)
CAUSE = (
    "broker 3 was isolated from 0.14 s to 4.16 s; with acks=1 it acknowledged 31 records of orders-0 from 0.40 s to "
    "4.10 s; broker 2 became leader in leader epoch 1 at 1.78 s without them"
)
INVALID = Verdict(
    status=Status.INVALID,
    guarantees=("exactly-once",),
    operation_counts={"acknowledged": 1_204, "read": 0, "drained": 1_174},
    anomaly_counts={"duplicate": 1, "lost-write": 31},
    anomalies=(TWICE, LOST),
    causes={"lost-write": (CAUSE,)},
    notes=("1 response did not reach the producer",),
    started_ns=START_NS,
)


def test_an_invalid_verdict_shows_the_worst_kind_first_with_cause_and_decoded_example() -> None:
    expected = """\
INVALID: exactly-once does not hold
  31 records were acknowledged or read, and are not in the topic any more (lost-write)
    cause: broker 3 was isolated from 0.14 s to 4.16 s; with acks=1 it acknowledged 31 records of orders-0 \
from 0.40 s to 4.10 s; broker 2 became leader in leader epoch 1 at 1.78 s without them
    example in orders-0, offset 194: a record was acknowledged at offset 194, but no replica has it
      sent at 0.40 s, acknowledged at 0.41 s: offset 194, key=order-81, value={"order": 81}, client shop@412.1
  1 record is in the topic more often than it was sent (duplicate)
    example in orders-0, offsets 70, 71: a record was sent once, but the log has it 2 times
      sent at 0.26 s, acknowledged at 0.27 s: offset 71, key=order-71, value={"order": 71}, client shop@412.1
      in the final read: offset 70, key=order-71, value={"order": 71}
      in the final read: offset 71, key=order-71, value={"order": 71}
  note: 1 response did not reach the producer
  judged 1,204 records acknowledged, 1,174 records in the final read"""
    assert str(INVALID) == expected
    assert summary_line(INVALID) == (
        "invalid (exactly-once) · 31 records were acknowledged or read, and are not in the topic any more "
        "(lost-write), and 1 other kind of anomaly · 1,204 records acknowledged"
    )


def test_anomalies_of_promises_show_record_ids_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    promised = FORBIDDEN["no-loss"] | {"missing", "commit-before-output"}
    monkeypatch.setitem(FORBIDDEN, "no-loss", promised)
    missing = Anomaly(
        name="missing",
        topic="orders",
        partition=-1,
        offsets=(),
        explanation="order 17 is in no partition",
        operations=({"operation": "expected", "record_id": "17", "value": '{"order": 17}'},),
    )
    commit: OperationRow = {"operation": "commit", "group": "billing", "topic": "orders", "partition": 1, "offset": 240}
    early = Anomaly(
        name="commit-before-output",
        topic="orders",
        partition=1,
        offsets=(239,),
        records=31,
        operations=(
            {"operation": "record", "topic": "orders", "partition": 1, "offset": 239, "key": "order-9", "value": "{}"},
            {**commit, "completed_ns": at(1.3)},
        ),
        explanation="the offset of the input was committed, and it has no output",
    )
    verdict = Verdict(
        status=Status.INVALID,
        guarantees=("no-loss", "best-effort"),
        anomaly_counts={"commit-before-output": 31, "missing": 1},
        anomalies=(early, missing),
        started_ns=START_NS,
        operation_counts={"records_acknowledged_on_the_wire": 3_450},
    )
    assert (
        str(verdict)
        == """\
INVALID: no-loss does not hold; judged: no-loss, best-effort
  1 record that the application counts as sent is not in the topic (missing)
    example in orders: order 17 is in no partition
      expected: value={"order": 17}, record id 17
  31 input records were committed before their outputs were written (commit-before-output)
    example in orders-1, offset 239: the offset of the input was committed, and it has no output
      in the topic: orders-1 offset 239, key=order-9, value={}
      committed by group billing at 1.30 s: orders-1 offset 240
  judged 3,450 records acknowledged on the wire"""
    )


def test_a_batch_is_shown_with_its_records_broker_and_acks() -> None:
    batch: OperationRow = {
        "operation": "produced",
        "client": "shop",
        "broker": 3,
        "base_offset": 100,
        "last_offset": 149,
        "records": 50,
        "crc": "0badcafe",
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "acks": 1,
        "completed_ns": at(0.5),
        "response_lost": True,
    }
    lost = Anomaly(
        name="lost-write",
        topic="orders",
        partition=0,
        offsets=(100, 149),
        records=50,
        operations=(batch,),
        explanation="50 records at offsets 100 to 149 were acknowledged",
    )
    verdict = Verdict(
        status=Status.VALID,
        guarantees=("best-effort",),
        guarantee_reason="a producer used acks=1",
        anomaly_counts={"lost-write": 50},
        anomalies=(lost,),
        started_ns=START_NS,
        notes=(f"{described('lost-write', 50)}; best-effort allows this",),
    )
    assert (
        str(verdict)
        == """\
VALID: best-effort holds (a producer used acks=1)
  50 records were acknowledged or read, and are not in the topic any more (lost-write); best-effort allows this
    example in orders-0, offsets 100, 149: 50 records at offsets 100 to 149 were acknowledged
      acknowledged by broker 3 with acks=1 at 0.50 s, but the response was lost: offsets 100 to 149 (50 records), \
client shop"""
    )


def test_an_unknown_verdict_shows_its_reasons() -> None:
    verdict = Verdict(
        status=Status.UNKNOWN, guarantees=("no-loss",), reasons=("nothing was acknowledged", "two\nlines")
    )
    assert (
        str(verdict)
        == """\
UNKNOWN: no-loss could not be judged
  unknown: nothing was acknowledged
  unknown: two
    lines"""
    )
    assert summary_line(verdict) == ("unknown (no-loss) · nothing was acknowledged (and 1 other reason)")


def test_every_kind_of_anomaly_has_words_and_a_place_in_the_order() -> None:
    names = [kind.name for kind in SEVERITY]
    assert len(names) == len(set(names))
    assert set(names) >= ALL_ANOMALIES | SIMULATED
    assert names.index("lost-write") < names.index("inconsistent-offsets")
    assert names.index("missing") < names.index("duplicate") < names.index("out-of-order")
    for kind in SEVERITY:
        assert kind.sentence(1).startswith("1 ")
        assert kind.sentence(2_000).startswith("2,000 ")


def test_a_forbidden_kind_comes_before_an_allowed_one_that_is_worse() -> None:
    verdict = Verdict(
        status=Status.INVALID,
        guarantees=("best-effort",),
        anomaly_counts={"log-gap": 1, "lost-write": 9, "duplicate": 0},
    )
    assert kinds_by_severity(verdict) == ["log-gap", "lost-write"]


@pytest.mark.parametrize("text", ["x" * 100_000, "\x1b[31m\n\t\u202e" * 9_000, "𝄞" * 50_000])
def test_the_text_is_bounded_for_any_content(text: str) -> None:
    fields = {"operation": text, "key": text, "value": text, "client": text, "record_id": text, text: text}
    row = cast("OperationRow", fields)
    anomalies = tuple(
        Anomaly(
            name=kind.name,
            topic=text,
            partition=1,
            offsets=tuple(range(5_000)),
            operations=(row,) * 50,
            explanation=text,
        )
        for kind in SEVERITY
    )
    verdict = Verdict(
        status=Status.INVALID,
        guarantees=("no-loss",) * 40,
        guarantee_reason=text,
        anomalies=anomalies * 400,
        anomaly_counts={kind.name: 10**12 for kind in SEVERITY},
        causes={"lost-write": (text,) * 90},
        reasons=(text,) * 90,
        notes=(text,) * 90,
        planted=(text,) * 90,
        started_ns=1,
    )
    shown, line = str(verdict), summary_line(verdict)
    too_long = len(shown) > TEXT_MOST or len(line) > TEXT_MOST
    assert not too_long
    escapes = "\x1b" in shown + line
    assert not escapes
