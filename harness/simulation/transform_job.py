"""A consume-transform-produce job on a virtual clock: one process of it, which may be killed at any moment.

Owns: `SimulatedJob`. Each transaction reads a batch from one partition with isolation level read_committed, writes it
to the partition of the sink with the same number, and commits the group's offset. After an error that is not retriable
the job begins again with InitProducerId, joins the group, and continues at the committed offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple

from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import TopicPartition
from harrow.faults.runs import CLASSIC, CONSUMER

from ..backends.simulated.wire import WireClient
from ..run_settings import RunSettings
from .committed_reads import Record, committed_records, fetch_committed
from .consumer_member import ConsumerMember
from .events import JobFailed
from .group_member import CommittedOffsets, GroupMember, Membership
from .transactional_producer import SimulatedTransactionalProducer

GROUP = "billing"
WAIT_MS = 50
BATCH_RECORDS_MOST = 6


MEMBERS: Mapping[str, type[GroupMember | ConsumerMember]] = {CLASSIC: GroupMember, CONSUMER: ConsumerMember}


LeadsSince = Callable[[int, int], bool]
"""Whether a broker leads the group's partition of the offsets topic, and did so at a time in nanoseconds."""


class ConfirmedBefore(NamedTuple):
    """What was committed before a request for the committed offsets."""

    offsets: Mapping[TopicPartition, int]
    at_ns: int


class JobProgress:
    """What all processes of the job have done."""

    def __init__(
        self, on_anomaly: Callable[[str, str], None], now_ns: Callable[[], int], leads_since: LeadsSince
    ) -> None:
        self._on_anomaly = on_anomaly
        self._now_ns = now_ns
        self._leads_since = leads_since
        self.processed: dict[TopicPartition, int] = {}
        """The highest offset of each partition of the source of which a commit was confirmed."""
        self.output_epochs: dict[TopicPartition, dict[bytes, int]] = {}
        """For each value of the sink, the lowest leader epoch that was known when it was sent."""
        self.stale: dict[TopicPartition, set[bytes]] = {}
        """The values of the sink that a process sent which had begun at the offsets of a replaced coordinator."""

    def confirm(self, offsets: Mapping[TopicPartition, int], *, stale: bool = False) -> None:
        """These offsets are committed.

        `stale`: by a process that began at the offsets of a replaced coordinator. The new one knows its membership and
        stores what it commits, so the committed offset of the group may go back, in Apache Kafka too (seed 732).
        """
        for tp, offset in offsets.items():
            self.processed[tp] = offset if stale else max(offset, self.processed.get(tp, 0))

    def before_reading(self) -> ConfirmedBefore:
        """Return what `compare` needs to know of the moment before a request for committed offsets."""
        return ConfirmedBefore(dict(self.processed), self._now_ns())

    def compare(self, found: CommittedOffsets, before: ConfirmedBefore) -> bool:
        """Judge the committed offsets that a coordinator returned; return whether it was replaced.

        A coordinator that was replaced and does not know it yet may return old offsets, in Apache Kafka too.
        """
        for tp, offset in found.offsets.items():
            confirmed = before.offsets.get(tp, 0)
            if offset < confirmed and self._leads_since(found.said_by, before.at_ns):
                text = f"{tp}: {confirmed} was committed, then the group's offset was {offset}"
                self._on_anomaly("committed-offset-regression", text)
        return not self._leads_since(found.said_by, self._now_ns())

    def note_output(self, tp: TopicPartition, values: Iterable[bytes], epoch: int) -> None:
        """The values are sent to a leader of `epoch` or a later one."""
        epochs = self.output_epochs.setdefault(tp, {})
        for value in values:
            epochs[value] = min(epoch, epochs.get(value, epoch))

    def note_stale(self, tp: TopicPartition, values: Iterable[bytes]) -> None:
        """The values are sent once more, perhaps: the process began at the offsets of a replaced coordinator."""
        self.stale.setdefault(tp, set()).update(values)


class SimulatedJob:
    """One process of the job."""

    def __init__(
        self, client: WireClient, name: str, settings: RunSettings, sink: str, rng: Random, progress: JobProgress
    ) -> None:
        self._client = client
        self._host = client.host
        self._sink = sink
        self._random = rng
        self._progress = progress
        self._aborted_part = settings.aborted_part
        self._member = MEMBERS[settings.group_protocol](client, GROUP, settings.topic, settings.partitions)
        self._producer = SimulatedTransactionalProducer(
            client, name, GROUP, timeout_ms=settings.transaction_timeout_ms, version=settings.transaction_version
        )
        self._begins_stale = False
        """Whether a coordinator that had been replaced said where this membership begins to read."""
        self.committed = 0
        """Transactions whose commit was confirmed."""

    def start(self) -> None:
        """Begin to work, for as long as the machine lives."""
        self._host.tasks.spawn(self._run(), name="job")

    async def _run(self) -> None:
        while True:
            await self._producer.begin_again()
            membership = await self._member.join()
            try:
                await self._work(membership)
            except KafkaError as error:
                self._host.trace.emit(JobFailed(error=error.code.name))
            membership.over = True

    async def _work(self, membership: Membership) -> None:
        """Process the member's partitions until the membership is over; KafkaError for an error of a transaction."""
        positions = await self._committed(membership)
        while not membership.over:
            if not positions:
                await self._client.pause()
            for tp in sorted(positions):
                if not membership.over:
                    await self._transact(tp, positions, membership)

    async def _committed(self, membership: Membership) -> dict[TopicPartition, int]:
        if not membership.partitions:
            return {}
        before = self._progress.before_reading()
        found = await self._member.committed(membership)
        self._begins_stale = self._progress.compare(found, before)
        self._progress.confirm(found.offsets)
        return found.offsets

    async def _transact(self, tp: TopicPartition, positions: dict[TopicPartition, int], membership: Membership) -> None:
        records, end = await self._read(tp, positions[tp])
        if end is None:
            return
        if not records:  # nothing but markers and aborted records
            positions[tp] = end
            return
        records = records[:BATCH_RECORDS_MOST]
        end = records[-1][0] + 1
        values = [(value, value, ()) for _, value in records]
        output = TopicPartition(self._sink, tp.partition)
        leader = await self._client.leader(output)
        self._progress.note_output(output, (value for _, value in records), leader.epoch)
        if self._begins_stale:
            self._progress.note_stale(output, (value for _, value in records))
        await self._producer.produce(output, values)
        await self._host.tasks.sleep(self._random.uniform(0, 60))
        await self._producer.send_offsets({tp: end}, membership)
        await self._host.tasks.sleep(self._random.uniform(0, 60))
        commit = self._random.random() >= self._aborted_part
        await self._producer.end(commit=commit)
        if commit:
            positions[tp] = end
            self._progress.confirm({tp: end}, stale=self._begins_stale)
            self.committed += 1

    async def _read(self, tp: TopicPartition, position: int) -> tuple[list[Record], int | None]:
        row = await fetch_committed(self._client, tp, position, WAIT_MS)
        if row is None or row.error:
            await self._client.refresh(tp.topic)
            await self._client.pause()
            if row is not None and row.error == ErrorCode.offset_out_of_range.value:
                raise KafkaError(ErrorCode.offset_out_of_range)
            return [], None
        records, end = committed_records(row.records, row.aborted or ())
        return [record for record in records if record[0] >= position], end
