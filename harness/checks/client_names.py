"""Names of clients in explanations: a task has only their numbers, which the test's process replaces.

`named_client` runs in the process of the test, so this module imports neither polars nor pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CLIENT_MARK = re.compile(r"\{client (\d+)\}")


def client_mark(number: int) -> str:
    """Return the text that stands for the name of a client in an explanation of a task."""
    return f"{{client {number}}}"


def named_client(explanation: str, clients: Sequence[str]) -> str:
    """Return an explanation with the names of clients instead of their numbers."""
    return CLIENT_MARK.sub(lambda mark: clients[int(mark[1])], explanation)
