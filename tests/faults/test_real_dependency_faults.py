"""Faults of what stands beside the brokers, on real processes: links of a store, and the store's own process (K2)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from echo_service import EchoService
from faults_under_traffic import lines
from group_members import records
from harrow import (
    Harrow,
    Topic,
    cut,
    dependency,
    half_open,
    isolate,
    kill,
    leader,
    pause,
    reset,
    restart,
    slow_link,
    terminate,
    throttle,
    wipe,
)
from harrow.cluster.errors import ConfigError
from harrow.faults import Fault, NemesisError
from harrow.faults.schedule import Schedule
from harrow.harness.run.harrow import run_of
from store_client import asking
from waiting import until

pytestmark = pytest.mark.harrow(scope="session")
STORE = """
import socketserver, sys

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

with Server(("127.0.0.1", int(sys.argv[1])), Echo) as server:
    server.serve_forever()
"""


@pytest.fixture
def service() -> Iterator[EchoService]:
    service = EchoService()
    yield service
    service.close()


@pytest.fixture(autouse=True)
def relays_end(harrow: Harrow) -> Iterator[None]:
    """Each test has its own service at a dependency of the same name."""
    yield
    run_of(harrow).dependencies.end()


@pytest.fixture
def topic(harrow: Harrow) -> Topic:
    return harrow.topic(f"orders{next(NUMBERS)}")


def rows_of(harrow: Harrow, topic: Topic, fault: Fault) -> dict[str, dict[str, Any]]:
    with records(harrow.bootstrap_servers, topic.name, 1), harrow.chaos(fault) as chaos:
        until(lambda: not chaos.running, "the fault is healed", timeout_s=90)
    rows = lines(harrow)[-4:]
    assert [row["event"] for row in rows] == ["inject", "effect", "heal", "healed"]
    assert {row["fault"] for row in rows} == {fault.kind}
    return {row["event"]: row["evidence"] for row in rows}


NUMBERS = count()
HELD = ("held_in_bytes", "held_out_bytes")
LINK_FAULTS = {
    "isolate": (isolate(dependency("store"), seconds=0.2, heals_by="deliver"), HELD, 0),
    "isolate and reset": (isolate(dependency("store"), seconds=0.2, heals_by="reset"), HELD, 1),
    "cut in": (cut(dependency("store"), direction="in", seconds=0.2, heals_by="deliver"), ("held_in_bytes",), 0),
    "cut out": (cut(dependency("store"), direction="out", seconds=0.2, heals_by="deliver"), ("held_out_bytes",), 0),
    "slow_link": (slow_link(dependency("store"), delay_ms=50, seconds=0.2), ("delayed_bytes",), 0),
    "throttle": (throttle(dependency("store"), bytes_per_s=100, seconds=0.2), ("delayed_bytes",), 0),
    "half_open": (half_open(dependency("store"), seconds=0.2), HELD, 1),
}


@pytest.mark.parametrize("name", LINK_FAULTS)
def test_a_fault_of_the_links_takes_effect_and_is_healed(
    harrow: Harrow, topic: Topic, service: EchoService, name: str
) -> None:
    fault, held, resets = LINK_FAULTS[name]
    with asking(harrow.dependency("store", str(service.address))) as client:
        rows = rows_of(harrow, topic, fault)
        client.await_answer()
        assert len(client.errors) == resets
        assert client.connections == 1 + resets
    found = rows["effect"]["dependencies"]["store"]
    assert sum(found[field] for field in held) > 0
    assert rows["healed"]["dependencies"]["store"]["rules"] == []


def test_a_reset_ends_the_open_connections_once(harrow: Harrow, topic: Topic, service: EchoService) -> None:
    with asking(harrow.dependency("store", str(service.address))) as client:
        rows = rows_of(harrow, topic, reset(dependency("store")))
        assert rows["effect"]["reset"] == 1
        until(lambda: client.connections == 2)
        assert client.errors == ["ConnectionResetError"]


def test_the_program_of_a_dependency_is_killed_paused_and_restarted(
    harrow: Harrow, topic: Topic, service: EchoService, tmp_path: Path
) -> None:
    (tmp_path / "store.py").write_text(STORE)
    port = service.address.port
    service.close()
    store = harrow.program("store", [sys.executable, str(tmp_path / "store.py"), str(port)])
    address = harrow.dependency("store", f"127.0.0.1:{port}")
    with asking(address) as client:
        for number, fault in enumerate(
            (
                kill(dependency("store"), seconds=0.1),
                restart(dependency("store")),
                terminate(dependency("store"), seconds=0.1),
            ),
            start=2,
        ):
            rows_of(harrow, topic, fault)
            assert store.starts == number
            client.await_answer()
        rows = rows_of(harrow, topic, pause(dependency("store"), seconds=0.1))
        assert rows["effect"]["programs"]["store"]["process"] == "T"
    store.stop()


def test_faults_of_a_store_and_of_brokers_are_in_one_schedule_that_can_be_replayed(
    harrow: Harrow, topic: Topic, service: EchoService
) -> None:
    with asking(harrow.dependency("store", str(service.address))), records(harrow.bootstrap_servers, topic.name, 1):
        with harrow.chaos(
            isolate(dependency("store"), seconds=(0.05, 0.2)), pause(leader(topic), seconds=0.1)
        ) as chaos:
            until(lambda: not chaos.running, "the faults are healed", timeout_s=90)
        first = Schedule.from_json(harrow.schedule.to_json())
        with harrow.chaos(schedule=first) as chaos:
            until(lambda: not chaos.running, "the faults are healed", timeout_s=90)
    again = harrow.schedule
    assert [step.fault.kind for step in again.steps] == ["isolate_dependency", "pause"]
    assert [step.details for step in again.steps] == [step.details for step in first.steps]
    assert [step.duration_ms for step in again.steps] == [step.duration_ms for step in first.steps]


def test_random_faults_draw_a_dependency(harrow: Harrow, topic: Topic, service: EchoService) -> None:
    with (
        asking(harrow.dependency("store", str(service.address))),
        records(harrow.bootstrap_servers, topic.name, 1),
        harrow.chaos(kinds=("isolate_dependency", "reset_dependency"), duration=0.5) as chaos,
    ):
        until(lambda: not chaos.running, "the faults are healed", timeout_s=90)
    assert {row["fault"] for row in lines(harrow)} <= {"isolate_dependency", "reset_dependency"}
    assert all((step.details or {})["dependency"] == "store" for step in harrow.schedule.steps)
    assert harrow.schedule.steps


def test_a_dependency_without_clients_is_named_with_the_remedy(
    harrow: Harrow, topic: Topic, service: EchoService
) -> None:
    harrow.dependency("store", str(service.address))
    with (
        records(harrow.bootstrap_servers, topic.name, 1),
        pytest.raises(NemesisError, match=r"no client was connected to the dependency 'store'; give"),
        harrow.chaos(isolate(dependency("store")), reached_within=1) as chaos,
    ):
        until(lambda: not chaos.running, timeout_s=90)


def test_what_cannot_be_is_refused_with_the_remedy(harrow: Harrow, service: EchoService) -> None:
    harrow.dependency("store", str(service.address))
    with pytest.raises(ConfigError, match="there is no dependency 'stor'; did you mean 'store'"):
        harrow.chaos(isolate(dependency("stor")))
    with pytest.raises(ConfigError, match=r"'store' is .* already, and not 127.0.0.1:1; choose"):
        harrow.dependency("store", "127.0.0.1:1")
    run_of(harrow).dependencies.end()
    with pytest.raises(ConfigError, match=r"make one first: harrow.dependency\('store', '127"):
        harrow.chaos(kinds=("isolate_dependency",))
    with pytest.raises(ConfigError, match="without the scheme and the path of a URL"):
        harrow.dependency("store", "redis://127.0.0.1:6379/0")
    with pytest.raises(ConfigError, match="expected host:port, such as"):
        harrow.dependency("store", "6379")
    with pytest.raises(ConfigError, match="a dependency can be the target of isolate"):
        wipe(dependency("store"))
    with pytest.raises(ConfigError, match="a dependency has clients only; leave clients=True out"):
        isolate(dependency("store"), clients=True)
    with pytest.raises(ConfigError, match=r"write cut\(dependency\('store'\), direction='in'\)"):
        isolate(dependency("store"), direction="in")
