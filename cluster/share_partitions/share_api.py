"""ShareFetch and ShareAcknowledge: bodies in, responses out (KIP-932).

Owns: the translation between the protocol and this room, and the checks that Kafka makes before it looks at a record:
the group may be read, the member id, the session and its epoch, the topics may be read, the acknowledgements are in
order. May fail: nothing; each error has its place in the response.

A ShareFetch carries acknowledgements, too: both parts have a result of their own for each partition. What a member
acquires is reported to the tap just before the response leaves; where the response is dropped, the records stay
acquired until their lock ends, as in Kafka.

Source: KafkaApis.handleShareFetchRequest, handleShareAcknowledgeRequest, validateAcknowledgementBatches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..config import BrokerConfig
from ..config.group_table import SHARE_ISOLATION, SHARE_RENEWALS, group_flag, group_text
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..ids import NodeId, TopicPartition
from ..purgatory import Purgatory
from ..replication.current_leaders import MOVED, CurrentLeaders
from ..replication.fetch_isolation import FetchIsolation
from ..share_coordinator.values import SharePartition
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import denial
from .acknowledgements import RENEW_FROM, Acknowledgement, check_renewal, read_acknowledgements
from .directory import LedShare, ShareDirectory
from .fetching import DelayedShareFetch, Fetched, Limits, ShareFetch
from .sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession, ShareSessions

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..wire.request import Fate, OnSend, Request

VERSIONS = (1, 2)
MEMBER_ID_MOST = 36
RECORD_LIMIT = 1
"""`share_acquire_mode`: no more than the most records."""
LOCK = "share.record.lock.duration.ms"
Results = dict[Place, KafkaError | None]
"""The result of the acknowledgements of each partition."""


class ShareApi:
    """Handlers of the requests."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        cache: MetadataCache,
        shares: ShareDirectory,
        waiting: Purgatory,
        leaders: CurrentLeaders,
    ) -> None:
        self._host = host
        self._config = config
        self._cache = cache
        self._shares = shares
        self._waiting = waiting
        self._leaders = leaders
        self.sessions = ShareSessions(config.number("group.share.max.share.sessions"))
        shares.on_changed.append(self._changed)

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table."""
        return (
            ApiRow(ApiKey.SHARE_FETCH, *VERSIONS, self.share_fetch),
            ApiRow(ApiKey.SHARE_ACKNOWLEDGE, *VERSIONS, self.share_acknowledge),
        )

    def _changed(self, led: LedShare) -> None:
        self._waiting.check_and_complete(led.share)

    # ---- ShareFetch --------------------------------------------------------------------------------

    def share_fetch(self, request: Request) -> None:
        """ShareFetch v1 and v2."""
        body = request.decode()
        s = messages.response(request)
        renews = request.version >= RENEW_FROM and body.is_renew_ack
        named = list(_places(body.topics))
        acknowledges = any(row.acknowledgement_batches for topic in body.topics for row in topic.partitions)
        key = (body.group_id or "", body.member_id or "")
        try:
            self._check_member(request, body)
            if renews:
                check_renewal(body)
            session = self.sessions.fetch(
                key,
                body.share_session_epoch,
                named=named,
                forgotten=[(t.topic_id, number) for t in body.forgotten_topics_data for number in t.partitions],
                acknowledges=acknowledges,
            )
        except KafkaError as error:
            self._refuse_fetch(request, body, error)
            return
        if body.share_session_epoch == INITIAL_EPOCH:
            request.context.on_close(lambda: self._connection_closed(session))
        denied = self._denied(request, {*named, *session.partitions})
        parts = _Parts(lambda results, fetched: self._respond_to_fetch(request, body, s, session, results, fetched))
        if acknowledges:
            self._acknowledge(request, key, body, denied, renews=renews, done=parts.acknowledged)
        else:
            parts.acknowledged({})
        if renews or body.share_session_epoch == FINAL_EPOCH:
            parts.fetched({}, None)
        else:
            self._fetch(body, session, denied, parts.fetched)

    def _check_member(self, request: Request, body: Any) -> None:
        if body.group_id is None:
            raise KafkaError(ErrorCode.invalid_request, "Invalid group id in the request.")
        request.require(Operation.READ, ResourceType.GROUP, body.group_id)
        if not 0 < len(body.member_id or "") <= MEMBER_ID_MOST:
            raise KafkaError(ErrorCode.invalid_request, "Invalid member id in the request.")

    def _refuse_fetch(self, request: Request, body: Any, error: KafkaError) -> None:
        def respond() -> None:
            s = messages.response(request)
            request.respond(s.ShareFetchResponse(error_code=error.code, responses=()))  # Kafka sends no text either

        if error.code is ErrorCode.share_session_limit_reached:  # so that the member does not ask again at once
            self._host.tasks.call_later(max(0, messages.to_milliseconds(body.max_wait)), respond)
        else:
            respond()

    def _denied(self, request: Request, places: Iterable[Place]) -> frozenset[str]:
        names = {name for topic_id, _ in places if (name := self._cache.topic_name(topic_id)) is not None}
        return frozenset(request.denied(Operation.READ, ResourceType.TOPIC, sorted(names)))

    def _fetch(
        self,
        body: Any,
        session: ShareSession,
        denied: frozenset[str],
        done: Callable[[dict[Place, Fetched], ShareFetch | None], None],
    ) -> None:
        group_id, member = session.key
        max_bytes = min(body.max_bytes, self._config.number("fetch.max.bytes"))
        fetch = ShareFetch(
            member=member,
            isolation=self._isolation(group_id),
            limits=Limits(
                min_bytes=min(body.min_bytes, max_bytes),
                max_bytes=max_bytes,
                records_most=body.max_records,
                batch_size=max(1, body.batch_size),
                exact=getattr(body, "share_acquire_mode", 0) == RECORD_LIMIT,
            ),
            lock_ms=self._config.group_number(group_id, LOCK),
            now_ms=self._host.clock.monotonic_ms,
            log_failed=lambda led, error: self._shares.log(f"{led.topic_partition}: {error}"),
        )
        nothing = body.max_records == 0 or max_bytes == 0
        for place in _rotated(list(session.partitions), body.share_session_epoch):
            self._resolve(fetch, group_id, place, denied, leads=not nothing)
            if max_bytes < 0 and not nothing:  # Kafka's log refuses the read
                fetch.failed.setdefault(place, KafkaError(ErrorCode.unknown_server_error))
        operation = DelayedShareFetch(
            self._host.clock.monotonic_ms() + max(0, messages.to_milliseconds(body.max_wait)),
            fetch,
            lambda found: done(found, fetch),
        )
        if nothing or not fetch.places:
            operation.force_complete()
            return
        keys: list[object] = [led.share for led in fetch.places.values()]
        keys += [led.topic_partition for led in fetch.places.values()]
        self._waiting.try_complete_else_watch(operation, keys)

    def _resolve(self, fetch: ShareFetch, group_id: str, place: Place, denied: frozenset[str], *, leads: bool) -> None:
        """Add a share-partition to a fetch, or its error."""
        topic_id, number = place
        name = self._cache.topic_name(topic_id)

        def failed(error: KafkaError) -> None:
            fetch.failed[place] = error

        if name is None or topic_id is None:
            failed(KafkaError(ErrorCode.unknown_topic_id))
        elif name in denied:
            failed(denial(ResourceType.TOPIC))
        elif self._cache.partition(TopicPartition(name, number)) is None:
            failed(KafkaError(ErrorCode.unknown_topic_or_partition))
        elif leads:
            try:
                share = SharePartition(group_id, topic_id, number)
                fetch.places[place] = self._shares.lead(share, TopicPartition(name, number), failed)
            except KafkaError as error:
                failed(error)

    def _isolation(self, group_id: str) -> FetchIsolation:
        level = group_text(self._config, group_id, SHARE_ISOLATION)
        return FetchIsolation.TXN_COMMITTED if level == "read_committed" else FetchIsolation.HIGH_WATERMARK

    def _respond_to_fetch(
        self,
        request: Request,
        body: Any,
        s: Any,
        session: ShareSession,
        results: Results,
        outcome: tuple[dict[Place, Fetched], ShareFetch | None],
    ) -> None:
        fetched, fetch = outcome
        if body.share_session_epoch == FINAL_EPOCH:
            self._end_session(session.key)
        shown = {
            place: row
            for place, row in fetched.items()
            if body.share_session_epoch == INITIAL_EPOCH or row.error is not None or row.acquired or place in results
        }
        places = [*shown, *(place for place in results if place not in shown)]
        leaders = self._moved(place for place in places if _code(shown.get(place)) in MOVED)
        topics: dict[Any, list[Any]] = {}
        for place in places:
            row, said = shown.get(place, Fetched()), results.get(place)
            topics.setdefault(place[0], []).append(self._fetched_row(s, place, row, said, leaders.get(place)))
        response = s.ShareFetchResponse(
            error_code=ErrorCode.none,
            acquisition_lock_timeout=messages.milliseconds(self._config.group_number(session.key[0], LOCK)),
            responses=tuple(
                s.ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(rows))
                for topic_id, rows in topics.items()
            ),
            node_endpoints=self._endpoints(request, s, leaders),
        )
        request.respond(response, on_send=self._tap(request, session, shown, fetch))

    def _fetched_row(
        self, s: Any, place: Place, row: Fetched, said: KafkaError | None, leader: tuple[NodeId, int] | None
    ) -> Any:
        return s.PartitionData(
            partition_index=place[1],
            error_code=ErrorCode.none if row.error is None else row.error.code,
            error_message=None if row.error is None else row.error.message or None,
            acknowledge_error_code=0 if said is None else int(said.code),
            acknowledge_error_message=None if said is None else said.message or None,
            current_leader=_leader(s, leader),
            records=row.records or b"",
            acquired_records=tuple(
                s.AcquiredRecords(
                    first_offset=part.first_offset, last_offset=part.last_offset, delivery_count=part.delivery_count
                )
                for part in row.acquired
            ),
        )

    def _tap(
        self, request: Request, session: ShareSession, shown: Mapping[Place, Fetched], fetch: ShareFetch | None
    ) -> OnSend | None:
        tapped = self._shares.tapped
        if not tapped.enabled or fetch is None:
            return None
        got = [row for row in shown.values() if row.acquired and row.led is not None]
        first = next((int(row.error.code) for row in shown.values() if row.error is not None), 0)

        def sent(fate: Fate) -> int:
            for row in got:
                assert row.led is not None
                tapped.acquired(
                    row.led,
                    session.key[1],
                    request.client_id,
                    row.acquired,
                    invoked_ns=request.received_ns,
                    until_ms=fetch.until_ms,
                    lost=not fate.arrives,
                )
            return first

        return sent

    # ---- ShareAcknowledge --------------------------------------------------------------------------

    def share_acknowledge(self, request: Request) -> None:
        """ShareAcknowledge v1 and v2."""
        body = request.decode()
        s = messages.response(request)
        key = (body.group_id or "", body.member_id or "")
        renews = request.version >= RENEW_FROM and body.is_renew_ack
        try:
            self._check_member(request, body)
            self.sessions.acknowledge(key, body.share_session_epoch)
        except KafkaError as error:
            request.respond(
                s.ShareAcknowledgeResponse(error_code=error.code, error_message=error.message or None, responses=())
            )
            return

        said = {
            (topic.topic_id, row.partition_index)
            for topic in body.topics
            for row in topic.partitions
            if row.acknowledgement_batches
        }

        def done(results: Results) -> None:
            results = {place: error for place, error in results.items() if place in said or error is not None}
            if body.share_session_epoch == FINAL_EPOCH:
                self._end_session(key)
            self._respond_to_acknowledge(request, s, key[0], results)

        self._acknowledge(request, key, body, self._denied(request, _places(body.topics)), renews=renews, done=done)

    def _respond_to_acknowledge(self, request: Request, s: Any, group_id: str, results: Results) -> None:
        leaders = self._moved(place for place, error in results.items() if error is not None and error.code in MOVED)
        topics: dict[Any, list[Any]] = {}
        for place, error in results.items():
            topics.setdefault(place[0], []).append(
                s.PartitionData(
                    partition_index=place[1],
                    error_code=ErrorCode.none if error is None else error.code,
                    error_message=None if error is None else error.message or None,
                    current_leader=_leader(s, leaders.get(place)),
                )
            )
        request.respond(
            s.ShareAcknowledgeResponse(
                error_code=ErrorCode.none,
                acquisition_lock_timeout=messages.milliseconds(self._config.group_number(group_id, LOCK)),
                responses=tuple(
                    s.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(rows))
                    for topic_id, rows in topics.items()
                ),
                node_endpoints=self._endpoints(request, s, leaders),
            )
        )

    def _acknowledge(
        self,
        request: Request,
        key: tuple[str, str],
        body: Any,
        denied: frozenset[str],
        *,
        renews: bool,
        done: Callable[[Results], None],
    ) -> None:
        """Do what a request acknowledges; `done(results)` when each partition has one.

        Of a partition that a request names twice, the last batches count, as in Kafka.
        """
        results: Results = {}
        begun: list[tuple[Place, LedShare, list[Acknowledgement]]] = []
        rows = {(topic.topic_id, row.partition_index): row for topic in body.topics for row in topic.partitions}
        for place, row in rows.items():
            try:
                said = read_acknowledgements(row.acknowledgement_batches, request.version, renews=renews)
                led = self._acknowledged_share(key[0], place, denied)
            except KafkaError as error:
                results[place] = error
                continue
            results[place] = None
            if said and led is None:
                results[place] = KafkaError(ErrorCode.unknown_topic_or_partition)
            elif said and led is not None:
                begun.append((place, led, said))
        left = {place for place, _, _ in begun}
        if not left:
            done(results)
            return

        def ended(place: Place, error: KafkaError | None) -> None:
            results[place] = error
            left.remove(place)
            if not left:
                done(results)

        for place, led, said in begun:
            self._acknowledge_one(request, key[1], led, said, lambda error, place=place: ended(place, error))  # type: ignore[misc]

    def _acknowledge_one(
        self,
        request: Request,
        member: str,
        led: LedShare,
        said: Sequence[Acknowledgement],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        until_ms = self._host.clock.monotonic_ms() + self._config.group_number(led.share.group_id, LOCK)

        def stored(error: KafkaError | None) -> None:
            self._shares.tapped.acknowledged(
                led,
                member,
                request.client_id,
                said,
                error=0 if error is None else int(error.code),
                invoked_ns=request.received_ns,
                until_ms=until_ms,
            )
            done(error)

        renews = group_flag(self._config, led.share.group_id, SHARE_RENEWALS)
        try:
            led.acknowledge(member, said, until_ms if renews else None, stored)
        except KafkaError as error:
            stored(error)

    def _acknowledged_share(self, group_id: str, place: Place, denied: frozenset[str]) -> LedShare | None:
        topic_id, number = place
        name = self._cache.topic_name(topic_id)
        if name is None or topic_id is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        if name in denied:
            raise denial(ResourceType.TOPIC)
        if self._cache.partition(TopicPartition(name, number)) is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return self._shares.find(SharePartition(group_id, topic_id, number))

    # ---- sessions ----------------------------------------------------------------------------------

    def _end_session(self, key: tuple[str, str]) -> None:
        self._release(self.sessions.end(key))

    def _connection_closed(self, session: ShareSession) -> None:
        self._release(self.sessions.end_if_current(session))

    def _release(self, session: ShareSession | None) -> None:
        """Free what a member holds: its session has ended."""
        if session is None:
            return
        group_id, member = session.key
        for topic_id, number in session.partitions:
            led = None if topic_id is None else self._shares.find(SharePartition(group_id, topic_id, number))
            if led is not None:
                led.release(member)

    # ---- leaders -----------------------------------------------------------------------------------

    def _moved(self, places: Iterable[Place]) -> dict[Place, tuple[NodeId, int]]:
        """The leader of each partition that is led elsewhere, and its epoch."""
        found: dict[Place, tuple[NodeId, int]] = {}
        for place in places:
            name = self._cache.topic_name(place[0])
            if name is not None:
                found[place] = self._leaders.of(TopicPartition(name, place[1]))
        return found

    def _endpoints(self, request: Request, s: Any, leaders: Mapping[Place, tuple[NodeId, int]]) -> tuple[Any, ...]:
        nodes = [node for node, _ in leaders.values() if node >= 0]
        return tuple(
            s.NodeEndpoint(node_id=row.node_id, host=row.host, port=row.port, rack=row.rack)
            for row in self._leaders.endpoints(nodes, request.listener.name)
        )


class _Parts:
    """The two results of a ShareFetch; `respond` is called when both are there."""

    def __init__(self, respond: Callable[[Results, tuple[dict[Place, Fetched], ShareFetch | None]], None]) -> None:
        self._respond = respond
        self._results: Results | None = None
        self._fetched: tuple[dict[Place, Fetched], ShareFetch | None] | None = None

    def acknowledged(self, results: Results) -> None:
        """The acknowledgements have their results."""
        assert self._results is None, "a request is acknowledged twice"
        self._results = results
        self._maybe_respond()

    def fetched(self, found: dict[Place, Fetched], fetch: ShareFetch | None) -> None:
        """The fetch is complete."""
        assert self._fetched is None, "a request is fetched twice"
        self._fetched = found, fetch
        self._maybe_respond()

    def _maybe_respond(self) -> None:
        if self._results is not None and self._fetched is not None:
            self._respond(self._results, self._fetched)


def _places(topics: Iterable[Any]) -> Iterable[Place]:
    return ((topic.topic_id, row.partition_index) for topic in topics for row in topic.partitions)


def _rotated(places: list[Place], epoch: int) -> list[Place]:
    """Each request of a session begins at another partition, so that none of them starves."""
    at = epoch % len(places) if places and epoch > 0 else 0
    return places[at:] + places[:at]


def _code(row: Fetched | None) -> ErrorCode:
    return ErrorCode.none if row is None or row.error is None else row.error.code


def _leader(s: Any, leader: tuple[NodeId, int] | None) -> Any:
    node, epoch = leader or (0, 0)
    return s.LeaderIdAndEpoch(leader_id=node, leader_epoch=epoch)
