"""Admin requests that only the active controller serves: more partitions, elections, reassignments (C9, D4).

`network/forwarding.py` brings them here from every broker.

Owns: the handlers of CreatePartitions, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments. Each
request is one event of the controller's queue. CreatePartitions and ElectLeaders respond when this broker's metadata
shows the leaders, or with REQUEST_TIMED_OUT: then the change may still happen.

Source: Kafka's KafkaApis, ZkAdminManager, DelayedElectLeader, DelayedCreatePartitions; KIP-195, 455, 460, 860.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..ids import NodeId, TopicPartition, by_topic
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import Request
from .active_controller import ActiveController
from .added_partitions import REQUEST_MOST, add_partitions
from .leader_elections import ElectionResults
from .reassignments import ReassignmentResults, Targets
from .topic_node import ReplicaAssignment

T = TypeVar("T")

_PREFERRED, _UNCLEAN = 0, 1


class ControllerQueue(Protocol):
    """The controller's event queue, as these handlers need it."""

    async def run_event(self, name: str, call: Callable[[ActiveController], Coroutine[Any, Any, T]], /) -> T:
        """Run `call` as one event of the queue and return its result; KafkaError(not_controller)."""
        ...


class LeaderLookup(Protocol):
    """The metadata cache, as these handlers need it."""

    def leader(self, tp: TopicPartition, /) -> NodeId:
        """The leader of a partition; -1 when it has none or is not known."""
        ...

    async def await_leaders(self, topic: str, partitions: int, timeout_ms: float, /) -> bool:
        """Wait until each partition of a topic has a live leader; False after the timeout."""
        ...

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float, /) -> bool:
        """Wait until `condition` holds, evaluated after each update; False after the timeout."""
        ...


