"""A machine that gives a run too little is named before the run begins, with the limit and the remedy (J1, J9)."""

from __future__ import annotations

import errno
import json
import os
import resource
from pathlib import Path

import pytest
from harrow.cluster.errors import StorageError
from harrow.cluster.registry.store import SqliteStore
from harrow.harness import machine_limits, out_folder
from harrow.harness.backends.clusters import failed_tasks
from harrow.harness.machine_limits import LimitError, explained, why_ended


def test_a_hard_limit_of_256_open_files_is_named_with_what_raises_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = [(256, 256), (256, 4096)]

    def limit(_: int) -> tuple[int, int]:
        return limits.pop(0)

    monkeypatch.setattr(resource, "getrlimit", limit)
    with pytest.raises(LimitError, match=r"hard limit of open files is 256 .*needs 512: raise it"):
        out_folder.prepare(tmp_path / "out")
    out_folder.prepare(tmp_path / "out")  # the JVM raises its soft limit itself


def test_a_full_disk_is_named_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(machine_limits, "FREE_BYTES_LEAST", 1 << 60)
        with pytest.raises(LimitError, match=r"the disk of .*out has \d+\.\d MB free, and a run needs"):
            out_folder.prepare(tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_path_of_800_bytes_is_named_with_its_length_and_shortened(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 100] * 8)
    with pytest.raises(LimitError) as raised:
        out_folder.prepare(folder)
    said = str(raised.value)
    assert f"has {len(str(folder))} bytes" in said
    assert "--harrow-out" in said
    assert len(said) < 500
    with pytest.raises(StorageError, match=r"SQLite opens 500 at most .* shorter path"):
        SqliteStore(str(folder / "registry.sqlite")).load()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk of /data is full: free space"),
        (errno.EMFILE, "too many open files: the limit is"),
        (errno.ENAMETOOLONG, "the path /data is too long"),
        (errno.ENOMEM, "too little memory"),
        (errno.EACCES, "Permission denied"),
    ],
)
def test_errors_of_the_operating_system_are_explained(number: int, words: str) -> None:
    assert words in explained(OSError(number, os.strerror(number), "/data"))


def test_why_a_jvm_ended_is_its_limit_or_its_words_without_the_stack(tmp_path: Path) -> None:
    stack = "\tat org.apache.Spark.start(Spark.scala:29)\n\t... 12 more\n"
    full = f"java.io.IOException: No space left on device\n{stack}"
    assert f"the disk of {tmp_path} is full" in why_ended(full, tmp_path)
    assert "ulimit -n" in why_ended(f"java.io.IOException: Too many open files\n{stack}", tmp_path)
    other = f"Exception in thread main: no such class\n{stack}Caused by: a missing jar\n"
    assert why_ended(other, tmp_path) == (
        "the JVM ended: Exception in thread main: no such class; Caused by: a missing jar"
    )
    assert why_ended("", tmp_path) == "the JVM ended without a word"


@pytest.mark.parametrize("full", [True, False])
def test_a_failed_task_is_no_bug_where_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, full: bool
) -> None:
    monkeypatch.setattr(machine_limits, "FREE_BYTES_LEAST", 1 << 60 if full else 0)
    (tmp_path / "broker-1").mkdir()
    event = {"t_ns": 1, "event": "task.failed", "name": "isr", "error": "OSError: No space left on device"}
    (tmp_path / "broker-1" / "trace.jsonl").write_text(json.dumps(event) + "\n")
    (line,) = failed_tasks(tmp_path, {})
    assert ("a bug in Harrow" in line) is not full
    assert ("MB free" in line) is full
