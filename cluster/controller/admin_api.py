"""What administrators ask of the controller: partitions added, leaders elected, replicas reassigned (C9, D4).

Owns: the handlers of CreatePartitions, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments.
Only the active controller serves them; each request is one event of its queue. Creation and election are
answered when this broker's metadata shows the leaders, or with REQUEST_TIMED_OUT (then it may still come).

Source: Kafka's KafkaApis, ZkAdminManager, DelayedElectLeader, DelayedCreatePartitions; KIP-195, 455, 460, 860.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..ids import NodeId, TopicPartition
from ..wire import messages
from ..wire.api import ApiRow
from ..wire.api_keys import ApiKey
from ..wire.request import Request
from .added_partitions import add_partitions

if TYPE_CHECKING:
    from .elections import Results
    from .reassignments import Wanted
    from .state import Assignment
    from .term import Term

T = TypeVar("T")

_PREFERRED, _UNCLEAN = 0, 1


class Asked(Protocol):
    """What it needs of the controller."""

    async def ask(self, name: str, call: Callable[[Term], Coroutine[Any, Any, T]], /) -> T:
        """What `call` finds or does, as one event of the queue; KafkaError(not_controller)."""
        ...


class Known(Protocol):
    """What it needs of the metadata cache."""

    def leader(self, tp: TopicPartition, /) -> NodeId:
        """The node that leads a partition; -1 where nobody does or it is not known."""
        ...

    async def await_leaders(self, topic: str, partitions: int, timeout_ms: float, /) -> bool:
        """Wait until each of a topic's partitions has a live leader; False when the time passed first."""
        ...

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float, /) -> bool:
        """Wait until `condition` holds, tried after each update; False when the time passed first."""
        ...


