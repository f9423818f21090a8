"""Whole clusters on a virtual clock: the same brokers, one trace a seed, verdicts that can fail (C1-C8, D1-D6).

`tests/schedules/` holds schedules that once found something, each with a note of what; they are replayed here.
Their seeds were drawn by an earlier plan, so that only the files repeat them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harrow.cluster.errors import ConfigError, CorruptLogError
from harrow.cluster.events import TraceEvent
from harrow.cluster.events.controllers import ControllerElected
from harrow.cluster.events.partitions import IsrExpansionProposed, PartitionLeader
from harrow.cluster.events.processes import TaskFailed
from harrow.cluster.ids import TopicPartition
from harrow.cluster.simulation import SimulatedCluster
from harrow.faults import Schedule, disk_error
from harrow.faults.errors import CapabilityError
from harrow.faults.system import check_capabilities
from harrow.harness.backends.simulated.system import SimulatedSystem
from harrow.harness.checks.guarantees import ALL_ANOMALIES, GUARANTEE_OF_SIMULATIONS, SIMULATED
from harrow.harness.commands.simulate import command
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.memory import MemoryHistory, hash_of
from harrow.harness.run_settings import RunSettings
from harrow.harness.simulation import SimulationOptions, SimulationResult, plan_seed, run_schedule, run_seed
from harrow.harness.simulation.checks import check_trace, judge_partition, log_rows, read_finally
from harrow.harness.simulation.workload import SimulatedWorkload
from judged_runs import record_batch
from long_runs import some

SHORT = SimulationOptions(seconds=4.0, batches=45)
TP = TopicPartition("orders", 0)
SCHEDULES = sorted((Path(__file__).parents[1] / "schedules").glob("*.json"))


def names(result: SimulationResult) -> set[str]:
    return {name for name, _ in result.anomalies}


# --- one seed, one trace


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    script = (
        "from harrow.harness.simulation import SimulationOptions, run_seed\n"
        "print(hash('salt'))\n"
        "for power in (False, True):\n"
        "    options = SimulationOptions(seconds=4.0, batches=45, power_loss=power)\n"
        "    print(run_seed(3, options, keep_trace=True).trace)\n"
    )
    salts = (salt for salt in ("1", "2") if salt != os.environ.get("PYTHONHASHSEED"))
    child = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONHASHSEED": next(salts)},
    ).stdout.decode()
    salted, _, there = child.partition("\n")
    assert int(salted) != hash("salt")
    here = [run_seed(3, replace(SHORT, power_loss=power), keep_trace=True).trace for power in (False, True)]
    assert len(here[0]) > 10_000
    assert here[0] != here[1]
    assert "".join(f"{trace}\n" for trace in here) == there


@pytest.mark.parametrize("seed", some((1, 2, 3, 5, 8, 13), suite=2))
@pytest.mark.parametrize("power_loss", [False, True])
def test_the_recorded_schedule_repeats_a_run_byte_for_byte(seed: int, power_loss: bool) -> None:
    first = run_seed(seed, replace(SHORT, power_loss=power_loss))
    recorded = Schedule.from_json(first.schedule.to_json())
    assert all(step.nodes is not None for step in recorded.steps)
    # nothing is drawn any more: another seed of the nemesis changes nothing
    again = run_schedule(replace(recorded, seed=recorded.seed + 1))
    assert again.trace_sha256 == first.trace_sha256
    assert again.fault_rows == tuple(row for row in first.fault_rows if row["event"] != "skipped")


# --- verdicts


@pytest.mark.parametrize("seed", some((1, 2, 3, 4), suite=2))
def test_nothing_acknowledged_is_lost_under_random_faults(seed: int) -> None:
    result = run_seed(seed, SHORT)
    assert result.status == "valid", (result.anomalies, result.reasons)
    assert result.acknowledged > 50
    assert len(result.faults) > 0
    assert result.converged_ms >= 0


@pytest.mark.parametrize("path", some(SCHEDULES, suite=6), ids=lambda path: path.stem)
def test_stored_schedules_are_valid(path: Path) -> None:
    schedule = Schedule.from_json(path.read_text(encoding="utf-8"))
    result = run_schedule(schedule)
    assert result.status == "valid", (schedule.notes["found"], result.anomalies, result.reasons)
    assert len(result.schedule.steps) == len(schedule.steps)
    assert len(result.faults) > len(schedule.steps) * 3 / 4


def test_power_losses_lose_nothing_that_was_synced() -> None:
    result = run_seed(2, replace(SHORT, power_loss=True, weights={"kill": 1, "pause": 1}))
    assert result.status == "valid", (result.anomalies, result.reasons)
    assert result.kinds["power_loss"] > 0


def first_found(options: SimulationOptions, seeds: range) -> SimulationResult | None:
    """The first seed that lost something."""
    results = (run_seed(seed, options) for seed in seeds)
    return next((result for result in results if "lost-write" in names(result)), None)


def test_acks_1_is_found_to_lose_records() -> None:
    found = first_found(SimulationOptions(acks=1, weights={"isolate": 3, "kill": 2}), range(12))
    assert found is not None
    assert found.status == "invalid"


def test_unclean_elections_are_found_to_lose_records() -> None:
    promise_less = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    options = SimulationOptions(
        config={"replica.lag.time.max.ms": 400},
        topic_config=promise_less,
        weights={"kill": 4, "pause": 3, "isolate": 3, "cut": 3},
    )
    assert first_found(options, range(8, 30)) is not None


def test_power_losses_without_fsync_are_found_to_lose_records() -> None:
    careless = SimulationOptions(power_loss=True, config={"log.flush.interval.messages": 1 << 40}, weights={"pause": 2})
    assert first_found(careless, range(100, 125)) is not None


WEAK = SimulationOptions(weights={"kill": 4, "pause": 2, "kill_all": 3})


@pytest.mark.parametrize(
    "options",
    [
        replace(WEAK, config={"harrow.replica.truncation": "high-watermark"}),
        replace(WEAK, plants=["harrow.faults.zoo.kip_101"]),
    ],
    ids=["setting", "plant"],
)
def test_truncation_to_the_high_watermark_is_found_to_lose_records(options: SimulationOptions) -> None:
    """KIP-101's bug: a follower that truncates to its high watermark loses what was acknowledged."""
    found = first_found(options, range(40))
    assert found is not None
    assert len(found.planted) == len(options.plants)
    assert run_schedule(found.schedule).trace_sha256 == found.trace_sha256


