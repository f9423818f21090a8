"""Serving Fetch, to consumers up to the HW and to followers up to the log's end (E4, C1, C6).

Owns: `Fetches`: the handler and the delayed fetch; what is read says `fetch_reads.py`. A follower's offsets are
taken in before anything is read, and only from a log that is a prefix of this one: a fetch that is fenced by its
leader epoch, or whose last epoch diverges, moves nothing (KIP-320, KIP-595).

    a fetch is answered when         consumer            follower
    it asks for no waiting           at once             at once
    a partition has an error         at once             at once
    an epoch diverges                                    at once
    min bytes are there              HW (or LSO) moved   leader appended
    leadership or its epoch changed  at once             at once
    the deadline comes               with what there is  with what there is

Waking is put off until the link has delivered what it read (`ReplicaManager.appended`), so that all produces
of one delivery leave in one answer. A follower's fetch waits under its node id, a consumer's under its partitions.
Followers fetch in sessions (`fetch_sessions.py`).

Source: Kafka's `ReplicaManager.fetchMessages`, `Partition.fetchRecords`, `DelayedFetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, KafkaError
from ..host.seam import bytes_of
from ..ids import BrokerEpoch, NodeId, Offset, TopicPartition
from ..purgatory import DelayedOperation
from ..wire.fetch import FetchPartition, FetchRequest, decode_fetch
from ..wire.fetch_response import FetchAnswer, encode_fetch_response
from .fetch_reads import Asked, Reader
from .fetch_sessions import FetchSession, note_sent

if TYPE_CHECKING:
    from ..wire.request import Request
    from .partition import Partition
    from .replica_manager import ReplicaManager

FROM_FOLLOWERS_VERSION = 11
"""Consumers that speak it may read from a follower, up to its HW (KIP-392)."""
_NONE = ErrorCode.none


class DelayedFetch(DelayedOperation):
    """A fetch that waits for bytes, an error or its deadline (E4)."""

    __slots__ = ("_done", "_min_bytes", "_reader")

    def __init__(
        self,
        deadline_ms: int,
        reader: Reader,
        min_bytes: int,
        done: Callable[[list[FetchAnswer]], None],
    ) -> None:
        super().__init__(deadline_ms)
        self._reader = reader
        self._min_bytes = min_bytes
        self._done = done

    def try_complete(self) -> bool:
        """Complete when a partition changed hands or enough bytes are there."""
        reader = self._reader
        if not reader.changed():
            if not reader.has_data():
                return False
            if self._min_bytes > 1:
                _, size, urgent = reader.read()
                if size < self._min_bytes and not urgent:
                    return False
        return self.force_complete()

    def on_complete(self) -> None:
        """Read again: what is answered is as of now, and nothing is kept while waiting."""
        self._done(self._reader.read()[0])


class DelayedSessionFetch(DelayedOperation):
    """A follower's fetch in a session that waits for bytes, for the session's end or for its deadline."""

    __slots__ = ("_done", "_max_bytes", "_min_bytes", "_session", "_sound")

    def __init__(
        self,
        deadline_ms: int,
        session: FetchSession,
        fetch: FetchRequest,
        done: Callable[[list[FetchAnswer] | None], None],
    ) -> None:
        super().__init__(deadline_ms)
        self._sound = False  # the session was found to be so in this very turn
        self._session = session
        self._min_bytes = fetch.min_bytes
        self._max_bytes = fetch.max_bytes
        self._done = done

    def try_complete(self) -> bool:
        """Complete when the session is void or enough bytes are there."""
        sound = self._session.sound()
        if sound and not self._enough():
            return False
        self._sound = sound
        return self.force_complete()

    def _enough(self) -> bool:
        session = self._session
        if not session.has_data():
            return False
        if self._min_bytes <= 1:
            return True
        answers = session.read(self._max_bytes, told=False)
        return answers is None or _size_of(answers) >= self._min_bytes

    def on_complete(self) -> None:
        """Read again: what is answered is as of now. A session that is void by now is told of as None."""
        session = self._session
        sound = self._sound or session.sound()
        self._done(session.read(self._max_bytes) if sound else None)


class Fetches:
    """The Fetch handler."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._host = manager.host
        self._sessions: dict[int, FetchSession] = {}
        self._sessions_begun = 0

    def handle(self, request: Request) -> None:
        """Answer a fetch, now or when it is worth it."""
        fetch = decode_fetch(request)
        from_follower = fetch.replica_id >= 0
        if from_follower and not request.context.from_broker:
            _refuse_replica(request, fetch)
            return
        if fetch.session_id != 0 and fetch.session_epoch > 0:
            self._go_on(request, fetch)
            return
        anywhere = not from_follower and request.version >= FROM_FOLLOWERS_VERSION
        asked = self._resolve_all(fetch.partitions, anywhere=anywhere)
        urgent = not asked or any(one.error is not _NONE for one in asked)
        session: FetchSession | None = None
        if from_follower:
            urgent = self._take_in(fetch, asked) or urgent
            session = None if urgent else self._begin(fetch, asked)

        def answer(answers: list[FetchAnswer]) -> None:
            self._respond(request, answers, tapped=not from_follower, session=session, asked=asked)

        reader = Reader(self._manager, asked, fetch)
        if urgent or fetch.max_wait_ms <= 0 or fetch.min_bytes <= 0:
            answer(reader.read()[0])
        elif from_follower and not reader.has_data():
            self._wait(fetch, reader, answer)  # its offsets were judged: nothing to read or refuse
        else:
            answers, size, urgent = reader.read()
            if urgent or size >= fetch.min_bytes:
                answer(answers)
            else:
                self._wait(fetch, reader, answer)

    def _begin(self, fetch: FetchRequest, asked: list[Asked]) -> FetchSession | None:
        """A session of a follower that asks for one; the one it had before is over."""
        self._sessions.pop(fetch.replica_id, None)
        if fetch.session_epoch != 0:
            return None
        self._sessions_begun += 1
        now_ms = self._host.clock.monotonic_ms()
        session = FetchSession(self._sessions_begun, fetch, asked, now_ms, self._manager.log_failed)
        if len(session) != len(asked):
            return None  # a partition named twice
        self._sessions[fetch.replica_id] = session
        return session

    def _go_on(self, request: Request, fetch: FetchRequest) -> None:
        """The next fetch of a session. Consumers have none: whoever claims one is told to begin again."""
        node = fetch.replica_id
        session = self._sessions.get(node) if node >= 0 else None
        if session is None:
            _refuse_session(request)
            return
        code = session.refuse(fetch)
        if code is not _NONE:
            _refuse_session(request, code)
            return
        now_ms = self._host.clock.monotonic_ms()
        judged = None if fetch.forgotten else session.update(fetch.partitions, now_ms)
        if judged is None or self._take_in(fetch, judged):
            self._sessions.pop(node, None)
            _refuse_session(request)
            return

        def answer(answers: list[FetchAnswer] | None) -> None:
            if answers is not None:
                parts = encode_fetch_response(
                    request.version, answers, session_id=session.session_id
                )
                request.respond_parts(parts)
                return
            if self._sessions.get(node) is session:
                del self._sessions[node]
            _refuse_session(request)

        operation = DelayedSessionFetch(now_ms + fetch.max_wait_ms, session, fetch, answer)
        # no try here causes events, so none between this one and the watching is missed; it looks at the session anew,
        # for what was acknowledged by this fetch's word may have done anything, to any partition
        if fetch.max_wait_ms <= 0 or fetch.min_bytes <= 0:
            operation.force_complete()
        elif not operation.try_complete():
            self._manager.follower_fetches.watch(operation, (node,))

    def _wait(
        self,
        fetch: FetchRequest,
        reader: Reader,
        answer: Callable[[list[FetchAnswer]], None],
    ) -> None:
        deadline_ms = self._host.clock.monotonic_ms() + fetch.max_wait_ms
        operation = DelayedFetch(deadline_ms, reader, fetch.min_bytes, answer)
        manager = self._manager
        if fetch.replica_id >= 0:
            manager.follower_fetches.try_complete_else_watch(operation, (fetch.replica_id,))
            return
        keys = [one.partition.topic_partition for one in reader.asked if one.partition is not None]
        manager.consumer_fetches.try_complete_else_watch(operation, keys)

    def _resolve_all(self, rows: Sequence[FetchPartition], *, anywhere: bool) -> list[Asked]:
        manager = self._manager
        asked: list[Asked] = []
        topic: object = None
        name: str | None = None
        for row in rows:
            if row.topic is not topic:  # rows of one topic share the object
                topic = row.topic
                at = row.topic
                name = at if isinstance(at, str) else manager.topic_name(at)
            if name is None:
                asked.append(Asked(row, None, ErrorCode.unknown_topic_id))
                continue
            tp = TopicPartition(name, row.partition)
            partition = manager.partition(tp)
            if partition is None:
                asked.append(Asked(row, None, manager.missing(tp)))
            else:
                check = partition.check_replica if anywhere else partition.check_leader
                error = check(row.current_leader_epoch)
                asked.append(Asked(row, partition, error, anywhere=anywhere))
        return asked

    def _take_in(self, fetch: FetchRequest, asked: list[Asked]) -> bool:
        """Take a follower's offsets: remote LEO, HW, ISR (C1, C4); True when one must be answered at once."""
        urgent = acknowledged = False
        node, epoch = NodeId(fetch.replica_id), BrokerEpoch(fetch.replica_epoch)
        now_ms = self._host.clock.monotonic_ms()
        manager = self._manager
        for one in asked:
            partition, row = one.partition, one.row
            if partition is None or one.error is not _NONE:
                continue
            try:
                if not self._is_prefix(partition, row):
                    urgent = True
                    continue
                moved = partition.follower_fetched(
                    node, Offset(row.fetch_offset), Offset(row.log_start_offset), now_ms, epoch
                )
            except KafkaError as refused:
                one.error = refused.code
                urgent = True
                continue
            if manager.offsets.every:
                manager.offsets.follower(partition, node, row.fetch_offset)
            if moved:
                acknowledged = True
                manager.high_watermark_moved(partition, "follower-fetch")
            if manager.deletions.delayed:
                manager.deletions.check_and_complete(partition.topic_partition)
            if node not in partition.isr:
                proposal = partition.propose_expansion(node)
                if proposal is not None:
                    manager.isr_writes.submit(partition, proposal)
        if acknowledged:
            self._host.network.flush()  # producers wait for it, while this fetch is about to wait itself
        return urgent

    @staticmethod
    def _is_prefix(partition: Partition, row: FetchPartition) -> bool:
        """True when what the follower has below its fetch offset is what this log has there."""
        log = partition.log
        if not log.log_start_offset <= row.fetch_offset <= log.log_end_offset:
            return False
        last = row.last_fetched_epoch
        return last < 0 or partition.diverging(row.fetch_offset, last) is None

    def _respond(
        self,
        request: Request,
        answers: list[FetchAnswer],
        *,
        tapped: bool,
        session: FetchSession | None,
        asked: list[Asked],
    ) -> None:
        if request.answered:
            return
        session_id = 0
        if session is not None and not any(one.error or one.diverging for one in answers):
            session_id = session.session_id
            note_sent(asked, answers)
        parts = encode_fetch_response(request.version, answers, session_id=session_id)
        on_send = None
        if tapped and self._host.tap.enabled:
            on_send = self._tap(request, answers)
        request.respond_parts(parts, on_send=on_send)

    def _tap(self, request: Request, answers: list[FetchAnswer]) -> Callable[[bool], None]:
        asked = decode_fetch(request).partitions
        offsets = {(row.topic, row.partition): row.fetch_offset for row in asked}

        def sent(lost: bool) -> None:
            if lost:
                return
            for answer in answers:
                if answer.records:
                    self._host.tap.fetched(
                        request.client_id,
                        self._name(answer.topic),
                        answer.partition,
                        offset=offsets[answer.topic, answer.partition],
                        batches=[bytes_of(part) for part in answer.records],
                    )

        return sent

    def _name(self, topic: Any) -> str:
        if isinstance(topic, str):
            return topic
        return self._manager.topic_name(topic) or str(topic)


def _size_of(answers: Sequence[FetchAnswer]) -> int:
    return sum(len(part) for answer in answers for part in answer.records or ())


def _refuse_replica(request: Request, fetch: FetchRequest) -> None:
    """Answer a sender that names a replica and may not act as a broker: as Kafka without CLUSTER_ACTION."""
    if fetch.session_id != 0 and fetch.session_epoch > 0:
        _refuse_session(request)
        return
    code = ErrorCode.topic_authorization_failed
    answers = [FetchAnswer(row.topic, row.partition, code) for row in fetch.partitions]
    request.respond_parts(encode_fetch_response(request.version, answers))


def _refuse_session(
    request: Request, code: ErrorCode = ErrorCode.fetch_session_id_not_found
) -> None:
    request.respond_parts(encode_fetch_response(request.version, (), error=code))
