"""One partition of an internal topic in one leadership generation: its state, its writes, its timers.

Owns: `Shard`, which a state machine is given and keeps. Invariants:

* states only follow each other as in `TRANSITIONS`; an unloaded shard stays so;
* nothing is written while the shard is loading: what lies above the HW at the start of a load is of earlier leaders;
* each write is committed or failed exactly once; a result of the log that arrives after the unload is dropped, because
  the unload failed the write with NOT_COORDINATOR.

Source: Kafka's CoordinatorRuntime.CoordinatorContext and CoordinatorState.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ErrorCode
from ..ids import LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from .replicas import LedPartition
    from .state_machine import CoordinatorWrite
    from .timers import ShardTimers
    from .writer import PartitionWriter


class ShardState(Enum):
    """Life of a shard."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


TRANSITIONS: Mapping[ShardState, frozenset[ShardState]] = {
    ShardState.LOADING: frozenset({ShardState.ACTIVE, ShardState.UNLOADED}),
    ShardState.ACTIVE: frozenset({ShardState.UNLOADED}),
    ShardState.UNLOADED: frozenset(),
}
"""State -> states that may follow."""


class Shard:
    """What a state machine may do with its partition."""

    __slots__ = (
        "_in_progress",
        "_last_write",
        "_partition",
        "_writer",
        "first_leader_epoch",
        "leadership_generation",
        "state",
        "timers",
    )

    def __init__(self, partition: LedPartition, writer: PartitionWriter, timers: ShardTimers) -> None:
        self._partition = partition
        self._writer = writer
        self.timers = timers
        self.leadership_generation = partition.leadership_generation
        self.first_leader_epoch = partition.leader_epoch
        """The leader epoch in which the generation began: of two coordinators, the later one has the larger number."""
        self.state = ShardState.LOADING
        self._last_write = 0
        self._in_progress: dict[int, CoordinatorWrite] = {}

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the internal topic."""
        return self._partition.topic_partition

    @property
    def number(self) -> int:
        """The partition's number."""
        return self._partition.topic_partition.partition

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch now; transaction markers carry it as the coordinator epoch."""
        return self._partition.leader_epoch

    @property
    def is_active(self) -> bool:
        """True once loaded, until unloaded."""
        return self.state is ShardState.ACTIVE

    @property
    def is_current(self) -> bool:
        """True while the shard is not unloaded and its replica still leads in the shard's generation."""
        partition = self._partition
        leads = partition.is_leader and partition.leadership_generation == self.leadership_generation
        return leads and self.state is not ShardState.UNLOADED

    def is_of_generation(self, partition: LedPartition) -> bool:
        """True when the shard was loaded from `partition` in the generation in which that leads now."""
        # Each replica object counts its own generations, so the number alone does not identify one.
        same_generation = self.leadership_generation == partition.leadership_generation
        return partition is self._partition and same_generation

    @property
    def writes_in_progress(self) -> int:
        """Writes that are neither committed nor failed yet."""
        return len(self._in_progress)

    def write(self, write: CoordinatorWrite) -> None:
        """Append the records; `committed` or `failed` follows, possibly before this returns."""
        assert self.state is not ShardState.LOADING, f"{self.topic_partition}: write while loading"
        if self.state is ShardState.UNLOADED:
            write.failed(ErrorCode.not_coordinator)
            return
        self._last_write += 1
        self._in_progress[self._last_write] = write
        self._writer.append(self.number, write, partial(self._appended, self._last_write))

    def _appended(self, number: int, error: ErrorCode, base_offset: Offset) -> None:
        write = self._in_progress.pop(number, None)
        if write is None:
            return  # the unload failed it
        assert self.is_active, f"{self.topic_partition}: a write outlived the unload"
        if error is not ErrorCode.none:
            if base_offset >= 0 and write.unacknowledged is not None:
                write.unacknowledged(base_offset)
            write.failed(write.errors.get(error, error))
            return
        assert base_offset >= 0, f"{self.topic_partition}: committed at offset {base_offset}"
        write.committed(base_offset)

    # ---- for the runtime only --------------------------------------------------------------------

    def activate(self) -> None:
        """The load has ended."""
        self._change(ShardState.ACTIVE)

    def unload(self) -> None:
        """Serve and write nothing from now on; no timer runs any more."""
        self._change(ShardState.UNLOADED)
        self.timers.close()

    def fail_writes(self) -> None:
        """Fail every write in progress with NOT_COORDINATOR, the oldest first."""
        assert self.state is ShardState.UNLOADED, f"{self.topic_partition} is {self.state.value}"
        writes, self._in_progress = self._in_progress, {}
        for write in writes.values():
            write.failed(ErrorCode.not_coordinator)

    def _change(self, state: ShardState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.topic_partition}: {self.state.value} -> {state.value}"
        self.state = state
