"""CreateTopics and DeleteTopics: only the active controller serves them; other brokers forward them to it.

Owns: the handlers of both (`network/forwarding.py` brings requests here). They wait while the registry is unreachable,
as Kafka waits for ZooKeeper. Each topic has its own result. A handler waits until this broker's metadata cache has all
leaders of the created topics (or no longer has the deleted topics), or until the client's timeout: then the result is
request_timed_out, and the topic may still be created or deleted.

Source: Apache Kafka's `KafkaApis.handleCreateTopicsRequest`, `ZkAdminManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from ..authorizer import CLUSTER, Operation, ResourceType
from ..config import BrokerConfig
from ..errors import ErrorCode, KafkaError, RegistryError
from ..host.seam import Host
from ..ids import NodeId
from ..topic_names import CLUSTER_METADATA
from ..wire import messages
from ..wire.request import Request, denial
from .cache import MetadataCache
from .config_entries import topic_entries
from .new_topic import NewTopic, TopicPlan, check_plans, check_request, prohibited
from .registry_retries import error_for_client
from .topic_admin import TopicAdmin

__all__ = ["TopicsApi"]

NAMED_MOST = 1000
"""How many partitions an error names."""
_DELETION_DISABLED_SINCE = 3  # the version whose clients know topic_deletion_disabled


class TopicsApi:
    """Handlers of CreateTopics and DeleteTopics."""

    def __init__(self, host: Host, config: BrokerConfig, cache: MetadataCache, admin: TopicAdmin) -> None:
        self._clock = host.clock
        self._config = config
        self._cache = cache
        self._admin = admin

    def _check_controller(self) -> None:
        if self._cache.controller_id != self._cache.node_id:
            raise KafkaError(
                ErrorCode.not_controller,
                f"This is not the correct controller for this cluster: it is broker "
                f"{self._cache.controller_id}, not {self._cache.node_id}.",
            )

    def _left_ms(self, deadline_ms: int) -> int:
        return max(0, deadline_ms - self._clock.monotonic_ms())

    # -------------------------------------------------------------- creation

    async def create_topics(self, request: Request) -> None:
        """Serve CreateTopics."""
        self._check_controller()
        entity = request.decode()
        deadline_ms = self._clock.monotonic_ms() + max(0, messages.to_milliseconds(entity.timeout))
        s = messages.response(request)
        results, plans = self._planned(request, entity, s)
        topics = ResourceType.TOPIC
        unshown = request.denied(Operation.DESCRIBE_CONFIGS, topics, (plan.name for plan in plans))
        begun: list[TopicPlan] = []
        for plan in plans:
            try:
                if not entity.validate_only:
                    operation = partial(self._admin.create, plan)
                    await self._admin.retries.until_reachable(operation, self._left_ms(deadline_ms))
                    begun.append(plan)
                results[plan.name] = self._created(s, plan, shown=plan.name not in unshown)
            except (KafkaError, RegistryError) as error:
                results[plan.name] = _refused(s, plan.name, error_for_client(error))
        for plan in begun:
            left_ms = self._left_ms(deadline_ms)
            if not await self._cache.await_leaders(plan.name, plan.partitions, left_ms):
                leaderless = self._cache.without_leader(plan.name, plan.partitions)
                results[plan.name] = _refused(s, plan.name, _timed_out(leaderless))
        request.respond(s.CreateTopicsResponse(topics=tuple(results.values())))

    def _planned(self, request: Request, entity: Any, s: messages.Schema) -> tuple[dict[str, Any], list[TopicPlan]]:
        """A result for each topic, None where it has a plan; and the plans. Too many partitions refuse all topics.

        The results are in the order of the response: as in Kafka, topics that are named twice are the last.
        """
        counts = Counter(row.name for row in entity.topics)
        names = sorted(counts, key=lambda name: (name == CLUSTER_METADATA, counts[name] > 1))
        results: dict[str, Any] = dict.fromkeys(names)
        for name, count in counts.items():
            if count > 1:
                twice = KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
                results[name] = _refused(s, name, twice)
        if counts[CLUSTER_METADATA] == 1:  # its partitions do not count
            results[CLUSTER_METADATA] = _refused(s, CLUSTER_METADATA, prohibited(CLUSTER_METADATA))
        rows = [row for row in entity.topics if counts[row.name] == 1 and results[row.name] is None]
        for name in _denied(request, Operation.CREATE, Operation.CREATE, (row.name for row in rows)):
            failed = KafkaError(ErrorCode.topic_authorization_failed, "Authorization failed.")
            results[name] = _refused(s, name, failed)
        rows = [row for row in rows if results[row.name] is None]
        plans: list[TopicPlan] = []
        try:
            requested = [_new_topic(row) for row in rows]
            check_request(requested, self._config.number("num.partitions"))
            for topic in requested:
                try:
                    plans.append(self._admin.plan(topic))
                except (KafkaError, RegistryError) as error:
                    results[topic.name] = _refused(s, topic.name, error_for_client(error))
            check_plans(plans)
        except KafkaError as error:
            return results | {row.name: _refused(s, row.name, error) for row in rows}, []
        return results, plans

    def _created(self, s: messages.Schema, plan: TopicPlan, *, shown: bool) -> Any:
        """The result of a topic that exists; `shown`: with its settings, which the client may describe."""
        if not shown:
            return s.CreatableTopicResult(
                name=plan.name,
                topic_id=plan.topic_id,
                error_code=ErrorCode.none,
                error_message=None,
                topic_config_error_code=ErrorCode.topic_authorization_failed,
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            )
        return s.CreatableTopicResult(
            name=plan.name,
            topic_id=plan.topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            num_partitions=plan.partitions,
            replication_factor=plan.replication_factor,
            configs=tuple(
                s.CreatableTopicConfigs(
                    name=entry.name,
                    # as in Kafka, the text that was given
                    value=plan.config.get(entry.name, entry.value),
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=False,
                )
                for entry in topic_entries(self._config, plan.config)
            )
            if s.version >= 5
            else (),
        )

    # -------------------------------------------------------------- deletion

    async def delete_topics(self, request: Request) -> None:
        """Serve DeleteTopics."""
        self._check_controller()
        if not self._config.flag("delete.topic.enable"):
            known = request.version >= _DELETION_DISABLED_SINCE
            code = ErrorCode.topic_deletion_disabled if known else ErrorCode.invalid_request
            raise KafkaError(code, "Topic deletion is disabled (delete.topic.enable=false).")
        entity = request.decode()
        deadline_ms = self._clock.monotonic_ms() + max(0, messages.to_milliseconds(entity.timeout))
        rows = _rows_to_delete(entity)
        counts = Counter(rows)
        named = [found for name, topic_id in rows if (found := name or self._cache.topic_name(topic_id))]
        kept = _denied(request, Operation.DELETE, Operation.DELETE, named)
        hidden = _denied(request, Operation.DELETE, Operation.DESCRIBE, named)
        both = self._asked_by_name_and_id([row for row in rows if row[0] not in kept])
        s = messages.response(request)
        begun: list[tuple[str | None, Any, KafkaError | None]] = []
        once = [row for row in counts if not _is_malformed(row)]
        for name, topic_id in (*once, *filter(_is_malformed, rows)):
            if name is None and topic_id in both:
                continue  # the row of its name has the error
            try:
                if counts[name, topic_id] > 1 and not _is_malformed((name, topic_id)):
                    raise KafkaError(ErrorCode.invalid_request, "Duplicate topic.")  # noqa: TRY301 - one place makes the result
                if name in hidden:  # as in Kafka, whether or not it exists
                    raise denial(ResourceType.TOPIC)
                found, found_id = self._find(name, topic_id)
                if found in kept:
                    begun.append((name if found in hidden else found, topic_id, denial(ResourceType.TOPIC)))
                    continue
                if found_id in both:
                    begun.append((found, found_id, _named_twice(found)))
                    continue
                operation = partial(self._admin.delete, found)
                await self._admin.retries.until_reachable(operation, self._left_ms(deadline_ms))
                begun.append((found, found_id, None))
            except (KafkaError, RegistryError) as error:
                begun.append((name, topic_id, error_for_client(error)))
        results = [await self._deleted(s, row, deadline_ms) for row in begun]
        request.respond(s.DeleteTopicsResponse(responses=tuple(results)))

    def _asked_by_name_and_id(self, rows: Sequence[tuple[str | None, Any]]) -> set[Any]:
        """The ids of topics that a request names both by name and by id."""
        named = {self._cache.topic_id(name) for name, topic_id in rows if name and not topic_id}
        return {topic_id for name, topic_id in rows if name is None and topic_id} & named

    def _find(self, name: str | None, topic_id: Any) -> tuple[str, Any]:
        if name is not None and topic_id is not None:
            raise KafkaError(ErrorCode.invalid_request, "Topic name and topic ID can not both be specified.")
        if name is None and topic_id is None:
            raise KafkaError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
        if name is None:
            topic = self._cache.topic_by_id(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
        else:
            topic = self._cache.topic(name)
            if topic is None:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' does not exist.")
        return topic.name, topic.topic_id

    async def _deleted(
        self, s: messages.Schema, row: tuple[str | None, Any, KafkaError | None], deadline_ms: int
    ) -> Any:
        name, topic_id, error = row
        if error is None and name is not None:
            removed = await self._cache.await_absence(name, self._left_ms(deadline_ms))
            error = None if removed else _timed_out()
        return s.DeletableTopicResult(
            name=name,
            topic_id=topic_id,
            error_code=ErrorCode.none if error is None else error.code,
            error_message=None if error is None else error.message or None,
        )


def _denied(request: Request, of_cluster: Operation, operation: Operation, names: Iterable[str]) -> frozenset[str]:
    """The topics to which the client may not do `operation`; none where it may do `of_cluster` to the cluster."""
    if request.unrestricted or request.allows(of_cluster, *CLUSTER):
        return frozenset()
    return request.denied(operation, ResourceType.TOPIC, names)


def _new_topic(row: Any) -> NewTopic:
    placed: Sequence[Any] = row.assignments
    return NewTopic(
        name=row.name,
        partitions=row.num_partitions,
        replication_factor=row.replication_factor,
        assignment={item.partition_index: [NodeId(node_id) for node_id in item.broker_ids] for item in placed}
        if placed
        else None,
        assigned_twice=len({item.partition_index for item in placed}) < len(placed),
        config={item.name: item.value for item in row.configs},
    )


def _named_twice(name: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, f"Topic '{name}' is requested by its name and by its topic ID.")


def _timed_out(leaderless: Sequence[int] = ()) -> KafkaError:
    """The error of a request whose effect was not seen in time; `leaderless`: partitions that have no leader yet."""
    text = "The request timed out."
    if leaderless:
        shown = ", ".join(map(str, leaderless[:NAMED_MOST]))
        more = f" and {len(leaderless) - NAMED_MOST} more" if len(leaderless) > NAMED_MOST else ""
        text += f" These partitions have no leader yet, see the logs of the brokers: {shown}{more}."
    return KafkaError(ErrorCode.request_timed_out, text)


def _refused(s: messages.Schema, name: str, error: KafkaError) -> Any:
    return s.CreatableTopicResult(name=name, error_code=error.code, error_message=error.message or None, configs=())


def _is_malformed(row: tuple[str | None, Any]) -> bool:
    """Whether a topic to delete has both name and id, or neither: each of them gets a result."""
    return (row[0] is None) == (row[1] is None)


def _rows_to_delete(entity: Any) -> list[tuple[str | None, Any]]:
    if hasattr(entity, "topic_names"):
        return [(name, None) for name in entity.topic_names]
    return [(row.name, row.topic_id) for row in entity.topics]