def test_seed_without_faults_is_unknown() -> None:
    result = run_seed(1, SimulationOptions(seconds=1.0, batches=0))
    assert (result.status, result.acknowledged, result.anomalies) == ("unknown", 0, ())
    assert result.reasons


# --- the checks, by hand


KEY_HASH = hash_of(b"k")
"""Of the key of every record of `record_batch`."""


class Sent:
    """A history of one producer, by hand, and one log on three replicas."""

    def __init__(self) -> None:
        self.recorded, self.drained = MemoryHistory(), MemoryHistory(drained=True)

    def send(self, value: str, offset: int) -> None:
        row = self.recorded.name("producer"), self.recorded.name("orders"), 0
        op, digest = self.recorded.next_op(), hash_of(value.encode())
        self.recorded.append(
            OperationFunction.SEND, OperationType.INVOKE, *row, -1, op, key_hash=KEY_HASH, value_hash=digest
        )
        self.recorded.append(
            OperationFunction.SEND, OperationType.OK, *row, offset, op, key_hash=KEY_HASH, value_hash=digest
        )

    def read(self, value: str, offset: int) -> None:
        self.recorded.append(
            OperationFunction.POLL,
            OperationType.OK,
            self.recorded.name("reader"),
            self.recorded.name("orders"),
            0,
            offset,
            self.recorded.next_op(),
            key_hash=KEY_HASH,
            value_hash=hash_of(value.encode()),
        )

    def found(self, log: dict[int, str], other: dict[int, str] | None = None) -> set[str]:
        """Names of what is wrong when the leader's log holds this (and one replica's another)."""
        data, bad = (
            b"".join(record_batch([value], base_offset=at) for at, value in rows.items())
            for rows in (log, log if other is None else other)
        )
        read_finally(self.drained, TP, data, 0, max(log) + 1)
        rows = log_rows(data, "log")
        logs = {1: rows, 2: rows, 3: log_rows(bad, "log")}
        judged = judge_partition(TP, self.recorded, self.drained, logs, GUARANTEE_OF_SIMULATIONS)
        return {name for name, _ in judged}


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ({0: "a", 1: "b", 2: "c"}, None),
        ({0: "a", 1: "b"}, "lost-write"),
        ({0: "a", 1: "b", 2: "x"}, "lost-write"),
        ({0: "a", 1: "b", 2: "c", 3: "b"}, "duplicate"),
        ({0: "a", 1: "b", 2: "c", 3: "x"}, "unexpected"),
    ],
)
def test_each_anomaly_of_a_log_has_its_name(log: dict[int, str], name: str | None) -> None:
    sent = Sent()
    for offset, value in enumerate("abc"):
        sent.send(value, offset)
    found = sent.found(log)
    assert (name in found) if name else not found


