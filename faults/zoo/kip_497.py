"""KIP-497: the high watermark moves by the ISR that is only proposed.

What was wrong: when the ISR is changed by an asynchronous write (Kafka 2.7), the leader does not know for a while which
ISR the controller has. A leader that already counts only the proposed ISR raises its high watermark, and acknowledges,
without a member that the controller still has. When the write does not arrive, that member may be elected, and it lacks
the records. The rule: the high watermark waits for the *maximal* ISR, the union of the committed and the proposed one.

Needs: a leader that is cut off from the registry and its followers, but not from clients, for longer than the lag time.
Seen as: `lost-write`.
Replaces: `IsrState.maximal_isr`.
Source: KIP-497; Kafka's `PendingShrinkIsr`, `Partition.maximalIsr`.
"""

from __future__ import annotations

from collections.abc import Sequence

from harrow.cluster.ids import NodeId
from harrow.cluster.planting import Planter
from harrow.cluster.replication.isr import IsrState

TITLE = "KIP-497: the high watermark moves by an ISR that is only proposed"


def plant(planter: Planter) -> None:
    """Count the proposed ISR alone where there is one."""
    planter.replace_method(IsrState, "maximal_isr", _proposed_isr)


def _proposed_isr(committed: Sequence[NodeId], proposed: Sequence[NodeId]) -> frozenset[NodeId]:
    return frozenset(proposed or committed)