class ControllerAdminApi:
    """Handlers of the admin requests that need the controller."""

    def __init__(self, host: Host, controller: ControllerQueue, cache: LeaderLookup) -> None:
        self._clock = host.clock
        self._controller = controller
        self._cache = cache

    def handlers(self) -> Iterable[ApiRow]:
        """The API table's entries."""
        return (
            ApiRow(ApiKey.CREATE_PARTITIONS, 0, 3, self.create_partitions),
            ApiRow(ApiKey.ELECT_LEADERS, 0, 2, self.elect_leaders),
            ApiRow(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, self.alter_reassignments),
            ApiRow(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, self.list_reassignments),
        )

    def _left_ms(self, deadline_ms: int) -> int:
        return max(0, deadline_ms - self._clock.monotonic_ms())

    def _deadline_ms(self, entity: Any) -> int:
        return self._clock.monotonic_ms() + max(0, messages.to_milliseconds(entity.timeout))

    # ------------------------------------------------------- CreatePartitions

    async def create_partitions(self, request: Request) -> None:
        """Serve CreatePartitions."""
        entity = request.decode()
        deadline_ms = self._deadline_ms(entity)
        s = messages.response(request)
        counts = Counter(row.name for row in entity.topics)
        denied = request.denied(Operation.ALTER, ResourceType.TOPIC, counts)
        results: dict[str, KafkaError | None] = {}
        left = REQUEST_MOST
        sizes = {row.name: row.count for row in entity.topics if counts[row.name] == 1 and row.name not in denied}
        if sum(max(0, count) for count in sizes.values()) > REQUEST_MOST:  # else too few, whatever the topics have
            await self._controller.run_event("count partitions", partial(_check_added, sizes=sizes))
        for row in entity.topics:
            if row.name not in results:
                twice = counts[row.name] > 1
                dry: bool = entity.validate_only
                if row.name in denied and not twice:
                    results[row.name] = KafkaError(ErrorCode.topic_authorization_failed)
                    continue
                added = await self._add(row, twice=twice, most=left, dry=dry)
                left -= added if isinstance(added, int) else 0
                results[row.name] = None if isinstance(added, int) else added
        if not entity.validate_only:
            for row in entity.topics:
                left_ms = self._left_ms(deadline_ms)
                if results[row.name] is None and not await self._cache.await_leaders(row.name, row.count, left_ms):
                    results[row.name] = _timed_out()
        request.respond(
            s.CreatePartitionsResponse(
                results=tuple(
                    s.CreatePartitionsTopicResult(name=name, **_fields(error)) for name, error in results.items()
                )
            )
        )

    async def _add(self, row: Any, *, twice: bool, most: int, dry: bool) -> KafkaError | int:
        """The error of a topic, or how many partitions it got."""
        if twice:
            return KafkaError(ErrorCode.invalid_request, "Duplicate topic in request.")
        placed: list[list[NodeId]] | None = None
        if row.assignments is not None:
            placed = [[NodeId(node) for node in replicas.broker_ids] for replicas in row.assignments]
        try:
            return await self._controller.run_event(
                f"partitions of {row.name}",
                lambda active: add_partitions(
                    active.core, active.topics, row.name, row.count, placed, most=most, dry=dry
                ),
            )
        except KafkaError as error:
            if error.code is ErrorCode.not_controller:
                raise
            return error

    # ----------------------------------------------------------- ElectLeaders

    async def elect_leaders(self, request: Request) -> None:
        """Serve ElectLeaders."""
        entity = request.decode()
        deadline_ms = self._deadline_ms(entity)
        kind: int = getattr(entity, "election_type", _PREFERRED)
        if entity.topic_partitions == ():  # as in Kafka, nothing is checked then
            request.respond(_elected(messages.response(request), {}, ()))
            return
        if kind not in (_PREFERRED, _UNCLEAN):
            raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {kind}")
        rows: list[tuple[str, Sequence[TopicPartition]]] | None = None
        if entity.topic_partitions is not None:
            rows = [
                (row.topic, [TopicPartition(row.topic, number) for number in row.partitions])
                for row in entity.topic_partitions
            ]
        partitions = None if rows is None else [tp for _, asked in rows for tp in asked]

        async def elect(active: ActiveController) -> tuple[ElectionResults, dict[TopicPartition, NodeId], list[str]]:
            results = await active.elections.elect(partitions, unclean=kind == _UNCLEAN)
            won = [tp for tp, error in results.items() if error is None]
            leaders = {tp: active.context.partitions[tp].leader for tp in won}
            return results, leaders, list(by_topic(active.context.kept()))

        results, leaders, topics = await self._controller.run_event("elect leaders", elect)
        await self._await_elected(results, leaders, deadline_ms)
        if rows is None:  # as in Kafka, a response about all partitions names topics without any result, too
            found = by_topic(results)
            rows = [(topic, found.get(topic, ())) for topic in topics]
        request.respond(_elected(messages.response(request), results, rows))

    async def _await_elected(
        self, results: ElectionResults, leaders: Mapping[TopicPartition, NodeId], deadline_ms: int
    ) -> None:
        def known() -> bool:
            return all(self._cache.leader(tp) == leader for tp, leader in leaders.items())

        if not await self._cache.await_until(known, self._left_ms(deadline_ms)):
            for tp, leader in leaders.items():
                if self._cache.leader(tp) != leader:
                    results[tp] = _timed_out()

    # ---------------------------------------------------------- reassignments

    async def alter_reassignments(self, request: Request) -> None:
        """Serve AlterPartitionReassignments: begin, change or cancel; responds before the replicas have moved."""
        entity = request.decode()
        any_factor: bool = getattr(entity, "allow_replication_factor_change", True)
        rounds, rows = _in_rounds(entity.topics)
        results = [
            await self._controller.run_event("reassign", partial(_reassign, wanted=wanted, any_factor=any_factor))
            for wanted in rounds
        ]
        s = messages.response(request)
        request.respond(
            s.AlterPartitionReassignmentsResponse(
                error_code=ErrorCode.none,
                allow_replication_factor_change=any_factor,
                responses=tuple(
                    s.ReassignableTopicResponse(
                        name=topic,
                        partitions=tuple(
                            s.ReassignablePartitionResponse(
                                partition_index=tp.partition, **_fields(results[number][tp])
                            )
                            for number, tp in partitions
                        ),
                    )
                    for topic, partitions in rows
                ),
            )
        )

    async def list_reassignments(self, request: Request) -> None:
        """Serve ListPartitionReassignments, for all partitions or those requested."""
        entity = request.decode()
        wanted: list[TopicPartition] | None = None
        if entity.topics is not None:
            wanted = [
                TopicPartition(topic.name, number) for topic in entity.topics for number in topic.partition_indexes
            ]

        async def in_progress(active: ActiveController) -> dict[TopicPartition, ReplicaAssignment]:
            return active.reassignments.in_progress(wanted)

        found = await self._controller.run_event("list reassignments", in_progress)
        s = messages.response(request)
        request.respond(
            s.ListPartitionReassignmentsResponse(
                error_code=ErrorCode.none,
                topics=tuple(
                    s.OngoingTopicReassignment(
                        name=topic,
                        partitions=tuple(
                            s.OngoingPartitionReassignment(
                                partition_index=tp.partition,
                                replicas=found[tp].replicas,
                                adding_replicas=found[tp].adding,
                                removing_replicas=found[tp].removing,
                            )
                            for tp in partitions
                        ),
                    )
                    for topic, partitions in by_topic(found).items()
                ),
            )
        )


