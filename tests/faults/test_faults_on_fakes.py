"""Each fault: drawn, injected twice, proved, healed twice, proved healed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from fake_system import FakeSystem, fake_system
from harrow.cluster.errors import ClusterError, ConfigError
from harrow.cluster.view import ClusterView
from harrow.faults import (
    FAULTS,
    Fault,
    FaultError,
    TargetError,
    controller,
    cut,
    disk_error,
    failpoint,
    fault_from_json,
    isolate,
    kill,
    leader,
    lose_response,
    one,
    pause,
    pause_registry,
    power_loss,
    restart,
    restart_registry,
    slow,
    terminate,
)
from harrow.faults.system import look_at
from harrow.faults.targets import registry

AT_ONCE: list[Fault] = [
    kill(leader("orders", 0)),
    terminate(controller()),
    pause(one),
    restart(one),
    restart(one, hard=True),
    power_loss(leader("orders", 1)),
    power_loss(controller(), keep=0.0),
    isolate(controller(), clients=True, direction="in", heals_by="reset"),
    cut(leader("orders", 0)),
    cut(one, direction="out", heals_by="deliver"),
    slow(controller()),
    slow(one, ms=20, clients=True, seconds=(1, 2)),
    restart_registry(),
    restart_registry(seconds=0),
    pause_registry(seconds=(0.5, 4)),
]
WAITING: list[Fault] = [
    lose_response("Produce", nth=2),
    failpoint("log.after-append", leader("orders", 0)),
    failpoint("log.after-append", leader("orders", 0), "stop"),
    failpoint("log.after-append", leader("orders", 0), "delay", delay_ms=5),
    disk_error("sync", leader("orders", 0), error="ENOSPC", nth=3, path="*/orders-0/*"),
    disk_error("write", leader("orders", 0), error="", delay_ms=20),
]
ALL = AT_ONCE + WAITING


def fire(system: FakeSystem, fault: Fault) -> None:
    """Do what a broker does when the armed thing is reached."""
    action = getattr(fault, "action", None)
    if fault.kind == "disk_error":
        system.disk_rules[1][0] |= {"fired": 1}
    elif action == "crash":
        system.brokers[1].kill()
    elif action == "stop":
        system.brokers[1].pause()
    elif action == "delay":
        system.points[1]["log.after-append"] |= {"fired": 1, "armed": False}
    else:
        system.lost[1][0] |= {"fired": True, "armed": False}


@pytest.mark.parametrize("fault", ALL, ids=str)
def test_a_fault_takes_effect_and_is_undone(fault: Fault) -> None:
    with fake_system() as system:
        injection = fault.resolve(look_at(system), random.Random(3))
        fault.inject(system, injection)
        fault.inject(system, injection)
        if fault in WAITING:
            assert not fault.probe(system, injection).proved
            fire(system, fault)
        evidence = fault.probe(system, injection)
        assert evidence.proved, evidence
        fault.heal(system, injection)
        fault.heal(system, injection)
        assert fault.probe_healed(system, injection).proved
        assert system.undisturbed()


@pytest.mark.parametrize("fault", ALL, ids=str)
def test_a_fault_that_did_nothing_has_no_proof_and_heals_all_the_same(fault: Fault) -> None:
    with fake_system() as system:
        injection = fault.resolve(look_at(system), random.Random(3))
        assert not fault.probe(system, injection).proved
        fault.heal(system, injection)
        assert system.undisturbed()


def test_rules_that_hold_nothing_back_are_no_effect() -> None:
    with fake_system() as system:
        system.held = 0
        fault = isolate(one)
        injection = fault.resolve(look_at(system), random.Random(3))
        fault.inject(system, injection)
        assert not fault.probe(system, injection).proved


def test_isolation_names_every_peer_and_clients_by_choice() -> None:
    with fake_system() as system:
        fault = isolate(2)
        injection = fault.resolve(look_at(system), random.Random(3))
        fault.inject(system, injection)
        assert [row["peers"] for row in system.rules[2]] == ["broker 1", "broker 3", "registry"]
        assert isolate(2, clients=True).peers_of(system, 2)[-1] == "client *"


def test_the_seed_draws_a_cuts_direction_and_a_slow_links_delay() -> None:
    with fake_system() as system:
        scene = look_at(system)
        ways = {
            cut(2).resolve(scene, random.Random(n)).details["direction"]: random.Random(n)
            for n in range(20)
        }
        assert set(ways) == {"in", "out"}
        for way, rng in ways.items():
            injection = cut(2).resolve(scene, rng)
            injection.fault.inject(system, injection)
            assert {row["direction"] for row in system.rules[2]} == {way}
            assert cut(2, direction=way).resolve(scene, rng).details["direction"] == way
        late = [slow(2).resolve(scene, random.Random(n)).details["delay_ms"] for n in range(40)]
        assert min(late) < 100 < 250 < max(late) <= 300
        injection = slow(2, ms=70).resolve(scene, random.Random(1))
        injection.fault.inject(system, injection)
        assert [row["peers"] for row in system.rules[2]] == ["broker 1", "broker 3", "registry"]
        assert {row["delay_ms"] for row in system.rules[2]} == {70}


def test_a_link_that_nothing_crossed_was_not_slow() -> None:
    with fake_system() as system:
        system.held = 0
        injection = slow(one).resolve(look_at(system), random.Random(3))
        injection.fault.inject(system, injection)
        assert not injection.fault.probe(system, injection).proved


def test_the_registrys_faults_name_no_broker_and_nobody_else_plays_the_registry() -> None:
    with fake_system() as system:
        scene = look_at(system)
        injection = pause_registry(seconds=2).resolve(scene, random.Random(1))
        assert (injection.nodes, injection.duration_ms) == ((), 2000)
        assert str(pause_registry(seconds=2)) == "pause_registry(seconds=2)"
        with pytest.raises(TargetError, match="registry: no running broker"):
            kill(registry).resolve(scene, random.Random(1))


@pytest.mark.parametrize("fault", [restart_registry(), pause_registry()], ids=str)
def test_a_zookeeper_is_not_ours_to_break_and_that_is_said(fault: Fault) -> None:
    class OnZooKeeper(FakeSystem):
        def __init__(self) -> None:
            super().__init__()
            self._fake = self.registry

        def __getattribute__(self, name: str) -> Any:
            if name == "registry" and "_fake" in vars(self):
                raise ClusterError("this cluster's registry is a ZooKeeper")
            return super().__getattribute__(name)

        def describe(self) -> ClusterView:
            return ClusterView(live=frozenset(), controller=None, topics={})

        def close(self) -> None:
            self._fake.kill()
            for process in self.brokers.values():
                process.kill()

    system = OnZooKeeper()
    try:
        injection = fault.resolve(look_at(system), random.Random(3))
        with pytest.raises(FaultError, match=r"leave zookeeper\.connect empty"):
            fault.inject(system, injection)
        fault.heal(system, injection)
        assert fault.probe_healed(system, injection).proved
    finally:
        system.close()


def test_pauses_straddle_the_session_timeout() -> None:
    with fake_system() as system:
        scene = look_at(system)
    drawn = [pause(one).resolve(scene, random.Random(seed)).duration_ms for seed in range(40)]
    timeout_ms = scene.session_timeout_ms
    assert min(drawn) < timeout_ms < max(drawn)
    assert pause(one, seconds=2).resolve(scene, random.Random(1)).duration_ms == 2000
    bounds = [
        pause(one, seconds=(0.5, 4)).resolve(scene, random.Random(s)).duration_ms for s in range(40)
    ]
    assert all(500 <= ms <= 4000 for ms in bounds)


@pytest.mark.parametrize("fault", ALL, ids=str)
def test_faults_are_values_and_json(fault: Fault) -> None:
    again = fault_from_json(fault.to_json())
    assert again == fault
    assert hash(again) == hash(fault)
    assert fault.to_json()["name"] in FAULTS


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pause(one, seconds=(4, 1)), "least, most"),
        (lambda: pause(one, seconds=-1), "seconds"),
        (lambda: isolate(one, direction="up"), "both, in, out"),
        (lambda: isolate(one, heals_by="magic"), "deliver or reset"),
        (lambda: cut(one, direction="both"), r"cut\(direction='both'\): expected in, out"),
        (lambda: slow(one, ms=(300, 50)), "least, most"),
        (lambda: slow(one, ms=0), "from 1 to"),
        (lambda: fault_from_json({"name": "pause_registry", "target": {"role": "one"}}), "registry alone"),
        (lambda: lose_response("Prodduce"), "no such API"),
        (lambda: lose_response(nth=0), "from 1 up"),
        (lambda: failpoint("log.after-apend", one), "did you mean log.after-append"),
        (lambda: failpoint("log.after-append", one, "explode"), "crash, stop, delay, error"),
        (lambda: fault_from_json({"name": "kil", "target": {"role": "one"}}), "did you mean kill"),
        (lambda: fault_from_json({"name": "kill", "target": {"role": "one"}, "second": 1}), "did you mean seconds"),
        (lambda: fault_from_json({"name": "kill"}), "no target"),
        (lambda: fault_from_json({"name": "kill", "target": {"role": "boss"}}), "role 'boss'"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_with_what_would_fit(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=words):
        make()


def test_a_power_loss_is_drawn_by_the_seed_and_replayed_as_it_was() -> None:
    with fake_system() as system:
        scene = look_at(system)
        drawn = [power_loss(2).resolve(scene, random.Random(seed)) for seed in (1, 1, 2)]
        assert drawn[0].details == drawn[1].details != drawn[2].details
        drawn[0].fault.inject(system, drawn[0])
        assert system.brokers[2].power_lost == [(f"{drawn[0].details['seed']}/2", None)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: power_loss(one, keep=1.5),
        lambda: disk_error("fsync", one),
        lambda: disk_error("sync", one, error="EPIPE"),
        lambda: disk_error("sync", one, error=""),
        lambda: disk_error("sync", one, nth=0),
    ],
)
def test_disk_faults_that_no_disk_has_are_refused(make: Callable[[], Fault]) -> None:
    with pytest.raises(ConfigError):
        make()
