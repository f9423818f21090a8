"""The checks of `kernels/watermarks.py` in plain Python: the kernels are tested against it.

Written from the definitions in `guarantees.py` and sharing no code with the kernels. Rows are dicts of
`kernels.inputs.WATERMARK_SCHEMA`. An anomaly is `(name, offsets)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Anomalies = set[tuple[str, tuple[int, ...]]]
OF_A_LEADER = {
    "high_watermark": "high-watermark-regression",
    "last_stable_offset": "lso-regression",
    "log_start_offset": "log-start-regression",
}
BETWEEN_LEADERS = "end-offset-regression"


def watermark_regressions(rows: Sequence[Row], unclean_epochs: Collection[int] = ()) -> Anomalies:
    """Return what moved backwards. Compares all pairs of rows: for small histories."""
    ids = {row["topic_id"] for row in rows}
    rows = [row for row in rows if row["topic_id"] or len(ids) <= 2]
    found: dict[tuple[Any, ...], tuple[tuple[int, ...], int]] = {}
    for later in rows:
        for column, name in OF_A_LEADER.items():
            same = [row for row in rows if _same_leader(row, later)]
            _compare(found, name, column, same, later, later["node"])
            if later["kind"] == 2 and column != "log_start_offset":
                others = [row for row in rows if _earlier_leader(row, later, unclean_epochs)]
                _compare(found, BETWEEN_LEADERS, column, others, later, None)
    return {(name, tuple(sorted((top, low)))) for (name, _, _, _, _, top), (_, low) in found.items()}


def _same_leader(row: Row, later: Row) -> bool:
    return all(row[name] == later[name] for name in ("topic_id", "leader_epoch", "node"))


def _earlier_leader(row: Row, later: Row, unclean_epochs: Collection[int]) -> bool:
    first, last = row["leader_epoch"], later["leader_epoch"]
    if row["topic_id"] != later["topic_id"] or first >= last:
        return False
    return not any(first < epoch <= last for epoch in unclean_epochs)


def _compare(
    found: dict[tuple[Any, ...], tuple[tuple[int, ...], int]],
    name: str,
    column: str,
    rows: Sequence[Row],
    later: Row,
    node: int | None,
) -> None:
    """Keep the first response that is below the largest offset that was said before its request."""
    said = [row[column] for row in rows if row["completed_ns"] < later["invoked_ns"]]
    top, low = max(said, default=-1), later[column]
    if low < 0 or top <= low:
        return
    fields = ("completed_ns", "invoked_ns", *OF_A_LEADER)
    order = tuple(later[field] for field in fields)
    key = (name, column, later["topic_id"], later["leader_epoch"], node, top)
    found[key] = min(found.get(key, (order, low)), (order, low))
