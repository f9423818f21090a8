"""Requests about a quorum of KRaft that a cluster with a registry can answer truthfully.

Owns: the handlers of DescribeQuorum, UpdateFeatures and UnregisterBroker on the active controller;
`network/forwarding.py` brings the requests there.

DescribeQuorum: the elected controller is the only voter and the leader, in the controller epoch (D2); the other live
brokers, which get the metadata from it, are observers. There is no metadata log, so every offset is -1, unknown.
UpdateFeatures: checked as Kafka checks it, and refused where a level would change, because no level changes here; a
cluster of other levels is that of another release (`harrow.as.version`).
UnregisterBroker: the registration of a live broker is removed, and the controller moves its leaderships. As in Kafka,
the broker registers again when it starts again. A broker that has ended has no registration here: it ends with the
broker's session, where Kafka keeps it.

May fail: KafkaError only: NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED.
Source: Kafka's KafkaRaftClient.handleDescribeQuorumRequest, FeatureControlManager, ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..errors import ErrorCode, KafkaError
from ..host.seam import Clock
from ..ids import NodeId
from ..registry import Delete, NodeError
from ..registry.paths import broker_path
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.features import FEATURES_OF_KRAFT, Feature
from ..wire.request import Request
from .active_controller import ActiveController
from .admin_api import ControllerQueue
from .registration import Endpoint

METADATA_TOPIC = "__cluster_metadata"
UNKNOWN_OFFSET = -1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kinds of an update of a feature."""


class Quorum(NamedTuple):
    """The controller as a quorum of one voter."""

    leader: NodeId
    epoch: int
    endpoint: Endpoint | None
    """Where brokers reach it; None while its registration is not known."""
    observers: tuple[NodeId, ...]


class OperatorApi:
    """Handlers of the requests."""

    def __init__(
        self,
        clock: Clock,
        node_id: NodeId,
        listener: str,
        controller: ControllerQueue,
        features: Callable[[], Sequence[Feature]],
    ) -> None:
        """`listener`: the name of that of the brokers; `features`: those of the cluster."""
        self._clock = clock
        self._node_id = node_id
        self._listener = listener
        self._controller = controller
        self._features = features

    def handlers(self) -> Iterable[ApiRow]:
        """The API table's entries."""
        return (
            ApiRow(ApiKey.DESCRIBE_QUORUM, 0, 2, self.describe_quorum),
            ApiRow(ApiKey.UPDATE_FEATURES, 0, 2, self.update_features),
            ApiRow(ApiKey.UNREGISTER_BROKER, 0, 0, self.unregister_broker),
        )

    # --------------------------------------------------------- DescribeQuorum

    async def describe_quorum(self, request: Request) -> None:
        """Serve DescribeQuorum, of partition 0 of `__cluster_metadata` alone; v0 to v2."""
        asked = request.decode().topics
        quorum = await self._controller.run_event("describe quorum", self._quorum)
        s = messages.response(request)
        if [(row.topic_name, [part.partition_index for part in row.partitions]) for row in asked] != [
            (METADATA_TOPIC, [0])
        ]:
            request.respond(_unknown_partitions(s, asked))
            return
        now_ms = self._clock.wall_ms()
        observers = (_replica(s, node, at_ms=-1) for node in quorum.observers)
        partition = s.PartitionData(
            partition_index=0,
            error_code=ErrorCode.none,
            error_message="",
            leader_id=quorum.leader,
            leader_epoch=quorum.epoch,
            high_watermark=UNKNOWN_OFFSET,
            current_voters=(_replica(s, quorum.leader, at_ms=now_ms),),
            observers=tuple(observers),
        )
        topic = s.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        listeners: tuple[Any, ...] = ()
        if quorum.endpoint is not None:
            where = quorum.endpoint
            listeners = (s.Listener(name=where.listener, host=where.host, port=where.port),)
        nodes = (s.Node(node_id=quorum.leader, listeners=listeners),)
        request.respond(
            s.DescribeQuorumResponse(error_code=ErrorCode.none, error_message="", topics=(topic,), nodes=nodes)
        )

    async def _quorum(self, active: ActiveController) -> Quorum:
        brokers = active.context.brokers
        own = brokers.get(self._node_id)
        endpoint = None if own is None else own.endpoint(self._listener)
        observers = tuple(node for node in sorted(brokers) if node != self._node_id)
        return Quorum(self._node_id, active.won.epoch, endpoint, observers)

    # --------------------------------------------------------- UpdateFeatures

    async def update_features(self, request: Request) -> None:
        """Serve UpdateFeatures v0 to v2: all of the updates are right, or none."""
        entity = request.decode()
        await self._controller.run_event("update features", _is_controller)
        known = {row.name: row for row in self._features()}
        # as in Kafka, the last update of a feature counts
        updates = {row.feature: row for row in entity.feature_updates}
        reasons = (_refusal(row, known.get(name), self._node_id) for name, row in updates.items())
        message = next((reason for reason in reasons if reason), None)
        code = ErrorCode.none if message is None else ErrorCode.invalid_update_version
        s = messages.response(request)
        results: tuple[Any, ...] = ()
        if message is None:
            results = tuple(
                s.UpdatableFeatureResult(feature=row.feature, error_code=code, error_message="NONE")  # as in Kafka
                for row in entity.feature_updates
            )
        else:
            message = f"The update failed for all features since the following feature had an error: {message}"
        request.respond(s.UpdateFeaturesResponse(error_code=code, error_message=message, results=results))

    # ------------------------------------------------------- UnregisterBroker

    async def unregister_broker(self, request: Request) -> None:
        """Serve UnregisterBroker v0."""
        node_id = NodeId(request.decode().broker_id)
        s = messages.response(request)
        try:
            await self._controller.run_event(f"unregister {node_id}", lambda active: unregister(active, node_id))
        except KafkaError as error:
            if error.code is ErrorCode.not_controller:
                raise
            request.respond(s.UnregisterBrokerResponse(error_code=error.code, error_message=error.message))
        else:
            request.respond(s.UnregisterBrokerResponse(error_code=ErrorCode.none))


