"""`removed_too_early`: retention by time may not remove records that are younger than the topic keeps them."""

from __future__ import annotations

import pytest
from harrow.harness.checks.log_changes import removed_too_early

KEEP_MS = 1_000
BEGUN_NS = 5_000_000_000


def deleted(after_ms: int, reason: str = "retention.ms", **fields: object) -> dict[str, object]:
    return {
        "event": "log.segments-deleted", "t_ns": BEGUN_NS + after_ms * 1_000_000, "topic": "orders", "partition": 0,
        "base_offsets": [0, 7], "reason": reason, **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("event", "keep_ms", "first"),
    [
        (deleted(1_000), KEEP_MS, 0),
        (deleted(1_001), KEEP_MS, None),
        (deleted(10_000), -1, 0),
        (deleted(10, "retention.bytes"), KEEP_MS, None),
        (deleted(10, "log start offset"), KEEP_MS, None),
        (deleted(10, partition=1), KEEP_MS, None),
        (deleted(10, topic="payments"), KEEP_MS, None),
        (deleted(10, base_offsets=[]), KEEP_MS, None),
        (deleted(10, event="log.rolled"), KEEP_MS, None),
    ],
)
def test_a_removal_by_age_is_early_before_a_record_can_be_so_old(
    event: dict[str, object], keep_ms: int, first: int | None
) -> None:
    assert removed_too_early([event], "orders", 0, BEGUN_NS, keep_ms) == first


def test_the_first_offset_of_all_early_removals_counts() -> None:
    events = [
        deleted(900, base_offsets=[7]),
        deleted(800, base_offsets=[3]),
        deleted(2_000, base_offsets=[0]),
    ]
    assert removed_too_early(events, "orders", 0, BEGUN_NS, KEEP_MS) == 3
