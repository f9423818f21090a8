"""Each fault: drawn, injected twice, proved, healed twice, proved healed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_system import FakeSystem, remove_part
from harrow import faults
from harrow.cluster.errors import ConfigError
from harrow.faults import (
    FAULTS,
    CapabilityError,
    Fault,
    add_broker,
    bridge,
    controller,
    crash_during_recovery,
    crash_loop,
    cut,
    damage_disk,
    delay_request,
    dependency,
    disconnect,
    disk_error,
    duplicate_request,
    elect_controller,
    exhaust_connections,
    exhaust_descriptors,
    expire_certificate,
    expire_lock,
    expire_session,
    expire_token,
    fail_response,
    failpoint,
    failpoint_at_start,
    fault_from_json,
    follower,
    freeze_clock,
    half_open,
    halves,
    hijack_transactional_id,
    isolate,
    isolate_client,
    jump_clock,
    kill,
    kill_program,
    leader,
    limit_memory,
    lose_request,
    lose_response,
    majorities_ring,
    move_leader,
    one,
    pause,
    pause_program,
    pause_registry,
    power_loss,
    reassign,
    rebalance_storm,
    refuse_reauthentication,
    refuse_request,
    registry,
    remove_broker,
    reset,
    restart,
    restart_registry,
    revoke_acl,
    rolling_restart,
    rotate_certificate,
    rotate_credentials,
    skew_clock,
    slow_disk,
    slow_link,
    slow_start,
    strobe_clock,
    stuck_consumer,
    stuck_share_consumer,
    terminate,
    terminate_program,
    throttle,
    throttle_cpu,
    unclean_election,
    wipe,
    zombie_controller,
)
from harrow.faults.controls import DiskPowerLoss, PeerKind
from harrow.faults.network_faults import LinkFault
from harrow.faults.system import CAPABILITIES, System, check_capabilities, take_snapshot

AT_ONCE: list[Fault] = [
    kill(leader("orders", 0)),
    terminate(controller()),
    pause(one),
    restart(one),
    restart(one, kill=True),
    power_loss(leader("orders", 1)),
    power_loss(controller(), kept_fraction=0.0),
    wipe(leader("orders", 1)),
    isolate(controller(), clients=True, direction="in", heals_by="reset"),
    cut(leader("orders", 0)),
    cut(one, direction="out", heals_by="deliver"),
    slow_link(controller()),
    cut(one, peers="any"),
    slow_link(one, peers="any"),
    throttle(leader("orders", 0)),
    throttle(one, bytes_per_s=5000, clients=True, seconds=(1, 2)),
    reset(leader("orders", 0)),
    reset(one, clients=True),
    slow_link(one, delay_ms=20, clients=True, seconds=(1, 2)),
    restart_registry(),
    restart_registry(seconds=0),
    pause_registry(seconds=(0.5, 4)),
    rolling_restart(),
    rolling_restart(one, kill=True, await_isr=False),
    isolate(registry()),
    isolate(one, peers="registry"),
    disconnect(leader("orders", 0), follower("orders", 0), heals_by="reset"),
    disconnect(registry(), leader("orders", 1)),
    halves(),
    halves(clients=True, registry_side="smaller", seconds=(1, 2)),
    bridge(),
    majorities_ring(heals_by="deliver"),
    half_open(leader("orders", 0), clients=True),
    half_open(one, peers="any"),
    elect_controller(),
    expire_session(leader("orders", 0)),
    damage_disk("torn-write", leader("orders", 0)),
    damage_disk("corrupt-checkpoint", one),
    damage_disk(None, one),
]
WAITING: list[Fault] = [
    lose_response("Produce", nth=2),
    fail_response("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", nth=2),
    refuse_request("Produce", "NOT_LEADER_OR_FOLLOWER", nth=2),
    lose_request("Fetch"),
    lose_request("Produce", nth=3, silent=True),
    delay_request("Produce", delay_ms=(10, 20)),
    duplicate_request("Produce", client="orders-*"),
    failpoint("log.after-append", leader("orders", 0)),
    failpoint("log.after-append", leader("orders", 0), "stop"),
    failpoint("log.after-append", leader("orders", 0), "delay", delay_ms=5),
    disk_error("sync", leader("orders", 0), error="ENOSPC", nth=3, path="*/orders-0/*"),
    disk_error("write", leader("orders", 0), error="", delay_ms=20),
    disk_error("rename", one, count=1),
    slow_disk(leader("orders", 0), delay_ms=30),
    jump_clock(leader("orders", 0), by_s=-60),
    skew_clock(leader("orders", 0)),
    freeze_clock(leader("orders", 0), seconds=(1, 2)),
    strobe_clock(leader("orders", 0), by_s=(1, 5), period_ms=20),
    exhaust_connections(leader("orders", 0), most=50),
    exhaust_descriptors(leader("orders", 0)),
    limit_memory(leader("orders", 0), spare_bytes=1_000),
]
OF_SEVERAL_STEPS: list[Fault] = [
    move_leader("orders"),
    reassign("orders", 2, seconds=1),
    zombie_controller(),
    crash_loop(one, alive_s=(0.1, 2)),
    crash_during_recovery(one, crashes=3),
    failpoint_at_start("recovery.after-segment", one, times=2, power_loss=True),
    slow_start(one),
    throttle_cpu(one, share=0.5),
    unclean_election("orders", 1, behind_s=(0.1, 0.2)),
    add_broker("orders"),
    add_broker(seconds=1),
    remove_broker(controller(), seconds=2),
]
STORE = dependency("store")
OF_DEPENDENCIES: list[Fault] = [
    isolate(STORE, seconds=1),
    cut(STORE, direction="in", heals_by="deliver"),
    slow_link(STORE, delay_ms=(10, 20)),
    throttle(STORE, bytes_per_s=1000),
    half_open(STORE),
    reset(STORE),
]
OF_CLIENTS: list[Fault] = [
    hijack_transactional_id("billing-1"),
    rebalance_storm("billing"),
    rebalance_storm("billing", every_s=1, seconds=(1, 2)),
    stuck_consumer("billing", seconds=3),
    stuck_share_consumer("billing", seconds=3),
    expire_lock("workers"),
    expire_lock("workers", member="m-1"),
    isolate_client("orders-*", heals_by="reset"),
    kill_program(),
    kill_program("billing", before="OffsetCommit", nth=3, client="billing-*"),
    kill_program("billing", after="Produce", restart=False),
    pause_program("billing", seconds=(2, 3)),
    terminate_program(),
]
"""`test_client_faults_on_fakes.py` shows their effects."""
OF_CREDENTIALS: list[Fault] = [
    rotate_credentials("alice"),
    rotate_credentials("alice", password="other", close=False, seconds=1),
    revoke_acl("alice", "WRITE", "orders"),
    revoke_acl("alice", "READ", group="billing", seconds=(1, 2)),
    expire_certificate(),
    expire_certificate(leader("orders", 0), close=False),
    rotate_certificate(),
    rotate_certificate(one, ca="new", seconds=1),
    refuse_reauthentication("alice"),
    refuse_reauthentication("alice", first_logins=False),
    expire_token("alice", seconds=2),
]
"""`test_credential_faults_on_fakes.py` shows their effects."""
ALL = AT_ONCE + OF_DEPENDENCIES + WAITING
EVERY = ALL + OF_SEVERAL_STEPS + OF_CLIENTS + OF_CREDENTIALS


def fire(system: FakeSystem, fault: Fault) -> None:
    """Do what a broker does when its code or its traffic reaches the rule."""
    action = getattr(fault, "action", "")
    if action == "crash":
        system.brokers[1].kill()
    elif action == "stop":
        system.brokers[1].pause()
    else:
        system.brokers[1].own_rules.armed[0].fire()


@pytest.mark.parametrize("fault", ALL, ids=str)
def test_fault_takes_effect_and_is_healed(fault: Fault) -> None:
    system = FakeSystem()
    injection = fault.resolve(take_snapshot(system), random.Random(3))
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
def test_fault_that_did_nothing_proves_nothing_and_heals(fault: Fault) -> None:
    system = FakeSystem()
    injection = fault.resolve(take_snapshot(system), random.Random(3))
    assert not fault.probe(system, injection).proved
    fault.heal(system, injection)
    assert system.undisturbed()


def unnoticed(process: object) -> None:
    """A signal that has no effect on a process yet."""


@pytest.mark.parametrize("fault", [kill(one), terminate(one)], ids=str)
def test_a_broker_that_has_not_ended_yet_when_its_fault_is_healed_is_started_later(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = FakeSystem()
    injection = fault.resolve(take_snapshot(system), random.Random(3))
    (broker,) = (system.brokers[node] for node in injection.nodes)
    with monkeypatch.context() as signals:  # a signal is sent, and the process still runs
        signals.setattr(type(broker), "kill", unnoticed)
        signals.setattr(type(broker), "terminate", unnoticed)
        fault.inject(system, injection)
        fault.heal(system, injection)
        assert not fault.probe_healed(system, injection).proved
    broker.kill()
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert system.undisturbed()


def test_a_broker_that_is_not_paused_yet_when_its_fault_is_healed_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeSystem()
    fault = pause(one)
    injection = fault.resolve(take_snapshot(system), random.Random(3))
    (broker,) = (system.brokers[node] for node in injection.nodes)
    monkeypatch.setattr(type(broker), "pause", unnoticed)
    fault.inject(system, injection)
    fault.heal(system, injection)
    assert broker.actions == ["resume"]


def test_rules_that_hold_no_bytes_prove_no_effect() -> None:
    system = FakeSystem()
    for broker in system.brokers.values():
        broker.own_links.state.held = broker.own_links.state.delayed = 0
    fault = isolate(one)
    injection = fault.resolve(take_snapshot(system), random.Random(3))
    fault.inject(system, injection)
    assert not fault.probe(system, injection).proved


def peers(system: FakeSystem, fault: Fault, seed: int = 3) -> list[str]:
    """The peers that the rules of broker 2 name."""
    injection = fault.resolve(take_snapshot(system), random.Random(seed))
    fault.inject(system, injection)
    found = [rule["peers"] for rule in system.brokers[2].own_links.state.rules]
    fault.heal(system, injection)
    return found


def test_isolation_names_every_peer_and_clients_by_choice() -> None:
    system = FakeSystem()
    assert peers(system, isolate(2)) == ["broker 1", "broker 3", "registry"]
    assert peers(system, isolate(2, clients=True))[-1] == "client *"
    assert peers(system, slow_link(2, delay_ms=70)) == ["broker 1", "broker 3", "registry"]


def test_the_seed_draws_a_single_peer_that_is_not_the_broker_itself() -> None:
    drawn = [peers(FakeSystem(), cut(2, peers="any"), seed) for seed in range(40)]
    assert {tuple(names) for names in drawn} == {("broker 1",), ("broker 3",), ("registry",)}


def test_the_seed_draws_a_cuts_direction_and_a_slow_links_delay() -> None:
    system = FakeSystem()
    snapshot = take_snapshot(system)
    ways = {cut(2).resolve(snapshot, random.Random(n)).details["direction"] for n in range(20)}
    assert ways == {"in", "out"}
    for way in ways:
        injection = cut(2, direction=way).resolve(snapshot, random.Random(1))
        injection.fault.inject(system, injection)
        assert {rule["direction"] for rule in system.brokers[2].own_links.state.rules} == {way}
        injection.fault.heal(system, injection)
    late = [slow_link(2).resolve(snapshot, random.Random(n)).details["delay_ms"] for n in range(40)]
    assert min(late) < 100 < 250 < max(late) <= 300
    injection = slow_link(2, delay_ms=70).resolve(snapshot, random.Random(1))
    injection.fault.inject(system, injection)
    assert {rule["delay_ms"] for rule in system.brokers[2].own_links.state.rules} == {70}


def test_slow_link_without_traffic_proves_no_effect() -> None:
    system = FakeSystem()
    for broker in system.brokers.values():
        broker.own_links.state.held = broker.own_links.state.delayed = 0
    injection = slow_link(one).resolve(take_snapshot(system), random.Random(3))
    injection.fault.inject(system, injection)
    assert not injection.fault.probe(system, injection).proved


def test_registry_faults_name_no_broker_and_other_faults_refuse_the_registry() -> None:
    system = FakeSystem()
    snapshot = take_snapshot(system)
    injection = pause_registry(seconds=2).resolve(snapshot, random.Random(1))
    assert (injection.nodes, injection.duration_ms) == ((), 2000)
    assert str(pause_registry(seconds=2)) == "pause_registry(seconds=2)"
    with pytest.raises(ConfigError, match=r"terminate\(registry\(\)\): the registry can be the target"):
        terminate(registry())


def test_kill_pause_and_isolate_of_the_registry_are_the_faults_of_the_registry() -> None:
    assert kill(registry(), seconds=1) == restart_registry(seconds=1)
    assert pause(registry(), seconds=1) == pause_registry(seconds=1)
    fault = isolate(registry(), seconds=1)
    assert str(fault) == "isolate(all_brokers, seconds=1, peers='registry')"
    injection = fault.resolve(take_snapshot(FakeSystem()), random.Random(3))
    assert injection.nodes == (1, 2, 3)


@pytest.mark.parametrize("fault", [restart_registry(), pause_registry()], ids=str)
def test_a_cluster_on_zookeeper_lacks_the_registry_and_the_error_says_what_to_do(fault: Fault) -> None:
    system = FakeSystem()
    remove_part(system, System.registry)
    with pytest.raises(CapabilityError, match=r"leave zookeeper\.connect empty"):
        check_capabilities(system, fault, fault.capabilities())


def test_brokers_without_sessions_at_a_registry_have_no_link_to_one() -> None:
    system = FakeSystem()
    remove_part(system, System.registry)
    for broker in system.brokers.values():
        broker.own_links.peers -= {PeerKind.REGISTRY}
    fault = isolate(leader("orders", 0))
    assert isinstance(fault, LinkFault)
    injection = fault.resolve(take_snapshot(system), random.Random(3))
    assert fault.peers_of(system, injection, 1) == ["broker 2", "broker 3"]
    single = cut(leader("orders", 0), peers="any")
    assert isinstance(single, LinkFault)
    for seed in range(30):
        injection = single.resolve(take_snapshot(system), random.Random(seed))
        assert single.peers_of(system, injection, 1)[0] in ("broker 2", "broker 3")


def test_each_fault_needs_only_capabilities_that_have_a_remedy() -> None:
    assert set().union(*(fault.capabilities() for fault in EVERY)) == set(CAPABILITIES)


def test_fault_layer_uses_no_process_and_no_file_of_another_process() -> None:
    words = re.compile(r"/proc|\bpid\b.*=|SIG[A-Z]+\)|import (os|signal|subprocess)|\.sock\b|tap\.bin")
    for path in Path(faults.__file__).parent.glob("*.py"):
        code = "\n".join(line for line in path.read_text().splitlines() if not line.strip().startswith('"""'))
        assert not words.search(code), path


