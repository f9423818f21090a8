"""Ports of clusters: reserved, refused when in use, and not given again soon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harrow.cluster import ports
from harrow.cluster.errors import ClusterError
from harrow.cluster.ports import LOOPBACK, ReservedPort

OTHER = "from harrow.cluster.ports import ReservedPort; print(ReservedPort().number)"


def test_a_released_port_is_not_given_again_here_or_in_another_process() -> None:
    given: list[int] = []
    for _ in range(20):
        port = ReservedPort()
        given.append(port.number)
        port.release()
    other = subprocess.run([sys.executable, "-c", OTHER], capture_output=True, text=True, check=True)
    given.append(int(other.stdout))
    assert len(set(given)) == 21


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as busy:
        busy.bind((LOOPBACK, 0))
        busy.listen(1)
        taken = busy.getsockname()[1]
        free = ReservedPort()
        free.release()
        turns = iter([taken, free.number])
        monkeypatch.setattr(ports, "_next_port", lambda: next(turns))
        reserved = ReservedPort()
        assert reserved.number == free.number
        reserved.release()
        with pytest.raises(ClusterError, match=f"port {taken} of {LOOPBACK} is in use"):
            ReservedPort(taken)


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"99999999"])
def test_without_a_last_port_a_port_is_given_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if content is not None:
        (tmp_path / f"harrow-ports-{os.getuid()}").write_bytes(content)
    first, second = ReservedPort(), ReservedPort()
    assert 0 < first.number != second.number > 0
    first.release()
    second.release()


def test_an_unwritable_folder_leaves_the_choice_to_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    port = ReservedPort()
    assert port.number > 0
    port.release()
