"""What a forked or hand-started process of the cluster runs: a broker or the registry, by its options.

Owns: the border between options (one JSON object) and a running broker or registry: sockets, real host,
signals, status lines. The options are described in ARCHITECTURE.md ("Process interface of a broker").

Status lines, one JSON object each, to the status pipe: `{"event": "ready", …}` when it serves, or
`{"event": "failed", "error": "…"}` before it exits with code 1. SIGTERM is a controlled shutdown.

The loop is uvloop's: with the sockets read and written by our own links (`host/real/link.py`) it measured a tenth to a
fifth less CPU a produce than asyncio's.
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

from .errors import HarrowError
from .planting import PLANTED_EVENT, Plant, add_import_paths, apply_plants, load_plants

if TYPE_CHECKING:
    from .config import BrokerConfig
    from .host.knobs.disk_faults import DiskFaults
    from .host.seam import Disk

LOOPBACK = "127.0.0.1"


def preload() -> None:
    """Import everything a broker will need, so that a fork has it."""
    from . import broker
    from .host.power_loss import tracked_disk
    from .host.real import host
    from .registry import process as registry

    _ = host, registry, tracked_disk  # imported is all they need to be
    broker.preload()


def bind(port: int) -> socket.socket:
    """A socket bound beside the supervisor's own, which keeps the port over the process's whole life."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((LOOPBACK, port))
    sock.setblocking(False)
    return sock


def run(options: Mapping[str, Any], status_fd: int) -> int:
    """Run the process that `options["role"]` names until it is told to stop; its exit code."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, status_fd))
    except (HarrowError, OSError) as error:
        _say(status_fd, {"event": "failed", "error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


def _say(status_fd: int, line: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more: then nobody is told
        os.write(status_fd, json.dumps(line).encode() + b"\n")


async def _serve(options: Mapping[str, Any], status_fd: int) -> None:
    from .config import BrokerConfig
    from .host.real.host import RealHost

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listeners = {name: bind(port) for name, port in options["listeners"].items()}
    config = BrokerConfig.parse(options.get("config", {}))
    plants = _plant(options)
    host = RealHost(
        name=options["name"],
        folder=options["folder"],
        listeners=listeners,
        seed=int(options["seed"]),
        tap=bool(options.get("tap", False)),
        make_disk=_disk_of(config, options["folder"]),
    )
    await host.start()
    try:
        if plants:
            host.trace.emit(PLANTED_EVENT, plants=[plant.to_json() for plant in plants])
        server = _make(options, host)
        await server.start()
        _say(status_fd, {"event": "ready", "pid": os.getpid()})
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
    from .broker import Broker

    return Broker(host, options)
