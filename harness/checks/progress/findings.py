"""What the checks of progress found, as values; it imports nothing heavy, because every verdict has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..rows import AnomalyRow, ProgressRow


@dataclass(slots=True, kw_only=True)
class ProgressFindings:
    """What the checks of progress found."""

    anomalies: list[AnomalyRow] = field(default_factory=list[AnomalyRow])
    table: list[ProgressRow] = field(default_factory=list[ProgressRow])
    doubts: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    guarantee: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What `recovers_within` adds to the guarantees of the verdict, with what it forbids."""
