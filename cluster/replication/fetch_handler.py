"""The Fetch handler: consumers up to the high watermark, followers up to the log end (E4, C1, C6).

Owns: `FetchHandler`. What is read is in `fetch_reads.py`, how long a fetch waits in `delayed_fetch.py`. A follower's
offsets are recorded (`follower_fetch_state.py`) before anything is read. Followers and consumers fetch in sessions
(`fetch_session.py`, `consumer_sessions.py`).

    a fetch is answered when         consumer            follower
    it asks for no waiting           at once             at once
    a partition has an error         at once             at once
    an epoch diverges                                    at once
    another replica is to be read    at once
    min bytes are there              HW (or LSO) moved   leader appended
    leadership or its epoch changed  at once             at once
    the deadline comes               with what there is  with what there is

Source: Kafka's `ReplicaManager.fetchMessages`, `Partition.fetchRecords`, `KafkaApis.handleFetchRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode
from ..host.seam import Watermarks, bytes_of
from ..ids import TopicPartition
from ..wire.api_errors import PARTITION, place_of
from ..wire.api_keys import ApiKey
from ..wire.error_versions import code_at
from ..wire.fetch import TOPIC_IDS, FetchPartition, FetchRequest, decode_fetch
from ..wire.fetch_response import FetchAnswer, encode_fetch_response
from .consumer_sessions import ConsumerFetch, ConsumerSessions
from .current_leaders import MOVED
from .delayed_fetch import DelayedFetch, DelayedSessionFetch
from .fetch_reads import FetchReader, LogFailed, RequestedPartition
from .fetch_session import FetchSession

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..host.seam import Host
    from ..wire.primitives import NodeEndpoint
    from ..wire.request import Fate, OnSend, Request
    from ..wire.topic_ids import UUID
    from .current_leaders import CurrentLeaders
    from .follower_fetch_state import FollowerFetchState
    from .partition_directory import PartitionDirectory
    from .read_replica import ReadReplicas
    from .wake_ups import WakeUps

FROM_FOLLOWERS_VERSION = 11
"""Consumers that speak it may read from a follower, up to its high watermark (KIP-392)."""
CURRENT_LEADERS_VERSION = 16
"""From it on a response names the leaders of partitions that are led elsewhere (KIP-951)."""
_NONE = ErrorCode.none


class FetchHandler:
    """Answers Fetch, at once or when a delayed fetch completes."""

    def __init__(
        self,
        host: Host,
        directory: PartitionDirectory,
        wake_ups: WakeUps,
        follower_state: FollowerFetchState,
        log_failed: LogFailed,
        config: BrokerConfig,
        read_replicas: ReadReplicas,
        leaders: CurrentLeaders,
    ) -> None:
        self._host = host
        self._leaders = leaders
        self._directory = directory
        self._wake_ups = wake_ups
        self._follower_state = follower_state
        self._log_failed = log_failed
        self._config = config
        self._read_replicas = read_replicas
        self._sessions: dict[int, FetchSession] = {}
        """By the follower's node id."""
        self._sessions_begun = 0
        self._consumer_sessions = ConsumerSessions(host, config.number("max.incremental.fetch.session.cache.slots"))

    def handle(self, request: Request) -> None:
        """Answer a fetch at once if it has enough or is in error, else let it wait."""
        fetch = decode_fetch(request)
        from_follower = fetch.replica_id >= 0
        if from_follower and not request.context.from_broker:
            _refuse_replica(request, fetch)
            return
        if not from_follower:
            self._handle_consumer(request, fetch)
            return
        if fetch.continues_session:
            self._continue_session(request, fetch)
            return
        requested = self._resolve_all(fetch.partitions, anywhere=False)
        urgent = not requested or any(row.error is not _NONE for row in requested)
        self._end_previous_session(fetch.replica_id)
        urgent = self._follower_state.update(fetch, requested) or urgent
        session = self._begin_session(fetch, requested, valid=not urgent)

        def answer(answers: list[FetchAnswer]) -> None:
            self._respond_to_follower(request, answers, session)

        reader = FetchReader(requested, fetch, fetch.max_bytes, self._log_failed)
        if not urgent and not reader.has_data() and fetch.max_wait_ms > 0 < fetch.min_bytes:
            self._wait(fetch, reader, answer)  # its offsets were checked: nothing to read or refuse
        else:
            self._answer_or_wait(fetch, reader, answer, urgent=urgent)

    def _handle_consumer(self, request: Request, fetch: FetchRequest) -> None:
        by_id = request.version >= TOPIC_IDS
        consumer = self._consumer_sessions.fetch(fetch, by_id=by_id)
        if isinstance(consumer, ErrorCode):
            _refuse_session(request, consumer)
            return
        anywhere = request.version >= FROM_FOLLOWERS_VERSION
        requested = self._resolve_all(consumer.rows, anywhere=anywhere)
        if not request.unrestricted:
            requested = self._permitted(request, requested)
        urgent = not requested or any(row.error is not _NONE for row in requested)

        def answer(answers: list[FetchAnswer]) -> None:
            self._respond_to_consumer(request, answers, consumer)

        limit = min(fetch.max_bytes, self._config.number("fetch.max.bytes"))
        preferred = self._read_replicas.chooser(fetch.rack_id, request.listener.name)
        reader = FetchReader(requested, fetch, limit, self._log_failed, preferred)
        self._answer_or_wait(fetch, reader, answer, urgent=urgent)

    def refuse(self, request: Request, code: ErrorCode) -> None:
        """Answer with `code` and read nothing: in every partition of the session, where Kafka has this error there."""
        given = code_at(ApiKey.FETCH, request.version, code)
        fetch = decode_fetch(request)
        if fetch.replica_id >= 0 or place_of(ApiKey.FETCH, given) != PARTITION:
            request.refuse(code)
            return
        consumer = self._consumer_sessions.fetch(fetch, by_id=request.version >= TOPIC_IDS)
        if isinstance(consumer, ErrorCode):
            _refuse_session(request, consumer)
            return
        answers = [FetchAnswer(row.topic, row.partition, given) for row in consumer.rows]
        self._respond_to_consumer(request, answers, consumer)

    def session_partitions(self, session_id: int) -> Sequence[tuple[str | UUID, int]]:
        """The partitions of a consumer's session."""
        return self._consumer_sessions.partitions(session_id)

    def _answer_or_wait(
        self, fetch: FetchRequest, reader: FetchReader, answer: Callable[[list[FetchAnswer]], None], *, urgent: bool
    ) -> None:
        if urgent or fetch.max_wait_ms <= 0 or fetch.min_bytes <= 0:
            answer(reader.read()[0])
            return
        answers, size, urgent = reader.read()
        if urgent or size >= fetch.min_bytes:
            answer(answers)
        else:
            self._wait(fetch, reader, answer)

    def _end_previous_session(self, node: int) -> None:
        """A full fetch ends the session, before the fetch's offsets are recorded: they follow those of the session."""
        previous = self._sessions.pop(node, None)
        if previous is not None:
            previous.end()

    def _begin_session(
        self, fetch: FetchRequest, requested: list[RequestedPartition], *, valid: bool
    ) -> FetchSession | None:
        """Begin a session if the follower asks for one and every row is `valid`."""
        if fetch.session_epoch != 0 or not valid:
            return None
        self._sessions_begun += 1
        now_ms = self._host.clock.monotonic_ms()
        session = FetchSession(self._sessions_begun, fetch, now_ms, self._log_failed)
        if not session.begin(requested):
            return None
        self._sessions[fetch.replica_id] = session
        return session

    def _continue_session(self, request: Request, fetch: FetchRequest) -> None:
        """The next fetch of a follower's session."""
        node = fetch.replica_id
        session = self._sessions.get(node)
        if session is None:
            _refuse_session(request)
            return
        code = session.refusal(fetch)
        if code is not _NONE:
            _refuse_session(request, code)
            return
        now_ms = self._host.clock.monotonic_ms()
        rows = None if fetch.forgotten else session.update(fetch.partitions, now_ms)
        if rows is None or self._follower_state.update(fetch, rows):
            self._end_session(session)
            _refuse_session(request)
            return

        def answer(answers: list[FetchAnswer] | None) -> None:
            if answers is None:
                self._end_session(session)
                _refuse_session(request)
                return
            parts = encode_fetch_response(request.version, answers, session_id=session.session_id)
            request.respond_parts(parts)

        operation = DelayedSessionFetch(now_ms + fetch.max_wait_ms, session, fetch, answer)
        # A try of this operation causes no events, so no event between the first try and the watching is missed. The
        # session may have ended meanwhile: what this fetch acknowledged may have done anything to any partition.
        if fetch.max_wait_ms <= 0 or fetch.min_bytes <= 0:
            operation.force_complete()
        elif not operation.try_complete():
            self._wake_ups.follower_fetches.watch(operation, (node,))

    def _end_session(self, session: FetchSession) -> None:
        session.end()
        if self._sessions.get(session.node_id) is session:
            del self._sessions[session.node_id]

    def _wait(self, fetch: FetchRequest, reader: FetchReader, answer: Callable[[list[FetchAnswer]], None]) -> None:
        deadline_ms = self._host.clock.monotonic_ms() + fetch.max_wait_ms
        operation = DelayedFetch(deadline_ms, reader, fetch.min_bytes, answer)
        wake_ups = self._wake_ups
        if fetch.replica_id >= 0:
            wake_ups.follower_fetches.try_complete_else_watch(operation, (fetch.replica_id,))
            return
        keys = [
            requested.partition.topic_partition for requested in reader.requested if requested.partition is not None
        ]
        wake_ups.consumer_fetches.try_complete_else_watch(operation, keys)

    def _resolve_all(self, rows: Sequence[FetchPartition], *, anywhere: bool) -> list[RequestedPartition]:
        directory = self._directory
        requested: list[RequestedPartition] = []
        topic: object = None
        name: str | None = None
        for row in rows:
            if row.topic is not topic:  # rows of one topic share the object
                topic = row.topic
                if isinstance(row.topic, str):
                    name = row.topic
                else:
                    name = directory.topic_name(row.topic) or directory.topic_elsewhere(row.topic)
            if name is None:
                requested.append(RequestedPartition(row, None, ErrorCode.unknown_topic_id))
                continue
            tp = TopicPartition(name, row.partition)
            partition = directory.partition(tp)
            if partition is None:
                requested.append(RequestedPartition(row, None, directory.missing(tp)))
            else:
                check = partition.check_replica if anywhere else partition.check_leader
                error = check(row.current_leader_epoch)
                requested.append(RequestedPartition(row, partition, error, anywhere=anywhere))
        return requested

    def _permitted(self, request: Request, requested: list[RequestedPartition]) -> list[RequestedPartition]:
        """The same, with an error for each partition of a topic that the consumer may not read."""
        names = [self._name(row.row.topic) for row in requested]
        denied = request.denied(Operation.READ, ResourceType.TOPIC, names)
        code = ErrorCode.topic_authorization_failed
        return [
            RequestedPartition(row.row, None, code)
            if name in denied and row.error is not ErrorCode.unknown_topic_id
            else row
            for name, row in zip(names, requested, strict=True)
        ]

    def _respond_to_follower(self, request: Request, answers: list[FetchAnswer], session: FetchSession | None) -> None:
        if request.answered:
            return
        session_id = 0
        if session is not None:
            if any(answer.error or answer.diverging for answer in answers):
                self._end_session(session)
            elif not session.ended:
                session_id = session.session_id
                session.record_sent(answers)
        request.respond_parts(encode_fetch_response(request.version, answers, session_id=session_id))

    def _respond_to_consumer(self, request: Request, answers: Sequence[FetchAnswer], consumer: ConsumerFetch) -> None:
        if request.answered:
            return
        endpoints: Sequence[NodeEndpoint] = ()
        if request.version >= CURRENT_LEADERS_VERSION:
            answers, endpoints = self._with_leaders(answers, request.listener.name)
        code, session_id, answers = consumer.response(answers)
        parts = encode_fetch_response(
            request.version, answers, error=code, session_id=session_id, node_endpoints=endpoints
        )
        on_send = None
        if self._host.tap.enabled:
            on_send = self._tap(request, answers, consumer.rows, int(code))
        request.respond_parts(parts, on_send=on_send)

    def _with_leaders(
        self, answers: Sequence[FetchAnswer], listener: str
    ) -> tuple[Sequence[FetchAnswer], Sequence[NodeEndpoint]]:
        """The same answers, with the leader of each partition that is led elsewhere, and the leaders' endpoints."""
        if not any(answer.error and answer.error in MOVED for answer in answers):
            return answers, ()
        found: list[FetchAnswer] = []
        for answer in answers:
            if answer.error in MOVED:
                tp = TopicPartition(self._name(answer.topic), answer.partition)
                leader, epoch = self._leaders.of(tp)
                found.append(answer._replace(leader_id=leader, leader_epoch=epoch))
            else:
                found.append(answer)
        return found, self._leaders.endpoints((row.leader_id for row in found), listener)

    def _tap(
        self, request: Request, answers: Sequence[FetchAnswer], rows: Sequence[FetchPartition], code: int
    ) -> OnSend:
        offsets = {(row.topic, row.partition): row.fetch_offset for row in rows}

        first = code or next((int(answer.error) for answer in answers if answer.error), 0)

        def sent(fate: Fate) -> int:
            if not fate.arrives:
                return first
            found: list[Watermarks] = []
            for answer in answers:
                topic = self._name(answer.topic)
                if answer.read_epoch >= 0:
                    found.append(
                        Watermarks(
                            topic,
                            answer.partition,
                            answer.read_epoch,
                            answer.high_watermark,
                            answer.last_stable_offset,
                            answer.log_start_offset,
                        )
                    )
                if answer.records:
                    self._host.tap.fetched(
                        request.client_id,
                        topic,
                        answer.partition,
                        offset=offsets[answer.topic, answer.partition],
                        invoked_ns=request.received_ns,
                        batches=[bytes_of(part) for part in answer.records],
                        aborted=answer.aborted,
                    )
            self._host.tap.watermarks(request.client_id, found, invoked_ns=request.received_ns)
            return first

        return sent

    def _name(self, topic: Any) -> str:
        if isinstance(topic, str):
            return topic
        directory = self._directory
        return directory.topic_name(topic) or directory.topic_elsewhere(topic) or str(topic)


def _refuse_replica(request: Request, fetch: FetchRequest) -> None:
    """Respond to a sender that names a replica and may not act as a broker: as Kafka without CLUSTER_ACTION."""
    if fetch.continues_session:
        _refuse_session(request)
        return
    code = ErrorCode.topic_authorization_failed
    answers = [FetchAnswer(row.topic, row.partition, code, aborted=()) for row in fetch.partitions]
    request.respond_parts(encode_fetch_response(request.version, answers))


def _refuse_session(request: Request, code: ErrorCode = ErrorCode.fetch_session_id_not_found) -> None:
    request.respond_parts(encode_fetch_response(request.version, (), error=code))
