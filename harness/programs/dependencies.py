"""What stands beside the brokers of a test: `Harrow.dependency` puts a relay in front of it, and faults hit its links.

The relay's process and its port last until the `Harrow` is closed; its files are in `dependencies/<name>/` of the run
folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.errors import ConfigError
from harrow.cluster.listeners import Address
from harrow.faults.controls import PeerKind

from .. import run_folder
from .of_run import LEGAL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from harrow.cluster.relay_supervisor import Relay
    from harrow.faults.controls import LinkControl


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
    """The dependencies of one run; `begin` starts the cluster, which removes what an earlier run left in the folder."""

    def __init__(self, folder: Path, begin: Callable[[], object]) -> None:
        self._folder = folder
        self._begin = begin
        self._relays: dict[str, Relay] = {}
        self.controls: dict[str, LinkControl] = {}
        """The links of the dependencies as faults see them; a chaos block sees one that is made later, too."""

    def dependency(self, name: str, address: str) -> str:
        """Put a relay in front of a TCP service; return its address. `Harrow.dependency`."""
        from harrow.cluster.relay_supervisor import Relay

        from ..backends.knobs import HostLinks

        if not LEGAL_NAME.fullmatch(name):
            raise ConfigError(f"dependency {name!r}: expected 1 to 64 of a-z, A-Z, 0-9, . _ -")
        upstream = service_address(address)
        existing = self._relays.get(name)
        if existing is None:
            self._begin()
            existing = Relay(self._folder / run_folder.DEPENDENCIES / name, name, upstream)
            existing.start()
            self._relays[name] = existing
            self.controls[name] = HostLinks(existing.control, frozenset({PeerKind.CLIENT}))
        elif existing.upstream != upstream:
            raise ConfigError(
                f"the dependency {name!r} is {existing.upstream} already, and not {upstream}; choose another name"
            )
        return str(existing.address)

    def end(self) -> None:
        """End the relays; their clients see a reset."""
        relays, self._relays = list(self._relays.values()), {}
        self.controls.clear()
        for relay in relays:
            relay.stop()
