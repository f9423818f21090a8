"""The run folder is described once: `log.dirs` of any names is judged, and a real cluster writes what is read (J5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster import Cluster, broker_folder
from harrow.cluster.host.seam import TappedGroup
from harrow.cluster.tap.recorder import FileTap
from harrow.harness import run_folder
from harrow.harness.checks import judge
from harrow.harness.checks.verdict import Status
from harrow.harness.histories.group_states import GroupsAtTheEnd, write_groups
from judged_runs import TOPIC, RunFolder, record_batch
from manual_host import ManualHost

NODES: tuple[int, ...] = (1, 2, 3)


def run_with(tmp_path: Path, data: dict[int, str], log_dirs: dict[int, list[str]]) -> RunFolder:
    """A sound run of one record, its logs in the folders `data` of the brokers."""
    run = RunFolder(tmp_path / "run")
    run.send("a", 0)
    run.final({0: "a"})
    for node in NODES:
        run.log(node, record_batch(["a"]), data=data[node])
    run_folder.write_run(run.folder, seed=1, brokers=3, config={}, log_dirs=log_dirs, started_ns=0)
    return run


@pytest.mark.parametrize(
    ("data", "log_dirs"),
    [
        (["data", "data", "data"], []),
        (["disk", "disk", "disk"], ["disk"]),
        (["disk1", "disk2", "disk1"], ["disk1", "disk2"]),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_logs_are_found_where_log_dirs_says(tmp_path: Path, data: list[str], log_dirs: list[str], named: bool) -> None:
    folders = dict(zip(NODES, data, strict=True))
    run = run_with(tmp_path, folders, dict.fromkeys(NODES, log_dirs))
    replicas = {(TOPIC, 0): NODES} if named else None
    verdict = judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine="inline", replicas=replicas)
    assert verdict.status is Status.VALID, verdict
    assert verdict.operation_counts["replica_logs"] == 3


def test_an_absolute_data_folder_is_judged_too(tmp_path: Path) -> None:
    places = {node: str(tmp_path / f"elsewhere-{node}") for node in NODES}
    run = run_with(tmp_path, places, {node: [place] for node, place in places.items()})
    verdict = judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine="inline")
    assert (verdict.status, verdict.operation_counts["replica_logs"]) == (Status.VALID, 3)


def test_a_replica_that_no_data_folder_holds_is_unknown(tmp_path: Path) -> None:
    run = run_with(tmp_path, dict.fromkeys(NODES, "disk"), {})
    verdict = judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine="inline", replicas={(TOPIC, 0): NODES})
    assert verdict.status is Status.UNKNOWN
    assert "does not exist" in verdict.reasons[0]


def test_a_run_file_of_another_schema_is_passed_over(tmp_path: Path) -> None:
    assert run_folder.read_run(tmp_path) == {}
    (tmp_path / run_folder.RUN).write_text('{"schema_version": 99, "log_dirs": {}}')
    assert run_folder.read_run(tmp_path) == {}


def test_names_of_schedules_and_brokers_go_both_ways(tmp_path: Path) -> None:
    names = [run_folder.schedule_name(block) for block in (1, 2, 3)]
    assert names == ["schedule.json", "schedule-2.json", "schedule-3.json"]
    for name in names:
        (tmp_path / name).touch()
    assert {path.name for path in run_folder.schedule_files(tmp_path)} == set(names)
    for node in (10, 2):
        (tmp_path / broker_folder.broker_name(node)).mkdir()
    folders = broker_folder.broker_folders(tmp_path)
    assert [broker_folder.node_id_of(folder) for folder in folders] == [2, 10]


def test_a_cluster_writes_the_files_that_its_description_names(tmp_path: Path) -> None:
    with Cluster(
        brokers=1, folder=tmp_path / "cluster", config={"log.dirs": "one, two", "harrow.tap": True}
    ) as cluster:
        assert cluster.log_dirs() == {1: ["one", "two"]}
        [folder] = broker_folder.broker_folders(cluster.folder)
        names = {path.name for path in folder.iterdir()}
        described = {
            broker_folder.TRACE,
            broker_folder.LOG,
            broker_folder.TAP,
            broker_folder.TAP_NAMES,
            broker_folder.CONTROL_SOCKET,
            broker_folder.STDOUT,
        }
        assert described <= names
        assert {"one", "two"} <= names
        run_folder.write_run(tmp_path, seed=0, brokers=1, config={}, log_dirs=cluster.log_dirs(), started_ns=0)
        found = run_folder.replica_folders(tmp_path)
        assert found == {1: [folder / "one", folder / "two"]}
        assert run_folder.trace_files(tmp_path) == [folder / broker_folder.TRACE]
        assert run_folder.tap_files(cluster.folder) == [folder / broker_folder.TAP]


@pytest.mark.parametrize(("guarantee", "status"), [("no-loss", Status.INVALID), ("at-most-once", Status.VALID)])
def test_a_stuck_group_is_an_anomaly_of_the_run(tmp_path: Path, guarantee: str, status: Status) -> None:
    run = run_with(tmp_path, dict.fromkeys(NODES, "data"), {})
    host = ManualHost()
    tap = FileTap(str(run.folder / run_folder.CLUSTER / "broker-2"), host.clock)
    for state, members in (("Stable", 1), ("PreparingRebalance", 2)):
        tap.group("billing", TappedGroup(state, 1, members, 10_000), partition=7, leader_epoch=5)
        host.advance(1_000)
    tap.close()
    host.advance(60_000)
    asked_ns = host.clock.monotonic_ns()
    write_groups(run.folder, GroupsAtTheEnd(asked_ns=asked_ns, states={"billing": "PreparingRebalance"}))
    verdict = judge(run.done(), topics=[TOPIC], guarantee=guarantee, engine="inline")
    assert (verdict.status, verdict.anomaly_counts) == (status, {"stuck-group": 1})
    (anomaly,) = verdict.anomalies
    assert anomaly.operations[-1]["group"] == "billing"
    assert [row["state"] for row in anomaly.operations] == ["Stable", "PreparingRebalance"]
    assert "before, it was Stable with 1 member" in verdict.causes["stuck-group"][0]
    assert "1 consumer group is in a rebalance that does not end (stuck-group)" in str(verdict)


def test_a_group_whose_coordinator_has_no_tap_leaves_a_doubt(tmp_path: Path) -> None:
    run = run_with(tmp_path, dict.fromkeys(NODES, "data"), {})
    write_groups(run.folder, GroupsAtTheEnd(asked_ns=1, states={"billing": "Reconciling"}))
    verdict = judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine="inline")
    assert verdict.status is Status.UNKNOWN
    assert "no tap of a coordinator" in verdict.reasons[0]
    allowed = judge(run.done(), topics=[TOPIC], guarantee="at-most-once", engine="inline")
    assert allowed.status is Status.VALID
    assert any("no tap of a coordinator" in note for note in allowed.notes)
