"""The share-partitions of the topic-partitions that are led here: loaded by the first fetch, gone with the leadership.

Owns: `ShareDirectory`, and `LedShare`, one share-partition with its writes and its locks. Invariants:

* a change is committed after the persister has it, and rolled back where the persister refuses it;
* writes of one share-partition follow each other: what became due during a write goes into the next one, so that a
  stored start offset never falls;
* dead letters are copied once their state is stored; then, or when that fails, they are archived. A leader that loads
  records of that state copies them again;
* a share-partition of an earlier leadership changes nothing: it is closed when the leadership ends, and its later
  writes are fenced by the leader epoch that the next leader has stored.

`on_changed` is called with a share-partition of which a member may acquire something now.

Source: Kafka's SharePartitionManager, SharePartition (maybeInitialize, writeShareGroupState, timeouts).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import BrokerConfig
from ..config.group_table import SHARE_DELIVERIES, SHARE_LOCKS
from ..errors import ErrorCode, HarrowError, KafkaError, StorageError
from ..host.seam import Host
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..purgatory import PurgatoryTimer
from ..purgatory.timing_wheel import TimerEntry
from ..share_coordinator.values import UNINITIALIZED, SharePartition, StateBatch
from .acknowledgements import Acknowledgement
from .dead_letters import DeadLetterQueues, Source
from .in_flight_records import Change, DeadLetters, Records
from .resets import starting_offset
from .share_partition import SharePartitionState
from .tapped_shares import TappedShares

if TYPE_CHECKING:
    from ..replication import ReplicaManager
    from ..replication.partition import Partition
    from ..share_coordinator import Persister

FENCED = frozenset(
    (ErrorCode.not_leader_or_follower, ErrorCode.group_id_not_found, ErrorCode.unknown_topic_or_partition)
)
"""After these errors of a write this broker's state is not the stored one: it is loaded again."""
PERSISTER_ERRORS = {
    ErrorCode.not_coordinator: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress: ErrorCode.coordinator_not_available,
    ErrorCode.group_id_not_found: ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition: ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_state_epoch: ErrorCode.not_leader_or_follower,
}
"""Error of the share coordinator -> what the member gets; others: UNKNOWN_SERVER_ERROR."""

Done = Callable[[KafkaError | None], None]


class _Write(NamedTuple):
    """What has to be stored, and what follows."""

    batches: Sequence[StateBatch]
    done: Done


class _Deadline(TimerEntry):
    """The end of the next lock of a share-partition."""

    __slots__ = ("_run",)

    def __init__(self, deadline_ms: int, run: Callable[[], None]) -> None:
        super().__init__(deadline_ms)
        self._run = run

    def expire(self) -> None:
        """The deadline has passed."""
        self._run()


