"""Reports of a run: one HTML page and a short terminal summary, and an index of all tests. They read only run folders.

Public names: `write_picture`, `terminal_summary`. The modules behind them are imported at the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import rich.console

__all__ = ["terminal_summary", "write_picture"]


def write_picture(folder: Path, *, seed: int | None = None, command: str | None = None, number: int = 1) -> Path:
    """Write the page of the `number`-th verdict on the run in `folder`, and return its path (`picture`)."""
    from .picture import write_picture as write

    return write(folder, seed=seed, command=command, number=number)


def terminal_summary(folder: Path, console: rich.console.Console) -> None:
    """Print a summary of the run in `folder` (`summary`)."""
    from .summary import terminal_summary as summarize

    summarize(folder, console)
