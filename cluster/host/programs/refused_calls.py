"""What an event loop of asyncio has and that of a simulated program does not: each call is an error of the fence."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from .fence import FENCE


def _refused(name: str) -> Any:
    def call(*_: object, **__: object) -> NoReturn:
        raise FENCE.refuse(f"loop.{name}(…), which a simulated loop does not have")

    call.__name__ = name
    return call


class RefusedCalls(asyncio.AbstractEventLoop):
    """The calls that leave the simulation: the loop itself, real sockets, pipes, sub-processes, TLS."""

    run_forever = _refused("run_forever")
    run_until_complete = _refused("run_until_complete")
    stop = _refused("stop")
    getnameinfo = _refused("getnameinfo")
    sendfile = _refused("sendfile")
    start_tls = _refused("start_tls")
    create_unix_connection = _refused("create_unix_connection")
    create_unix_server = _refused("create_unix_server")
    connect_accepted_socket = _refused("connect_accepted_socket")
    create_datagram_endpoint = _refused("create_datagram_endpoint")
    connect_read_pipe = _refused("connect_read_pipe")
    connect_write_pipe = _refused("connect_write_pipe")
    subprocess_shell = _refused("subprocess_shell")
    subprocess_exec = _refused("subprocess_exec")
    add_reader = _refused("add_reader")
    remove_reader = _refused("remove_reader")
    add_writer = _refused("add_writer")
    remove_writer = _refused("remove_writer")
    sock_recv = _refused("sock_recv")
    sock_recv_into = _refused("sock_recv_into")
    sock_recvfrom = _refused("sock_recvfrom")
    sock_recvfrom_into = _refused("sock_recvfrom_into")
    sock_sendall = _refused("sock_sendall")
    sock_sendto = _refused("sock_sendto")
    sock_accept = _refused("sock_accept")
    sock_sendfile = _refused("sock_sendfile")
