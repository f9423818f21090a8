"""Schedule files as the commands read and write them."""

from __future__ import annotations

from pathlib import Path

from harrow.cluster.errors import ConfigError
from harrow.faults.schedule import Schedule


def read_schedule(path: Path) -> Schedule:
    """Read a schedule file; ConfigError names the file and what is wrong with it."""
    try:
        return Schedule.from_json(path.read_text(encoding="utf-8"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
