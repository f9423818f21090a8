"""The followers of one partition as its leader sees them.

Owns: `RemoteReplicas`: a dictionary by node id, with what happens to all of them at once. The hot paths of
`partition.py` iterate over it themselves.

Source: the `remoteReplicasMap` of Kafka's `Partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..ids import BrokerEpoch, NodeId, Offset
from .remote_replica import NEVER_MS, RemoteReplica


class RemoteReplicas(dict[NodeId, RemoteReplica]):
    """`RemoteReplica` by node id; empty on a broker that has never led the partition."""

    def reset(self, nodes: Iterable[NodeId], isr: Collection[NodeId], now_ms: int) -> None:
        """Begin a leader epoch with the followers `nodes`: no offset is known; members of the ISR are caught up now."""
        known = dict(self)
        self.clear()
        for node in nodes:
            remote = self[node] = known.get(node) or RemoteReplica(node)
            assert remote.session_row is None, f"a session of {node} outlived its leader epoch"
            remote.reset(now_ms if node in isr else NEVER_MS)

    def registrations(self, nodes: Iterable[NodeId]) -> dict[NodeId, BrokerEpoch]:
        """The broker epochs under which these followers fetched; without those that have not fetched yet."""
        return {
            node: remote.broker_epoch
            for node in nodes
            if (remote := self.get(node)) is not None and remote.broker_epoch >= 0
        }

    def end_sessions(self) -> None:
        """The partition is not led as it was: fetch sessions with it end."""
        for remote in self.values():
            if remote.session_row is not None:
                remote.session_row.end_session()

    def isr_changed(self) -> None:
        """The ISR, or the proposal to change it, is another."""
        for remote in self.values():
            if remote.session_row is not None:
                remote.session_row.isr_changed()

    def changed(self) -> None:
        """The leader's high watermark or log start moved: the next fetch responses carry it."""
        for remote in self.values():
            if remote.session_row is not None:
                remote.session_row.changed()

    def low_watermark(self, own_log_start: Offset, alive: Callable[[NodeId], bool]) -> Offset:
        """The smallest log start of the leader and its live followers."""
        starts = [remote.log_start_offset for node, remote in self.items() if alive(node)]
        return min([own_log_start, *starts])
