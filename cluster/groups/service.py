"""What the handlers of group requests share: the shard of a group, the broker's settings, its metadata.

Owns: the coordinator runtime of `__consumer_offsets`, which hosts a `GroupShard` for each partition led here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..config.group_table import INTERVAL, group_interval_ms
from ..coordinators import CoordinatorRuntime
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..internal_topics import OFFSETS
from ..wire.topic_ids import draw_topic_id, text_of
from .consumer.limits import consumer_limits
from .consumer.target_assignments import ConsumerRules
from .deadlines import GroupDeadlines
from .group_shard import GroupEnvironment, GroupShard
from .hosted_group import HostedGroup
from .offset_expiration import OffsetRetention
from .rebalance import GroupLimits
from .share.limits import share_rules
from .streams.heartbeats import StreamsRules
from .streams.limits import streams_rules

if TYPE_CHECKING:
    from ..ids import TopicPartition
    from ..metadata import MetadataCache
    from ..replication import ReplicaManager
    from ..share_coordinator.persister import Persister


class GroupService:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        replicas: ReplicaManager,
        cache: MetadataCache,
        persister: Persister | None = None,
    ) -> None:
        self.host = host
        self.config = config
        self.cache = cache
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            host,
            config,
            OFFSETS,
            replicas,
            cache,
            write_timeout_ms=config.number("offsets.commit.timeout.ms"),
            factory=lambda shard: GroupShard(shard, self._environment),
        )
        self.deadlines = GroupDeadlines(self.runtime.timer)
        self.consumer_rules = ConsumerRules(
            view=cache,
            limits=consumer_limits(config),
            wall_ms=host.clock.wall_ms,
            group_number=config.group_number,
            group_interval_ms=partial(group_interval_ms, config, INTERVAL),
        )
        """What the rules of consumer groups need (KIP-848)."""
        self.streams_rules: StreamsRules = streams_rules(config, cache, host.clock.wall_ms)
        """What the rules of streams groups need (KIP-1071)."""
        protocols = config.text("group.coordinator.rebalance.protocols").split(",")
        self.serves_consumers = "consumer" in protocols
        """False where the settings switch the consumer protocol off."""
        self.share_rules = share_rules(config, cache, host.clock.wall_ms)
        """What the rules of share groups need (KIP-932)."""
        self.persister = persister
        """Keeps the delivery states of share groups; None: their requests get UNSUPPORTED_VERSION."""
        self.serves_streams = "streams" in protocols
        """False where the settings switch the streams protocol off."""
        self.topics_version = 0
        """Changes with every change of the cluster's topics."""
        cache.on_update.append(self._topics_changed)
        cache.on_deleted.append(self._delete_offsets)
        self._environment = GroupEnvironment(
            host=host,
            consumer_rules=self.consumer_rules,
            share_rules=self.share_rules,
            persister=persister,
            streams_rules=self.streams_rules,
            deadlines=self.deadlines,
            retention=OffsetRetention(
                retention_ms=config.number("offsets.retention.minutes") * 60_000,
                check_interval_ms=config.number("offsets.retention.check.interval.ms"),
            ),
            limits=GroupLimits(
                initial_rebalance_delay_ms=config.number("group.initial.rebalance.delay.ms"),
                max_size=config.number("group.max.size"),
            ),
        )

    def _topics_changed(self) -> None:
        self.topics_version += 1

    def _delete_offsets(self, partitions: Collection[TopicPartition]) -> None:
        names = frozenset(tp.topic for tp in partitions)
        for shard in self.shards():
            shard.delete_offsets(partitions)
            shard.topics_deleted(names)

    def new_uuid(self) -> str:
        """A random id in the form of a version 4 UUID."""
        digits = f"{self.host.random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], f"4{digits[13:16]}", f"a{digits[17:20]}", digits[20:]))

    def new_member_id(self) -> str:
        """A random member id of a consumer group, in the form that Kafka gives its ids."""
        return text_of(draw_topic_id(self.host.random))

    def shard_of(self, group_id: str) -> GroupShard:
        """The shard that serves `group_id`; KafkaError when it is another broker's, or loading."""
        if not group_id and not self.runtime.is_hosted(group_id):
            raise KafkaError(ErrorCode.invalid_group_id)
        return self.runtime.active(group_id)

    def find(self, group_id: str) -> tuple[GroupShard, HostedGroup | None]:
        """The shard that serves `group_id`, and the group if it exists; KafkaError as `shard_of`."""
        shard = self.shard_of(group_id)
        return shard, shard.find(group_id)

    def find_named(self, group_id: str) -> tuple[GroupShard, HostedGroup | None]:
        """As `find`; the empty name is refused (INVALID_GROUP_ID)."""
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        return self.find(group_id)

    def shards(self) -> Iterable[GroupShard]:
        """The shards that are loaded."""
        return self.runtime.all_active()
