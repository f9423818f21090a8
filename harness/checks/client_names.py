"""Names of clients in explanations: a task has only the numbers of clients, and the test's process names them.

`named` runs in the process of the test, so this module imports neither polars nor pyspark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType

ClientNumber = NewType("ClientNumber", int)
"""A client, a group or a member: the position of its name in the names of the layout."""
Explanation = str | tuple[str | ClientNumber, ...]
"""Words; those of a task may have numbers of clients between them."""


def named(explanation: Explanation, clients: Sequence[str]) -> str:
    """Return an explanation with the names of clients in place of their numbers."""
    if isinstance(explanation, str):
        return explanation
    return "".join(part if isinstance(part, str) else clients[part] for part in explanation)
