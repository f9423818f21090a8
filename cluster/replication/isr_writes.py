"""ISR changes on their way to the registry and back (C4): who writes, how often, and what an answer means.

Owns: `IsrStore` (what the registry must offer), `IsrChanges` (counts and traces of committed changes) and `IsrWrites`,
which looks for members that lag, writes proposals and takes their answers in. At most one write of a partition is in
progress at a time.

    answer              meaning                                     what follows
    a version           the change was made                         ISR = proposed, HW tried
    None                the registry has another state              wait for LeaderAndIsr; the write is repeated at
                                                                    each check until that comes
    IsrMemberChanged    a member has restarted (KIP-903)            the proposal is withdrawn
    RegistryError       unknown: the change may have been made      the same write again after a pause

While the outcome is unknown the HW waits for both ISRs (`IsrState.maximal_isr`). A write that is repeated after it
was made is recognised by the store, which compares the state that it finds with the state that it was to write.

Source: Kafka's `IsrChangePropagator`, `ZkAlterPartitionManager`; KIP-497.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..errors import HarrowError, IsrMemberChangedError
from ..events.partitions import IsrChanged
from ..host.seam.failpoints import AFTER_ISR_WRITE, passes
from .remote_replica import NEVER_MS

if TYPE_CHECKING:
    from ..host.seam import Host, Timer
    from ..ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
    from .isr_state import IsrProposal
    from .partition import Partition
    from .wake_ups import WakeUps

RETRY_FIRST_MS = 50
RETRY_MOST_MS = 1_000
"""Pauses before a write whose outcome is unknown is repeated; each is twice the last."""

LATE_MS = 250
"""A check that runs so late was not delayed by the work of one turn of the loop: the process was stopped."""


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
        registrations: Mapping[NodeId, BrokerEpoch],
    ) -> int | None:
        """Write if the version still is `expected_version`, and return the new version.

        None: the version is another, and the state there is not this very state either. IsrMemberChangedError: a
        member is not registered with its broker epoch in `registrations`; nothing was written. Any other HarrowError,
        OSError or TimeoutError: the outcome is unknown.
        """
        ...


class IsrChanges:
    """Counts and traces changes of the committed ISR of partitions that are led here."""

    def __init__(self, host: Host, wake_ups: WakeUps) -> None:
        self._host = host
        self._wake_ups = wake_ups
        self.counts = {"shrink": 0, "expand": 0}
        """How often an ISR changed here, by cause: for metrics."""

    def committed(self, partition: Partition, cause: str, *, hw_moved: bool) -> None:
        """The committed ISR is another by `cause`: `expand`, `shrink` or `leader-and-isr`."""
        topic, index = partition.topic_partition
        self.counts[cause] = self.counts.get(cause, 0) + 1
        self._host.trace.emit(
            IsrChanged(
                topic=topic,
                partition=index,
                leader_epoch=partition.leader_epoch,
                isr=tuple(partition.isr),
                cause=cause,
            )
        )
        if hw_moved:
            self._wake_ups.high_watermark_moved(partition, "isr")

    def withdrawn(self, partition: Partition, *, hw_moved: bool) -> None:
        """A proposal will not be made: the high watermark waits for its members no more."""
        if hw_moved:
            self._wake_ups.high_watermark_moved(partition, "isr")


class IsrWrites:
    """Checks for members that lag, and brings every proposal to its end.

    It checks at half of `shortest_ms`, the shorter one of the times after which a member leaves (C4). A check that runs
    late shows that this process was stopped. It read nothing meanwhile, so the silence of followers counts from then.
    """

    def __init__(
        self,
        host: Host,
        store: IsrStore,
        node_id: NodeId,
        shortest_ms: int,
        partitions: Callable[[], Iterable[Partition]],
        changes: IsrChanges,
    ) -> None:
        self._host = host
        self._store = store
        self._node_id = node_id
        self._period_ms = max(1, shortest_ms // 2)
        self._due_ms = self._listening_ms = NEVER_MS
        self._partitions = partitions
        self._changes = changes
        self._timer: Timer | None = None
        self._refused: dict[TopicPartition, IsrProposal] = {}
        self._in_progress: dict[TopicPartition, IsrProposal] = {}
        self._stopped = False

    def start(self) -> None:
        """Begin the periodic check."""
        self._schedule(self._host.clock.monotonic_ms())

    def _schedule(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._period_ms
        self._timer = self._host.tasks.call_later(self._period_ms, self._check)

    def stop(self) -> None:
        """End the checks and the repetitions."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Write `proposal` of `partition`."""
        tp = partition.topic_partition
        assert self._in_progress.get(tp) is not proposal, f"{tp}: {proposal} is being written"
        self._in_progress[tp] = proposal
        self._host.tasks.spawn(self._write(partition, proposal), name=f"isr {partition.topic_partition}")

    def _check(self) -> None:
        if self._stopped:
            return
        now_ms = self._host.clock.monotonic_ms()
        if now_ms - self._due_ms >= LATE_MS:
            self._listening_ms = now_ms
        self._schedule(now_ms)
        refused, self._refused = self._refused, {}
        for partition in self._partitions():
            proposal = partition.propose_shrink(now_ms, self._listening_ms)
            if proposal is None:
                proposal = refused.get(partition.topic_partition)
                if proposal is None or proposal is not partition.proposal:
                    continue
            self.submit(partition, proposal)

    async def _write(self, partition: Partition, proposal: IsrProposal) -> None:
        try:
            await self._write_until_known(partition, proposal)
        finally:
            tp = partition.topic_partition
            if self._in_progress.get(tp) is proposal:
                del self._in_progress[tp]

    async def _write_until_known(self, partition: Partition, proposal: IsrProposal) -> None:
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
                    proposal.registrations,
                )
            except IsrMemberChangedError as error:
                self._host.trace.log("info", str(error))
                now_ms = self._host.clock.monotonic_ms()
                self._changes.withdrawn(partition, hw_moved=partition.isr_withdrawn(proposal, now_ms))
                return
            except (HarrowError, OSError, TimeoutError) as error:
                if pause_ms == RETRY_FIRST_MS:
                    self._host.trace.log(
                        "warning",
                        f"{partition.topic_partition}: writing ISR {list(proposal.isr)} failed "
                        f"({error!r}); repeating it until the outcome is known",
                    )
                await self._host.tasks.sleep(pause_ms)
                pause_ms = min(pause_ms * 2, RETRY_MOST_MS)
                continue
            tp = partition.topic_partition
            passes(self._host.failpoints, self._host.trace, AFTER_ISR_WRITE, tp)
            self._apply_write_result(partition, proposal, version)
            return

    def _apply_write_result(self, partition: Partition, proposal: IsrProposal, version: int | None) -> None:
        if version is None:
            if proposal is partition.proposal:
                self._refused[partition.topic_partition] = proposal
                self._host.trace.log(
                    "info",
                    f"{partition.topic_partition}: the registry's state is not version "
                    f"{proposal.expected_version} any more; waiting for LeaderAndIsr",
                )
            return
        before = partition.high_watermark
        if partition.isr_accepted(proposal, version, self._host.clock.monotonic_ms()):
            moved = partition.high_watermark > before
            self._changes.committed(partition, proposal.cause, hw_moved=moved)
