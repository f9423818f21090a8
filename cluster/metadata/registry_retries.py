"""Registry operations for clients: wait while the registry is unreachable, and report what remains as Kafka does.

Owns: `RegistryRetries`, `error_for_client`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import ErrorCode, KafkaError, RegistryError
from ..host.seam import Host
from ..registry import RegistryClient, RegistryUnavailableError

__all__ = ["RegistryRetries", "error_for_client"]

T = TypeVar("T")


class RegistryRetries:
    """Repeats operations that were not sent."""

    def __init__(self, host: Host, registry: RegistryClient) -> None:
        self._host = host
        self._registry = registry

    async def until_reachable(self, operation: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
        """Run `operation` once this broker has a link to the registry, as Kafka's ZooKeeper client does.

        RegistryUnavailableError after `timeout_ms`, or when the link was lost while the operation was in flight:
        whether the operation was applied is not known then.
        """
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        while True:
            try:
                return await operation()
            except RegistryUnavailableError as error:
                left_ms = deadline_ms - self._host.clock.monotonic_ms()
                if error.maybe_applied or left_ms <= 0:
                    raise
                try:
                    await self._host.tasks.wait(self._registry.until_connected(), left_ms)
                except TimeoutError:
                    raise error from None


def error_for_client(error: KafkaError | RegistryError) -> KafkaError:
    """The error that a client receives: an unreachable registry is a request that timed out and may be repeated."""
    if isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.request_timed_out, f"The registry is unreachable: {error}")
