"""The supervisor of a relay: one object that puts a relay in front of a TCP service, and sets its faults.

Owns: the relay's process and its port, which is reserved while the `Relay` exists. Synchronous; several threads may use
one `Relay`. The process ends with `stop()`, with the `with` block, or with this process, however that ends.

    with Relay(folder, "store", Address("127.0.0.1", 6379)) as relay:
        client = redis.Redis(relay.address.host, relay.address.port)
        relay.control("links.block", peers=["client *"])

What may fail: ClusterError for a process that did not start or respond, with its own message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .broker_folder import CONTROL_SOCKET
from .errors import ClusterError
from .forkserver import fork_server
from .listeners import Address
from .managed import ManagedProcess
from .ports import LOOPBACK, ReservedPort


class Relay:
    """A relay in front of the service at `upstream`; its files are in `folder`."""

    def __init__(self, folder: str | Path, name: str, upstream: Address, *, seed: int = 0) -> None:
        self.folder = Path(folder).absolute()
        self.name = name
        self.upstream = upstream
        self._seed = seed
        self._port: ReservedPort | None = None
        self._process: ManagedProcess | None = None

    def __enter__(self) -> Relay:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process; returns when it accepts connections. No-op while it runs."""
        if self._process is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = ReservedPort()
        options: dict[str, Any] = {
            "role": "relay",
            "name": self.name,
            "folder": str(self.folder),
            "seed": self._seed,
            "listeners": {"relay": self._port.number},
            "upstream": list(self.upstream),
        }
        self._process = ManagedProcess(fork_server(), f"relay {self.name!r}", self.folder, options)
        try:
            self._process.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process and give the port back; files stay."""
        if self._process is not None:
            self._process.close()
            self._process = None
        if self._port is not None:
            self._port.release()
            self._port = None

    @property
    def address(self) -> Address:
        """Where clients of the service connect."""
        if self._port is None:
            raise ClusterError(f"the relay {self.name!r} is not started; call start() or use `with`")
        return Address(LOOPBACK, self._port.number)

    def control(self, op: str, **fields: object) -> dict[str, Any]:
        """One call on the relay's control socket; operations as `host/knobs/control.py` lists them."""
        from .host.knobs.control import ControlClient

        assert self.address, "started"
        with ControlClient(str(self.folder / CONTROL_SOCKET), name=self.name) as client:
            return client.call(op, **fields)
