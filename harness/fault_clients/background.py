"""A client in a thread of its own, as an armed rule of the fault layer: it acts until it is disarmed."""

from __future__ import annotations

import abc
import threading
from typing import Any

from harrow.cluster.errors import HarrowError
from harrow.faults.rule_kinds import RuleStatus

from ..requests.blocking import BlockingTransport, completed
from ..requests.raw import StoppedError

CLIENT_ID = "harrow-fault"


class BackgroundClient(abc.ABC):
    """Runs `act` in a thread, then `leave`; `begin` starts it. An error of `act` is the client's failure.

    Both are coroutines over blocking transports: `transport` ends its waits when the client is stopped, the transport
    that `leave` is given does not.
    """

    def __init__(self, name: str, bootstrap_servers: str) -> None:
        self.servers = bootstrap_servers
        self.stopped = threading.Event()
        self.transport = BlockingTransport(bootstrap_servers, CLIENT_ID, self.stopped)
        self.fired = 0
        self.facts: dict[str, Any] = {}
        self._failed = ""
        self._left = False
        self._thread = threading.Thread(target=self._run, name=f"harrow-{name}", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    @abc.abstractmethod
    async def act(self) -> None:
        """Do what the fault is about, until `stopped` is set at the latest (StoppedError)."""

    @abc.abstractmethod
    async def leave(self, transport: BlockingTransport) -> None:
        """Undo what is left; HarrowError when that is not possible now, and the next `disarm` tries again."""

    def status(self) -> RuleStatus:
        """Return what the client did; it is armed until it has left."""
        return RuleStatus(armed=not self._left, fired=self.fired, facts=dict(self.facts), failed=self._failed)

    def disarm(self) -> None:
        """Let the client end; one that could not leave tries again."""
        self.stopped.set()
        if not self._thread.is_alive() and not self._left:
            self._thread = threading.Thread(target=self._leave, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            completed(self.act())
        except StoppedError:
            pass
        except HarrowError as error:
            self._failed = str(error)
        except Exception as error:  # a bug of ours must be seen in the evidence, not on stderr of a thread
            self._failed = f"a bug in Harrow: {error!r}"
        self._leave()

    def _leave(self) -> None:
        try:
            completed(self.leave(BlockingTransport(self.servers, CLIENT_ID, threading.Event())))
            self._left = True
        except HarrowError as error:
            self.facts["not_left"] = str(error)
