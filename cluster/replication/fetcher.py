"""Following one leader broker: fetch, append, fetch again (C2, C6, C7).

Owns: `ReplicaFetcher`: a connection to one leader, the partitions followed there, and one loop. A
partition is *truncating* (it asks the leader where its epochs end), then *fetching*.

Rules:
* A response counts for a partition only if it still is followed here, under the epoch and from the
  offset that were asked; role changes remove the partition first, so what arrives late meets nobody.
  Between that check and the append no other code runs.
* A partition that is added while a fetch is under way (a long poll of up to
  `replica.fetch.wait.max.ms`) must not wait for it: that connection is given up and a new fetch of all
  partitions begun at once. What the old one carried is fetched again.
* While all is well the answer itself sends the next fetch, in the turn in which it comes (`Exchange`), and
  fetches go on in a session (`fetch_sessions.py`): they name only what changed since the last one. Whatever
  changes which partitions are asked, or cuts a log, ends that (`_unsettle`): the next fetch is a full one.
* Errors back off exponentially up to `replica.fetch.backoff.ms`, a partition's or the connection's;
  a new partition ends the wait.

    answer                            what follows
    records                           append, HW = min(LEO, leader's HW)
    diverging epoch                   cut by the truncation rule, fetch again
    OFFSET_OUT_OF_RANGE               ask the leader where its log ends and begins; cut, or begin anew
    FENCED / UNKNOWN_LEADER_EPOCH,    wait; LeaderAndIsr will tell
    NOT_LEADER_OR_FOLLOWER, others

Source: Kafka's `AbstractFetcherThread`, `ReplicaFetcherThread`, `RemoteLeaderEndPoint`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import ErrorCode, HarrowError
from ..ids import NO_EPOCH
from ..wire.fetch import FetchPartition, FetchRequest, encode_fetch_request
from ..wire.fetch_response import FetchedPartition, decode_fetch_response
from .fetch_exchange import Ended, Exchange
from .fetch_sessions import next_epoch
from .followed import BACKOFF_FIRST_MS, Followed
from .leader_queries import LeaderQueries
from .truncation import Cut, Truncation, latest_epoch

if TYPE_CHECKING:
    from ..host.seam import Promise
    from ..ids import NodeId
    from ..network.peers import PeerClient
    from ..storage.log import Log
    from .partition import Partition
    from .replica_manager import ReplicaManager

FETCH = 1
FETCH_VERSION = 17
_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)


class ReplicaFetcher:
    """The loop that follows one leader broker."""

    def __init__(self, manager: ReplicaManager, leader: NodeId, rule: Truncation) -> None:
        self._manager = manager
        self._host = manager.host
        self.leader = leader
        self._rule = rule
        config = manager.config
        self._wait_max_ms = config.number("replica.fetch.wait.max.ms")
        self._min_bytes = config.number("replica.fetch.min.bytes")
        self._partition_bytes = config.number("replica.fetch.max.bytes")
        self._response_bytes = config.number("replica.fetch.response.max.bytes")
        self._backoff_most_ms = config.number("replica.fetch.backoff.ms")
        self._timeout_ms = config.number("replica.socket.timeout.ms")
        self._followed: dict[tuple[object, int], Followed] = {}
        """By (topic id, partition), in the order in which the leader is asked."""
        self._client: PeerClient | None = None
        self._settled: list[Followed] | None = None
        """All that is followed, while every one of them is fetching and none is in back-off."""
        self._session_id = 0
        self._session_epoch = 0
        self._in_flight = False
        self._unsettled_logs: list[Log] = []  # each waits for an fsync (B11)
        self._wake: Promise[None] | None = None
        self._backoff_ms = BACKOFF_FIRST_MS
        self._closed = False
        self._task = self._host.tasks.spawn(self._run(), name=f"fetcher-{leader}")

    @property
    def idle(self) -> bool:
        """True when nothing is followed here."""
        return not self._followed

    @property
    def partitions(self) -> list[Partition]:
        """What is followed here."""
        return [one.partition for one in self._followed.values()]

    def add(self, partition: Partition) -> None:
        """Follow `partition` under its present leader epoch, at once."""
        self.remove(partition)
        key = (partition.topic_id, partition.topic_partition.partition)
        self._followed[key] = Followed(partition)
        self._unsettled_logs.append(partition.log)  # it may wait already
        self._unsettle()
        if self._in_flight:
            self._drop_client()  # its loop goes on at once with a fetch that has the new one too
        self._awake()

    def remove(self, partition: Partition) -> None:
        """Follow it no more; what is under way for it will be ignored."""
        key = (partition.topic_id, partition.topic_partition.partition)
        gone = self._followed.pop(key, None)
        if gone is not None:
            gone.active = False
            self._unsettle()

    def close(self) -> None:
        """End the loop and the connection."""
        self._closed = True
        for partition in self.partitions:
            self.remove(partition)
        self._drop_client()
        self._awake()

    # --------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while not self._closed:
            self._unsettled_logs = [log for log in self._unsettled_logs if log.awaits_fsync]
            if self._unsettled_logs or not self._followed:
                await self._sleep(None)
                continue
            client = self._client
            if client is None:
                client = self._client = self._manager.peers(self.leader)
                if client is None:
                    await self._back_off("its address is not known")
                    continue
            try:
                await self._round(client)
            except (OSError, TimeoutError, HarrowError) as error:
                if client is not self._client or self._closed:
                    continue  # given up on purpose
                self._drop_client()
                await self._back_off(repr(error))

    async def _round(self, client: PeerClient) -> None:
        """Bring every partition that may go on one step further."""
        now_ms = self._host.clock.monotonic_ms()
        ready = [one for one in self._followed.values() if one.not_before_ms <= now_ms]
        truncating = [one for one in ready if one.truncating]
        if truncating:
            await self._truncate(client, truncating)
            return
        if not ready:
            await self._sleep(min(one.not_before_ms for one in self._followed.values()) - now_ms)
            return
        await self._fetch(client, ready)

    async def _fetch(self, client: PeerClient, ready: list[Followed]) -> None:
        """Fetch `ready` in full, and go on in a session for as long as nothing out of the ordinary happens."""
        timeout_ms = self._timeout_ms + self._wait_max_ms
        self._unsettle()
        if len(ready) == len(self._followed):
            self._settled = ready
        self._in_flight = True
        try:
            await client.connect(FETCH, timeout_ms)
            if client is not self._client:
                return
            exchange = Exchange(client, self._host.tasks.promise(), self._answered)
            if not self._send(exchange, client, ready):
                return  # the link is gone again
            ended = await exchange.ended
        finally:
            self._in_flight = False
        if ended.error:
            await self._back_off(f"fetch error {ended.error}")
        elif ended.out_of_range:
            await self._find_range(client, ended.out_of_range)

    def _send(self, exchange: Exchange, client: PeerClient, ready: list[Followed]) -> bool:
        """Ask; False when there is no link."""
        body = encode_fetch_request(FETCH_VERSION, self._ask(ready))
        timeout_ms = self._timeout_ms + self._wait_max_ms
        return client.ask(FETCH, FETCH_VERSION, (body,), timeout_ms, exchange)

    def _answered(self, exchange: Exchange, client: PeerClient, view: memoryview) -> None:
        """Take an answer in, and fetch on at once if that is all there is to do."""
        if client is not self._client or self._closed:
            exchange.ended.set_result(Ended(0, []))
            return
        frame = view.obj
        assert isinstance(frame, bytes), "a response body is a view of its frame"
        response = decode_fetch_response(FETCH_VERSION, frame, len(frame) - len(view))
        self._backoff_ms = BACKOFF_FIRST_MS
        if response.error:
            error = 0 if self._session_id else response.error  # a session that ended is no error
            exchange.ended.set_result(Ended(error, []))
            return
        out_of_range = self._take_in(response.partitions)
        settled = self._settled
        if not out_of_range and settled is not None and not self._unsettled_logs:
            if self._session_id:
                self._session_epoch = next_epoch(self._session_epoch)
            else:
                self._session_id, self._session_epoch = response.session_id, 1
            if self._session_id and self._send(exchange, client, settled):
                return
        exchange.ended.set_result(Ended(0, out_of_range))

    def _unsettle(self) -> None:
        """The next fetch is a full one."""
        self._settled = None
        self._session_id = self._session_epoch = 0

    def _ask(self, ready: Iterable[Followed]) -> FetchRequest:
        """What to ask: all of `ready`, or in a session those that are not as they were last asked for."""
        in_session = self._session_id != 0
        rows: list[FetchPartition] = []
        on_fetch, fences = self._rule.on_fetch, self._rule.fences
        for one in ready:
            partition = one.partition
            log = partition.log
            offset, start = log.log_end_offset, log.log_start_offset
            if in_session and offset == one.asked_offset and start == one.asked_start:
                continue
            one.asked_offset, one.asked_start = offset, start
            rows.append(
                FetchPartition(
                    partition.topic_id,
                    partition.topic_partition.partition,
                    one.epoch if fences else NO_EPOCH,
                    offset,
                    log.epochs.latest() if on_fetch else -1,
                    start,
                    self._partition_bytes,
                )
            )
        settled = self._settled is not None
        return FetchRequest(
            self._manager.node_id,
            self._manager.broker_epoch,
            self._wait_max_ms if settled else self._wait_ms(),
            self._min_bytes,
            self._response_bytes,
            0,
            self._session_id,
            self._session_epoch if settled else -1,
            rows,
            [],
            "",
        )

    def _wait_ms(self) -> int:
        """How long the leader may hold a fetch: no longer than until a partition in back-off is due."""
        now_ms = self._host.clock.monotonic_ms()
        wait_ms = self._wait_max_ms
        for one in self._followed.values():
            if one.not_before_ms > now_ms:
                wait_ms = min(wait_ms, one.not_before_ms - now_ms)
        return wait_ms

    # -------------------------------------------------------------- responses

    def _take_in(self, rows: Iterable[FetchedPartition]) -> list[Followed]:
        """Apply a response; what is out of range is returned. One turn of the loop, no await."""
        out_of_range: list[Followed] = []
        for row in rows:
            one = self._followed.get((row.topic, row.partition))
            if one is None or not self._valid(one):
                continue
            partition = one.partition
            if one.asked_offset != partition.log_end_offset:
                continue
            if not row.error:
                self._apply(one, row)
            elif row.error == _OUT_OF_RANGE:
                out_of_range.append(one)
            else:
                self._delay(one)
        return out_of_range

    def _valid(self, one: Followed) -> bool:
        """True while `one` is followed here under the epoch that it was added with."""
        partition = one.partition
        return one.active and not partition.is_leader and partition.leader_epoch == one.epoch

    def _apply(self, one: Followed, row: FetchedPartition) -> None:
        partition = one.partition
        try:
            if row.diverging is not None:
                cut = self._rule.answered(partition, *row.diverging)
                self._cut(one, cut, "diverging-epoch")
                return
            high = partition.high_watermark
            partition.append_as_follower(row.records, row.high_watermark, row.log_start_offset)
            if len(row.records):
                self._host.failpoints.hit("log.after-follower-append")
                if partition.log.awaits_fsync:
                    self._unsettled_logs.append(partition.log)
                if not self._session_id:
                    # Who got bytes is asked for last next time: a full response starves nobody.
                    key = (row.topic, row.partition)
                    self._followed[key] = self._followed.pop(key)
            one.not_before_ms = 0
            one.backoff_ms = BACKOFF_FIRST_MS
            if len(row.records):
                self._manager.offsets.log_end(partition, "fetch-response")
            if partition.high_watermark != high:
                self._manager.follower_high_watermark_moved(partition)
        except (HarrowError, OSError) as error:
            self._refused(one, error)

    def _refused(self, one: Followed, error: BaseException) -> None:
        """The own log took something not: for ever if the disk failed, else for a while."""
        partition = one.partition
        if partition.failed or isinstance(error, OSError):
            self._manager.log_failed(partition, error)
            self.remove(partition)
            return
        self._host.trace.log(
            "error", f"{partition.topic_partition}: following broker {self.leader}: {error}"
        )
        self._delay(one)

    def _cut(self, one: Followed, cut: Cut, cause: str) -> None:
        self._unsettle()
        partition = one.partition
        before, high = partition.log_end_offset, partition.high_watermark
        if cut.offset < high:
            self._host.trace.log(
                "warning",
                f"{partition.topic_partition}: truncating to {cut.offset}, below the HW {high}",
            )
        if partition.truncate_to(cut.offset):
            self._manager.trace_truncated(partition, before, f"{self._rule.name}: {cause}")
        if partition.high_watermark != high:
            self._manager.offsets.high_watermark(partition, "truncated")

    def _epoch_to_tell(self, one: Followed) -> int:
        """What the leader is to fence by; nothing under the rules of a time that knew no fencing."""
        return one.epoch if self._rule.fences else NO_EPOCH

    def _delay(self, one: Followed) -> None:
        self._unsettle()
        one.not_before_ms = self._host.clock.monotonic_ms() + one.backoff_ms
        one.backoff_ms = min(one.backoff_ms * 2, max(self._backoff_most_ms, BACKOFF_FIRST_MS))

    # ------------------------------------------------------------- truncation

    async def _truncate(self, client: PeerClient, truncating: list[Followed]) -> None:
        """First step of every newly followed partition: cut, ask, cut again, as the rule says."""
        asking: list[Followed] = []
        for one in truncating:
            if not self._valid(one):
                continue
            try:
                cut = self._rule.start(one.partition)
                if cut.done or not self._rule.asks:
                    self._cut(one, cut, "became follower")
                    one.truncating = False
                else:
                    asking.append(one)
            except (HarrowError, OSError) as error:
                self._refused(one, error)
        if not asking:
            return
        asked = {one: latest_epoch(one.partition) for one in asking}
        queries = LeaderQueries(client, self._manager.node_id, self._timeout_ms)
        answers = await queries.end_offsets(
            [(one.partition, self._epoch_to_tell(one), asked[one]) for one in asking]
        )
        for one in asking:
            found = answers.get(one.partition.topic_partition)
            if found is None or not self._valid(one):
                continue
            if found.error is not ErrorCode.none:
                self._delay(one)
                continue
            try:
                cut = self._rule.answered(one.partition, found.epoch, found.end_offset)
                self._cut(one, cut, f"leader's epoch {found.epoch} ends at {found.end_offset}")
            except (HarrowError, OSError) as error:
                self._refused(one, error)
                continue
            # No rule asks for ever: an epoch that it cut away is not asked for again.
            one.truncating = not cut.done and latest_epoch(one.partition) < asked[one]

    async def _find_range(self, client: PeerClient, lost: list[Followed]) -> None:
        """Own end is outside of the leader's log: cut to its end, or begin anew at its start."""
        queries = LeaderQueries(client, self._manager.node_id, self._timeout_ms)
        for one in lost:
            partition = one.partition
            epoch = self._epoch_to_tell(one)
            end = await queries.offset(partition, epoch, latest=True)
            start = await queries.offset(partition, epoch, latest=False)
            if not self._valid(one):
                continue
            if end is None or start is None:
                self._delay(one)
                continue
            try:
                self._enter_range(one, start, end)
            except (HarrowError, OSError) as error:
                self._refused(one, error)

    def _enter_range(self, one: Followed, start: int, end: int) -> None:
        partition = one.partition
        own_end = partition.log_end_offset
        if end < own_end:
            self._cut(one, Cut(offset=end, done=True), "out of range")
        elif start > own_end:
            self._unsettle()
            partition.truncate_fully_and_start_at(start)
            self._manager.trace_truncated(partition, own_end, f"leader's log starts at {start}")
        else:
            self._delay(one)  # in range by now: the leader's answers raced with an append

    # ---------------------------------------------------------------- waiting

    async def _back_off(self, reason: str) -> None:
        self._host.trace.log(
            "info", f"fetcher of broker {self.leader}: {reason}; again in {self._backoff_ms} ms"
        )
        delay_ms = self._backoff_ms
        self._backoff_ms = min(delay_ms * 2, max(self._backoff_most_ms, BACKOFF_FIRST_MS))
        await self._sleep(delay_ms)

    async def _sleep(self, delay_ms: float | None) -> None:
        """Until something is added, the fetcher is closed, or `delay_ms` passed."""
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

    def settled(self) -> None:
        """An fsync that a log waited for has ended."""
        if self._unsettled_logs:
            self._awake()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _drop_client(self) -> None:
        self._unsettle()
        client, self._client = self._client, None
        if client is not None:
            client.close()


class Fetchers:
    """One fetcher for each leader broker that this one follows."""

    def __init__(self, manager: ReplicaManager, rule: Truncation) -> None:
        self._manager = manager
        self._rule = rule
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}

    @property
    def leaders(self) -> list[NodeId]:
        """Whom this broker has a fetcher for."""
        return list(self._fetchers)

    def add(self, partition: Partition) -> None:
        """Follow `partition`'s leader."""
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = ReplicaFetcher(self._manager, partition.leader, self._rule)
            self._fetchers[partition.leader] = fetcher
        fetcher.add(partition)

    def remove(self, partition: Partition) -> None:
        """Follow nobody for `partition`."""
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def settled(self) -> None:
        """An fsync that some log waited for has ended."""
        for fetcher in self._fetchers.values():
            fetcher.settled()

    def close_idle(self) -> None:
        """Shut the fetchers that follow nothing (C8)."""
        for leader, fetcher in list(self._fetchers.items()):
            if fetcher.idle:
                del self._fetchers[leader]
                fetcher.close()

    def close(self) -> None:
        """Shut them all."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
