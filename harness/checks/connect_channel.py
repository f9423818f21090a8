"""Connections to a Spark Connect server that do not go through a proxy to this machine, and waits that have an end.

gRPC takes `http_proxy`, `https_proxy` and `grpc_proxy` from the environment, for addresses of this machine too; a proxy
cannot reach those, and the client would try again without an end. So a connection to a loopback address uses no proxy.
A server of the user's on another machine is reached as the environment says. The environment itself does not change.

`connected` waits `CONNECT_TIMEOUT_S` for a connection, and `bounded` waits `verdict_seconds()` for a query. What may
fail: SparkError, which says what was waited for, for how long, and where the log is.

Environment: HARROW_VERDICT_SECONDS replaces `VERDICT_TIMEOUT_S`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from collections.abc import Generator
from typing import Any

from harrow.cluster.errors import ConfigError, HarrowError

CONNECT_TIMEOUT_S = 60.0
VERDICT_TIMEOUT_S = 3600.0
"""A verdict on 1e8 operations takes minutes on two cores."""
TIMEOUT = "HARROW_VERDICT_SECONDS"
NO_PROXY = ("grpc.enable_http_proxy", 0)
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""What gRPC reads, in its order."""


class SparkError(HarrowError):
    """Spark did not start, or did not respond."""


def is_this_machine(host: str) -> bool:
    """Whether a host is a loopback address, or the name of one."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """Return the host of a Connect address: `sc://[::1]:15002/;token=…` is `::1`."""
    place = address.removeprefix("sc://").partition("/")[0].partition(";")[0]
    return place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]


def options_of(address: str) -> list[tuple[str, Any]]:
    """Return the gRPC options of a channel to a Connect address."""
    return [NO_PROXY] if is_this_machine(host_of(address)) else []


def proxy_for(address: str) -> str:
    """Return the variable that names gRPC's proxy for an address, but not its value (a password); empty: none."""
    if options_of(address):
        return ""
    return next((name for name in PROXIES if os.environ.get(name)), "")


def verdict_seconds() -> float:
    """Return how long a verdict may wait for Spark; ConfigError for a text that is no number of seconds."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text or VERDICT_TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{TIMEOUT}={text!r}: expected a number of seconds above 0, such as 3600")
    return seconds


def connected(address: str, *, timeout_s: float | None = None) -> Any:
    """Return a session of a Connect server; SparkError when no connection is there in time."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    wait_s = CONNECT_TIMEOUT_S if timeout_s is None else timeout_s

    class Channels(DefaultChannelBuilder):
        def toChannel(self) -> grpc.Channel:  # noqa: N802  (pyspark's name)
            channel = super().toChannel()
            try:
                grpc.channel_ready_future(channel).result(timeout=wait_s)
            except grpc.FutureTimeoutError:
                channel.close()
                raise SparkError(_no_connection(address, wait_s)) from None
            return channel

    builder = SparkSession.builder.channelBuilder(Channels(address, options_of(address)))
    return builder.create()


def _no_connection(address: str, wait_s: float) -> str:
    shown = address.partition(";")[0].rstrip("/")
    proxy = proxy_for(address)
    through = f" through the proxy that {proxy} names; no_proxy={host_of(address)} goes around it" if proxy else ""
    return f"Spark Connect at {shown} accepted no connection within {wait_s:g} s{through}; does the server run there?"


@contextlib.contextmanager
def bounded(session: Any, log: str) -> Generator[None]:
    """End a query of the session that does not end in time: its channel is closed, and SparkError is raised."""
    wait_s = verdict_seconds()
    late = threading.Event()

    def end() -> None:
        late.set()
        session.client.close()

    timer = threading.Timer(wait_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if late.is_set():
            raise SparkError(too_late(wait_s, log)) from error
        raise
    finally:
        timer.cancel()


def too_late(wait_s: float, log: str) -> str:
    """Return the words for a verdict that did not end in time."""
    return (
        f"Spark did not judge within {wait_s:g} s; {log}. Give it more processors with --harrow-spark, judge fewer "
        f"records, or raise {TIMEOUT}"
    )
