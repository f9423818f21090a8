"""A verdict as a small HTML table, for notebooks (`Verdict._repr_html_`).

Owns: `verdict_html`. The text of records and errors is escaped as in the report page, and control characters are shown
as escapes. It has no script, no link and no style that reaches outside of the table, and its length is bounded.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from .known_anomalies import described
from .verdict import Status, Verdict
from .verdict_text import (
    CAUSES_MOST,
    KINDS_MOST,
    LINE_MOST,
    REASONS_MOST,
    breaks,
    causes_of_kinds,
    figures_of,
    kinds_by_severity,
    shortened,
)

COLORS = {Status.VALID: "#0b7a2f", Status.INVALID: "#b3261e", Status.UNKNOWN: "#8a5a00"}
"""Readable on white and on black."""


def verdict_html(verdict: Verdict) -> str:
    """Return a table: the status and the guarantees, then a row for each kind, reason and note, and the figures."""
    head = ", ".join(verdict.guarantees)
    head += f" ({verdict.guarantee_reason})" if verdict.guarantee_reason else ""
    rows = [_row("planted bug", [bug]) for bug in verdict.planted[:REASONS_MOST]]
    kinds = kinds_by_severity(verdict)
    causes = causes_of_kinds(verdict, kinds)
    for name in kinds[:KINDS_MOST]:
        allowed = "" if breaks(name, verdict) else "; the guarantee allows this"
        found = described(name, verdict.anomaly_counts[name]) + allowed
        rows.append(_row("found", [found, *(f"cause: {cause}" for cause in causes[name][:CAUSES_MOST])]))
    rows += _more(kinds[KINDS_MOST:], "kinds of anomaly")
    rows += [_row("unknown", [reason]) for reason in verdict.reasons[:REASONS_MOST]]
    rows += _more(verdict.reasons[REASONS_MOST:], "reasons")
    rows += [_row("note", [note]) for note in verdict.notes[:REASONS_MOST]]
    rows += _more(verdict.notes[REASONS_MOST:], "notes")
    if figures := figures_of(verdict):
        rows.append(_row("judged", [figures]))
    color = COLORS[verdict.status]
    title = f'<th style="text-align:left;color:{color}">{verdict.status.name}</th>'
    return (
        f'<table><thead><tr>{title}<th style="text-align:left">{_text(head)}</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _row(label: str, lines: Iterable[str]) -> str:
    text = "<br>".join(map(_text, lines))
    left = 'style="text-align:left;vertical-align:top"'
    return f"<tr><td {left}>{label}</td><td {left}>{text}</td></tr>"


def _more(hidden: tuple[str, ...] | list[str], what: str) -> list[str]:
    return [_row("", [f"{len(hidden)} more {what} in verdict.json"])] if hidden else []


def _text(text: str) -> str:
    return html.escape(shortened(text, LINE_MOST))