async def _is_controller(active: ActiveController) -> None:
    """Nothing is read: an event of this broker's controller runs, so it is the controller."""
    del active


async def unregister(active: ActiveController, node_id: NodeId) -> None:
    """Remove a registration; KafkaError: BROKER_ID_NOT_REGISTERED."""
    gone = KafkaError(ErrorCode.broker_id_not_registered, f"Broker ID {node_id} is not currently registered")
    if node_id not in active.context.brokers:
        raise gone
    try:
        await active.core.writer.remove([Delete(broker_path(node_id))])
    except NodeError:
        raise gone from None


def _replica(s: messages.Schema, node_id: NodeId, *, at_ms: int) -> Any:
    """`at_ms`: when the replica fetched last and had everything; -1: unknown."""
    return s.ReplicaState(
        replica_id=node_id,
        log_end_offset=UNKNOWN_OFFSET,
        last_fetch_timestamp=at_ms,
        last_caught_up_timestamp=at_ms,
    )


def _unknown_partitions(s: messages.Schema, asked: Iterable[Any]) -> Any:
    topics = tuple(
        s.TopicData(
            topic_name=row.topic_name,
            partitions=tuple(
                s.PartitionData(
                    partition_index=part.partition_index,
                    error_code=ErrorCode.unknown_topic_or_partition,
                    error_message="This server does not host this topic-partition.",
                )
                for part in row.partitions
            ),
        )
        for row in asked
    )
    return s.DescribeQuorumResponse(error_code=ErrorCode.none, error_message="", topics=topics)


def _refusal(update: Any, feature: Feature | None, controller: NodeId) -> str:
    """Why an update of a feature is refused; "" where the level stays as it is."""
    level: int = update.max_version_level
    kind: int = getattr(update, "upgrade_type", UPGRADE)
    prefix = f"Invalid update version {level} for feature {update.feature}. "
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"{prefix}The controller does not support the given upgrade type."
    if level < 0:
        return f"{prefix}A feature version cannot be less than 0."
    if feature is None and level == 0 and update.feature not in FEATURES_OF_KRAFT:
        return f"{prefix}Feature {update.feature} not found."
    low, high, present = (0, 0, 0) if feature is None else (feature.low, feature.high, feature.level)
    if not low <= level <= high:
        if high == 0:
            return f"{prefix}Local controller {controller} does not support this feature."
        return f"{prefix}Local controller {controller} only supports versions {low}-{high}"
    if level < present and kind == UPGRADE:
        return (
            f"{prefix}Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > present and kind != UPGRADE:
        return f"{prefix}Can't downgrade to a newer version."
    if level != present:
        return f"{prefix}Harrow's brokers change no level while they run; harrow.as.version chooses a release."
    return ""
