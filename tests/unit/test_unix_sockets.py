"""Unix sockets below folders with long paths: on macOS and CI runners TMPDIR has 50 bytes and more (J3)."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harrow.cluster.errors import ClusterError
from harrow.cluster.unix_sockets import PATH_BYTES_MOST, folder_near, reachable
from harrow.harness.checks import jvm


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path of 16 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def folder_of_length(parent: Path, length: int) -> Path:
    path = str(parent)
    while len(path) < length:
        path += "/" + "x" * max(1, min(100, length - len(path) - 1))
    os.makedirs(path, exist_ok=True)
    assert len(path) in (length, length + 1)
    return Path(path)


@pytest.mark.parametrize("length", [20, 36, 60, 64, 72, 100, 200])
def test_sparks_python_workers_can_bind_their_sockets_whatever_the_length_of_tmpdir(short: Path, length: int) -> None:
    scratch = folder_of_length(short, length)
    folder = folder_near(scratch, name_bytes=jvm.SOCKET_NAME_BYTES, prefix="harrow-test-", places=[short])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/.{uuid.uuid4()}.sock")  # as Spark's daemon does
    if folder != scratch:
        assert folder.parent == short
        assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder == scratch) == (length + 1 + jvm.SOCKET_NAME_BYTES <= PATH_BYTES_MOST)


def test_a_socket_below_a_path_of_300_bytes_is_bound_and_reached(short: Path) -> None:
    path = folder_of_length(short, 300) / "spark.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with reachable(path) as name:
            listener.bind(name)
        listener.listen(1)
        with reachable(path) as name:
            client.connect(name)
    assert path.is_socket()


def test_without_a_place_for_sockets_the_error_names_the_places_and_the_remedy(short: Path) -> None:
    scratch = folder_of_length(short, 90)
    gone = short / "gone"
    with pytest.raises(ClusterError, match=r"has 9[01] bytes.*tried .*gone \(No such file.*Set TMPDIR"):
        folder_near(scratch, name_bytes=42, prefix="harrow-test-", places=[gone])
    with pytest.raises(ClusterError, match=r"its path is too long"):
        folder_near(scratch, name_bytes=42, prefix="harrow-test-", places=[scratch])
