"""The in-sync replicas (ISR) of one partition: what is committed, what is proposed, and their union (C4, KIP-497).

Owns: `LeaderAndIsr`, the state that the controller sent; `IsrProposal`, an ISR change on its way to the
registry; and `IsrState`, the leader's view of both. Which replica joins or leaves is decided in `partition.py` and
`remote_replica.py`.

Invariants:
* at most one proposal is in progress at a time;
* `maximal` is the union of the committed and the proposed ISR. The high watermark waits for every member of it, because
  the leader does not know which of the two the registry has. An unknown outcome therefore holds the high
  watermark back and never lets it run ahead.

Source: Kafka's `PartitionState`, `CommittedPartitionState`, `PendingPartitionChange`; KIP-497.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """A partition's state as the controller sent it; `version` is the version of the state in the registry."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    isr: tuple[NodeId, ...]
    version: int
    replicas: tuple[NodeId, ...]
    controller_epoch: ControllerEpoch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsrProposal:
    """An ISR change on its way to the registry; compared by identity."""

    isr: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    controller_epoch: ControllerEpoch
    expected_version: int
    cause: str
    registrations: Mapping[NodeId, BrokerEpoch] = field(default_factory=dict[NodeId, BrokerEpoch])
    """The broker epochs under which its followers fetched what they are members for (KIP-903)."""


class IsrState:
    """Committed ISR, the proposal in progress if there is one, and the maximal ISR of both."""

    __slots__ = ("committed", "maximal", "proposal", "since_ms")

    def __init__(self) -> None:
        self.committed: tuple[NodeId, ...] = ()
        self.proposal: IsrProposal | None = None
        self.maximal: frozenset[NodeId] = frozenset()
        self.since_ms = 0
        """When the registry accepted the last proposal."""

    @staticmethod
    def maximal_isr(committed: Sequence[NodeId], proposed: Sequence[NodeId]) -> frozenset[NodeId]:
        """The replicas that hold the high watermark back: committed united with proposed ISR (rule of KIP-497)."""
        return frozenset((*committed, *proposed))

    def commit(self, isr: Sequence[NodeId]) -> None:
        """The registry has `isr`; a proposal that was in progress has ended."""
        self._take(tuple(isr), None)

    def propose(self, proposal: IsrProposal) -> None:
        """Await the registry's answer to `proposal`."""
        assert self.proposal is None, f"a second ISR write beside {self.proposal}: {proposal}"
        assert proposal.isr != self.committed, f"a proposal of the ISR that is committed: {proposal}"
        self._take(self.committed, proposal)

    def _take(self, committed: tuple[NodeId, ...], proposal: IsrProposal | None) -> None:
        assert len(set(committed)) == len(committed), f"a replica stands twice in ISR {committed}"
        self.committed = committed
        self.proposal = proposal
        self.maximal = self.maximal_isr(committed, () if proposal is None else proposal.isr)
