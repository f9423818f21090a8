"""A cluster on a full disk says so within seconds, and a long start says what it waits for (A, B11)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster import Cluster, managed, wait_notes
from harrow.cluster.disk_space import PROBE, why_not_writable
from harrow.cluster.errors import ClusterError
from harrow.cluster.managed import ManagedProcess

TOO_SMALL = [f"size={kib}k" for kib in (8, 24, 80, 96, 140, 200)] + [f"nr_inodes={n}" for n in (2, 4, 8, 12)]


@pytest.fixture(params=TOO_SMALL)
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system that is full in the registry's start, in a broker's, or after its first files."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system needs root and mount: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_cluster_on_a_full_disk_fails_within_seconds_with_the_cause(small_disk: Path) -> None:
    began_s = time.monotonic()
    causes = r"No space left on device|disk is full|KiB are free|more files have room"
    with pytest.raises(ClusterError, match=causes) as failed:
        Cluster(folder=small_disk / "cluster", brokers=3).start()
    assert time.monotonic() - began_s < 30  # it was 60 s and more; here other tests use the machine, too
    assert "free space there, or choose another folder" in str(failed.value)
    assert not list(small_disk.rglob(PROBE))


class Silent:
    """A starter whose processes neither serve nor end."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def spawn(self, options: dict[str, Any], status_fd: int) -> int:
        del options
        process = subprocess.Popen(["sleep", "60"], pass_fds=(status_fd,))
        self.started.append(process)
        return process.pid

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[ManagedProcess]:
    starter = Silent()
    yield ManagedProcess(starter, "broker 1", tmp_path / "broker-1", {})
    starter.end()


def test_a_start_that_takes_long_is_noted_with_its_bound(
    silent: ManagedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(wait_notes, "AFTER_S", 0.0)
    monkeypatch.setattr(managed, "LOOK_EVERY_S", 0.02)
    before = wait_notes.listen(notes.append)
    try:
        with pytest.raises(ClusterError, match=r"broker 1 did not start: it was not ready after 0.5 s"):
            silent.start(0.5)
    finally:
        wait_notes.listen(before)
    assert notes == ["waits for broker 1 to start (0 s of at most 0 s)"]


def test_a_start_whose_folder_takes_no_file_ends_at_the_second_look(
    silent: ManagedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "why_not_writable", "No space left on device: {}".format)
    monkeypatch.setattr(managed, "LOOK_EVERY_S", 0.02)
    began_s = time.monotonic()
    with pytest.raises(ClusterError, match=f"No space left on device: {silent.folder}"):
        silent.start(60.0)
    assert time.monotonic() - began_s < 20


def test_a_folder_that_takes_files_has_no_problem_and_keeps_no_probe(tmp_path: Path) -> None:
    assert why_not_writable(tmp_path) == ""
    assert os.listdir(tmp_path) == []
    assert "No such file or directory" in why_not_writable(tmp_path / "missing")
