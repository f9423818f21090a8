"""A planted bug: a new leader lists its high watermark although that is behind the start of its epoch (KIP-207)."""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition

TITLE = "a new leader lists a latest offset that is behind what the old leader listed"


def plant(planter: Planter) -> None:
    """Never answer OFFSET_NOT_AVAILABLE."""
    planter.replace_method(Partition, "check_latest", _available)


def _available(self: Partition) -> None:
    """Let each listing be answered."""