class LedShare:
    """One share-partition on the leader."""

    def __init__(self, share: SharePartition, partition: Partition, directory: ShareDirectory) -> None:
        self.share = share
        self.partition = partition
        self.leader_epoch = LeaderEpoch(partition.leader_epoch)
        self.state: SharePartitionState | None = None
        """None until it is loaded."""
        self.closed = False
        self._directory = directory
        self._writes: list[_Write] = []
        self._writing = False
        self._deadline: _Deadline | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the topic."""
        return self.partition.topic_partition

    def active(self) -> SharePartitionState | None:
        """The state, with what the log start has removed; None while it loads."""
        state = self.state
        if state is not None and not self.closed:
            state.log_start_moved(self.partition.log.log_start_offset)
        return state

    # ---- changes -----------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, said: Sequence[Acknowledgement], renewed_until_ms: int | None, done: Done
    ) -> None:
        """Do what a member says of its records; `done(error)` once it is stored. KafkaError where it cannot be.

        Records that the member renews stay acquired until `renewed_until_ms`; None: the group lets nothing be renewed.
        """
        state = self.active()
        if state is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        change = state.acknowledge(member, said, renewed_until_ms=renewed_until_ms)

        def stored(error: KafkaError | None) -> None:
            done(error)
            if error is None:
                self._directory.tapped.given_up(self, member, said, change.batches)

        self.change(change, stored)
        self._watch_locks()

    def release(self, member: str) -> None:
        """Release what a member holds."""
        state = self.active()
        if state is None:
            return
        held = state.release(member)

        def done(error: KafkaError | None) -> None:
            if error is None:
                self._directory.tapped.released(self, member, held.batches)

        self.change(held, done)

    def change(self, change: Change, done: Done) -> None:
        """Store a change that has begun; then commit it, or roll it back."""
        if not change.records:
            done(None)
            return
        state = self.state
        assert state is not None, f"{self.share} changes before it is loaded"

        def stored(error: KafkaError | None) -> None:
            if error is None:
                state.commit(change)
            else:
                state.roll_back(change, now_ms=self._directory.now_ms())
            done(error)
            if error is None:
                self._copy(change.dead_letters)
            self._watch_locks()
            self._directory.changed(self)

        self._write(change.batches, stored)

    def members(self) -> list[str]:
        """The members that hold records."""
        return [] if self.state is None else list(dict.fromkeys(row.member for row in self.state if row.member))

    def acquired(self) -> None:
        """A member has got records: watch their locks."""
        self._watch_locks()

    # ---- locks -------------------------------------------------------------------------------------

    def _watch_locks(self) -> None:
        due_ms = None if self.state is None or self.closed else self.state.next_deadline_ms()
        known = self._deadline
        if known is not None:
            if known.deadline_ms == due_ms:
                return
            known.cancel()
            self._deadline = None
        if due_ms is not None:
            self._deadline = _Deadline(due_ms, self.expire_locks)
            self._directory.timer.add(self._deadline)

    def expire_locks(self) -> None:
        """Release the records whose locks have ended."""
        self._deadline = None
        state = self.active()
        if state is None or self.closed:
            return
        held = [(row.member, row.first, row.last) for row in state if row.member]
        change = state.expire(self._directory.now_ms())
        if change.batches:
            self._directory.tapped.expired(self, change.batches, held)

            def stored(error: KafkaError | None) -> None:
                if error is not None:
                    self._directory.log(f"{self.share}: the end of a lock is not stored: {error}")
                self._copy(change.dead_letters)

            self._write(change.batches, stored)
            self._directory.changed(self)
        self._watch_locks()

    def end_locks(self, member: str) -> int:
        """End the locks of a member now, as if their time had passed; returns how many records it held."""
        state = self.active()
        if state is None:
            return 0
        rows: list[Records] = [row for row in state if row.member == member and row.next_state is None]
        for row in rows:
            row.deadline_ms = self._directory.now_ms()
        self.expire_locks()
        return sum(len(row) for row in rows)

    # ---- dead letters ------------------------------------------------------------------------------

    def loaded(self) -> None:
        """The state is here: what an earlier leader has begun to copy is copied, as far as the log still has it."""
        state = self.active()
        if state is not None:
            self._copy(state.dead_letters())

    def _copy(self, found: Iterable[DeadLetters]) -> None:
        for letters in found:
            self._directory.spawn(self._copy_and_archive(letters), f"dead-letters-{self.share.coordinator_key}")

    async def _copy_and_archive(self, letters: DeadLetters) -> None:
        span = f"{self.share}: offsets {letters.first_offset} to {letters.last_offset}"
        code = ErrorCode.none
        try:
            await self._directory.queues.copy(Source(self.share.group_id, self.partition), letters)
        except (HarrowError, OSError, TimeoutError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.network_exception
            self._directory.log(f"{span} are not in the dead-letter queue, and given up: {error}")
        if not self.closed:  # else the next leader copies them
            self._directory.tapped.copied(self, letters, int(code))
        state = self.active()
        change = None if state is None or self.closed else state.archive(letters)
        if change is None or not change.batches:
            return

        def stored(error: KafkaError | None) -> None:
            if error is not None:
                self._directory.log(f"{span}: their end is not stored: {error}")
            self._directory.changed(self)

        self._write(change.batches, stored)

    # ---- writes ------------------------------------------------------------------------------------

    def _write(self, batches: Sequence[StateBatch], done: Done) -> None:
        self._writes.append(_Write(tuple(batches), done))
        if not self._writing:
            self._writing = True
            self._directory.spawn(self._write_all(), f"share-{self.share.coordinator_key}")

    async def _write_all(self) -> None:
        while self._writes:
            writes, self._writes = self._writes, []
            error = await self._store([batch for write in writes for batch in write.batches])
            for write in writes:
                write.done(error)
            if error is not None and error.code in FENCED:
                self._directory.remove(self)
        self._writing = False

    async def _store(self, batches: Sequence[StateBatch]) -> KafkaError | None:
        state = self.state
        assert state is not None, f"{self.share} is stored before it is loaded"
        try:
            await self._directory.persister.write(
                self.share,
                state_epoch=state.state_epoch,
                leader_epoch=self.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
                batches=batches,
            )
        except KafkaError as error:
            return member_error(error)
        return None

    def close(self) -> None:
        """No lock is watched any more."""
        self.closed = True
        self._watch_locks()


def member_error(error: KafkaError) -> KafkaError:
    """What a member gets for an error of the share coordinator."""
    return KafkaError(PERSISTER_ERRORS.get(error.code, ErrorCode.unknown_server_error), str(error))


class ShareDirectory:
    """The share-partitions of a broker."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        replicas: ReplicaManager,
        persister: Persister,
        queues: DeadLetterQueues,
    ) -> None:
        self.persister = persister
        self.queues = queues
        self.timer = PurgatoryTimer(host)
        self.tapped = TappedShares(host)
        self.on_changed: list[Callable[[LedShare], None]] = []
        self._host = host
        self._config = config
        self._replicas = replicas
        self._shares: dict[SharePartition, LedShare] = {}
        replicas.on_leadership.append(self._leadership_changed)

    def __iter__(self) -> Iterator[LedShare]:
        return iter(list(self._shares.values()))

    def now_ms(self) -> int:
        """The monotonic clock, to which all deadlines refer."""
        return self._host.clock.monotonic_ms()

    def find(self, share: SharePartition) -> LedShare | None:
        """A share-partition that was fetched before; it may be loading."""
        return self._shares.get(share)

    def lead(self, share: SharePartition, tp: TopicPartition, on_error: Callable[[KafkaError], None]) -> LedShare:
        """The share-partition, which begins to load if it is new; KafkaError where the topic-partition is not led here.

        `on_error` is called when it cannot be loaded.
        """
        partition = self._replicas.partition(tp)
        if partition is None:
            raise KafkaError(self._replicas.missing(tp))
        code = partition.check_leader()
        if code is not ErrorCode.none:
            raise KafkaError(code)
        found = self._shares.get(share)
        if found is not None and found.partition is partition:
            return found
        if found is not None:
            self.remove(found)
        made = self._shares[share] = LedShare(share, partition, self)
        self.spawn(self._load(made, on_error), f"load-share-{share.coordinator_key}")
        return made

    async def _load(self, led: LedShare, on_error: Callable[[KafkaError], None]) -> None:
        try:
            stored = await self.persister.read(led.share, leader_epoch=led.leader_epoch)
            start = stored.start_offset
            if start == UNINITIALIZED:
                start = await starting_offset(self._host, self._config, led.share.group_id, led.partition)
        except KafkaError as error:
            on_error(member_error(error))
            self.remove(led)
        except (HarrowError, StorageError, OSError) as error:
            on_error(KafkaError(ErrorCode.unknown_server_error, str(error)))
            self.remove(led)
        else:
            if not led.closed:
                group_id = led.share.group_id
                led.state = SharePartitionState(
                    stored,
                    Offset(max(start, led.partition.log.log_start_offset)),
                    limit=self._config.group_number(group_id, SHARE_DELIVERIES),
                    locks_most=self._config.group_number(group_id, SHARE_LOCKS),
                    has_dead_letters=lambda: self.queues.has(group_id),
                )
                self.tapped.loaded(led, led.state.start_offset, led.state.deliveries_most)
                led.loaded()
        self.changed(led)

    # ---- for share-partitions ------------------------------------------------------------------------

    def changed(self, led: LedShare) -> None:
        """Something may be acquired now, or will not be."""
        for call in self.on_changed:
            call(led)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine of a share-partition."""
        self._host.tasks.spawn(coroutine, name=name)

    def log(self, text: str) -> None:
        """A warning for people."""
        self._host.trace.log("warning", text)

    def remove(self, led: LedShare) -> None:
        """Forget a share-partition; the next fetch loads it again."""
        led.close()
        if self._shares.get(led.share) is led:
            del self._shares[led.share]
        self.changed(led)

    # ---- leadership ----------------------------------------------------------------------------------

    def _leadership_changed(self, became_leader: Iterable[Partition], became_follower: Iterable[Partition]) -> None:
        if not self._shares:
            return
        gone = {partition.topic_partition for partition in became_follower}
        again = {partition.topic_partition: partition for partition in became_leader}
        for led in list(self._shares.values()):
            tp = led.topic_partition
            if tp in gone or (tp in again and again[tp] is not led.partition):
                self.remove(led)

    def close(self) -> None:
        """The broker stops."""
        for led in list(self._shares.values()):
            self.remove(led)
        self.timer.close()
