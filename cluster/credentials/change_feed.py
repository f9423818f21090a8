"""Notifications in the registry: what was announced below a node since the last look, and a worker that follows them.

Owns: `ChangeFeed`, and the deletion of old notifications; `ChangeFollower`, which reads what has changed at the start,
after each notification, and in each new session of the registry.
Invariant: the watch is set before the notifications are read, so that none is missed between two looks.
May fail: RegistryError of a feed; the follower looks again, however long the registry is unreachable.
Source: Kafka's ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..errors import RegistryError
from ..host.seam import Host, Promise
from ..registry import NoNodeError, RegistryClient
from ..registry.operations import Event

__all__ = ["ChangeFeed", "ChangeFollower"]

NOTIFICATIONS_MOST = 1_000
"""A broker that sees more notifications deletes the older half."""
_RETRY_MS = 200


class ChangeFeed:
    """The notifications below `path`; `wake` is called when there may be new ones."""

    def __init__(self, registry: RegistryClient, path: str, wake: Callable[[], None]) -> None:
        self._registry = registry
        self._path = path
        self._wake = wake
        self._seen: str | None = None
        """The newest notification that was read; None before the first look of a session."""
        self.is_stale = True
        """True when there may be new notifications."""

    def expired(self) -> None:
        """The watch ended with the session, or a read failed: the next look is the first."""
        self._seen, self.is_stale = None, True

    async def news(self) -> list[str] | None:
        """The data of the new notifications; None when some may be lost, and everything must be read."""
        self.is_stale = False
        seen = self._seen
        if seen is None:
            await self._registry.ensure(self._path)
        names = await self._registry.children(self._path, self._fired)
        self._seen = names[-1] if names else seen or ""
        if len(names) > NOTIFICATIONS_MOST:
            await self._delete(names[: NOTIFICATIONS_MOST // 2])
        if seen is None or (seen and seen not in names):
            return None
        new = [name for name in names if name > seen]
        found = await self._registry.get_many([f"{self._path}/{name}" for name in new])
        data = [row[0] for row in found if row is not None]
        return data if len(data) == len(new) else None

    def _fired(self, _event: Event) -> None:
        self.is_stale = True
        self._wake()

    async def _delete(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                await self._registry.delete(f"{self._path}/{name}")
            except NoNodeError:
                continue  # another broker deleted it


class ChangeFollower:
    """One worker that calls `read` when one of the nodes `paths` may have new notifications.

    `read(news)` gets the data of the new notifications, or None when everything must be read. `what` is read, for the
    log; `task` is the name of the worker.
    """

    def __init__(
        self,
        host: Host,
        registry: RegistryClient,
        paths: Sequence[str],
        read: Callable[[list[str] | None], Awaitable[None]],
        *,
        what: str,
        task: str,
    ) -> None:
        self._host = host
        self._read = read
        self._what, self._task = what, task
        self._feeds = [ChangeFeed(registry, path, self._wake_up) for path in paths]
        self._wake: Promise[None] | None = None
        self._begun: Promise[None] = host.tasks.promise()

    async def start(self) -> None:
        """Follow the notifications; returns when all was read, however long the registry is unreachable."""
        self._host.tasks.spawn(self._work(), name=self._task)
        await self._begun

    def session_expired(self) -> None:
        """The watches ended with the session: read everything again."""
        self._expire()
        self._wake_up()

    def _expire(self) -> None:
        for feed in self._feeds:
            feed.expired()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _work(self) -> None:
        while True:
            while not any(feed.is_stale for feed in self._feeds):
                self._wake = self._host.tasks.promise()
                await self._wake
            try:
                await self._read(await self._news())
                if not self._begun.done():
                    self._begun.set_result(None)
            except RegistryError as error:
                self._host.trace.log("info", f"{self._what} cannot be read yet: {error}")
                self._expire()
                await self._host.tasks.sleep(_RETRY_MS)

    async def _news(self) -> list[str] | None:
        """The data of the new notifications of all feeds; None when some may be lost."""
        found = [await feed.news() for feed in self._feeds if feed.is_stale]
        known = [news for news in found if news is not None]
        return [data for news in known for data in news] if len(known) == len(found) else None
