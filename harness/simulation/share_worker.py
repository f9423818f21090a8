"""A worker of a share group on a virtual clock: it acquires records, and accepts, releases or rejects them.

Owns: `ShareWorker`, one process of the application with one `ShareMember`. Now and then it works longer than its locks
last, says nothing of a record, or releases it. Everything that it sees goes to the `ShareLog` of the run.

After `calm` it accepts everything, at once.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

from harrow.cluster.errors import KafkaError
from harrow.cluster.host.simulated.loop import NS_PER_MS

from ..requests.coordinator import GROUP, Coordinator
from ..requests.share_member import ACCEPT, REJECT, RELEASE, ShareMember
from .share_checks import Delivery, ShareLog
from .wire import WireClient

HEARTBEAT_MS = 300
WAIT_MS = 150
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
        self._held: list[Delivery] = []

    @property
    def fetches_all(self) -> bool:
        """Whether the member has got an assignment."""
        return bool(self._member.assigned)

    def start(self) -> None:
        """Begin to work."""
        self._client.host.tasks.spawn(self._send_heartbeats(), name="heartbeats")
        self._client.host.tasks.spawn(self._work(), name="work")

    def died(self) -> None:
        """The process was killed: the response of its fetch, if there was one, is lost."""
        for tp in self._member.assigned:
            self._lost(tp)

    def _lost(self, tp: object) -> None:
        lost = self._log.lost_fetches
        lost[tp] = lost.get(tp, 0) + 1  # type: ignore[index]

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
            if not self._member.assigned and not self._held:
                await self._client.sleep(WAIT_MS)
            await self._fetch()
            await self._process()
            await self._client.sleep(1)
