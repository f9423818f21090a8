"""ISR changes on their way to the registry and back (C4): who writes, how often, what an answer means.

Owns: `IsrStore` (what the registry must offer) and `IsrWrites`, which looks for members that lag,
writes proposals and settles them. One write a partition is under way at a time.

    answer              meaning                                     what follows
    a version           taken                                       ISR = proposed, HW tried
    None                the registry's state is another             wait for LeaderAndIsr; asked again at
                                                                    the next check, until it is settled
    RegistryError       unknown: it may have been taken             the same write again after a pause

While an answer is unknown the HW waits for both ISRs (`Partition`). A write repeated after it was taken
is recognised by the store, which compares what it finds with what it was to write.

Source: Kafka's `IsrChangePropagator`/`ZkAlterPartitionManager`, KIP-497.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..errors import HarrowError

if TYPE_CHECKING:
    from ..host.seam import Host, Timer
    from ..ids import ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
    from .partition import IsrProposal, Partition

RETRY_FIRST_MS = 50
RETRY_MOST_MS = 1_000
"""Pauses before a write whose outcome is unknown is repeated; each is twice the last."""


class IsrStore(Protocol):
    """Versioned conditional writes of a partition's state."""

    async def write_isr(
        self,
        tp: TopicPartition,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        isr: Sequence[NodeId],
        controller_epoch: ControllerEpoch,
        expected_version: int,
    ) -> int | None:
        """Write if the version still is `expected_version`, and return the new version.

        None: it is not, and what is there is not this very state either. HarrowError, OSError or
        TimeoutError: nobody knows.
        """
        ...


class IsrWrites:
    """Checks for laggards at half the lag time, and brings every proposal to its end."""

    def __init__(
        self,
        host: Host,
        store: IsrStore,
        node_id: NodeId,
        lag_time_max_ms: int,
        partitions: Callable[[], Iterable[Partition]],
        changed: Callable[[Partition, str, bool], None],
    ) -> None:
        self._host = host
        self._store = store
        self._node_id = node_id
        self._period_ms = max(1, lag_time_max_ms // 2)
        self._partitions = partitions
        self._changed = changed
        self._timer: Timer | None = None
        self._refused: dict[TopicPartition, IsrProposal] = {}
        self._stopped = False

    def start(self) -> None:
        """Begin the periodic check."""
        self._timer = self._host.tasks.call_later(self._period_ms, self._check)

    def stop(self) -> None:
        """Check and repeat no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Write `proposal`, which `partition` has just made."""
        self._host.tasks.spawn(
            self._write(partition, proposal), name=f"isr {partition.topic_partition}"
        )

    def _check(self) -> None:
        if self._stopped:
            return
        self._timer = self._host.tasks.call_later(self._period_ms, self._check)
        now_ms = self._host.clock.monotonic_ms()
        refused, self._refused = self._refused, {}
        for partition in self._partitions():
            proposal = partition.propose_shrink(now_ms)
            if proposal is None:
                proposal = refused.get(partition.topic_partition)
                if proposal is None or proposal is not partition.proposal:
                    continue
            self.submit(partition, proposal)

    async def _write(self, partition: Partition, proposal: IsrProposal) -> None:
        pause_ms = RETRY_FIRST_MS
        while proposal is partition.proposal and not self._stopped:
            try:
                self._host.failpoints.hit("partition.before-isr-write")
                version = await self._store.write_isr(
                    partition.topic_partition,
                    self._node_id,
                    proposal.leader_epoch,
                    proposal.isr,
                    proposal.controller_epoch,
                    proposal.expected_version,
                )
            except (HarrowError, OSError, TimeoutError) as error:
                if pause_ms == RETRY_FIRST_MS:
                    self._host.trace.log(
                        "warning",
                        f"{partition.topic_partition}: writing ISR {list(proposal.isr)} failed "
                        f"({error!r}); trying again until it is known",
                    )
                await self._host.tasks.sleep(pause_ms)
                pause_ms = min(pause_ms * 2, RETRY_MOST_MS)
                continue
            self._settle(partition, proposal, version)
            return

    def _settle(self, partition: Partition, proposal: IsrProposal, version: int | None) -> None:
        if version is None:
            if proposal is partition.proposal:
                self._refused[partition.topic_partition] = proposal
                self._host.trace.log(
                    "info",
                    f"{partition.topic_partition}: the registry's state is not version "
                    f"{proposal.expected_version} any more; awaiting the controller's word",
                )
            return
        before = partition.high_watermark
        if partition.isr_accepted(proposal, version, self._host.clock.monotonic_ms()):
            self._changed(partition, proposal.cause, partition.high_watermark > before)
