"""What a run looked like: one HTML page and a short terminal summary, both from the run folder alone.

Owns: `write_picture`, `terminal_summary`. Nothing heavy is imported until one of them is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import rich.console

__all__ = ["terminal_summary", "write_picture"]


def write_picture(folder: Path, *, seed: int | None = None, command: str | None = None) -> Path:
    """Draw the run in `folder` as `report.html`; returns its path. See `picture`."""
    from .picture import write_picture as write

    return write(folder, seed=seed, command=command)


def terminal_summary(folder: Path, console: rich.console.Console) -> None:
    """Print a few lines about the run in `folder`. See `summary`."""
    from .summary import terminal_summary as summarize

    summarize(folder, console)
