"""Whether a folder takes a file at this moment: the cause of a start that does not end, which no log can hold then."""

from __future__ import annotations

import contextlib
from pathlib import Path

PROBE = ".harrow-space"
PROBE_BYTES = 4096


def why_not_writable(folder: Path) -> str:
    """Return the system's words and the folder when a small file cannot be written there; empty when it can."""
    probe = folder / PROBE
    try:
        probe.write_bytes(bytes(PROBE_BYTES))
    except OSError as error:
        return f"{error.strerror or error}: {folder}"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""
