"""Histories survive kill -9, torn rows, forks and threads (J6)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from harrow.harness.histories.format import (
    ROW,
    HistoryError,
    HistoryWriter,
    OperationFunction,
    OperationType,
    history_frame,
    read_history,
    stable_hash,
    value_hash,
)
from harrow.harness.histories.layout import lay_out

ENDLESS = """
import sys
from harrow.harness.histories.format import HistoryWriter
with HistoryWriter(sys.argv[1], process="victim") as history:
    client, topic = history.name("c"), history.name("t")
    for op in range(10**9):
        history.append(1, 1, client, topic, 0, op, op)
        if op % 1000 == 0:
            print(op, flush=True)
"""


def test_killing_the_process_loses_no_row(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        said = [int(child.stdout.readline()) for _ in range(30)]
        child.send_signal(signal.SIGKILL)
        said += [int(line) for line in child.stdout.read().splitlines() if line]
    rows = read_history(tmp_path / "victim-1.ops").rows
    assert len(rows) > said[-1], "what was appended before it was said is there"
    assert (rows["op"] == range(len(rows))).all(), "no hole, nothing torn"
    assert read_history(tmp_path / "victim-1.ops").names == ["c", "t"]


def write(folder: Path, count: int) -> Path:
    with HistoryWriter(folder) as history:
        client, topic = history.name("c"), history.name("t")
        for op in range(count):
            history.append(OperationFunction.SEND, OperationType.OK, client, topic, 0, op, op)
    return history.path


def test_reading_a_file_ignores_a_torn_last_row(tmp_path: Path) -> None:
    path = write(tmp_path, 10)
    data = path.read_bytes()
    path.write_bytes(data[:-7])
    assert len(read_history(path).rows) == 9, "a part of a row"
    path.write_bytes(data[:-1] + b"\0" + bytes(3 * ROW.size + 5))
    assert len(read_history(path).rows) == 9, "no commit byte, and the zeros of a pre-sized file"
    path.write_bytes(data[: ROW.size // 2])
    assert len(read_history(path).rows) == 0, "a part of the header"


def test_reading_a_file_that_is_still_written_returns_its_rows(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as history:
        history.append(OperationFunction.SEND, OperationType.OK, history.name("c\t\\n"), history.name("t"), 0, 5)
        frame = history_frame(history.path)
        assert frame["client"].to_list() == ["c\t\\n"]
        assert frame["offset"].to_list() == [5]


def test_reading_a_file_that_is_not_a_history_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.ops"
    path.write_bytes(b"not a history" * 100)
    with pytest.raises(HistoryError, match=r"x\.ops is not a history"):
        read_history(path)


def test_threads_append_to_a_growing_file_without_losing_rows(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as history:
        client, topic = history.name("c"), history.name("t")

        def work(number: int) -> None:
            for op in range(3000):
                history.append(OperationFunction.SEND, OperationType.OK, client, topic, number, op, op)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = read_history(history.path).rows
    assert len(rows) == 12_000
    for number in range(4):
        assert (rows["op"][rows["partition"] == number] == range(3000)).all()


def test_appending_to_a_closed_history_is_refused(tmp_path: Path) -> None:
    history = HistoryWriter(tmp_path)
    history.close()
    history.close()
    with pytest.raises(HistoryError, match="closed"):
        history.append(OperationFunction.SEND, OperationType.OK, 0, 0, 0)


def test_a_forked_child_writes_its_own_file(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as history:
        client, topic = history.name("c"), history.name("t")
        history.append(OperationFunction.SEND, OperationType.OK, client, topic, 0, 1)
        child = os.fork()
        if not child:
            history.append(OperationFunction.SEND, OperationType.OK, client, topic, 0, 2)
            history.append(OperationFunction.SEND, OperationType.OK, client, topic, 0, 3)
            os._exit(0)
        os.waitpid(child, 0)
        history.append(OperationFunction.SEND, OperationType.OK, client, topic, 0, 4)
    offsets = [history_frame(path)["offset"].to_list() for path in tmp_path.glob("*.ops")]
    assert sorted(offsets) == [[1, 4], [2, 3]]


def test_hashes_are_stable_and_differ_for_null_and_empty() -> None:
    assert stable_hash(None) == 0
    assert stable_hash(b"") != 0
    assert stable_hash("ä") == stable_hash("ä".encode())
    assert value_hash(b"v") == stable_hash(b"v")
    assert value_hash(b"v", [("h", b"1")]) == value_hash(b"v", {"h": b"1"}) != value_hash(b"v")


def test_a_send_without_completion_becomes_info(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history") as history:
        client, topic = history.name("c"), history.name("t")
        history.append(OperationFunction.SEND, OperationType.INVOKE, client, topic, -1, op=0)
        history.append(OperationFunction.SEND, OperationType.INVOKE, client, topic, -1, op=1)
        history.append(OperationFunction.SEND, OperationType.OK, client, topic, 3, 7, 1)
        history.append(OperationFunction.SEND, OperationType.OK, client, history.name("other"), 0, 0, 2)
    layout = lay_out(tmp_path, ["t"])
    assert list(layout.partitions) == [("t", 3)]
    assert len(layout.pending["t"]) == 1


def test_a_damaged_file_is_reported_as_a_problem(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "1-1.ops").write_bytes(b"x" * 1000)
    assert "1-1.ops" in lay_out(tmp_path, ["t"]).problems[0]