class AdminApi:
    """The controller's side of the admin client."""

    def __init__(self, host: Host, controller: Asked, cache: Known) -> None:
        self._clock = host.clock
        self._controller = controller
        self._cache = cache

    def handlers(self) -> Iterable[ApiRow]:
        """What it serves, at which versions."""
        return (
            ApiRow(ApiKey.CREATE_PARTITIONS, 0, 3, self.create_partitions),
            ApiRow(ApiKey.ELECT_LEADERS, 0, 2, self.elect_leaders),
            ApiRow(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, self.alter_reassignments),
            ApiRow(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, self.list_reassignments),
        )

    def _left_ms(self, deadline_ms: int) -> int:
        return max(0, deadline_ms - self._clock.monotonic_ms())

    def _deadline_ms(self, asked: Any) -> int:
        return self._clock.monotonic_ms() + max(0, messages.to_milliseconds(asked.timeout))

    # ------------------------------------------------------- CreatePartitions

    async def create_partitions(self, request: Request) -> None:
        """Answer CreatePartitions."""
        asked = request.decode()
        deadline_ms = self._deadline_ms(asked)
        s = messages.response(request)
        counts = Counter(row.name for row in asked.topics)
        results: dict[str, KafkaError | None] = {}
        for row in asked.topics:
            if row.name not in results:
                twice = counts[row.name] > 1
                dry: bool = asked.validate_only
                results[row.name] = await self._add(row, twice=twice, dry=dry)
        if not asked.validate_only:
            for row in asked.topics:
                left_ms = self._left_ms(deadline_ms)
                if results[row.name] is None and not await self._cache.await_leaders(
                    row.name, row.count, left_ms
                ):
                    results[row.name] = _timed_out()
        request.respond(
            s.CreatePartitionsResponse(
                results=tuple(
                    s.CreatePartitionsTopicResult(name=name, **_fields(error))
                    for name, error in results.items()
                )
            )
        )

    async def _add(self, row: Any, *, twice: bool, dry: bool) -> KafkaError | None:
        if twice:
            return KafkaError(ErrorCode.invalid_request, "Duplicate topic in request.")
        placed: list[list[NodeId]] | None = None
        if row.assignments is not None:
            placed = [[NodeId(node) for node in one.broker_ids] for one in row.assignments]
        try:
            await self._controller.ask(
                f"partitions of {row.name}",
                lambda term: add_partitions(term, row.name, row.count, placed, dry=dry),
            )
        except KafkaError as error:
            if error.code is ErrorCode.not_controller:
                raise
            return error
        return None

    # ----------------------------------------------------------- ElectLeaders

    async def elect_leaders(self, request: Request) -> None:
        """Answer ElectLeaders."""
        asked = request.decode()
        deadline_ms = self._deadline_ms(asked)
        kind: int = getattr(asked, "election_type", _PREFERRED)
        if kind not in (_PREFERRED, _UNCLEAN):
            raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {kind}")
        partitions: list[TopicPartition] | None = None
        if asked.topic_partitions is not None:
            partitions = [
                TopicPartition(row.topic, number)
                for row in asked.topic_partitions
                for number in row.partitions
            ]

        async def elect(term: Term) -> tuple[Results, dict[TopicPartition, NodeId]]:
            results = await term.elections.elect(partitions, unclean=kind == _UNCLEAN)
            won = [tp for tp, error in results.items() if error is None]
            return results, {tp: term.state.partitions[tp].leader for tp in won}

        results, leaders = await self._controller.ask("elect leaders", elect)
        await self._await_elected(results, leaders, deadline_ms)
        request.respond(_elected(messages.response(request), results))

    async def _await_elected(
        self, results: Results, leaders: Mapping[TopicPartition, NodeId], deadline_ms: int
    ) -> None:
        def known() -> bool:
            return all(self._cache.leader(tp) == leader for tp, leader in leaders.items())

        if not await self._cache.await_until(known, self._left_ms(deadline_ms)):
            for tp, leader in leaders.items():
                if self._cache.leader(tp) != leader:
                    results[tp] = _timed_out()

    # ---------------------------------------------------------- reassignments

    async def alter_reassignments(self, request: Request) -> None:
        """Answer AlterPartitionReassignments: begun, turned or cancelled; moving goes on afterwards."""
        asked = request.decode()
        any_factor: bool = getattr(asked, "allow_replication_factor_change", True)
        wanted: Wanted = {
            TopicPartition(topic.name, row.partition_index): None
            if row.replicas is None
            else [NodeId(node) for node in row.replicas]
            for topic in asked.topics
            for row in topic.partitions
        }
        results = await self._controller.ask(
            "reassign", lambda term: term.reassignments.alter(wanted, any_factor=any_factor)
        )
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
                                partition_index=tp.partition, **_fields(results[tp])
                            )
                            for tp in partitions
                        ),
                    )
                    for topic, partitions in _by_topic(wanted).items()
                ),
            )
        )

    async def list_reassignments(self, request: Request) -> None:
        """Answer ListPartitionReassignments: what moves, of all partitions or of those asked for."""
        asked = request.decode()
        wanted: list[TopicPartition] | None = None
        if asked.topics is not None:
            wanted = [
                TopicPartition(topic.name, number)
                for topic in asked.topics
                for number in topic.partition_indexes
            ]

        async def under_way(term: Term) -> dict[TopicPartition, Assignment]:
            return term.reassignments.under_way(wanted)

        found = await self._controller.ask("list reassignments", under_way)
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
                    for topic, partitions in _by_topic(found).items()
                ),
            )
        )


def _elected(s: messages.Schema, results: Results) -> Any:
    return s.ElectLeadersResponse(
        error_code=ErrorCode.none,
        replica_election_results=tuple(
            s.ReplicaElectionResult(
                topic=topic,
                partition_result=tuple(
                    s.PartitionResult(partition_id=tp.partition, **_fields(results[tp]))
                    for tp in partitions
                ),
            )
            for topic, partitions in _by_topic(results).items()
        ),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, Sequence[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return {**topics}


def _fields(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": error.code, "error_message": error.message or None}


def _timed_out() -> KafkaError:
    return KafkaError(ErrorCode.request_timed_out, "The request timed out.")
