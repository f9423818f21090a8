"""DescribeLogDirs and AlterReplicaLogDirs: data folders, the partitions in them, and an offline folder (B13)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, StorageError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.storage.log_folder import LogFolder
from harrow.cluster.wire.client_requests import client_request

from .simulation import Simulation

ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35
ORDERS = [TopicPartition("orders", number) for number in range(2)]


def described(sim: Simulation, *requested: tuple[str, tuple[int, ...]], version: int = 4) -> Any:
    """Return broker 1's only data folder with the requested partitions, or with all partitions if none is named."""
    rows = [{"topic": name, "partitions": numbers} for name, numbers in requested] or None
    (folder,) = sim.call(1, *client_request(DESCRIBE_LOG_DIRS, version, topics=rows)).results
    return folder


def sizes(folder: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.partition_size for topic in folder.topics for row in topic.partitions
    }


@pytest.fixture
def sim() -> Simulation:
    simulation = Simulation(3, seed=1)
    for tp in ORDERS:
        simulation.create(tp, [1, 2, 3])
    simulation.loop.run_for(50)
    simulation.produce(1, ORDERS[1], [b"x" * 100])
    simulation.loop.run_for(500)
    return simulation


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_describe_log_dirs_returns_every_partition_with_its_size(sim: Simulation, version: int) -> None:
    folder = described(sim, version=version)
    assert (folder.error_code, folder.log_dir) == (ErrorCode.none, sim.brokers[1].logs.folders[0].path)
    assert sizes(folder) == {("orders", 0): 0, ("orders", 1): sim.partition(1, ORDERS[1]).log.size}
    assert all((r.offset_lag, r.is_future_key) == (0, False) for r in folder.topics[0].partitions)


def test_describe_log_dirs_returns_only_requested_partitions_of_this_broker(sim: Simulation) -> None:
    folder = described(sim, ("orders", (1, 7)), ("nothing", (0,)))
    assert list(sizes(folder)) == [("orders", 1)]


def test_describe_log_dirs_returns_the_lag_behind_the_high_watermark(sim: Simulation) -> None:
    sim.partition(1, ORDERS[0]).high_watermark = 5
    (row,) = described(sim, ("orders", (0,))).topics[0].partitions
    assert row.offset_lag == 5


def test_describe_log_dirs_reports_an_offline_folder(sim: Simulation) -> None:
    logs = sim.brokers[1].logs
    logs.folders[0].failed = StorageError("the disk failed")
    folder = described(sim)
    assert folder.error_code is ErrorCode.kafka_storage_error
    assert (folder.log_dir, folder.topics) == (logs.folders[0].path, ())


def test_alter_replica_log_dirs_keeps_replicas_and_refuses_folders_that_cannot_be_used(sim: Simulation) -> None:
    logs = sim.brokers[1].logs
    folder = logs.folders[0]
    other = LogFolder(sim.brokers[1].host, f"{folder.path}-2")

    def altered(path: str, name: str = "orders") -> ErrorCode:
        dirs = [{"path": path, "topics": [{"name": name, "partitions": [0]}]}]
        (result,) = sim.call(1, *client_request(ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)).results
        return ErrorCode(result.partitions[0].error_code)

    assert altered(folder.path) is ErrorCode.none
    assert altered("/nowhere") is ErrorCode.log_dir_not_found
    assert altered(folder.path, "nothing") is ErrorCode.unknown_topic_or_partition
    logs.folders.append(other)
    assert altered(other.path) is ErrorCode.invalid_request, "logs are not moved"
    other.failed = StorageError("the disk failed")
    assert altered(other.path) is ErrorCode.kafka_storage_error
