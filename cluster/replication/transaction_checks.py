"""May a transactional batch be appended? The leader asks the transaction coordinator first (F4, KIP-890).

Owns: `TransactionChecks`, the rule which batches need the question, the guard between the answer and the append, and
the errors for producers. Without it a batch that arrives after the end of its transaction would open the transaction
again in this log, and no marker would ever follow: the last stable offset would not advance any more.

    the producer has an open transaction in the log, same epoch   no question: the partition was verified before
    the log knows a later epoch of the producer                   no question, INVALID_PRODUCER_EPOCH: a batch that is
                                                                  refused must not have joined a transaction
    Produce up to v11 (transaction version 1)                     verify: the client has sent AddPartitionsToTxn
    Produce from v12 on (transaction version 2)                   add the partition to the transaction

The guard: the answer counts only if no marker of the producer was appended, and this broker did not lose the
leadership, while the coordinator was asked. Otherwise the transaction may have ended meanwhile, and the question is
asked again. So is an addition that meets the end of the last transaction, for
`add.partitions.to.txn.retry.backoff.max.ms`: a producer of version 2 begins its next transaction as soon as the
result of the last one is logged, before its markers are written.

A producer that is unknown here may begin with any sequence (older batches may be deleted). After a batch that was not
appended its next batch must therefore not pass. So from the first question about a producer until its first batch or
marker here these are remembered (`FirstBatch`): the highest epoch that was asked about, the lowest sequence of that
epoch, and whether the first question was an addition. A batch with a higher sequence is refused, and where the first
question was an addition, each batch that does not begin with sequence 0.

Source: Kafka's ReplicaManager.maybeSendPartitionsToTransactionCoordinator, UnifiedLog, VerificationStateEntry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..errors import ErrorCode
from ..host.seam.failpoints import AFTER_VERIFICATION, BEFORE_VERIFICATION
from ..ids import TopicPartition
from ..wire.batches import HEADER_SIZE, header_at
from .produce_result import ProduceResult

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..host.seam import Buffer, Host
    from ..storage.producers.producer_entry import ProducerEntry
    from .partition import Partition
    from .partition_directory import PartitionDirectory

ADDS_FROM = 12
"""First version of Produce whose clients do not send AddPartitionsToTxn."""
ABORTABLE_FROM = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE."""
REMEMBERED_MOST = 1000
"""How many producers without a batch are remembered."""

STALE_ANSWERS_MOST = 10
"""How often a question is asked again because of markers, before the batch is refused."""

NOT_VERIFIED = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""The coordinator gave no answer: a producer gets NOT_ENOUGH_REPLICAS, on which every client tries again."""

_NONE, _CONCURRENT = ErrorCode.none, ErrorCode.concurrent_transactions
_STALE = ErrorCode.invalid_txn_state
"""A marker was appended while the coordinator was asked: the answer may be of the time before or after it."""


class TransactionQueries(Protocol):
    """What the leader needs of the transaction coordinators."""

    async def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Whether each partition is in the open transaction of this producer; `add`: add it."""
        ...


class Unverified(NamedTuple):
    """A batch that waits for the coordinator, and what the log had of its producer when the question was sent."""

    producer_id: int
    producer_epoch: int
    sequence: int
    partition: Partition
    generation: int
    entry: ProducerEntry | None

    @property
    def is_fenced(self) -> bool:
        """Whether the log knows a later epoch of the producer."""
        return self.entry is not None and self.producer_epoch < self.entry.epoch


class FirstBatch(NamedTuple):
    """What the leader has asked about a producer while the log's entry of it was `entry`."""

    epoch: int
    sequence: int
    """The lowest of `epoch`."""
    adds: bool
    entry: ProducerEntry | None

    def with_question(self, epoch: int, sequence: int) -> FirstBatch:
        """The same after another question: a higher epoch counts alone, an older one does not count."""
        if epoch > self.epoch:
            return self._replace(epoch=epoch, sequence=sequence)
        lower = epoch == self.epoch and sequence < self.sequence
        return self._replace(sequence=sequence) if lower else self

    def may_be(self, sequence: int) -> bool:
        """Whether a batch that begins with `sequence` may be the first here."""
        return sequence <= self.sequence and (sequence == 0 or not self.adds)


