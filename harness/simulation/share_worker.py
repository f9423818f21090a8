"""A worker of a share group on a virtual clock: it acquires records, and accepts, releases or rejects them.

Owns: `ShareWorker`, one process of the application with one `ShareMember`. Now and then it works longer than its locks
last, says nothing of a record, or releases it. Everything that it sees goes to the `ShareLog` of the run.

After `calm` it accepts everything, at once.
"""

from __future__ import annotations

import base64
import contextlib
import random
from collections.abc import Callable, Generator, Mapping

from harrow.cluster.errors import KafkaError
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.ids import TopicPartition
from harrow.cluster.simulation import CLIENT_PORTS

from ..backends.simulated.wire import WireClient
from ..requests.coordinator import GROUP, Coordinator
from ..requests.share_member import ACCEPT, REJECT, RELEASE, Delivered, ShareMember, ShareSession
from .share_checks import Delivery, Place, ShareLog

HEARTBEAT_MS = 300
WAIT_MS, PAUSE_MS = 150, 20
MOST_RECORDS = (1, 3, 20)
WORK_MS = (0, 60)
SLOW_PART, SLOW_MS = 0.08, (500, 2_200)
"""How many fetches take longer, around the duration of a lock."""
SAID = (ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, None)
"""What a worker says of a record."""


class ShareWorker:
    """One process of the application."""

    def __init__(
        self,
        client: WireClient,
        name: str,
        group: str,
        topic: str,
        rng: random.Random,
        log: ShareLog,
        is_calm: Callable[[], bool],
    ) -> None:
        self._client, self._name, self._rng, self._log = client, name, rng, log
        self._is_calm = is_calm
        member_id = base64.urlsafe_b64encode(client.host.random.randbytes(16)).decode().rstrip("=")
        self._member = ShareMember(
            Coordinator(client, GROUP, group),
            [topic],
            member_id,
            wait_ms=WAIT_MS,
            most_records=rng.choice(MOST_RECORDS),
        )
        self._held: list[tuple[Delivery, ShareSession]] = []
        """What may still be locked, each with the session in which it was acquired."""

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator assigned last."""
        return self._member.assigned

    def start(self) -> None:
        """Begin to work."""
        self._client.host.tasks.spawn(self._send_heartbeats(), name="heartbeats")
        self._client.host.tasks.spawn(self._work(), name="work")

    def died(self) -> None:
        """The process was killed: the response of its fetch, if there was one, is lost."""
        lost = self._log.lost_fetches
        for tp in sorted(self._member.assigned):
            lost[tp] = lost.get(tp, 0) + 1

    def _now_ns(self) -> int:
        return self._client.host.clock.monotonic_ns()

    async def _send_heartbeats(self) -> None:
        while True:
            try:
                await self._member.heartbeat()
            except KafkaError:
                await self._client.pause()
            await self._client.sleep(HEARTBEAT_MS)

    async def _work(self) -> None:
        while True:
            found = await self._fetch()
            if found:
                await self._process(found)
            else:
                await self._client.sleep(PAUSE_MS)

    async def _fetch(self) -> dict[Place, tuple[Delivered, Delivery]]:
        """Acquire records; tell the log."""
        fetched_ns = self._now_ns()
        with self._confirming(fetched_ns):
            records = await self._member.fetch()
        self._note_lost()
        found: dict[Place, tuple[Delivered, Delivery]] = {}
        for record in records:
            row = Delivery(
                member=self._name,
                tp=record.tp,
                offset=record.offset,
                count=record.deliveries,
                fetched_ns=fetched_ns,
                got_ns=self._now_ns(),
                node=record.given_by[1] - CLIENT_PORTS,
            )
            session = self._member.session_with(record.given_by)
            if session is not None:
                self._held.append((row, session))
            self._log.deliveries.append(row)
            found[row.place] = record, row
        return found

    async def _process(self, found: Mapping[Place, tuple[Delivered, Delivery]]) -> None:
        """Work on the records, and say what became of them."""
        rng, calm = self._rng, self._is_calm()
        if not calm:
            await self._client.sleep(rng.uniform(*(SLOW_MS if rng.random() < SLOW_PART else WORK_MS)))
        said_ns = self._now_ns()
        for record, row in found.values():
            kind = ACCEPT if calm else rng.choice(SAID)
            if kind is not None:
                self._member.acknowledge(record, kind)
                row.type, row.said_ns = kind, said_ns
        with self._confirming(said_ns):
            results = await self._member.commit()
        for result in results:
            if result.error == 0:
                found[result.record.tp, result.record.offset][1].known_ns = self._now_ns()

    @contextlib.contextmanager
    def _confirming(self, sent_ns: int) -> Generator[None]:
        """Note which sessions were alive when requests of the block were sent, after `sent_ns`."""
        epochs = [(row, session, session.epoch) for row, session in self._held]
        yield
        alive = [(row, session) for row, session, epoch in epochs if session.epoch > epoch]
        for row, session in alive:
            if self._member.has(session):
                row.held_until_ns = sent_ns
        oldest_ns = sent_ns - self._log.lock_ms * NS_PER_MS
        self._held = [item for item in self._held if self._member.has(item[1]) and item[0].fetched_ns > oldest_ns]

    def _note_lost(self) -> None:
        lost = self._log.lost_fetches
        for tp, count in self._member.unanswered.items():
            lost[tp] = lost.get(tp, 0) + count
        self._member.unanswered.clear()
