"""What a leader knows of one follower: how far it is, and when it was last caught up.

Invariants:
* `log_end_offset` is a follower's word of this leader epoch and this registration of the follower
  (broker epoch); before its first fetch of them it is -1, so it holds the HW back and admits nobody
  to the ISR (KIP-903: a bounced broker's earlier offset never counts);
* `last_caught_up_ms` never goes back within a leader epoch.

Source: Kafka's `Replica.updateFetchState` and `Replica.resetReplicaState`.
"""

from __future__ import annotations

from ..ids import NO_OFFSET, BrokerEpoch, NodeId, Offset

NEVER_MS = -(2**62)
"""A time before every other: "has not been caught up"."""


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
    )

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.broker_epoch = BrokerEpoch(-1)
        self.reset(NEVER_MS)

    def reset(self, caught_up_ms: int) -> None:
        """Forget its offsets: a new leader epoch. ISR members get `caught_up_ms` = now, a full lag time."""
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.last_fetch_leader_end = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = caught_up_ms

    def fetched(
        self, offset: Offset, log_start: Offset, leader_end: Offset, now_ms: int, epoch: BrokerEpoch
    ) -> bool:
        """Take in a fetch at `offset` by registration `epoch`; False for a registration that is over.

        Caught up now, if it asks from the leader's end; as of its previous fetch, if it asks from where
        the leader's end was then: a follower that is always one fetch behind is in sync.
        """
        if epoch != self.broker_epoch:
            if epoch < self.broker_epoch:
                return False
            if self.broker_epoch >= 0:
                self.reset(self.last_caught_up_ms)
            self.broker_epoch = epoch
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_ms = now_ms
        return True

    def caught_up(self, leader_end: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        """True at the leader's end, or when it was within the lag time (C4's rule, and part of C1's)."""
        return (
            self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
