"""`consumed_by=` of `verify`: its check, and what the run folder keeps of it for `checks/share_settings.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from harrow.cluster.errors import ConfigError

from .. import run_folder


def share_groups(given: object) -> tuple[str, ...]:
    """Return the names of the share groups; ConfigError for anything but a name, or several."""
    names: tuple[Any, ...] = (given,)
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = tuple(cast("Iterable[object]", given))
    wrong = any(not isinstance(name, str) or not name for name in names)
    if wrong:
        raise ConfigError(
            f"verify(consumed_by={given!r}): expected the group.id of a share group, such as 'workers', or a list of "
            "them; leave it out when no share group must have consumed everything"
        )
    return names


def note_consumed_by(folder: Path, topics: Sequence[str], groups: Sequence[str]) -> None:
    """Keep in `run.json` which share groups must have consumed these topics: `harrow check` judges them again."""
    known: dict[str, list[str]] = run_folder.read_run(folder).get("consumed_by", {})
    added = {topic: sorted({*known.get(topic, ()), *groups}) for topic in topics}
    run_folder.note(folder, consumed_by={**known, **added})
