"""A retry with a new timestamp stands for the batch that the log has, and nothing else does (J6)."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from harrow.harness.checks.facts import SequenceUsedAgain
from harrow.harness.checks.kernels.evidence import collect
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import BATCH_SCHEMA, OPS_SCHEMA, arrange
from harrow.harness.checks.kernels.resent_batches import as_stored
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.histories.segments import LOG_COLUMNS

STORED: dict[str, Any] = {
    "producer_id": 7,
    "producer_epoch": 0,
    "base_sequence": 23,
    "last_offset": 24,
    "count": 2,
    "crc": 111,
    "max_timestamp_ms": 5_000,
}


def produced(**fields: Any) -> pl.DataFrame:
    row = dict.fromkeys(BATCH_SCHEMA, 0) | STORED | fields
    return pl.DataFrame([row], schema=BATCH_SCHEMA)


def log(**fields: Any) -> dict[int, pl.DataFrame]:
    return {1: pl.DataFrame([STORED | fields])}


def test_a_retry_with_another_time_has_the_crc_of_the_stored_batch() -> None:
    (crc,) = as_stored(produced(crc=222, max_timestamp_ms=8_000), log())["crc"]
    assert crc == 111


@pytest.mark.parametrize(
    "fields",
    [
        {"max_timestamp_ms": 5_000},
        {"base_sequence": 25},
        {"producer_epoch": 1},
        {"last_offset": 30},
        {"count": 3},
        {"error": 6},
        {"producer_id": -1},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_any_other_difference_stays(fields: dict[str, Any]) -> None:
    (crc,) = as_stored(produced(**({"crc": 222, "max_timestamp_ms": 8_000} | fields)), log())["crc"]
    assert crc == 222


def test_the_order_of_the_rows_stays() -> None:
    frame = pl.concat([produced(crc=222, max_timestamp_ms=8_000), produced(crc=5, base_sequence=99), produced()])
    assert as_stored(frame, log())["crc"].to_list() == [111, 5, 111]
    assert as_stored(frame, {}).equals(frame)


@pytest.mark.parametrize(
    ("fields", "attributes", "batches"),
    [
        ({"max_timestamp_ms": 8_000}, 0, 1),
        ({"max_timestamp_ms": 5_000}, 0, 0),
        ({"max_timestamp_ms": 8_000}, 0x08, 0),
        ({"max_timestamp_ms": 8_000, "error": 7}, 0, 0),
        ({"max_timestamp_ms": 8_000, "base_sequence": 22}, 0, 0),
    ],
    ids=["another time", "the same time", "the time of the append", "an error", "another sequence"],
)
def test_a_batch_that_a_broker_took_for_a_retry_is_a_fact(
    fields: dict[str, Any], attributes: int, batches: int
) -> None:
    rows = pl.concat([produced(kind=1, base_offset=23), produced(kind=1, base_offset=23, **fields)])
    stored = dict.fromkeys(LOG_COLUMNS, 0) | STORED | {"base_offset": 23, "attributes": attributes}
    logs = {1: pl.DataFrame([stored | {"crc_good": True}])}
    none = pl.DataFrame(schema=OPS_SCHEMA)
    inputs = arrange(PartitionJob(topic="orders", partition=3), none, none, rows, logs, [])
    findings = PartitionFindings("orders", 3, 5)
    collect(inputs, findings)
    facts = [fact for fact in findings.evidence if isinstance(fact, SequenceUsedAgain)]
    assert facts == findings.evidence
    assert sum(fact.batches for fact in facts) == batches
    if batches:
        assert [(fact.partition, fact.base_offset) for fact in facts] == [(3, 23)]
