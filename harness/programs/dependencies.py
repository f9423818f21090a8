"""What stands beside the brokers of a test: `Harrow.dependency` puts a relay in front of it, and faults hit its links.

The relay's process and its port last until the `Harrow` is closed; its files are in `dependencies/<name>/` of the run
folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.argument_types import checked
from harrow.cluster.errors import ConfigError
from harrow.cluster.listeners import Address
from harrow.faults.controls import CLIENTS

from .. import run_folder
from .of_run import LEGAL_NAME

if TYPE_CHECKING:
    from harrow.cluster.relay_supervisor import Relay
    from harrow.faults.controls import LinkControl

    from ..running_cluster import RunningCluster

PORT_MOST = 65_535


def service_address(text: str) -> Address:
    """Read `host:port`; ConfigError says what to write instead."""
    host, _, port = text.rpartition(":")
    if "/" in text:
        raise ConfigError(f"the address {text!r}: expected host:port, without the scheme and the path of a URL")
    if not host or not port.isdigit() or not 0 < int(port) <= PORT_MOST:
        raise ConfigError(f"the address {text!r}: expected host:port, such as '127.0.0.1:6379'")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


class Dependencies:
    """Part of `Harrow`."""

    folder: Path

    def __init__(self) -> None:
        self._relays: dict[str, Relay] = {}
        self.dependency_controls: dict[str, LinkControl] = {}
        """The links of the dependencies as faults see them; a chaos block sees one that is made later, too."""

    @property
    def cluster(self) -> RunningCluster:
        """The cluster; the first access starts it."""
        raise NotImplementedError

    @checked
    def dependency(self, name: str, address: str) -> str:
        """Put a relay in front of a TCP service beside the brokers; return `host:port`, which your application gets.

        `address`: where the service is, such as "127.0.0.1:6379". It may start later. Faults take the name:
        `isolate(dependency("store"))`; `kill`, `pause`, `terminate` and `restart` of it hit the program of
        `harrow.program(name, …)`. Another call with the same arguments returns the same address.
        """
        from harrow.cluster.relay_supervisor import Relay

        from ..backends.knobs import HostLinks

        if not LEGAL_NAME.fullmatch(name):
            raise ConfigError(f"dependency {name!r}: expected 1 to 64 of a-z, A-Z, 0-9, . _ -")
        upstream = service_address(address)
        existing = self._relays.get(name)
        if existing is None:
            assert self.cluster, "its start removes what an earlier run left in the folder"
            existing = Relay(self.folder / run_folder.DEPENDENCIES / name, name, upstream)
            existing.start()
            self._relays[name] = existing
            self.dependency_controls[name] = HostLinks(existing.control, frozenset({CLIENTS}))
        elif existing.upstream != upstream:
            raise ConfigError(
                f"the dependency {name!r} is {existing.upstream} already, and not {upstream}; choose another name"
            )
        return str(existing.address)

    def end_dependencies(self) -> None:
        """End the relays; their clients see a reset."""
        relays, self._relays = list(self._relays.values()), {}
        self.dependency_controls.clear()
        for relay in relays:
            relay.stop()
