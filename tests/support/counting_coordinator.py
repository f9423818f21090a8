"""The smallest coordinator: one counter for each key, over `CoordinatorRuntime`.

An increment writes the next count of its key and changes the state when the record is committed. Meanwhile a second
increment of that key is refused CONCURRENT_TRANSACTIONS, as Kafka's transaction coordinator refuses a second change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from coordinator_fakes import FakeCache, FakeReplicas
from harrow.cluster.config import BrokerConfig
from harrow.cluster.coordinators import (
    COORDINATOR_ERRORS,
    CoordinatorRuntime,
    CoordinatorWrite,
    RecordFormatError,
    Shard,
    TransactionalProducer,
)
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import Offset
from harrow.cluster.internal_topics import InternalTopic
from harrow.cluster.wire.batches import Record
from manual_host import ManualHost

COUNTERS = InternalTopic(
    name="__counters",
    partitions_setting="offsets.topic.num.partitions",
    replication_factor_setting="offsets.topic.replication.factor",
)
PARTITIONS = 2
IDLE_MS = 10_000
"""A counter that is not incremented for so long is removed by a tombstone."""


@dataclass
class Increment:
    """One request; `count` or `error` is set once it is answered."""

    key: str
    count: int | None = None
    error: ErrorCode | None = None

    @property
    def is_answered(self) -> bool:
        return self.count is not None or self.error is not None

    def answer(self, *, count: int | None = None, error: ErrorCode | None = None) -> None:
        assert not self.is_answered, f"answered twice: {self}, then {count}, {error}"
        self.count, self.error = count, error


class CounterMachine:
    """The counters of one partition."""

    def __init__(self, shard: Shard, idle_ms: int) -> None:
        self.shard = shard
        self.idle_ms = idle_ms
        self.counts: dict[str, int] = {}
        self.life: list[str] = []
        self.markers: list[tuple[TransactionalProducer, bool]] = []
        self.transactional: list[tuple[str, TransactionalProducer]] = []
        self._changing: set[str] = set()

    def replay(self, record: Record, producer: TransactionalProducer | None, /) -> None:
        assert not self.shard.is_active
        if record.key is None or (record.value is not None and not record.value.isdigit()):
            raise RecordFormatError(f"no counter: {record.key!r}")
        key = record.key.decode()
        if producer is not None:
            self.transactional.append((key, producer))
        elif record.value is None:
            self.counts.pop(key, None)
        else:
            self.counts[key] = int(record.value)

    def replay_end_marker(self, producer: TransactionalProducer, /, *, commit: bool) -> None:
        self.markers.append((producer, commit))

    def loaded(self, took_ms: int) -> None:
        assert took_ms >= 0
        self.life.append("loaded")
        for key in self.counts:
            self._watch(key)

    def unload(self) -> None:
        self.life.append("unloaded")

    def increment(self, request: Increment) -> None:
        key = request.key
        if key in self._changing:
            request.answer(error=ErrorCode.concurrent_transactions)
            return
        count = self.counts.get(key, 0) + 1
        self._changing.add(key)

        def committed(_base_offset: Offset) -> None:
            self._changing.discard(key)
            self.counts[key] = count
            self._watch(key)
            request.answer(count=count)

        def failed(error: ErrorCode) -> None:
            self._changing.discard(key)
            request.answer(error=error)

        self.shard.write(
            CoordinatorWrite(
                records=[(key.encode(), str(count).encode())],
                committed=committed,
                failed=failed,
                errors={**COORDINATOR_ERRORS, ErrorCode.message_too_large: ErrorCode.invalid_request},
            )
        )

    def _watch(self, key: str) -> None:
        self.shard.timers.schedule(key, self.idle_ms, lambda: self._remove(key))

    def _remove(self, key: str) -> None:
        def committed(_base_offset: Offset) -> None:
            self.counts.pop(key, None)

        self.shard.write(
            CoordinatorWrite(
                records=[(key.encode(), None)],
                committed=committed,
                failed=lambda _error: self._watch(key) if self.shard.is_active else None,
                errors=COORDINATOR_ERRORS,
            )
        )


class CountingCoordinator:
    """A broker with nothing but counters."""

    def __init__(self, idle_ms: int = IDLE_MS) -> None:
        self.idle_ms = idle_ms
        self.host = ManualHost()
        self.replicas = FakeReplicas(self.host, COUNTERS.name)
        self.cache = FakeCache()
        self.cache.topics[COUNTERS.name] = PARTITIONS
        self.made: list[CounterMachine] = []
        self.runtime: CoordinatorRuntime[CounterMachine] = CoordinatorRuntime(
            self.host,
            BrokerConfig.parse({}),
            COUNTERS,
            cast("Any", self.replicas),
            self.cache,
            write_timeout_ms=5_000,
            factory=self._make,
        )
        self.replicas.on_leadership.append(self.runtime.leadership_changed)

    def _make(self, shard: Shard) -> CounterMachine:
        self.made.append(CounterMachine(shard, self.idle_ms))
        return self.made[-1]

    def increment(self, key: str) -> Increment:
        """Send an increment; its answer may come later."""
        request = Increment(key)
        try:
            machine = self.runtime.active(key)
        except KafkaError as error:
            request.answer(error=error.code)
        else:
            machine.increment(request)
        self.host.run_due()
        return request

    def count(self, key: str) -> int | ErrorCode:
        """The count that is served, or why none is."""
        try:
            return self.runtime.active(key).counts.get(key, 0)
        except KafkaError as error:
            return error.code