def test_pauses_straddle_the_session_timeout() -> None:
    system = FakeSystem()
    snapshot = take_snapshot(system)
    drawn = [pause(one).resolve(snapshot, random.Random(seed)).duration_ms for seed in range(40)]
    timeout_ms = snapshot.session_timeout_ms
    assert min(drawn) < timeout_ms < max(drawn)
    assert pause(one, seconds=2).resolve(snapshot, random.Random(1)).duration_ms == 2000
    bounds = [pause(one, seconds=(0.5, 4)).resolve(snapshot, random.Random(s)).duration_ms for s in range(40)]
    assert all(500 <= ms <= 4000 for ms in bounds)


@pytest.mark.parametrize("fault", EVERY, ids=str)
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
        (lambda: slow_link(one, delay_ms=(300, 50)), "least, most"),
        (lambda: slow_link(one, delay_ms=0), "from 1 to"),
        (lambda: fault_from_json({"name": "pause_registry", "target": {"role": "one"}}), "only the registry"),
        (lambda: lose_response("Prodduce"), "no such API"),
        (lambda: lose_response(nth=0), "from 1 up"),
        (lambda: refuse_request(error="NOT_ENOUGH"), "did you mean NOT_ENOUGH_REPLICAS"),
        (lambda: refuse_request("Prodduce"), "no such API"),
        (lambda: delay_request(delay_ms=0), r"delay_request\(delay_ms=0\): expected milliseconds"),
        (lambda: duplicate_request(nth=0), "from 1 up"),
        (lambda: throttle(one, bytes_per_s=(9, 1)), "expected bytes a second, or a .least, most. pair"),
        (lambda: failpoint("log.after-apend", one), "did you mean log.after-append"),
        (lambda: failpoint("log.after-append", one, "explode"), "crash, stop, delay, error"),
        (lambda: failpoint("recovery.before-log", one), r"write failpoint_at_start\('recovery"),
        (lambda: failpoint_at_start("recovery.befor-log", one), "did you mean recovery.before-log"),
        (lambda: failpoint_at_start(None, one, "stop", times=2), "for a crash a number up to 10"),
        (lambda: fault_from_json({"name": "kil", "target": {"role": "one"}}), "did you mean kill"),
        (lambda: fault_from_json({"name": "kill", "target": {"role": "one"}, "second": 1}), "did you mean seconds"),
        (lambda: fault_from_json({"name": "kill"}), "no target"),
        (lambda: move_leader(""), "expected a topic"),
        (lambda: jump_clock(one, by_s=0), "seconds other than 0"),
        (lambda: skew_clock(one, rate=-1), "from 0 to 100"),
        (lambda: strobe_clock(one, period_ms=0), "from 1 to"),
        (lambda: damage_disk("rust", one), "expected one of bit-flip"),
        (lambda: throttle_cpu(one, share=1), "a share between 0 and 1"),
        (lambda: halves(registry_side="left"), "larger, smaller, both"),
        (lambda: bridge(heals_by="magic"), "deliver or reset"),
        (lambda: crash_loop(one, alive_s=(2, 1)), "least, most"),
        (lambda: crash_during_recovery(one, crashes=0), "from 1 to 20"),
        (lambda: fault_from_json({"name": "disconnect", "target": {"role": "one"}, "peer": "x"}), "peer: expected"),
        (lambda: fault_from_json({"name": "halves", "target": {"role": "one"}}), "about all brokers"),
        (lambda: fault_from_json({"name": "slow", "target": {"role": "one"}}), "now called 'slow_link'"),
        (lambda: fault_from_json({"name": "slow_link", "target": {"role": "one"}, "ms": 9}), "now called 'delay_ms'"),
        (lambda: fault_from_json({"name": "power_loss", "target": {"role": "one"}, "keep": 0}), "now called 'kept_fr"),
        (lambda: fault_from_json({"name": "restart", "target": {"role": "one"}, "hard": True}), "now called 'kill'"),
        (lambda: fault_from_json({"name": "disk_error", "target": {"role": "one"}, "operation": "name"}), "'rename'"),
        (lambda: fault_from_json({"name": "kill", "target": {"role": "boss"}}), "role 'boss'"),
        (lambda: hijack_transactional_id(""), "transactional_id=''.: expected a name"),
        (lambda: rebalance_storm("billing", every_s=(2, 1)), "least, most"),
        (lambda: isolate_client("orders-*", heals_by="magic"), "deliver or reset"),
        (lambda: kill_program(before="OffsetCommit", after="Produce"), "expected one of both"),
        (lambda: kill_program(before="OffsetComit"), "no such API"),
        (lambda: kill_program(nth=3), "name a request too"),
        (lambda: fault_from_json({"name": "stuck_consumer", "target": {"role": "one"}, "group": "g"}), "no target"),
    ],
)
def test_bad_arguments_are_refused_with_what_would_fit(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=words):
        make()


def test_a_power_loss_is_drawn_by_the_seed_and_replayed_as_it_was() -> None:
    system = FakeSystem()
    snapshot = take_snapshot(system)
    drawn = [power_loss(2).resolve(snapshot, random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0].details == drawn[1].details != drawn[2].details
    drawn[0].fault.inject(system, drawn[0])
    assert system.brokers[2].own_disk.changes == [DiskPowerLoss(seed=f"{drawn[0].details['seed']}/2")]


@pytest.mark.parametrize(
    "make",
    [
        lambda: power_loss(one, kept_fraction=1.5),
        lambda: disk_error("fsync", one),
        lambda: disk_error("sync", one, error="EPIPE"),
        lambda: disk_error("sync", one, error=""),
        lambda: disk_error("sync", one, nth=0),
    ],
)
def test_disk_faults_that_no_disk_has_are_refused(make: Callable[[], Fault]) -> None:
    with pytest.raises(ConfigError):
        make()
