"""Notifications below one node of the registry: what was announced since the last look.

Owns: `ChangeFeed`, and the deletion of old notifications.
Invariant: the watch is set before the notifications are read, so that none is missed between two looks.
May fail: RegistryError; the caller then calls `expired` and looks again.
Source: Kafka's ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..registry import NoNodeError, RegistryClient
from ..registry.operations import Event

__all__ = ["ChangeFeed"]

NOTIFICATIONS_MOST = 1_000
"""A broker that sees more notifications deletes the older half."""


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