def test_the_order_of_sends_and_reads_and_the_equality_of_replicas_are_checked() -> None:
    log = {0: "a", 1: "b", 2: "c"}
    swapped = Sent()
    for value, offset in (("a", 0), ("c", 2), ("b", 1)):
        swapped.send(value, offset)
    assert swapped.found(log) == {"nonmonotonic-send"}
    back = Sent()
    for offset, value in log.items():
        back.send(value, offset)
        back.read(value, offset)
    assert back.found(log) == set()
    again = Sent()
    for offset, value in log.items():
        again.send(value, offset)
    for value, offset in (("b", 1), ("a", 0)):
        again.read(value, offset)
    assert again.found(log) == {"nonmonotonic-poll"}
    different = Sent()
    for offset, value in log.items():
        different.send(value, offset)
    assert "replica-divergence" in different.found(log, {**log, 1: "x"})


@pytest.mark.parametrize(
    ("events", "name"),
    [
        (
            [PartitionLeader(topic="orders", partition=0, leader=node, leader_epoch=4, isr=(1, 2)) for node in (1, 2)],
            "two-leaders",
        ),
        ([ControllerElected(epoch=4)] * 2, "two-controllers"),
        (
            [
                IsrExpansionProposed(
                    topic="orders", partition=0, leader=1, leader_epoch=4, isr=(1, 3), added=3, live=(1, 2)
                )
            ],
            "fenced-in-isr",
        ),
    ],
)
def test_what_the_trace_says_of_elections_and_isrs_is_found(events: list[TraceEvent], name: str) -> None:
    with SimulatedCluster(brokers=3, seed=1) as cluster:
        trace = cluster.world.trace
        for number, event in enumerate([events[0], *events]):
            trace.write(1, f"broker-{max(number, 1)}", event)
        assert [found for found, _ in check_trace(trace, "orders")] == [name]
        trace.write(2, "broker-1", TaskFailed(name="t", error="e"))
        assert {found for found, _ in check_trace(trace, "orders")} == {name, "task-failed"}


def test_simulations_find_only_anomalies_of_the_vocabulary() -> None:
    folder = Path(run_schedule.__code__.co_filename).parent
    known = ALL_ANOMALIES | SIMULATED
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    assert {name for name in SIMULATED if f'"{name}"' in text} == SIMULATED
    found = {
        name
        for result in (
            run_seed(seed, SimulationOptions(acks=1, weights={"isolate": 3, "kill": 2})) for seed in range(6)
        )
        for name in names(result)
    }
    assert found
    assert found <= known


