"""The followers of a partition as its leader sees them: their offsets, and when each was last caught up.

Owns: `RemoteReplica`; `RemoteReplicas`, by node id; `SessionRow`, the interface of a fetch session's row that a replica
notifies.

Invariants:
* `log_end_offset` was stated by the follower in this leader epoch and in its present registration (broker epoch).
  Before the first such fetch it is -1: the replica holds the high watermark back and cannot join the ISR
  (KIP-903: an offset from before a restart of the follower never counts);
* `last_caught_up_ms` never goes back within a leader epoch.

A follower in a fetch session does not name idle partitions (KIP-227), yet each of its fetches shows that it is caught
up with them. `leader_log_grows` takes in the time of the session's last fetch at the moment when that begins to
matter: when the leader appends, or when the session ends. So a fetch costs nothing for each idle partition.

Source: Kafka's `Replica.updateFetchState` and `Replica.resetReplicaState`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from ..ids import NO_OFFSET, BrokerEpoch, NodeId, Offset

NEVER_MS = -(2**62)
"""Earlier than every other time: the replica has not been caught up yet."""


class SessionRow(Protocol):
    """A partition within the fetch session of a follower (see `fetch_session.py`)."""

    def last_fetch_ms(self) -> int:
        """When the follower's last fetch in this session came."""
        ...

    def changed(self) -> None:
        """The leader's log end, high watermark or log start moved."""
        ...

    def isr_changed(self) -> None:
        """The partition's ISR, or the proposal to change it, is another."""
        ...

    def end_session(self) -> None:
        """The partition is not led here as it was when the session began."""
        ...


class RemoteReplica:
    """One follower as its leader sees it."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "node_id",
        "session_row",
    )

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.broker_epoch = BrokerEpoch(-1)
        self.session_row: SessionRow | None = None
        self.reset(NEVER_MS)

    def reset(self, caught_up_ms: int) -> None:
        """Forget the offsets, for a new leader epoch. ISR members get `caught_up_ms` = now, hence a full lag time."""
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.last_fetch_leader_end = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = caught_up_ms

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now_ms: int, epoch: BrokerEpoch) -> bool:
        """Take in a fetch at `offset` by registration `epoch`; False when that registration has ended.

        The replica is caught up now if it fetches from the leader's end. It was caught up at its previous fetch if it
        fetches from where the leader's end was then: a follower that is always one fetch behind is in sync.
        """
        if epoch != self.broker_epoch and not self.accept_registration(epoch):
            return False
        assert now_ms >= self.last_fetch_ms, f"broker {self.node_id} fetched at {now_ms}, before {self.last_fetch_ms}"
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_ms = now_ms
        return True

    def accept_registration(self, epoch: BrokerEpoch) -> bool:
        """Rule of KIP-903: a newer registration voids what an earlier one fetched, an older one is refused."""
        if epoch < self.broker_epoch:
            return False
        if self.broker_epoch >= 0:
            self.reset(self.last_caught_up_ms)
        self.broker_epoch = epoch
        return True

    def leader_log_grows(self, leader_end: Offset) -> None:
        """The leader's log, which ended at `leader_end`, has grown."""
        row = self.session_row
        if row is None:
            return
        if self.log_end_offset == leader_end:
            fetched_ms = row.last_fetch_ms()
            if fetched_ms > self.last_fetch_ms:
                self._caught_up_at(fetched_ms)
        row.changed()

    def session_ended(self, leader_end: Offset) -> None:
        """The follower's session has ended while the leader's log ends at `leader_end`.

        Without this the follower of an idle partition would count as caught up when it named the partition last, which
        may be hours ago, and would leave the ISR with the first append before its next full fetch.
        """
        row, self.session_row = self.session_row, None
        if row is not None and self.log_end_offset == leader_end:
            self._caught_up_at(max(self.last_fetch_ms, row.last_fetch_ms()))

    def _caught_up_at(self, fetched_ms: int) -> None:
        """A fetch of the session came at `fetched_ms`, when the follower had all that the leader had."""
        self.last_fetch_ms = fetched_ms
        self.last_caught_up_ms = max(self.last_caught_up_ms, fetched_ms)

    def in_sync(
        self, leader_end: Offset, now_ms: int, lag_time_max_ms: int, silence_max_ms: int, listening_ms: int = NEVER_MS
    ) -> bool:
        """True for a member that stays in the ISR: caught up within the lag time, and not behind and silent (C4).

        Its silence counts from its last fetch, or from `listening_ms` where the leader has read nothing before that.
        """
        if self.log_end_offset == leader_end:
            return True
        row = self.session_row
        in_session_ms = NEVER_MS if row is None else row.last_fetch_ms()
        heard_ms = max(self.last_caught_up_ms, self.last_fetch_ms, in_session_ms, listening_ms)
        return now_ms - self.last_caught_up_ms <= lag_time_max_ms and now_ms - heard_ms <= silence_max_ms

    def caught_up(self, leader_end: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        """True at the leader's end, or when it was there within the lag time (part of C1's rule)."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms


class RemoteReplicas(dict[NodeId, RemoteReplica]):
    """The followers of one partition, with what happens to all of them at once (Kafka's `remoteReplicasMap`).

    Empty on a broker that has never led the partition. The hot paths of `partition.py` iterate over it themselves.
    """

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
