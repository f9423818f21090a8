"""The main function of a process of the cluster (a broker, the registry, a proxy, a relay), forked or started by hand.

Owns: the border between the options (one JSON object) and what runs: sockets, real hosts, signals, status lines.

    option        of                  value
    ------------  ------------------  -----------------------------------------------------------------------------
    role          all                 "broker", "registry", "proxy" or "relay"
    name          all                 name of the process in traces and messages ("broker-2")
    folder        all                 the folder of its files (`broker_folder.py`)
    seed          all                 the seed of the process's random numbers
    listeners     registry, relay     {"registry": port}, {"relay": port}
    host          registry, optional  the address that it binds; the loopback address by default
    node_id       broker              the node id
    registry      broker              [address, port] of the registry
    config        broker              settings by Kafka's names, such as "listeners": "CLIENTS://127.0.0.1:9092,…"
    upstream      relay               [address, port] of the service (`relay/process.py`)
    brokers       proxy               the foreign brokers (`proxy/process.py`)
    tap           optional            true: a broker or a proxy writes the tap (`tap/`)
    failpoints    broker, optional    failpoints that are armed before the broker begins: rows with the fields of
                                      `failpoint.arm` (`host/knobs/control.py`)
    expect        broker, optional    the number of brokers that must be registered before the broker is ready
    plants        broker, optional    modules of planted bugs (`planting.py`)
    import_paths  broker, optional    folders in which the process finds these modules

The process writes status lines, one JSON object each, to the status pipe: `{"event": "ready", …}` when it serves, or
`{"event": "failed", "error": "…"}` before it exits with code 1. SIGTERM is a controlled shutdown.

The loop is uvloop's: with our own links reading and writing the sockets (`host/real/link.py`), a produce took
a tenth to a fifth less CPU on it than on asyncio's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import uvloop

from .config import BrokerConfig
from .errors import ConfigError, HarrowError
from .events.brokers import BrokerPlanted
from .listeners import Address
from .planting import Plant, add_import_paths, apply_plants, load_plants
from .ports import LOOPBACK

if TYPE_CHECKING:
    from .host.knobs.disk_faults import DiskFaults
    from .host.seam import Disk
    from .proxy.machine import ProxyHost


def preload() -> None:
    """Import everything that a broker needs, so that a forked process has it."""
    import encodings.idna  # imported by the first `bind` or `connect` with a host name, 2 ms in each process

    from . import broker
    from .host.power_loss import tracked_disk
    from .host.real import host
    from .proxy import process as proxy
    from .registry import process as registry
    from .relay import process as relay
    from .tap import recorder

    _ = (encodings.idna, host, proxy, recorder, registry, relay, tracked_disk)  # only their import is needed
    broker.preload()


def bind(address: Address) -> socket.socket:
    """A socket bound beside the supervisor's socket, which holds the port for the cluster's whole life (`ports.py`).

    ConfigError where the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise ConfigError(f"listeners: {address} cannot be bound: {error}") from error
    sock.setblocking(False)
    return sock


def bound_sockets(options: Mapping[str, Any], config: BrokerConfig) -> dict[str, socket.socket]:
    """The bound sockets by listener: of a broker by its settings, of registry and relay by options; none of a proxy."""
    if options["role"] == "proxy":
        return {}  # each of its brokers has a host of its own
    if options["role"] in {"registry", "relay"}:
        ports: Mapping[str, int] = options["listeners"]
        host = str(options.get("host", LOOPBACK))
        return {name: bind(Address(host, port)) for name, port in ports.items()}
    from .broker import served_listeners

    return {listener.name: bind(listener.bind) for listener in served_listeners(config)}


def run(options: Mapping[str, Any], status_fd: int) -> int:
    """Run the process that `options["role"]` names until a signal stops it; returns its exit code."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, status_fd))
    except (HarrowError, OSError) as error:
        _write_status(status_fd, {"event": "failed", "error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


def _write_status(status_fd: int, line: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the supervising process has closed the pipe or is gone
        os.write(status_fd, json.dumps(line).encode() + b"\n")


async def _serve(options: Mapping[str, Any], status_fd: int) -> None:
    from .host.real.host import RealHost
    from .tap.recorder import FileTap

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    config = BrokerConfig.parse(options.get("config", {}))
    plants = _plant(options)
    host = RealHost(
        name=options["name"],
        folder=options["folder"],
        listeners=bound_sockets(options, config),
        seed=int(options["seed"]),
        make_tap=FileTap if options.get("tap", False) else None,
        make_disk=_disk_of(config, options["folder"]),
    )
    await host.start()
    try:
        host.arm(options.get("failpoints", ()))
        if plants:
            host.trace.emit(BrokerPlanted(plants=tuple(plant.to_json() for plant in plants)))
        server = _make(options, host)
        await server.start()
        _write_status(status_fd, {"event": "ready", "pid": os.getpid()})
        waiter = asyncio.ensure_future(stop.wait())
        failure = asyncio.ensure_future(server.failed())
        await asyncio.wait({waiter, failure}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if failure.done():
            failure.result()
        failure.cancel()
        await server.stop()
    finally:
        await host.stop()


def _plant(options: Mapping[str, Any]) -> tuple[Plant, ...]:
    """Apply the planted bugs of this process's options before anything of the broker exists; ConfigError."""
    add_import_paths(options.get("import_paths", ()))
    plants = load_plants(options.get("plants", ()))
    apply_plants(plants)
    return plants


def _disk_of(config: BrokerConfig, folder: str) -> Callable[[DiskFaults], Disk]:
    """The disk of a broker: with a journal of unsynced writes where the configuration asks for it."""
    from .host.power_loss.tracked_disk import TrackedDisk
    from .host.power_loss.unsynced import UNSYNCED
    from .host.real.disk import RealDisk
    from .storage.log_folder import log_folders

    if not config.flag("harrow.power.loss"):
        return RealDisk
    return partial(TrackedDisk, os.path.join(folder, UNSYNCED), log_folders(config, folder))


def _make(options: Mapping[str, Any], host: Any) -> Any:
    if options["role"] == "registry":
        from .registry.process import RegistryProcess

        return RegistryProcess(host, options)
    if options["role"] == "proxy":
        from .proxy.process import ProxyProcess

        return ProxyProcess(host, partial(_make_proxied_host, options), options)
    if options["role"] == "relay":
        from .relay.process import RelayProcess

        return RelayProcess(host, host.network, options)
    from .broker import Broker

    return Broker(host, options)


def _make_proxied_host(options: Mapping[str, Any], name: str) -> ProxyHost:
    """Make the host that stands for one foreign broker; its folder is beside the proxy's own."""
    from .host.real.host import RealHost
    from .tap.recorder import FileTap

    class ProxiedHost(RealHost):
        """A host whose listener closes and opens again."""

        def bind_listener(self, listener: str, address: Address) -> None:
            """Bind an address for a listener; ConfigError."""
            self.offer(listener, bind(address))

    return ProxiedHost(
        name=name,
        folder=os.path.join(os.path.dirname(options["folder"]), name),
        seed=int(options["seed"]),
        make_tap=FileTap if options.get("tap", False) else None,
    )