# --- the cluster by hand


def test_the_death_of_a_controller_elects_another_in_virtual_time() -> None:
    with SimulatedCluster(brokers=3, seed=2, config={"zookeeper.session.timeout.ms": 1_000}) as cluster:
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
def test_registry_outage_during_the_start_of_a_broker_only_delays_it(after_ms: int) -> None:
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
def test_leader_and_isr_request_is_applied_after_a_registry_outage(after_ms: int) -> None:
    with SimulatedCluster(brokers=3, seed=5) as cluster:
        cluster.start()
        SimulatedWorkload(cluster, RunSettings(brokers=3, partitions=3, topic_config={"min.insync.replicas": 2}))
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
        assert not [row for row in cluster.world.trace.events if isinstance(row.event, TaskFailed)]


def test_wrong_settings_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError):
        SimulatedCluster(config={"no.such.setting": 1})


def test_simulated_backend_refuses_missing_capabilities() -> None:
    with SimulatedCluster(brokers=3, seed=1) as cluster:
        assert "disk-delays" not in SimulatedSystem(cluster).capabilities
        check_capabilities(SimulatedSystem(cluster), "", disk_error("write", 1).capabilities())
        with pytest.raises(CapabilityError, match="delay_ms"):
            check_capabilities(SimulatedSystem(cluster), "", disk_error("write", 1, delay_ms=5).capabilities())


def test_a_schedule_that_needs_another_producer_is_refused() -> None:
    planned = plan_seed(1, SHORT)
    settings = replace(RunSettings.from_json(planned.run), idempotent=False)
    with pytest.raises(ConfigError, match="real processes"):
        run_schedule(replace(planned, run=settings.to_json()))
    with pytest.raises(ConfigError, match="does not say what it ran on"):
        run_schedule(Schedule())


def test_the_command_records_a_schedule_and_repeats_it(tmp_path: Path) -> None:
    runner, file = CliRunner(), tmp_path / "schedule.json"
    recorded = runner.invoke(command, ["--seconds", "2", "--replay", "3", "--record", str(file)])
    assert recorded.exit_code == 0, recorded.output
    again = runner.invoke(command, ["--schedule", str(file)])
    assert again.stdout == recorded.stdout
    both = runner.invoke(command, ["--schedule", str(file), "--replay", "3"])
    assert both.exit_code == 2


def test_the_command_replays_a_seed_and_keeps_a_ledger(tmp_path: Path) -> None:
    runner = CliRunner()
    arguments = ["--seconds", "1", "--replay", "3"]
    one, other = runner.invoke(command, arguments), runner.invoke(command, arguments)
    assert one.exit_code == 0
    assert one.stdout.startswith('{"t_ns":')
    assert one.stdout == other.stdout
    run = runner.invoke(
        command, ["--seconds", "1", "--seeds", "2", "--seed", "3", "--jobs", "1", "--out", str(tmp_path)]
    )
    assert run.exit_code == 0, run.output
    assert "2 simulated seeds" in run.output
    rows = [json.loads(line) for line in (tmp_path / "simulate" / "ledger.jsonl").read_text().splitlines()]
    assert sorted(row["seed"] for row in rows) == [3, 4]


def test_a_log_that_cannot_be_read_is_an_anomaly(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_cluster: SimulatedCluster, tp: TopicPartition) -> list[Any]:
        raise CorruptLogError(f"{tp}: no batch at byte 449: length 0")

    monkeypatch.setattr("harrow.harness.simulation.run.replicas_of", unreadable)
    result = run_seed(1, SimulationOptions(seconds=2.0, batches=10))
    assert result.status == "invalid"
    assert result.anomalies == (("corrupt-batch", "orders-0: no batch at byte 449: length 0"),)
