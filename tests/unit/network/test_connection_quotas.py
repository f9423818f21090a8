"""`max.connections` and `max.connections.per.ip`, also changed: the rules, and over real sockets (KIP-402)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from harrow.cluster.config import INT_MAX, BrokerConfig
from harrow.cluster.network.connection_quotas import ConnectionQuotas, QuotaConnection
from harrow.cluster.network.socket_server import connection_bounds
from served_listener import Raw, answer, log_lines, next_turn, run, serving


@dataclass(eq=False)
class FakeConnection:
    listener: FakeListener
    address: str
    used_ns: int

    def close_excess(self) -> None:
        self.listener.closed_as_excess.append(self)
        self.listener.close(self)


@dataclass(eq=False)
class FakeListener:
    quotas: ConnectionQuotas
    inter_broker: bool = False
    accepting: bool = True
    connections: list[FakeConnection] = field(default_factory=list["FakeConnection"])
    closed_as_excess: list[FakeConnection] = field(default_factory=list["FakeConnection"])

    def __post_init__(self) -> None:
        self.quotas.add(self)

    def open_connections(self) -> list[QuotaConnection]:
        return list(self.connections)

    def pause_accepting(self) -> None:
        self.accepting = False

    def resume_accepting(self) -> None:
        self.accepting = True

    def accept(self, used_ns: int = 0, address: str = "a") -> bool:
        assert self.accepting, "a listener that accepts nothing"
        if not self.quotas.opened(self, address):
            return False
        self.connections.append(FakeConnection(self, address, used_ns))
        return True

    def close(self, connection: FakeConnection) -> None:
        self.connections.remove(connection)
        self.quotas.closed(connection.address)


def broker(most: int, per_address: int = 1_000) -> tuple[FakeListener, FakeListener]:
    quotas = ConnectionQuotas(connections_most=most, per_address_most=per_address)
    return FakeListener(quotas), FakeListener(quotas, inter_broker=True)


def test_at_the_bound_only_the_inter_broker_listener_accepts() -> None:
    clients, brokers = broker(2)
    assert clients.accept(used_ns=5) and clients.accept(used_ns=3)
    assert (clients.accepting, brokers.accepting) == (False, True)
    assert clients.quotas.may_accept(brokers) and not clients.quotas.may_accept(clients)
    clients.close(clients.connections[0])
    assert clients.accepting


def test_each_broker_above_the_bound_closes_the_least_recently_used_connection() -> None:
    clients, brokers = broker(3)
    for used_ns in (5, 3, 4):
        clients.accept(used_ns)
    for _ in range(2):
        assert brokers.accept()
    assert [row.used_ns for row in clients.closed_as_excess] == [3, 4]
    assert (clients.quotas.total, clients.accepting) == (3, False)
    for _ in range(3):  # the third finds no connection of a client to close, and is accepted all the same
        assert brokers.accept()
    assert (len(clients.connections), clients.quotas.total) == (0, 5)


def test_a_single_listener_is_not_protected() -> None:
    quotas = ConnectionQuotas(connections_most=1, per_address_most=1_000)
    only = FakeListener(quotas, inter_broker=True)
    assert only.accept()
    assert not only.accepting


def test_a_bound_of_zero_accepts_no_client() -> None:
    clients, brokers = broker(0)
    assert not clients.quotas.may_accept(clients)
    assert brokers.accept()
    assert not clients.accepting


def test_each_address_has_a_bound_of_its_own() -> None:
    clients, _ = broker(100, per_address=2)
    assert [clients.accept(address="a") for _ in range(3)] == [True, True, False]
    assert clients.accept(address="b")
    clients.close(clients.connections[0])
    assert clients.accept(address="a")
    assert clients.quotas.total == 3


def test_changed_bounds_hold_from_the_next_connection_on() -> None:
    clients, brokers = broker(2, per_address=2)
    assert clients.accept() and clients.accept()
    clients.quotas.change(connections_most=3, per_address_most=2, overrides={"a": 3})
    assert clients.accepting
    assert clients.accept() and not clients.accepting
    clients.quotas.change(connections_most=1, per_address_most=1, overrides={"b": 2})
    assert (len(clients.connections), clients.closed_as_excess) == (3, []), "open ones stay"
    clients.close(clients.connections[0])
    clients.close(clients.connections[0])
    assert not clients.accepting and not brokers.accept()
    assert brokers.accept(address="b") and brokers.accept(address="b")
    assert not brokers.accept(address="b")


@pytest.mark.parametrize("seed", range(20))
def test_clients_are_accepted_exactly_while_there_is_room(seed: int) -> None:
    chance = random.Random(seed)
    clients, brokers = broker(4, per_address=3)
    for turn in range(200):
        listener = chance.choice((clients, brokers))
        if listener.connections and chance.random() < 0.5:
            listener.close(chance.choice(listener.connections))
        elif listener.accepting:
            listener.accept(turn, chance.choice("ab"))
        opened = len(clients.connections) + len(brokers.connections)
        assert clients.quotas.total == opened
        assert clients.accepting == (opened < 4)
        assert brokers.accepting
        assert opened <= 4 or not clients.connections


def test_a_connection_above_max_connections_waits_until_one_closes(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, listener="CLIENTS", max_connections=1) as s:
            s.handler = answer
            async with Raw(s.port) as first:
                await first.answered()
                async with Raw(s.port) as waiting:
                    waiting.writer.write(b"")
                    await first.answered(2)
                    assert s.connections() == 1
                    first.writer.close()
                    await waiting.answered()
            assert s.connections("CLIENTS") == 1

    run(main())


def test_a_broker_above_max_connections_replaces_the_least_recently_used_client(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            serving(tmp_path, listener="CLIENTS", max_connections=2) as s,
            Raw(s.port) as idle,
            Raw(s.port) as busy,
        ):
            s.handler = answer
            for number in range(3):
                await idle.answered(number)
                await busy.answered(number)
            async with Raw(s.ports["BROKERS"]) as other:
                await other.answered()
                assert await idle.reader.read() == b""
                await busy.answered(9)
                await other.answered(9)
                assert (s.connections("CLIENTS"), s.connections("BROKERS")) == (1, 1)

    run(main())
    assert "max.connections" in log_lines(tmp_path)[0]


def test_a_connection_above_max_connections_per_ip_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, listener="CLIENTS", max_connections_per_ip=1) as s, Raw(s.port) as first:
            s.handler = answer
            await first.answered()
            with pytest.raises(ConnectionResetError):  # while connecting, or just after
                async with Raw(s.port) as second:
                    await second.reader.read()
            first.writer.close()
            while s.connections():
                await next_turn()
            async with Raw(s.port) as third:
                await third.answered()

    run(main())
    assert "max.connections.per.ip" in log_lines(tmp_path)[0]


def test_a_running_broker_reads_its_changed_bounds() -> None:
    config = BrokerConfig.parse({"max.connections": 5})
    assert connection_bounds(config)["connections_most"] == 5
    config.dynamic |= {"max.connections": 9, "max.connections.per.ip.overrides": "::1:3, 10.0.0.1:0"}
    assert connection_bounds(config) == {
        "connections_most": 9,
        "per_address_most": INT_MAX,
        "overrides": {"::1": 3, "10.0.0.1": 0},
    }
