"""Evidence: what a backend observed of a fault, and whether that proves what is claimed.

`facts` are for the reader of a report. A backend may add details of its own (a pid, a container's id, a process state);
no fault reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was observed, and whether it proves the claim."""

    proved: bool
    failed: str = ""
    """Why the claim cannot be proved any more, such as that the program of the fault has ended by itself."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
