"""The supervisor of a proxy: one object that puts a proxy in front of brokers that Harrow did not start.

Owns: the proxy's process and its ports, which are reserved while the `Proxy` exists. Below `folder` each broker gets a
folder as a broker of Harrow's has it (`broker_folder.py`): control socket, trace, tap. Synchronous; several threads may
use one `Proxy`. The process ends with `stop()`, with the `with` block, or with this process, however that ends.

    with Proxy(folder, {1: ("127.0.0.1", 9092), 2: ("127.0.0.1", 9093)}) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers})
        proxy.control(1, "links.block", peers=["client *"])

While a foreign broker is dead, its port at the proxy refuses connections. A broker that appears later, in a response of
another broker, gets a port at run time.

The connections between the brokers pass here too where `peer_links` says at which addresses they arrive: then rules
name other brokers (`broker 2`), as on Harrow's own.

What may fail: ConfigError for an argument that cannot be used; ClusterError for a process that did not start or
respond, with its own message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .broker_folder import CONTROL_SOCKET, PROXY, broker_name
from .errors import ClusterError, ConfigError
from .forkserver import fork_server
from .listeners import Address
from .managed import ManagedProcess
from .ports import LOOPBACK, ReservedPort


class PeerLink(NamedTuple):
    """The connections of the broker `source` to one listener of the broker `target`."""

    source: int
    target: int
    address: Address
    """Where they arrive."""
    upstream: Address
    """Where the listener is."""


class Proxy:
    """A proxy in front of the brokers at `upstreams`: node id -> (host, port) at which each is reached.

    `folder`: the cluster folder, which holds all files. `tap`: whether to write the history of what the brokers
    acknowledged and delivered. `seed`: of the process's random numbers.
    `own_upstreams`: a second listener of each broker, without TLS and SASL, for Harrow's own clients (`own_servers`).
    `keystore`: a file in PEM with key and certificates: then clients speak TLS with the proxy, which speaks without TLS
    with the brokers. SASL passes; each connection logs in at its broker.
    `truststore`: a file in PEM with the authority of clients' certificates, beside which the keys of clients are, each
    as `USER.pem`: then clients show certificates, and the proxy shows them to the brokers, by TLS.
    """

    def __init__(
        self,
        folder: str | Path,
        upstreams: Mapping[int, tuple[str, int]],
        *,
        tap: bool = True,
        seed: int = 0,
        peer_links: Sequence[PeerLink] = (),
        own_upstreams: Mapping[int, tuple[str, int]] | None = None,
        keystore: str = "",
        truststore: str = "",
    ) -> None:
        if not upstreams:
            raise ConfigError("upstreams={}: name at least one broker, as {1: ('127.0.0.1', 9092)}")
        if any(node_id < 0 for node_id in upstreams):
            raise ConfigError(f"upstreams={dict(upstreams)}: a node id is 0 or more")
        self.folder = Path(folder).absolute()
        self.upstreams = {node_id: Address(*upstreams[node_id]) for node_id in sorted(upstreams)}
        self._tap = tap
        self._peer_links = tuple(peer_links)
        self._own_upstreams = {node_id: Address(*row) for node_id, row in (own_upstreams or {}).items()}
        self._keystore = keystore
        self._truststore = truststore
        self._own_ports: dict[int, ReservedPort] = {}
        self._seed = seed
        self._ports: dict[int, ReservedPort] = {}
        self._process: ManagedProcess | None = None

    def __enter__(self) -> Proxy:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process; returns when it serves the brokers that accept connections."""
        if self._process is not None:
            return
        folder = self.folder / PROXY
        folder.mkdir(parents=True, exist_ok=True)
        self._ports = {node_id: ReservedPort() for node_id in self.upstreams}
        self._own_ports = {node_id: ReservedPort() for node_id in self._own_upstreams}
        options: dict[str, Any] = {
            "role": "proxy",
            "name": PROXY,
            "folder": str(folder),
            "seed": self._seed,
            "tap": self._tap,
            "brokers": [
                {
                    "node_id": node_id,
                    "upstream": list(upstream),
                    "address": list(self._address(node_id)),
                    **self._own_row(node_id),
                }
                for node_id, upstream in self.upstreams.items()
            ],
            "keystore": self._keystore,
            "truststore": self._truststore,
            "peer_links": [row._asdict() for row in self._peer_links],
        }
        self._process = ManagedProcess(fork_server(), "proxy", folder, options)
        try:
            self._process.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process and give the ports back; files stay."""
        if self._process is not None:
            self._process.close()
            self._process = None
        for port in (*self._ports.values(), *self._own_ports.values()):
            port.release()
        self._ports.clear()
        self._own_ports.clear()

    @property
    def process(self) -> ManagedProcess:
        """The proxy's process."""
        if self._process is None:
            raise ClusterError("the proxy is not started; call start() or use `with`")
        return self._process

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of the proxy, for every broker that was given: the value of a client's `bootstrap.servers`."""
        assert self.process, "started"
        return ",".join(str(self._address(node_id)) for node_id in self.upstreams)

    @property
    def own_servers(self) -> str:
        """The same of the ports that lead to `own_upstreams`; without these `bootstrap_servers`."""
        if not self._own_upstreams:
            return self.bootstrap_servers
        assert self.process, "started"
        return ",".join(map(str, self.own_addresses.values()))

    @property
    def own_addresses(self) -> dict[int, Address]:
        """By node id: the ports that lead to `own_upstreams`."""
        return {node_id: Address(LOOPBACK, port.number) for node_id, port in self._own_ports.items()}

    def _own_row(self, node_id: int) -> dict[str, Any]:
        if node_id not in self._own_upstreams:
            return {}
        return {"own": {"upstream": list(self._own_upstreams[node_id]), "address": list(self.own_addresses[node_id])}}

    @property
    def addresses(self) -> dict[int, Address]:
        """The proxy's address of each broker, also of those that appeared later."""
        return {row["node_id"]: Address(*row["address"]) for row in self.brokers()}

    def brokers(self) -> list[dict[str, Any]]:
        """Each broker as the process has it: node_id, address, upstream, and whether its port is open."""
        rows: list[dict[str, Any]] = self._call(PROXY, "proxy")["brokers"]
        return rows

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One call on the control socket that stands for a broker; operations as `host/knobs/control.py` lists them."""
        return self._call(broker_name(node_id), op, **fields)

    def _address(self, node_id: int) -> Address:
        return Address(LOOPBACK, self._ports[node_id].number)

    def _call(self, name: str, op: str, /, **fields: object) -> dict[str, Any]:
        from .host.knobs.control import ControlClient

        assert self.process, "started"
        with ControlClient(str(self.folder / name / CONTROL_SOCKET), name=name) as client:
            return client.call(op, **fields)
