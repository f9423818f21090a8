"""The name of a failure, by which a shrink and the counts of repetitions know it again."""

from __future__ import annotations

import pytest
from harrow.harness.checks.verdict import Status, Verdict
from harrow.harness.errors import VerdictError
from harrow.harness.plugin.repeating import failure_of


def judged(status: Status, *anomalies: str, **added: tuple[str, ...]) -> VerdictError:
    verdict = Verdict(
        status=status,
        guarantees=("no-loss", *added),
        anomaly_counts=dict.fromkeys(anomalies, 1),
        added_guarantees={name.replace("_", "-"): names for name, names in added.items()},
    )
    return VerdictError("no", verdict)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (judged(Status.INVALID, "missing", "duplicate"), "missing"),
        (judged(Status.INVALID, "stalled", recovers_within_8_s=("stalled",)), "stalled"),
        (judged(Status.INVALID, "stalled", "missing", recovers_within_8_s=("stalled",)), "missing, stalled"),
        (judged(Status.UNKNOWN, "stalled"), "unknown"),
        (judged(Status.INVALID, "billed-twice", billed_once=("billed-twice",)), "billed-twice"),
        (LookupError("x"), "LookupError"),
    ],
)
def test_names(error: Exception, name: str) -> None:
    assert failure_of(error) == name
