"""The lower bound of the time of a record with acks=all on this machine: its hops between processes, without any work.

`with bare_hops() as send:` measures messages that take the path of a record: from this process to a leader, from the
leader to two followers, back to the leader, and back to this process. Leader and followers are separate processes with
plain blocking sockets on loopback, which is the fastest that Python can do. The time of a broker above this bound is
spent in the broker.

    python hops.py leader|follower DESCRIPTOR …     (starts such a process; it ends with its sockets)
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

FOLLOWERS = 2
REQUEST, RESPONSE = 200, 60
"""Approximate sizes of a produce request with a small record, and of its response."""
END_TIMEOUT_S = 10.0


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Returns the two ends of a TCP connection on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def _pair(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    pair = tcp_pair()
    for end in pair:
        stack.enter_context(end).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return pair


def _process(role: str, ends: list[socket.socket]) -> subprocess.Popen[bytes]:
    numbers = [end.fileno() for end in ends]
    return subprocess.Popen(
        [sys.executable, __file__, role, *map(str, numbers)], pass_fds=numbers, start_new_session=True
    )


@contextmanager
def bare_hops() -> Generator[Callable[[], float]]:
    """Yields a function that sends a message and returns the milliseconds until its response.

    It raises OSError when a process has died.
    """
    with ExitStack() as stack:
        client, served = _pair(stack)
        client.settimeout(END_TIMEOUT_S)
        links = [_pair(stack) for _ in range(FOLLOWERS)]
        processes = [_process("leader", [served, *(near for near, _ in links)])]
        processes += [_process("follower", [far]) for _, far in links]
        for end in (served, *(end for link in links for end in link)):
            end.close()

        def send() -> float:
            begun = time.perf_counter()
            client.sendall(bytes(REQUEST))
            left = RESPONSE
            while left:
                got = len(client.recv(left))
                if not got:
                    raise ConnectionResetError("the bare leader is gone")
                left -= got
            return (time.perf_counter() - begun) * 1e3

        try:
            yield send
        finally:
            client.close()
            for process in processes:
                process.wait(END_TIMEOUT_S)


def _follow(leader: socket.socket) -> None:
    while data := leader.recv(4096):
        leader.sendall(data)


def _lead(client: socket.socket, followers: list[socket.socket]) -> None:
    by_number = {end.fileno(): end for end in (client, *followers)}
    poll = select.epoll()
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    awaited = 0
    while True:
        for number, _ in poll.poll():
            data = by_number[number].recv(4096)
            if not data:
                return
            if number == client.fileno():
                for follower in followers:
                    follower.sendall(data)
                awaited = len(data) * len(followers)
                continue
            awaited -= len(data)
            if not awaited:
                client.sendall(bytes(RESPONSE))


def main() -> None:
    """Runs a leader or a follower process."""
    role, *numbers = sys.argv[1:]
    first, *others = (socket.socket(fileno=int(number)) for number in numbers)
    if role == "leader":
        _lead(first, others)
    else:
        _follow(first)


if __name__ == "__main__":
    main()