async def _reassign(active: ActiveController, *, wanted: Targets, any_factor: bool) -> ReassignmentResults:
    return await active.reassignments.alter(wanted, any_factor=any_factor)


async def _check_added(active: ActiveController, *, sizes: Mapping[str, int]) -> None:
    """KafkaError(policy_violation), for all topics of the request, where they would get too many together."""
    more = (count - len(active.context.topic_assignment(name)) for name, count in sizes.items() if count >= 0)
    known = (name in active.context.topics for name, count in sizes.items() if count >= 0)
    total = sum(max(0, added) for added, exists in zip(more, known, strict=True) if exists)
    if total > REQUEST_MOST:
        raise KafkaError(ErrorCode.policy_violation, "Excessively large number of additional partitions per request.")


def _in_rounds(topics: Iterable[Any]) -> tuple[list[Targets], list[tuple[str, list[tuple[int, TopicPartition]]]]]:
    """The targets in rounds, one round unless a partition is named twice; and of each topic (round, partition)."""
    rounds: list[dict[TopicPartition, list[NodeId] | None]] = [{}]
    rows: list[tuple[str, list[tuple[int, TopicPartition]]]] = []
    for topic in topics:
        placed: list[tuple[int, TopicPartition]] = []
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            number = next((n for n, wanted in enumerate(rounds) if tp not in wanted), len(rounds))
            if number == len(rounds):
                rounds.append({})
            target = row.replicas
            rounds[number][tp] = None if target is None else [NodeId(node) for node in target]
            placed.append((number, tp))
        rows.append((topic.name, placed))
    return [*rounds], rows


def _elected(s: messages.Schema, results: ElectionResults, rows: Iterable[tuple[str, Sequence[TopicPartition]]]) -> Any:
    return s.ElectLeadersResponse(
        error_code=ErrorCode.none,
        replica_election_results=tuple(
            s.ReplicaElectionResult(
                topic=topic,
                partition_result=tuple(
                    s.PartitionResult(partition_id=tp.partition, **_fields(results[tp])) for tp in partitions
                ),
            )
            for topic, partitions in rows
        ),
    )


def _fields(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": error.code, "error_message": error.message or None}


def _timed_out() -> KafkaError:
    return KafkaError(ErrorCode.request_timed_out, "The request timed out.")
