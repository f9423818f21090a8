"""The table of faults and clients as sentences: a few lines of a verdict's text, and the rows of the report page.

Rows: `judging.py`. The text names the longest standstills; `verdict.json` has all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...wording import counted
from ..rows import ProgressRow

LINES_MOST = 4
SHOWN_FROM_S = 2.0
"""A shorter time without progress is no line of the text."""
SHOWN_LEAST_S = 0.05
"""A shorter time is 0.0 s in the text, and no reason."""
WENT_ON = "it went on, or had nothing to do"


def progress_lines(table: Sequence[ProgressRow]) -> list[str]:
    """Return the lines of a verdict's text; none where every client went on."""
    noted = [row for row in table if row["without_progress_s"] >= SHOWN_FROM_S]
    noted.sort(key=lambda row: (-row["stalled_s"], -row["without_progress_s"]))
    lines = [f"standing still: {row_text(row)}" for row in noted[:LINES_MOST]]
    hidden = len(noted) - LINES_MOST
    if hidden > 0:
        lines.append(f"… {counted(hidden, 'more pair')} of a fault and a client that stood still in verdict.json")
    return lines


def row_text(row: ProgressRow) -> str:
    """Return one row in a user's words."""
    what = f"at fault {row['fault']}, {row['label']}, " if row["fault"] else "without a fault, "
    where = f" in {row['partition']}" if row["partition"] else ""
    seconds = _s(row["without_progress_s"])
    return f"{what}{row['kind']} {row['client']}{where} made no progress for {seconds}: {reasons(row)}"


def reasons(row: ProgressRow) -> str:
    """Return why there was no progress, and when it went on."""
    parts: list[str] = []
    if row["cluster_could_not_serve_s"] >= SHOWN_LEAST_S:
        parts.append(f"the cluster could not serve it for {_s(row['cluster_could_not_serve_s'])}")
    if row["waited_for_members_s"] >= SHOWN_LEAST_S:
        waited = _s(row["waited_for_members_s"])
        parts.append(f"its group waited {waited} for the session timeout of a dead member")
    if row["stalled_s"] >= SHOWN_LEAST_S:
        parts.append(f"it stood still for {_s(row['stalled_s'])} although the cluster could serve it")
    if not row["recovered"]:
        parts.append("it made no progress until the end of the run")
    elif row["recovered_s"]:
        parts.append(f"its first progress was {_s(row['recovered_s'])} after the fault was healed")
    elif row["recovered_s"] == 0:
        parts.append("it made progress before the fault was healed")
    if not parts and row["without_progress_s"] < SHOWN_LEAST_S:
        return WENT_ON
    return ", ".join(parts) or "the fault hit the application, or its group rebalanced"


def _s(seconds: float) -> str:
    return f"{seconds:.1f} s"