class TransactionChecks:
    """Asks coordinators on behalf of the partitions that this broker leads."""

    def __init__(self, host: Host, config: BrokerConfig, directory: PartitionDirectory) -> None:
        self._host = host
        self._directory = directory
        self._config = config
        self._retry_ms = config.number("add.partitions.to.txn.retry.backoff.ms")
        self._retry_ms_max = config.number("add.partitions.to.txn.retry.backoff.max.ms")
        self._first: dict[tuple[TopicPartition, int], FirstBatch] = {}
        self.queries: TransactionQueries | None = None
        """The broker sets it, because the coordinators use this room."""

    # ---- Produce -----------------------------------------------------------------------------------

    def unverified(self, entries: Mapping[TopicPartition, Buffer], version: int) -> dict[TopicPartition, Unverified]:
        """The transactional batches of a Produce that the coordinator must be asked about."""
        found: dict[TopicPartition, Unverified] = {}
        for tp, records in entries.items():
            if len(records) < HEADER_SIZE:
                continue  # the append refuses it
            header = header_at(records)
            if header.is_transactional:
                producer = (header.producer_id, header.producer_epoch, header.base_sequence)
                row = self._unverified(tp, *producer, add=version >= ADDS_FROM)
                if row is not None:
                    found[tp] = row
        return found

    async def check(
        self, transactional_id: str, unverified: Mapping[TopicPartition, Unverified], version: int
    ) -> dict[TopicPartition, ProduceResult]:
        """Ask about these batches; the refused ones with the error for the producer. Append the others at once."""
        if len({row[:2] for row in unverified.values()}) > 1:
            refused = ProduceResult.refused(
                ErrorCode.invalid_producer_id_mapping,
                "a produce request has transactional batches of several producers",
            )
            return dict.fromkeys(unverified, refused)
        errors = await self._ask(transactional_id, unverified, add=version >= ADDS_FROM)
        results: dict[TopicPartition, ProduceResult] = {}
        for tp, error in errors.items():
            if error is not _NONE:
                known = error_for_client(
                    error,
                    again=ErrorCode.not_enough_replicas,
                    adds=version >= ADDS_FROM,
                    knows_abortable=version >= ABORTABLE_FROM,
                )
                text = f"{tp}: the transaction coordinator said {error.name}"
                results[tp] = ProduceResult.refused(known, text)
        return results

    # ---- TxnOffsetCommit ---------------------------------------------------------------------------

    async def check_offsets(
        self, tp: TopicPartition, transactional_id: str, producer_id: int, epoch: int, *, add: bool
    ) -> ErrorCode:
        """Ask whether offsets may be written to `tp` in a transaction; the coordinator's own error."""
        row = self._unverified(tp, producer_id, epoch, 0, add=add)
        if row is None:
            return _NONE
        return (await self._ask(transactional_id, {tp: row}, add=add))[tp]

    # ---- question and guard ------------------------------------------------------------------------

    def _unverified(
        self, tp: TopicPartition, producer_id: int, epoch: int, sequence: int, *, add: bool
    ) -> Unverified | None:
        partition = self._directory.partition(tp)
        if partition is None or not partition.is_leader or self.queries is None:
            return None  # the append refuses it
        entry = partition.log.producers.get(producer_id)
        is_open = entry is not None and entry.has_open_transaction(epoch)
        if is_open or not self.must_ask(add=add):
            return None
        generation = partition.leadership_generation
        row = Unverified(producer_id, epoch, sequence, partition, generation, entry)
        self._remember(tp, row, add=add)
        return row

    def must_ask(self, *, add: bool) -> bool:
        """Whether a batch may open a transaction in this log only if the coordinator agrees (rule of KIP-890)."""
        return add or self._config.flag("transaction.partition.verification.enable")

    async def _ask(
        self, transactional_id: str, unverified: Mapping[TopicPartition, Unverified], *, add: bool
    ) -> dict[TopicPartition, ErrorCode]:
        """The error of each partition: the coordinator's, or that of the guard."""
        self._host.failpoints.hit(BEFORE_VERIFICATION)
        give_up_ms = self._host.clock.monotonic_ms() + self._retry_ms_max
        fenced = [tp for tp, row in unverified.items() if row.is_fenced]
        errors = dict.fromkeys(fenced, ErrorCode.invalid_producer_epoch)
        asked, attempts = {tp: row for tp, row in unverified.items() if tp not in errors}, 0
        while asked:
            errors |= await self._ask_once(transactional_id, asked, add=add)
            attempts += 1
            in_time = add and self._host.clock.monotonic_ms() < give_up_ms
            concurrent = [tp for tp in asked if errors[tp] is _CONCURRENT and in_time]
            stale = [tp for tp in asked if errors[tp] is _STALE and attempts < STALE_ANSWERS_MOST]
            if concurrent:
                await self._host.tasks.sleep(self._retry_ms)
            asked = {tp: self._present(tp, asked[tp], add=add) for tp in (*concurrent, *stale)}
        self._host.failpoints.hit(AFTER_VERIFICATION)
        return errors

    async def _ask_once(
        self, transactional_id: str, unverified: Mapping[TopicPartition, Unverified], *, add: bool
    ) -> dict[TopicPartition, ErrorCode]:
        assert self.queries is not None, "asked without coordinators"
        first = next(iter(unverified.values()))
        answers = await self.queries.check(
            transactional_id, first.producer_id, first.producer_epoch, tuple(unverified), add=add
        )
        return {tp: answers[tp] if answers[tp] is not _NONE else self._guard(tp, row) for tp, row in unverified.items()}

    def _present(self, tp: TopicPartition, row: Unverified, *, add: bool) -> Unverified:
        """The same batch, with what the log has of its producer now."""
        row = row._replace(entry=row.partition.log.producers.get(row.producer_id))
        self._remember(tp, row, add=add)
        return row

    def _guard(self, tp: TopicPartition, row: Unverified) -> ErrorCode:
        """The error when the coordinator's answer may be too old, or an earlier batch of the producer is missing."""
        partition = row.partition
        leads = self._directory.partition(tp) is partition and partition.is_leader
        if not leads or partition.leadership_generation != row.generation:
            return ErrorCode.not_leader_or_follower
        entry = partition.log.producers.get(row.producer_id)
        is_open = entry is not None and entry.has_open_transaction(row.producer_epoch)
        if not is_open and entry is not row.entry:
            return _STALE
        if entry is not None and entry.batches:
            return _NONE  # the append checks the sequence
        first = self._first.get((tp, row.producer_id))
        missing = first is not None and first.entry is entry and not first.may_be(row.sequence)
        return ErrorCode.out_of_order_sequence_number if missing else _NONE

    def _remember(self, tp: TopicPartition, row: Unverified, *, add: bool) -> None:
        """Keep what is asked about a producer without batches; forget what was asked before its last marker."""
        before = self._first.pop((tp, row.producer_id), None)
        if row.entry is not None and row.entry.batches:
            return
        first = FirstBatch(row.producer_epoch, row.sequence, add, row.entry)
        if before is not None and before.entry is row.entry:
            first = before.with_question(row.producer_epoch, row.sequence)
        self._first[tp, row.producer_id] = first
        if len(self._first) > REMEMBERED_MOST:
            del self._first[next(iter(self._first))]


def error_for_client(error: ErrorCode, *, again: ErrorCode, adds: bool, knows_abortable: bool) -> ErrorCode:
    """The code for a client whose batch or offsets were not allowed.

    `again`: the code on which the client tries again, where the coordinator gave no answer. `adds`: the request itself
    adds the partition to the transaction (transaction version 2). `knows_abortable`: the client knows
    TRANSACTION_ABORTABLE.
    """
    if error in NOT_VERIFIED or (error is _CONCURRENT and not adds):
        return again
    if error is ErrorCode.transaction_abortable and not knows_abortable:
        return ErrorCode.invalid_txn_state
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    return error
