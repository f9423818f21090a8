"""No bug: each broker has a rack of its own, `rack-1` to `rack-3`, because a test has one configuration for all."""

from __future__ import annotations

from harrow.cluster.ids import NodeId
from harrow.cluster.planting import Planter
from harrow.cluster.replication.read_replica import ReadReplicas

TITLE = "every broker is in a rack of its own"


def plant(planter: Planter) -> None:
    """Give each broker its rack."""
    planter.replace_method(ReadReplicas, "_rack", _rack)


def _rack(self: ReadReplicas, node: NodeId, listener: str) -> str | None:
    return f"rack-{node}"
