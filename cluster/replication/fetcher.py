"""Following one leader broker: fetch, append, fetch again (C2, C6, C7).

Owns: `ReplicaFetcher`: a connection to one leader, the partitions followed there, and one loop; `FetcherServices`,
what a fetcher uses of this broker. A partition is first *truncating* (`follower_truncation.py`), then *fetching*.

Rules:
* A response counts for a partition only if the partition is still followed here, under the epoch and from the offset
  that were named. A role change removes the partition first, so a late response does not find it.
  Between that check and the append no other code runs.
* A partition that is added while a fetch is in flight (a long poll of up to `replica.fetch.wait.max.ms`) must
  not wait for its response: the fetcher closes that connection and sends a new fetch of all partitions at once.
  Records of the closed connection are fetched again.
* In the steady state the response itself sends the next fetch, in the turn of the loop in which it comes
  (`FetchExchange`), and fetches go on in a session (`follower_session.py`).
* Errors back off exponentially up to `replica.fetch.backoff.ms`, for a partition or for the connection;
  a new partition ends the wait.

    response                          what follows
    records                           append, HW = min(LEO, leader's HW)
    diverging epoch                   truncate by the strategy, fetch again; the response's HW is not taken
    OFFSET_OUT_OF_RANGE               ask the leader where its log ends and begins; truncate, or start over
    FENCED / UNKNOWN_LEADER_EPOCH,    wait; LeaderAndIsr will come
    NOT_LEADER_OR_FOLLOWER, others

Source: Kafka's `AbstractFetcherThread`, `ReplicaFetcherThread`, `RemoteLeaderEndPoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ErrorCode, HarrowError
from ..wire.fetch import FetchRequest, encode_fetch_request
from ..wire.fetch_response import FetchedPartition, decode_fetch_response
from .fetch_exchange import FetchesEnded, FetchExchange
from .followed_partition import BACKOFF_FIRST_MS, FollowedPartition
from .follower_session import FollowerSession
from .follower_truncation import FollowerTruncation

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..host.seam import Host, Promise
    from ..ids import NodeId
    from ..network.peers import PeerClient
    from ..storage.log import Log
    from .broker_registration import BrokerRegistration
    from .offset_trace import OffsetTrace
    from .partition import Partition
    from .truncation_strategies import TruncationStrategy
    from .wake_ups import WakeUps

FETCH = 1
FETCH_VERSION = 17
_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherServices:
    """What fetchers use of this broker. `peers(node)` gives a new client of a broker, None without an address."""

    host: Host
    node_id: NodeId
    config: BrokerConfig
    registration: BrokerRegistration
    peers: Callable[[NodeId], PeerClient | None]
    strategy: TruncationStrategy
    offsets: OffsetTrace
    wake_ups: WakeUps
    log_failed: Callable[[Partition, BaseException], None]


class ReplicaFetcher:
    """The loop that follows one leader broker."""

    def __init__(self, services: FetcherServices, leader: NodeId) -> None:
        self._services = services
        self._host = services.host
        self._offsets = services.offsets
        self.wake_ups = services.wake_ups
        self.leader = leader
        number = services.config.number
        self._wait_max_ms = number("replica.fetch.wait.max.ms")
        self._min_bytes = number("replica.fetch.min.bytes")
        self._response_bytes = number("replica.fetch.response.max.bytes")
        self._backoff_most_ms = number("replica.fetch.backoff.ms")
        self._timeout_ms = number("replica.socket.timeout.ms")
        self._session = FollowerSession(
            partition_bytes=number("replica.fetch.max.bytes"),
            fences=services.strategy.fences,
            fetch_epochs=services.strategy.on_fetch,
        )
        self._truncation = FollowerTruncation(
            self._host,
            services.node_id,
            services.strategy,
            self._offsets,
            timeout_ms=self._timeout_ms,
            before_truncation=self._session.end,
            delay=self._delay,
            failed=self._own_log_refused,
        )
        self._followed: dict[tuple[object, int], FollowedPartition] = {}
        """By (topic id, partition), in the order in which a full fetch names them."""
        self._client: PeerClient | None = None
        self._in_flight = False
        self._logs_awaiting_flush: list[Log] = []
        """Logs that wait for an fsync (B11). Nothing is fetched before it ends: the leader would count the records."""
        self._wake: Promise[None] | None = None
        self._backoff_ms = BACKOFF_FIRST_MS
        self._closed = False
        self._task = self._host.tasks.spawn(self._run(), name=f"fetcher-{leader}")

    @property
    def idle(self) -> bool:
        """True when nothing is followed here."""
        return not self._followed

    def add(self, partition: Partition) -> None:
        """Follow `partition` under its present leader epoch, at once."""
        assert not partition.is_leader, f"{partition} leads and follows itself"
        self.remove(partition)
        followed = FollowedPartition(partition)
        self._followed[_key(partition)] = followed
        partition.on_follower_log_start = partial(self._session.changed, followed)
        self._logs_awaiting_flush.append(partition.log)  # it may be waiting already
        self._session.end()
        if self._in_flight:
            self._drop_client()  # the loop goes on at once, with a fetch that names this partition too
        self._awake()

    def remove(self, partition: Partition) -> None:
        """Stop following it; a response that is in flight will be ignored for it."""
        gone = self._followed.pop(_key(partition), None)
        if gone is not None:
            gone.active = False
            gone.partition.on_follower_log_start = None
            self._session.end()

    def close(self) -> None:
        """End the loop and the connection."""
        self._closed = True
        for followed in list(self._followed.values()):
            self.remove(followed.partition)
        self._drop_client()
        self._awake()

    # --------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while not self._closed:
            self._logs_awaiting_flush = [log for log in self._logs_awaiting_flush if log.awaits_fsync]
            if self._logs_awaiting_flush or not self._followed:
                await self._sleep(None)
                continue
            client = self._client
            if client is None:
                client = self._client = self._services.peers(self.leader)
                if client is None:
                    await self._back_off("its address is not known")
                    continue
            try:
                await self._round(client)
            except (OSError, TimeoutError, HarrowError) as error:
                if client is not self._client or self._closed:
                    continue  # this fetcher itself closed the connection
                self._drop_client()
                await self._back_off(repr(error))

    async def _round(self, client: PeerClient) -> None:
        """Bring every partition that is not in back-off one step further."""
        now_ms = self._host.clock.monotonic_ms()
        everything = self._followed.values()
        ready = [followed for followed in everything if followed.not_before_ms <= now_ms]
        truncating = [followed for followed in ready if followed.truncating]
        if truncating:
            await self._truncation.truncate(client, truncating)
            return
        if not ready:
            await self._sleep(min(followed.not_before_ms for followed in everything) - now_ms)
            return
        await self._fetch(client, ready)

    async def _fetch(self, client: PeerClient, ready: list[FollowedPartition]) -> None:
        """Send a full fetch of `ready`; it goes on in a session until an unusual event ends that."""
        self._session.end()
        self._in_flight = True
        try:
            await client.connect(FETCH, self._timeout_ms + self._wait_max_ms)
            # While the link was opened a partition may have been removed: this broker leads it now.
            ready = [followed for followed in ready if followed.active]
            if client is not self._client or not ready:
                return
            if len(ready) == len(self._followed):
                self._session.ask_for_session()
            exchange = FetchExchange(client, self._host.tasks.promise(), self._answered)
            if not self._send(exchange, client, ready):
                return  # the link is gone again
            ended = await exchange.ended
        finally:
            self._in_flight = False
        if ended.error:
            await self._back_off(f"fetch error {ended.error}")
        elif ended.out_of_range:
            await self._truncation.find_range(client, ended.out_of_range)

    def _send(self, exchange: FetchExchange, client: PeerClient, ready: Iterable[FollowedPartition]) -> bool:
        """Send the next fetch; False when there is no link."""
        body = encode_fetch_request(FETCH_VERSION, self._request(ready))
        timeout_ms = self._timeout_ms + self._wait_max_ms
        return client.request_if_connected(FETCH, FETCH_VERSION, (body,), timeout_ms, exchange)

    def _answered(self, exchange: FetchExchange, client: PeerClient, view: memoryview) -> None:
        """Process a response, and send the next fetch at once if nothing else is to be done."""
        if client is not self._client or self._closed:
            exchange.ended.set_result(FetchesEnded(0, []))
            return
        frame = view.obj
        assert isinstance(frame, bytes), "a response body is a view of its frame"
        response = decode_fetch_response(FETCH_VERSION, frame, len(frame) - len(view))
        self._backoff_ms = BACKOFF_FIRST_MS
        session = self._session
        if response.error:
            # In a session the leader has only ended it: fetch in full, without a pause.
            error = 0 if session.session_id else response.error
            exchange.ended.set_result(FetchesEnded(error, []))
            return
        out_of_range = self._process_response(response.partitions)
        if (
            not out_of_range
            and not self._logs_awaiting_flush
            and session.answered(response.session_id)
            and self._send(exchange, client, ())
        ):
            return
        exchange.ended.set_result(FetchesEnded(0, out_of_range))

    def _request(self, ready: Iterable[FollowedPartition]) -> FetchRequest:
        session = self._session
        return FetchRequest(
            self._services.node_id,
            self._services.registration.epoch,
            self._wait_max_ms if session.steady else self._wait_ms(),
            self._min_bytes,
            self._response_bytes,
            0,
            session.session_id,
            session.epoch,
            session.rows(ready),
            [],
            "",
        )

    def _wait_ms(self) -> int:
        """How long the leader may hold a fetch: no longer than until a partition in back-off is due."""
        now_ms = self._host.clock.monotonic_ms()
        wait_ms = self._wait_max_ms
        for followed in self._followed.values():
            if followed.not_before_ms > now_ms:
                wait_ms = min(wait_ms, followed.not_before_ms - now_ms)
        return wait_ms

    # -------------------------------------------------------------- responses

    def _process_response(self, rows: Iterable[FetchedPartition]) -> list[FollowedPartition]:
        """Apply a response and return the partitions out of range. One turn of the loop, no await."""
        out_of_range: list[FollowedPartition] = []
        for row in rows:
            followed = self._followed.get((row.topic, row.partition))
            if followed is None or not followed.current():
                continue
            if followed.named_offset != followed.partition.log_end_offset:
                continue
            if not row.error:
                self._apply(followed, row)
            elif row.error == _OUT_OF_RANGE:
                out_of_range.append(followed)
            else:
                self._delay(followed)
        return out_of_range

    def _apply(self, followed: FollowedPartition, row: FetchedPartition) -> None:
        partition = followed.partition
        try:
            if row.diverging is not None:
                self.diverged(followed, row)
                return
            high = partition.high_watermark
            partition.append_as_follower(row.records, row.high_watermark, row.log_start_offset)
            if len(row.records):
                self._appended(followed, row)
            followed.went_well()
            if partition.high_watermark != high:
                self.wake_ups.follower_high_watermark_moved(partition)
        except (HarrowError, OSError) as error:
            self._own_log_refused(followed, error)

    def diverged(self, followed: FollowedPartition, row: FetchedPartition) -> None:
        """Truncate where the logs diverge.

        The high watermark of this response says nothing about the records that are here (KAFKA-14704).
        """
        assert row.diverging is not None, f"{followed.partition}: nothing diverges"
        self._truncation.diverged(followed, *row.diverging)

    def _appended(self, followed: FollowedPartition, row: FetchedPartition) -> None:
        partition = followed.partition
        self._session.changed(followed)
        self._host.failpoints.hit("log.after-follower-append")
        if partition.log.awaits_fsync:
            self._logs_awaiting_flush.append(partition.log)
        if not self._session.session_id:
            # The next full fetch names it last: no partition starves when responses are full.
            key = (row.topic, row.partition)
            self._followed[key] = self._followed.pop(key)
        self._offsets.log_end(partition, "fetch-response")

    def _own_log_refused(self, followed: FollowedPartition, error: BaseException) -> None:
        """The own log refused an append or a truncation: stop following if the disk failed, else wait."""
        partition = followed.partition
        if partition.failed or isinstance(error, OSError):
            self._services.log_failed(partition, error)
            self.remove(partition)
            return
        self._host.trace.log("error", f"{partition.topic_partition}: following broker {self.leader}: {error}")
        self._delay(followed)

    def _delay(self, followed: FollowedPartition) -> None:
        self._session.end()
        followed.delay(self._host.clock.monotonic_ms(), self._backoff_most_ms)

    # ---------------------------------------------------------------- waiting

    async def _back_off(self, reason: str) -> None:
        self._host.trace.log("info", f"fetcher of broker {self.leader}: {reason}; again in {self._backoff_ms} ms")
        delay_ms = self._backoff_ms
        self._backoff_ms = min(delay_ms * 2, max(self._backoff_most_ms, BACKOFF_FIRST_MS))
        await self._sleep(delay_ms)

    async def _sleep(self, delay_ms: float | None) -> None:
        """Sleep until a partition is added, the fetcher is closed, or `delay_ms` passed."""
        wake: Promise[None] = self._host.tasks.promise()
        self._wake = wake
        timer = None
        if delay_ms is not None:
            timer = self._host.tasks.call_later(max(1, delay_ms), self._awake)
        try:
            await wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()

    def flush_finished(self) -> None:
        """An fsync that a log waited for has ended."""
        if self._logs_awaiting_flush:
            self._awake()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _drop_client(self) -> None:
        self._session.end()
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _key(partition: Partition) -> tuple[object, int]:
    return partition.topic_id, partition.topic_partition.partition
