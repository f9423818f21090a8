"""What the handlers of transaction requests share: the shard of a transactional id, and its transitions as coroutines.

Owns: the coordinator runtime of `__transaction_state`, which hosts a `TransactionShard` for each partition led here;
and the order of "decide, reserve a producer id where the epochs are used up, log".

Timeouts: a timer of `shard.py` looks, `has_timed_out` of `rules.py` decides, `abort_timed_out` here aborts.

What may fail: KafkaError with the code for the client; RegistryError while no producer id can be reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..coordinators import CoordinatorRuntime
from ..errors import ErrorCode, HarrowError, KafkaError
from ..host.seam import Host, Promise
from ..ids import TopicPartition
from ..internal_topics import TRANSACTIONS, InternalTopic
from . import rules
from .rules import Producer, ProducerIdNeededError
from .shard import TransactionEnvironment, TransactionShard
from .transaction import Transaction, TransactionValue

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..replication import ReplicaManager
    from .marker_sender import MarkerSender
    from .producer_ids import ProducerIds

Decision = Callable[[Transaction, int | None], TransactionValue | None]
"""`decide(transaction, new producer id)`: the value to log, or None."""


class TransactionService:
    """The transactions that this broker coordinates."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        replicas: ReplicaManager,
        cache: MetadataCache,
        producer_ids: ProducerIds,
        markers: MarkerSender,
    ) -> None:
        self.host = host
        self.cache = cache
        self._config = config
        self._producer_ids = producer_ids
        self._wait_ms = config.number("add.partitions.to.txn.retry.backoff.max.ms")
        self._timeout_ms_max = config.number("transaction.max.timeout.ms")
        number = config.number
        environment = TransactionEnvironment(
            host=host,
            markers=markers,
            abort=self._begin_abort,
            timeout_check_ms=number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_ms=number("transactional.id.expiration.ms"),
            expiration_check_ms=number("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            host,
            config,
            TRANSACTIONS,
            replicas,
            cache,
            write_timeout_ms=number("request.timeout.ms"),
            factory=lambda shard: TransactionShard(shard, environment),
        )

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """The shard that serves `transactional_id`; KafkaError when it is another broker's, or loading."""
        if not transactional_id:
            raise KafkaError(ErrorCode.invalid_request, "the transactional id is empty")
        return self.runtime.active(transactional_id)

    def partition_count(self, topic: InternalTopic) -> int:
        """Partitions of an internal topic: as it was created, or as configured before it exists."""
        return self.cache.partition_count(topic.name) or topic.partitions(self._config)

    # ---- InitProducerId ----------------------------------------------------------------------------

    async def initialise(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> TransactionValue:
        """The producer id and the epoch of a producer that starts, or that continues after an error (KIP-360)."""
        self.shard_of(transactional_id)
        if not 0 < timeout_ms <= self._timeout_ms_max:
            raise KafkaError(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms={timeout_ms} is not from 1 to transaction.max.timeout.ms="
                f"{self._timeout_ms_max}",
            )
        if self.shard_of(transactional_id).find(transactional_id) is None:
            producer_id = await self._producer_ids.new_id()
            shard = self.shard_of(transactional_id)
            if shard.find(transactional_id) is None:
                shard.create(transactional_id, producer_id, timeout_ms)

        def decide(transaction: Transaction, new_id: int | None) -> TransactionValue | None:
            now_ms = self.host.clock.wall_ms()
            return rules.initialise(transaction, expected, timeout_ms, now_ms, new_id)

        value = await self.change(transactional_id, decide)
        if value is not None:
            return value
        await self.abort(transactional_id)
        # the epoch of the abort fences the earlier producer; the client tries again until the markers are written
        raise KafkaError(ErrorCode.concurrent_transactions)

    # ---- EndTxn ------------------------------------------------------------------------------------

    async def end(self, transactional_id: str, producer: Producer, client_version: int, *, commit: bool) -> Producer:
        """Commit or abort; the id and epoch of the next transaction. The markers follow the response."""

        def decide(transaction: Transaction, new_id: int | None) -> TransactionValue | None:
            return rules.end(
                transaction,
                producer,
                commit=commit,
                client_version=client_version,
                now_ms=self.host.clock.wall_ms(),
                new_producer_id=new_id,
            )

        value = await self.change(transactional_id, decide)
        if value is None:
            value = self.shard_of(transactional_id).get(transactional_id).value
        if value.next_producer_id >= 0:
            return Producer(producer_id=value.next_producer_id, epoch=0)
        return Producer(producer_id=value.producer_id, epoch=value.producer_epoch)

    async def abort(self, transactional_id: str) -> None:
        """Abort the open transaction, if there is one, with an epoch that fences its producer."""

        def decide(transaction: Transaction, new_id: int | None) -> TransactionValue | None:
            return rules.abort(transaction, self.host.clock.wall_ms(), new_id)

        await self.change(transactional_id, decide)

    async def abort_timed_out(self, transactional_id: str) -> None:
        """Abort a transaction that has timed out: its producer, which may go on, is fenced (rule of KAFKA-6119)."""
        await self.abort(transactional_id)

    def _begin_abort(self, transactional_id: str) -> None:
        self.host.tasks.spawn(self._abort_timed_out(transactional_id), name=f"abort-{transactional_id}")

    async def _abort_timed_out(self, transactional_id: str) -> None:
        try:
            await self.abort_timed_out(transactional_id)
        except HarrowError as error:  # the next check tries again, here or at the next coordinator
            text = f"{transactional_id} has timed out and is not aborted yet: {error}"
            self.host.trace.log("warning", text)

    # ---- AddPartitionsToTxn ------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        done: Callable[[ErrorCode], None],
        *,
        may_wait: bool = False,
    ) -> None:
        """Add partitions to the transaction, which begins with the first; `done` follows once.

        `may_wait`: while the markers of the transaction before are being written, wait for them, at most
        `add.partitions.to.txn.retry.backoff.max.ms`. A client that gets CONCURRENT_TRANSACTIONS waits longer.
        """
        transaction: Transaction | None = None
        try:
            shard = self.shard_of(transactional_id)
            transaction = shard.get(transactional_id)
            now_ms = self.host.clock.wall_ms()
            value = rules.add_partitions(transaction, producer, partitions, client_version, now_ms)
        except KafkaError as error:
            concurrent = error.code is ErrorCode.concurrent_transactions
            if may_wait and concurrent and transaction is not None and transaction.is_ending:
                again = partial(self.add_partitions, transactional_id, producer, partitions, client_version, done)
                self._once_ended(transaction, again)
            else:
                done(error.code)
            return
        if value is None:
            done(ErrorCode.none)
        else:
            shard.write(transaction, value, done)

    def _once_ended(self, transaction: Transaction, call: Callable[[], None]) -> None:
        """Call once: when the transaction has ended, or when it takes too long."""
        waiting = [call]

        def call_first() -> None:
            timer.cancel()
            while waiting:
                waiting.pop()()

        timer = self.host.tasks.call_later(self._wait_ms, call_first)
        transaction.once_ended(call_first)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is in the open transaction."""
        try:
            transaction = self.shard_of(transactional_id).get(transactional_id)
            return rules.verify(transaction, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)

    # ---- one transition ----------------------------------------------------------------------------

    async def change(self, transactional_id: str, decide: Decision) -> TransactionValue | None:
        """Decide and log; the logged value, None when nothing was to be logged. KafkaError."""
        new_id: int | None = None
        while True:
            shard = self.shard_of(transactional_id)
            transaction = shard.get(transactional_id)
            try:
                value = decide(transaction, new_id)
            except ProducerIdNeededError:
                new_id = await self._producer_ids.new_id()
                continue
            if value is None:
                return None
            promise: Promise[ErrorCode] = self.host.tasks.promise()
            shard.write(transaction, value, promise.set_result)
            error = await promise
            if error is not ErrorCode.none:
                raise KafkaError(error)
            return value
