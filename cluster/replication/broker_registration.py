"""The epoch of this broker's registration, and waiting for a newer one (D6).

Owns: `BrokerRegistration`. The controller may learn of a registration before the broker itself does, so a request that
names a newer epoch waits for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ids import BrokerEpoch

if TYPE_CHECKING:
    from ..host.seam import Host, Promise


class BrokerRegistration:
    """Broker epoch of the latest registration; -1 before the first."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.epoch = BrokerEpoch(-1)
        self._waiters: list[Promise[None]] = []

    def renew(self, epoch: BrokerEpoch) -> None:
        """The broker is registered with `epoch`."""
        self.epoch = epoch
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def await_epoch(self, epoch: BrokerEpoch, timeout_ms: int) -> None:
        """Wait until the broker epoch is at least `epoch`, at most `timeout_ms`."""
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        while self.epoch < epoch:
            left_ms = deadline_ms - self._host.clock.monotonic_ms()
            if left_ms <= 0:
                return
            waiter: Promise[None] = self._host.tasks.promise()
            self._waiters.append(waiter)
            try:
                await self._host.tasks.wait(waiter, left_ms)
            except TimeoutError:
                return
