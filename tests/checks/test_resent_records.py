"""Records that an application sent again while their first send was in doubt (L2): the kernel and its definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from harrow.harness.checks.guarantees import ALL_ANOMALIES, FORBIDDEN
from harrow.harness.checks.kernels import resent_records
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import BATCH_SCHEMA, OPS_SCHEMA, arrange
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.checks.rows import AnomalyRow
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.segments import LOG_COLUMNS
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

Row = dict[str, Any]
OK, INFO = OperationType.OK, OperationType.INFO
FIRST, SECOND = 3, 4
"""Clients."""


def send(number: int, value: int, outcome: OperationType, *, offset: int = -1, client: int = FIRST) -> Row:
    """The `number`-th send, which ends before the next begins."""
    return {
        "kind": int(OperationFunction.SEND),
        "outcome": int(outcome),
        "error": 0,
        "offset": offset,
        "op": number,
        "key_hash": 1,
        "value_hash": value,
        "timestamp_ms": 0,
        "invoked_ns": 10 * number,
        "time_ns": 10 * number + 5,
        "client": client,
        "source": 0,
    }


def batch(base: int, *, producer: int = 7, attributes: int = 0) -> Row:
    return {
        **dict.fromkeys(LOG_COLUMNS, 0),
        "base_offset": base,
        "last_offset": base,
        "producer_id": producer,
        "attributes": attributes,
        "count": 1,
        "crc_good": True,
    }


def found(sends: list[Row], log: list[Row], pending: list[Row] | None = None) -> Sequence[AnomalyRow]:
    """What the kernel finds."""
    columns: dict[str, Any] = dict.fromkeys(LOG_COLUMNS, pl.Int64) | {"crc_good": pl.Boolean}
    inputs = arrange(
        PartitionJob(topic="t", partition=0, limit=1000),
        pl.DataFrame(sends, OPS_SCHEMA, orient="row"),
        pl.DataFrame(pending or [], OPS_SCHEMA, orient="row"),
        pl.DataFrame([], BATCH_SCHEMA),
        {1: pl.DataFrame(log, columns, orient="row")} if log else {},
        [],
    )
    findings = PartitionFindings("t", 0, 1000)
    resent_records.records_sent_again(inputs, findings)
    return findings.result().anomalies


def test_a_record_that_a_successor_sends_again_is_named_with_both_sends() -> None:
    (anomaly,) = found([send(1, 42, INFO), send(2, 42, OK, offset=0, client=SECOND)], [batch(0)])
    assert (anomaly.name, anomaly.offsets) == (resent_records.NAME, [0])
    assert [row["outcome"] for row in anomaly.operations] == ["info", "ok"]
    assert "no broker can recognise it" in str(anomaly.explanation)


def test_a_send_that_never_had_an_outcome_is_in_doubt_too() -> None:
    pending = [send(1, 42, INFO)]
    assert found([send(2, 42, OK, offset=0, client=SECOND)], [batch(0)], pending)


def test_the_same_producer_cannot_send_a_record_in_doubt_again_either() -> None:
    assert found([send(1, 42, INFO), send(2, 42, OK, offset=0)], [batch(0)])


def test_correct_applications_have_none() -> None:
    again = send(2, 42, OK, offset=0, client=SECOND)
    transactional = [batch(0, attributes=0x10)]
    certainly_failed = send(1, 42, OperationType.FAIL)
    overlapping = {**send(1, 42, INFO), "time_ns": 500}
    assert not found([certainly_failed, again], [batch(0)])
    assert not found([send(1, 42, OK, offset=1), again], [batch(0), batch(1)])  # twice on purpose
    assert not found([send(1, 42, INFO), again], transactional)
    assert not found([send(1, 42, INFO), again], [batch(0, producer=-1)])
    assert not found([send(1, 42, INFO), again, send(3, 42, OK, offset=1)], [batch(0), batch(1)])
    assert not found([overlapping, again], [batch(0)])
    assert not found([send(1, 42, INFO), again], [])  # no log: nothing is claimed


SENDS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([OK, OK, INFO, INFO, OperationType.FAIL]), st.integers(FIRST, SECOND)),
    max_size=7,
)


@examples(60, 1_000)
@given(
    sends=SENDS,
    kinds=st.lists(st.sampled_from([0, 0, 0x10]), min_size=7, max_size=7),
    producer=st.sampled_from([7, 7, -1]),
)
def test_kernel_and_definition_agree(
    sends: list[tuple[int, OperationType, int]], kinds: list[int], producer: int
) -> None:
    rows = [
        send(number, value, outcome, offset=number if outcome is OK else -1, client=client)
        for number, (value, outcome, client) in enumerate(sends)
    ]
    log = [batch(number, producer=producer, attributes=kinds[number]) for number in range(7)]
    happened = [row for row in rows if row["outcome"] != int(OperationType.FAIL)]
    expected: set[int] = set()
    for value in range(3):
        own = [row for row in happened if row["value_hash"] == value]
        if [row["outcome"] for row in own] == [int(INFO), int(OK)]:
            offset = own[1]["offset"]
            if producer >= 0 and not kinds[offset]:
                expected.add(offset)
    assert {row.offsets[0] for row in found(rows, log)} == expected


def test_it_is_reported_and_never_forbidden() -> None:
    assert resent_records.NAME in ALL_ANOMALIES
    assert not any(resent_records.NAME in kinds for kinds in FORBIDDEN.values())
