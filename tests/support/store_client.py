"""A client of a TCP service that stands for a store: it asks again and again, as an application does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

from waiting import HANGS_S, until


class StoreClient:
    """An application that asks the store again and again, and connects again where its connection ended."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._address = host, int(port)
        self._stop = threading.Event()
        self.answers = self.connections = 0
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                with socket.create_connection(self._address, timeout=HANGS_S) as connection:
                    self.connections += 1
                    while not self._stop.is_set():
                        connection.sendall(b"how many?")
                        if not connection.recv(100):
                            break
                        self.answers += 1
            except OSError as error:
                self.errors.append(type(error).__name__)
                self._stop.wait(0.01)

    def await_answer(self) -> None:
        before = self.answers
        until(lambda: self.answers > before, "the store answers again")

    def close(self) -> None:
        self._stop.set()
        self._thread.join(HANGS_S)
        assert not self._thread.is_alive()


@contextmanager
def asking(address: str) -> Generator[StoreClient]:
    client = StoreClient(address)
    until(lambda: client.answers)
    try:
        yield client
    finally:
        client.close()
