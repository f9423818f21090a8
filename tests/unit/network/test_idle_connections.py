"""`connections.max.idle.ms`: which connections are closed, and when (L4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.network.idle_connections import LOOKS, IdleWatch
from manual_host import ManualHost
from served_listener import Raw, answer, frame, log_lines, next_turn, run, serving

IDLE_MS = 1_000
NS_PER_MS = 1_000_000


class Connection:
    """A connection of a client, which notes when it was closed."""

    def __init__(self, host: ManualHost) -> None:
        self._host = host
        self.used_ns = host.clock.monotonic_ns()
        self.closed_ms: int | None = None

    def close_idle(self) -> None:
        self.closed_ms = self._host.clock.monotonic_ms()


def test_a_connection_is_closed_when_it_was_idle_for_so_long() -> None:
    host = ManualHost()
    begun_ms = host.clock.monotonic_ms()
    quiet, busy = Connection(host), Connection(host)
    watch = IdleWatch(host, IDLE_MS, lambda: [row for row in (quiet, busy) if not row.closed_ms])
    watch.start()
    for _ in range(3):
        host.advance(IDLE_MS // 2)
        busy.used_ns = host.clock.monotonic_ns()
    host.advance(IDLE_MS * 3)
    assert quiet.closed_ms is not None and busy.closed_ms is not None
    late_ms = IDLE_MS // LOOKS
    assert IDLE_MS <= quiet.closed_ms - begun_ms <= IDLE_MS + late_ms
    assert IDLE_MS <= busy.closed_ms - busy.used_ns // NS_PER_MS <= IDLE_MS + late_ms
    watch.stop()


def test_a_watch_that_was_stopped_or_has_no_bound_closes_nothing() -> None:
    host = ManualHost()
    quiet = Connection(host)
    stopped = IdleWatch(host, IDLE_MS, lambda: [quiet])
    stopped.start()
    stopped.stop()
    IdleWatch(host, -1, lambda: [quiet]).start()
    host.advance(IDLE_MS * 5)
    assert quiet.closed_ms is None


@pytest.mark.parametrize("waits", [False, True], ids=["no request", "a request waits"])
def test_the_connection_of_a_client_is_closed_and_that_of_a_broker_is_not(tmp_path: Path, waits: bool) -> None:
    """Apache Kafka 4.2, too, closes a connection whose request waits at the broker."""

    async def main() -> None:
        async with serving(tmp_path, listener="CLIENTS", connections_max_idle_ms=1_000) as s:
            s.handler = answer
            async with Raw(s.port) as client, Raw(s.ports["BROKERS"]) as peer:
                await client.answered()
                peer.writer.write(frame(0, 1, "x", client_id="broker-2"))
                await peer.frame()
                if waits:
                    s.handler = s.requests.put_nowait
                    client.writer.write(frame(0, 2, "x"))
                    await s.requests.get()
                assert await client.reader.read() == b""
                while s.connections("CLIENTS"):
                    await next_turn()
                assert s.connections("BROKERS") == 1
        assert any("it is idle (connections.max.idle.ms)" in line for line in log_lines(tmp_path))

    run(main())
