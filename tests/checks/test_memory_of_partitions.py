"""A partition that does not fit into the memory is a doubt with a remedy, and large ones are judged one by one (L7)."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest
from harrow.harness.checks.kernels import judge_partition, memory
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.histories.row_index import RowRange

ROWS = 10_000_000


def large(partition: int = 0) -> PartitionJob:
    return PartitionJob(topic="orders", partition=partition, ops=[RowRange("no-file", 0, ROWS)])


def test_a_partition_that_does_not_fit_is_a_doubt_that_names_it_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 800_000_000)
    (reason,) = judge_partition(large(3)).unknown
    assert reason == (
        "orders-3 was not judged: its 10,000,000 rows need about 0.9 GB of memory, and 0.8 GB are free; give the topic "
        "more partitions or fewer records, or call `harrow check` for the run's folder on a machine with more memory"
    )


def test_a_partition_that_fits_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 1_000_000_000)
    (reason,) = judge_partition(large()).unknown
    assert "FileNotFoundError" in reason


def test_a_small_partition_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: pytest.fail("measured"))
    with memory.room_for(PartitionJob(topic="orders", partition=0, ops=[RowRange("no-file", 0, 1000)])):
        pass


def test_two_partitions_that_do_not_fit_together_are_judged_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(memory, "free_bytes", lambda: 1_000_000_000)
    entered = [threading.Event(), threading.Event()]
    ended = threading.Event()

    def judge(number: int) -> None:
        with memory.room_for(large(number)):
            entered[number].set()
            assert ended.wait(10)

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(2)]
    threads[0].start()
    assert entered[0].wait(10)
    threads[1].start()
    assert not entered[1].wait(0.3), "the second began while the first was judged"
    ended.set()
    assert entered[1].wait(10)
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize(
    "files",
    [
        {"memory.max": "4000\n", "memory.current": "3000\n"},
        {"memory.limit_in_bytes": "4000\n", "memory.usage_in_bytes": "3000\n"},
    ],
    ids=["version 2", "version 1"],
)
def test_a_control_group_limits_the_memory_and_its_evictable_pages_are_free(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "memory.stat").write_text("anon 2500\ninactive_file 500\nactive_file 100\n")
    assert memory.bytes_of_group(tmp_path) == 1500


def test_a_group_without_a_limit_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("")
    assert memory.bytes_of_group(tmp_path) == memory.bytes_of_group(tmp_path / "missing") > 1 << 60


def test_the_free_memory_of_this_process_is_some(tmp_path: Path) -> None:
    assert 0 < memory.free_bytes() < 1 << 50
