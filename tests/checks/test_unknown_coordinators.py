"""Checks of transactions and groups are doubted, and not passed over, where a broker has no tap of its coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.harness.histories.coordinator_rows import FILES
from harrow.harness.histories.recordings import untapped_brokers
from harrow.harness.run_folder import CLUSTER, write_run
from transaction_histories import PartitionHistory


def tapped_run(folder: Path, brokers: int = 2) -> Path:
    for node in range(1, brokers + 1):
        place = folder / CLUSTER / f"broker-{node}"
        place.mkdir(parents=True)
        for name in FILES.values():
            (place / name).touch()
    log_dirs = {node: ["data"] for node in range(1, brokers + 1)}
    write_run(folder, seed=1, brokers=brokers, config={}, log_dirs=log_dirs, started_ns=1)
    return folder


@pytest.mark.parametrize("name", FILES.values())
def test_a_broker_without_one_of_its_files_is_named(tmp_path: Path, name: str) -> None:
    run = tapped_run(tmp_path)
    assert untapped_brokers(run) == []
    (run / CLUSTER / "broker-2" / name).unlink()
    assert untapped_brokers(run) == [2]


def test_a_broker_whose_folder_was_removed_is_named(tmp_path: Path) -> None:
    run = tapped_run(tmp_path)
    (run / CLUSTER / "broker-1").rename(tmp_path / "elsewhere")
    assert untapped_brokers(run) == [1]


def doubts(history: PartitionHistory, *untapped: int) -> set[str]:
    return {about for about, _ in history.found(untapped=untapped).doubts}


def test_what_a_partition_shows_decides_what_is_doubted() -> None:
    history = PartitionHistory()
    history.send(transactional=False)
    assert doubts(history, 2) == set()
    history.transaction()
    assert doubts(history) == set()
    assert doubts(history, 2) == {"torn-transaction"}
    history.owns(1)
    assert doubts(history, 2) == {"torn-transaction", "committed-offset-regression"}
    history.state(1)
    history.send()
    assert doubts(history, 2) >= {"stuck-transaction", "torn-transaction"}
