"""Whole clusters on a virtual clock: the same brokers, one trace a seed, verdicts that can fail (C1-C8, D1-D6).

Seeds in `FOUND` were once invalid; each names what it found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from harrow.cluster.errors import ConfigError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.simulation import SimulatedCluster
from harrow.harness.commands.simulate import command
from harrow.harness.simulation import Outcome, SimulationOptions, run_seed
from harrow.harness.simulation.checks import (
    check_delivered,
    check_lane,
    check_replicas,
    check_trace,
)
from harrow.harness.simulation.producer import Batch, Lane
from harrow.harness.simulation.scenario import Workload

SHORT = SimulationOptions(seconds=4.0, batches=45)
TP = TopicPartition("orders", 0)
FOUND = {
    30: "a LeaderAndIsr order was forgotten when the registry was away while it was carried out",
    241: "a broker that started while the registry was away ended",
    977: "a broker that was told to end while it waited to register again left a failed task",
    701: "a retry older than what a snapshot of producers remembers (Kafka's rule: not an anomaly)",
}


def names(outcome: Outcome) -> set[str]:
    return {name for name, _ in outcome.anomalies}


# --- one seed, one trace


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    script = (
        "from harrow.harness.simulation import SimulationOptions, run_seed\n"
        "print(hash('salt'))\n"
        "for power in (False, True):\n"
        "    options = SimulationOptions(seconds=4.0, batches=45, power=power, keep_trace=True)\n"
        "    print(run_seed(3, options).trace)\n"
    )
    salts = (salt for salt in ("1", "2") if salt != os.environ.get("PYTHONHASHSEED"))
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=120,
        env={**os.environ, "PYTHONHASHSEED": next(salts)},
    ).stdout.decode()  # fmt: skip
    salted, _, there = child.partition("\n")
    assert int(salted) != hash("salt")
    here = [
        run_seed(3, SimulationOptions(seconds=4.0, batches=45, power=power, keep_trace=True)).trace
        for power in (False, True)
    ]
    assert len(here[0]) > 10_000
    assert here[0] != here[1]
    assert "".join(f"{trace}\n" for trace in here) == there


# --- verdicts


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_nothing_acknowledged_is_lost_under_random_faults(seed: int) -> None:
    outcome = run_seed(seed, SHORT)
    assert outcome.status == "valid", outcome.anomalies
    assert outcome.acknowledged > 50
    assert len(outcome.faults) > 0
    assert outcome.converged_ms >= 0


@pytest.mark.parametrize("seed", list(FOUND))
def test_seeds_that_found_something_find_it_no_more(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.status == "valid", (FOUND[seed], outcome.anomalies)


def test_power_cuts_lose_nothing_that_was_synced() -> None:
    options = SimulationOptions(seconds=4.0, batches=45, power=True, faults={"kill": 1, "pause": 1})
    outcome = run_seed(1, options)
    assert outcome.status == "valid", outcome.anomalies
    assert any(fault.startswith("power") for fault in outcome.faults)


def first_found(options: SimulationOptions, seeds: range) -> Outcome | None:
    """The first seed that lost something."""
    outcomes = (run_seed(seed, options) for seed in seeds)
    return next((outcome for outcome in outcomes if "lost" in names(outcome)), None)


def test_acknowledgements_of_one_broker_are_found_out() -> None:
    found = first_found(SimulationOptions(acks=1, faults={"isolate": 3, "kill": 2}), range(12))
    assert found is not None
    assert found.status == "invalid"


def test_unclean_elections_are_found_out() -> None:
    promise_less = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    options = SimulationOptions(
        config={"replica.lag.time.max.ms": 400}, topic_config=promise_less,
        faults={"kill": 4, "pause": 3, "isolate": 3, "one-way": 3},
    )  # fmt: skip
    assert first_found(options, range(8, 30)) is not None


def test_power_cuts_of_brokers_that_do_not_sync_are_found_out() -> None:
    careless = SimulationOptions(
        power=True, config={"log.flush.interval.messages": 1 << 40}, faults={"pause": 2}
    )
    assert first_found(careless, range(100, 125)) is not None


def test_a_seed_in_which_nothing_happened_is_unknown() -> None:
    outcome = run_seed(1, SimulationOptions(seconds=1.0, batches=0))
    assert (outcome.status, outcome.acknowledged, outcome.anomalies) == ("unknown", 0, ())


# --- the checks, by hand


def lane(*batches: Batch) -> Lane:
    return Lane(tp=TP, acked=list(batches), next_sequence=9)


def acked(offset: int, *numbers: int) -> Batch:
    values = [b"0:%d" % number for number in numbers]
    return Batch(sequence=numbers[0], values=values, made_ms=0, base_offset=offset, acked_ms=1)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({0: b"0:0", 1: b"0:1", 2: b"0:2"}, None),
        ({0: b"0:0", 1: b"0:1"}, "lost"),
        ({0: b"0:0", 1: b"0:1", 3: b"0:2"}, "lost"),
        ({0: b"0:0", 1: b"0:1", 2: b"0:2", 3: b"0:1"}, "duplicated"),
        ({0: b"0:0", 2: b"0:2", 3: b"0:1"}, "reordered"),
        ({0: b"0:0", 1: b"0:1", 2: b"0:2", 3: b"0:77"}, "invented"),
    ],
)
def test_what_is_wrong_with_a_log_has_a_name(content: dict[int, bytes], name: str | None) -> None:
    found = {anomaly for anomaly, _ in check_lane(lane(acked(0, 0), acked(1, 1, 2)), content)}
    assert (name in found) if name else not found


def test_readers_replicas_and_leaders_are_checked() -> None:
    content = {0: b"a", 1: b"b"}
    assert not list(check_delivered(TP, [(0, b"a"), (1, b"b")], content))
    assert list(check_delivered(TP, [(0, b"x")], content))
    assert list(check_delivered(TP, [(1, b"b"), (0, b"a")], content))
    assert not list(check_replicas(TP, {1: b"same", 2: b"same"}))
    assert "from byte 3" in next(iter(check_replicas(TP, {1: b"same", 2: b"samX", 3: b"same"})))[1]
    with SimulatedCluster(brokers=3, seed=1) as cluster:
        trace = cluster.world.trace
        for host in ("broker-1", "broker-1", "broker-2"):
            trace.write(
                1, host, "partition.leader", {"topic": "t", "partition": 0, "leader_epoch": 4}
            )
        assert [name for name, _ in check_trace(trace)] == ["two-leaders"]


# --- the cluster by hand


def test_the_death_of_a_controller_elects_another_in_virtual_time() -> None:
    with SimulatedCluster(
        brokers=3, seed=2, config={"zookeeper.session.timeout.ms": 1_000}
    ) as cluster:
        cluster.start()
        first = cluster.controller_id()
        assert first is not None
        cluster.brokers[first].kill()
        assert cluster.brokers[first].state == "dead"
        began = cluster.world.loop.now_ms
        assert cluster.run_until(lambda: cluster.controller_id() not in (None, first), 5_000)
        assert 300 < cluster.world.loop.now_ms - began < 1_500
        cluster.brokers[first].begin()
        assert cluster.run_until(lambda: cluster.brokers[first].ready, 5_000)


def test_the_registry_keeps_what_it_committed_across_a_kill() -> None:
    with SimulatedCluster(brokers=3, seed=2) as cluster:
        cluster.start()
        epochs = {node: cluster.broker(node).replicas.broker_epoch for node in cluster.brokers}
        cluster.registry.kill()
        cluster.run_for(200)
        cluster.registry.begin()
        assert cluster.run_until(lambda: cluster.registry.ready, 1_000)
        cluster.run_for(2_000)
        assert {n: cluster.broker(n).replicas.broker_epoch for n in cluster.brokers} == epochs


@pytest.mark.parametrize("after_ms", [0, 2, 4, 6, 8])
def test_a_registry_that_goes_away_while_a_broker_starts_delays_it_and_no_more(
    after_ms: int,
) -> None:
    with SimulatedCluster(brokers=3, seed=4) as cluster:
        cluster.start()
        cluster.brokers[2].kill()
        cluster.run_for(50)
        cluster.brokers[2].begin()
        cluster.run_for(after_ms)
        cluster.registry.kill()
        cluster.run_for(1_000)
        cluster.registry.begin()
        assert cluster.run_until(lambda: cluster.brokers[2].ready, 5_000)


@pytest.mark.parametrize("after_ms", [0, 1, 2])
def test_an_order_to_host_a_replica_outlives_the_registrys_absence(after_ms: int) -> None:
    with SimulatedCluster(brokers=3, seed=5) as cluster:
        cluster.start()
        Workload(cluster, SimulationOptions(partitions=3))
        ordered = lambda: any("leader-and-isr" in line for line in cluster.world.trace.lines)  # noqa: E731
        assert cluster.world.loop.run_until(ordered, 2_000, every_ms=0.1)
        cluster.run_for(after_ms)
        cluster.registry.kill()
        cluster.run_for(300)
        cluster.registry.begin()
        hosted = lambda: [len(rows) for rows in cluster.states().values()] == [3, 3, 3]  # noqa: E731
        assert cluster.run_until(hosted, 5_000)


def test_a_controlled_shutdown_ends_in_time() -> None:
    with SimulatedCluster(brokers=3, seed=3) as cluster:
        cluster.start()
        cluster.brokers[2].terminate()
        assert cluster.run_until(lambda: cluster.brokers[2].state == "dead", 3_000)
        assert not [e for _, _, e, _ in cluster.world.trace.events if e == "task.failed"]


def test_wrong_settings_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError):
        SimulatedCluster(config={"no.such.setting": 1})


def test_the_command_replays_a_seed_and_keeps_a_ledger(tmp_path: Path) -> None:
    runner = CliRunner()
    arguments = ["--seconds", "1", "--replay", "3"]
    one, other = runner.invoke(command, arguments), runner.invoke(command, arguments)
    assert one.exit_code == 0
    assert one.stdout.startswith('{"t_ns":')
    assert one.stdout == other.stdout
    run = runner.invoke(
        command,
        ["--seconds", "1", "--seeds", "2", "--seed", "3", "--jobs", "1", "--out", str(tmp_path)],
    )
    assert run.exit_code == 0, run.output
    assert "2 simulated seeds" in run.output
    rows = [
        json.loads(line)
        for line in (tmp_path / "simulate" / "ledger.jsonl").read_text().splitlines()
    ]
    assert sorted(row["seed"] for row in rows) == [3, 4]
