"""What all group requests share: routing, running a group's effects, its deadlines, loading, unloading.

Owns: the shards of this broker. A group's machine is only ever called from here and from the API modules beside
it, always followed by `run` (after a heartbeat: `heard`), which answers whom it says, appends what it says, and has
`waits` follow its deadlines.

Tokens of waiting requests are `Reply` callables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config import BrokerConfig
from ..errors import ErrorCode, HarrowError, KafkaError
from ..host.seam import Host
from ..ids import Offset
from ..internal_topics import OFFSETS, partition_for
from .loader import load
from .members import Answer, Effect, JoinResult, Persist, SyncResult
from .membership import Group
from .rebalance import GroupLimits
from .shards import HeldGroup, Shard, Shards
from .states import GroupState
from .store import GROUP_ERRORS, OffsetsStore, group_record
from .waits import GroupWaits

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..replication import Partition, ReplicaManager

Reply = Callable[[Any], None]


class GroupService:
    """The groups that this broker coordinates."""

    def __init__(
        self, host: Host, config: BrokerConfig, replicas: ReplicaManager, cache: MetadataCache
    ) -> None:
        self.host = host
        self.config = config
        self.cache = cache
        self.store = OffsetsStore(host, config, replicas)
        self.shards = Shards()
        self._replicas = replicas
        self.waits = GroupWaits(host)
        self._limits = GroupLimits(
            initial_rebalance_delay_ms=config.number("group.initial.rebalance.delay.ms"),
            max_size=config.number("group.max.size"),
        )

    # ---- routing ---------------------------------------------------------------------------------

    def partition_count(self) -> int:
        """Partitions of `__consumer_offsets`: as created; as configured before it exists."""
        created = self.cache.partition_count(OFFSETS.name)
        return created or OFFSETS.partitions(self.config)

    def shard_of(self, group_id: str) -> Shard:
        """The shard that serves `group_id`; KafkaError when it is another broker's or loads."""
        count = self.partition_count()
        if self.shards.get(partition_for(group_id, count)) is None and not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        return self.shards.of(group_id, count)

    def find(self, group_id: str) -> tuple[Shard, HeldGroup | None]:
        """A group, where it is ours; KafkaError as `shard_of`."""
        shard = self.shard_of(group_id)
        return shard, shard.groups.get(group_id)

    def create(self, shard: Shard, group_id: str) -> HeldGroup:
        """A new empty group."""
        held = HeldGroup(Group(group_id, self._limits), self.host.clock.wall_ms())
        shard.groups[group_id] = held
        return held

    def discard_if_idle(self, shard: Shard, held: HeldGroup) -> None:
        """Forget a group that was made for a request which came to nothing."""
        group_id = held.group.group_id
        if held.idle and shard.groups.get(group_id) is held:
            del shard.groups[group_id]

    # ---- running a group -------------------------------------------------------------------------

    def run(self, shard: Shard, held: HeldGroup, effects: Iterable[Effect]) -> None:
        """Carry out what the machine said, then follow what it waits for now."""
        if held.group.state is not held.seen_state:
            self._state_changed(shard, held)
        for effect in effects:
            if isinstance(effect, Answer):
                _reply(effect.token, effect.result)
            else:
                self._persist(shard, held, effect)
        self.waits.follow(shard.partition, held, partial(self._tick, shard, held))

    def heard(self, shard: Shard, held: HeldGroup, member_id: str) -> None:
        """A heartbeat came, and the machine knows: the same, of that member only."""
        due = partial(self._tick, shard, held)
        self.waits.heard(shard.partition, held, member_id, due)

    def _tick(self, shard: Shard, held: HeldGroup) -> None:
        if shard.live:
            self.run(shard, held, held.group.tick(self.host.clock.monotonic_ms()))

    def _persist(self, shard: Shard, held: HeldGroup, effect: Persist) -> None:
        def done(error: ErrorCode, _offset: Offset) -> None:
            if error is not ErrorCode.none:
                name = f"group {held.group.group_id} generation {effect.generation}"
                self.host.trace.log("warning", f"{name} was not stored: {error.name}")
            shown = GROUP_ERRORS.get(error, error)
            now_ms = self.host.clock.monotonic_ms()
            self.run(shard, held, held.group.persisted(effect, shown, now_ms))

        record = group_record(held.group, effect, held.since_ms)
        self.store.append(shard.partition, [record], done)

    def _state_changed(self, shard: Shard, held: HeldGroup) -> None:
        held.seen_state = held.group.state
        held.since_ms = self.host.clock.wall_ms()
        group = held.group
        self.host.trace.emit(
            "group.state",
            group=group.group_id,
            partition=shard.partition,
            state=group.state.value,
            generation=group.generation,
            members=len(group.members),
        )

    # ---- leadership (G3) -------------------------------------------------------------------------

    def leadership_changed(
        self, became_leader: Iterable[Partition], became_follower: Iterable[Partition]
    ) -> None:
        """Load what this broker leads now, unload what it leads no longer."""
        for partition in became_follower:
            if partition.topic_partition.topic == OFFSETS.name:
                self._unload(partition.topic_partition.partition)
        for partition in became_leader:
            if partition.topic_partition.topic == OFFSETS.name:
                self._begin_load(partition)

    def _begin_load(self, partition: Partition) -> None:
        number = partition.topic_partition.partition
        current = self.shards.get(number)
        if current is not None and current.generation == partition.generation:
            return  # a new epoch of an unbroken leadership: what is held is still what the log says
        self._unload(number)
        shard = Shard(number, partition.generation)
        self.shards.put(shard)
        self.host.tasks.spawn(self._load(shard, partition), name=f"load-groups-{number}")

    async def _load(self, shard: Shard, partition: Partition) -> None:
        started_ms = self.host.clock.monotonic_ms()
        try:
            groups = await load(self.host, self._replicas.produces, shard, partition, self._limits)
        except (HarrowError, OSError) as error:
            # Unreadable: not coordinator here until leadership moves, rather than groups without past.
            self.host.trace.log("error", f"{partition.topic_partition}: groups not loaded: {error}")
            if shard.live:
                self._unload(shard.partition)
            return
        if groups is None or not shard.live:
            return
        shard.groups = groups
        shard.loading = False
        now_ms = self.host.clock.monotonic_ms()
        for held in groups.values():
            self.run(shard, held, held.group.start_sessions(now_ms))
        if groups:
            self.host.trace.emit(
                "group.loaded",
                partition=shard.partition,
                groups=len(groups),
                took_ms=now_ms - started_ms,
            )

    def _unload(self, number: int) -> None:
        shard = self.shards.drop(number)
        if shard is None:
            return
        shard.live = False
        for held in shard.groups.values():
            self.run(shard, held, held.group.close(ErrorCode.not_coordinator))

    def remove(self, shard: Shard, held: HeldGroup) -> None:
        """The group was deleted."""
        self.run(shard, held, held.group.close(ErrorCode.group_id_not_found))
        if shard.groups.get(held.group.group_id) is held:
            del shard.groups[held.group.group_id]

    def close(self) -> None:
        """Unload everything; nothing expires any more."""
        for shard in self.shards:
            self._unload(shard.partition)
        self.waits.close()


def _reply(token: object, result: JoinResult | SyncResult) -> None:
    assert callable(token), f"token {token!r} is no reply"
    token(result)


__all__ = ["GroupService", "GroupState", "Reply"]
