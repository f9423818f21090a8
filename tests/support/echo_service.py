"""A TCP service that is not Kafka, for relays: it sends back what it receives."""

from __future__ import annotations

import socket
import threading

from harrow.cluster.listeners import Address
from waiting import HANGS_S


class EchoService:
    """Sends back each byte that it receives, until the client sends no more; then `last`, and the end."""

    def __init__(self, last: bytes = b"") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._last = last
        self.address = Address(*self._listener.getsockname())
        self.ended: list[str] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._echo, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(HANGS_S)
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
                connection.sendall(self._last)
                self.ended.append("end")
            except OSError as error:
                self.ended.append(type(error).__name__)

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for thread in self._threads:
            thread.join(HANGS_S)
            assert not thread.is_alive()
