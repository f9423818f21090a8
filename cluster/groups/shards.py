"""Which offsets partitions this broker coordinates, and the groups in each.

Owns: `Shard`, one partition of `__consumer_offsets` that this broker leads, loading or serving;
`HeldGroup`, a group with its offsets. Invariants: a shard serves nothing before it is
loaded (G3); a shard lasts as long as the replica leads without a break (`Partition.generation`), and
whatever still belongs to an older one (a load, an append's answer, a deadline) finds `live` False and
changes nothing.

Source: Kafka's GroupMetadataManager (ownedPartitions, loadingPartitions), CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import ErrorCode, KafkaError
from ..internal_topics import partition_for
from .membership import Group
from .offsets import GroupOffsets
from .states import GroupState


class HeldGroup:
    """A group on its coordinator."""

    __slots__ = ("group", "offsets", "seen_state", "since_ms", "watched")

    def __init__(self, group: Group, since_ms: int) -> None:
        self.group = group
        self.offsets = GroupOffsets()
        self.since_ms = since_ms
        """Wall time of the last change of state."""
        self.seen_state: GroupState = group.state
        self.watched: dict[str, int] = {}
        """Member -> deadline, of those whose session is a delayed operation now (`waits`)."""

    @property
    def idle(self) -> bool:
        """Nothing in it would be missed: no member ever, no offset, nothing in flight."""
        group = self.group
        untouched = group.state is GroupState.EMPTY and group.generation == 0
        waits = self.offsets.in_flight or group.next_deadline_ms() is not None
        return untouched and not waits and not len(self.offsets)


class Shard:
    """The groups of one offsets partition in one generation of this replica's leadership."""

    __slots__ = ("generation", "groups", "live", "loading", "partition")

    def __init__(self, partition: int, generation: int) -> None:
        self.partition = partition
        self.generation = generation
        self.loading = True
        self.live = True
        self.groups: dict[str, HeldGroup] = {}


class Shards:
    """All shards of this broker, by partition."""

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: dict[int, Shard] = {}

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._shards.values()))

    def get(self, partition: int) -> Shard | None:
        """The shard of a partition that this broker leads."""
        return self._shards.get(partition)

    def put(self, shard: Shard) -> Shard | None:
        """Let `shard` serve its partition; returns the one it replaces."""
        old = self._shards.get(shard.partition)
        self._shards[shard.partition] = shard
        return old

    def drop(self, partition: int) -> Shard | None:
        """Serve that partition no longer."""
        return self._shards.pop(partition, None)

    def of(self, group_id: str, partitions: int) -> Shard:
        """The shard that serves `group_id`; KafkaError while it loads or is another broker's."""
        shard = self._shards.get(partition_for(group_id, partitions))
        if shard is None:
            raise KafkaError(ErrorCode.not_coordinator)
        if shard.loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return shard

    def serving(self) -> Iterable[Shard]:
        """Those that are loaded."""
        return [shard for shard in self._shards.values() if not shard.loading]

    @property
    def any_loading(self) -> bool:
        """True while one of them loads."""
        return any(shard.loading for shard in self._shards.values())
