"""The least that a proxy in Python costs a request: a process that copies bytes, and a client on one plain connection.

`relayed(address)` starts such a process before a broker. It reads and understands nothing, so the time that it adds is
that of two more hops between processes. `RawProducer` sends a Produce request with one record over one blocking socket,
so its times contain no client library.

`cores_awake()` keeps the cores from sleeping: on a virtual machine the wake-up of an idle core takes tens of
microseconds, each hop has one, and what a proxy does is less than that.

    python relay.py HOST PORT     (starts the process; it prints its own port, and ends with its standard input)
    python relay.py spin          (a loop of the lowest priority, which ends with its standard input)
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.headers import encode_request_header
from harrow.cluster.wire.records import build_batch

VERSION = 9
TIMEOUT_S = 10.0
CHUNK = 256 * 1024
END_TIMEOUT_S = 10.0


class RawProducer:
    """Sends a record of 100 bytes with acks=1 to one broker, which leads partition 0 of `topic`."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        self._socket = _connect(address)
        s = messages.schema(ApiKey.PRODUCE, VERSION, "request")
        batch = build_batch([(None, b"x" * 100, ())], timestamp_ms=int(time.time() * 1000))
        row = s.PartitionProduceData(index=0, records=batch)
        entity = s.ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout=messages.milliseconds(int(TIMEOUT_S * 1000)),
            topic_data=(s.TopicProduceData(name=topic, partition_data=(row,)),),
        )
        frame = encode_request_header(ApiKey.PRODUCE, VERSION, 1, "bench")
        frame += messages.encode_request(ApiKey.PRODUCE, VERSION, entity)
        self._frame = len(frame).to_bytes(4, "big") + frame

    def send(self) -> float:
        """Sends a record; returns the milliseconds until its response. OSError when the connection ends."""
        begun = time.perf_counter()
        self._socket.sendall(self._frame)
        response = self._socket.recv(CHUNK)
        took = (time.perf_counter() - begun) * 1e3
        while len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4], "big"):
            more = self._socket.recv(CHUNK)
            if not more:
                raise ConnectionResetError("the broker has closed the connection")
            response += more
        entity: Any = messages.decode_response(ApiKey.PRODUCE, VERSION, response[4:], 5)
        error = entity.responses[0].partition_responses[0].error_code
        assert not error, f"the broker refused a record: {error}"
        return took

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


@contextmanager
def relayed(address: tuple[str, int]) -> Generator[tuple[str, int]]:
    """Starts a relay before `address`; yields its own address."""
    words = [sys.executable, __file__, address[0], str(address[1])]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield "127.0.0.1", int(process.stdout.readline())
        process.stdin.close()
        process.wait(END_TIMEOUT_S)


@contextmanager
def cores_awake() -> Generator[None]:
    """Keeps every core busy with a loop that any other process interrupts at once (SCHED_IDLE)."""
    words = [sys.executable, __file__, "spin"]
    spinning = [subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.communicate(timeout=END_TIMEOUT_S)


def spin() -> None:
    """Computes until standard input ends."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    ended = select.poll()
    ended.register(sys.stdin, select.POLLIN)
    while not ended.poll(0):
        sum(range(10_000))


def _connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main(host: str, port: int) -> None:
    """Relays connections until standard input ends."""
    others: dict[int, tuple[socket.socket, socket.socket]] = {}
    with socket.create_server(("127.0.0.1", 0)) as server, select.epoll() as epoll:
        print(server.getsockname()[1], flush=True)
        epoll.register(server, select.EPOLLIN)
        epoll.register(sys.stdin, select.EPOLLIN)
        while True:
            for number, _ in epoll.poll():
                if number == sys.stdin.fileno():
                    return
                if number == server.fileno():
                    near, far = server.accept()[0], _connect((host, port))
                    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for end, other in ((near, far), (far, near)):
                        others[end.fileno()] = end, other
                        epoll.register(end, select.EPOLLIN)
                    continue
                end, other = others[number]
                data = end.recv(CHUNK)
                if data:
                    other.sendall(data)
                    continue
                for done in (end, other):
                    epoll.unregister(done)
                    del others[done.fileno()]
                    done.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["spin"]:
        spin()
    else:
        main(sys.argv[1], int(sys.argv[2]))
