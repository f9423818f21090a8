"""The kinds of anomaly by name, those of extensions too: words for a reader, and the order in which they are shown."""

from __future__ import annotations

from harrow.cluster.errors import ConfigError

from .anomaly_kinds import SEVERITY, AnomalyKind
from .guarantees import added_checks

_RANKS = {kind.name: rank for rank, kind in enumerate(SEVERITY)}


def kind_of(name: str) -> AnomalyKind | None:
    """Return the kind with this name, one of an extension too; None where there is none."""
    if name in _RANKS:
        return SEVERITY[_RANKS[name]]
    try:
        found = (kind for check in added_checks().values() for kind in check.anomalies if kind.name == name)
        return next(found, None)
    except ConfigError:  # a stored verdict can be read where an extension is broken
        return None


def rank(name: str) -> float:
    """Return the place of an anomaly's name in the order of severity; 0 is the worst, an unknown name is last."""
    if name in _RANKS:
        return _RANKS[name]
    added = kind_of(name)
    return len(SEVERITY) if added is None else _RANKS.get(added.after, len(SEVERITY)) + 0.5


def described(name: str, count: int) -> str:
    """Return a sentence on all anomalies of one name, with the name: "31 records … (lost-write)"."""
    kind = kind_of(name)
    return f"{count:,} {name}" if kind is None else f"{kind.sentence(count)} ({name})"
