"""Imports kio's base types without hypothesis, which they import wherever it is installed.

kio registers strategies for its types with hypothesis. That takes 0.25 s of CPU time in each process, 2 s in each new
working folder, where hypothesis writes a table of characters into `.hypothesis/`, and 0.02 s without it. Harrow uses
no such strategy. A process that has imported hypothesis already gets them, because its tests may use kio's types.

Any thread that imports hypothesis for the first time during these 20 ms gets ImportError.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

BASE = "kio.static.primitive"


def load() -> None:
    """Import kio's base types; call it before any other import from kio."""
    modules: dict[str, Any] = sys.modules
    if BASE in modules:
        return
    hidden = "hypothesis" not in modules
    if hidden:
        modules["hypothesis"] = None  # Python's way to say that an import fails
    try:
        importlib.import_module(BASE)
    finally:
        if hidden:
            del modules["hypothesis"]
