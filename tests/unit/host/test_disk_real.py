"""The real disk: an append is stored as a whole or not at all, replace is atomic, a read ends at the file's end."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from harrow.cluster.host.real.disk import IOV_MAX, RealDisk


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_append_returns_its_position_and_raises_the_size(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"))
    assert file.append([b"abc", memoryview(b"de")]) == 0
    assert file.append([b"fgh"]) == 5
    assert file.size() == 8
    assert file.read_at(2, 4) == b"cdef"
    assert file.read_at(6, 100) == b"gh"
    assert file.read_at(50, 10) == b""
    file.close()
    file.close()
    again = disk.open(str(tmp_path / "log"), create=False)
    assert again.size() == 8
    again.close()


def test_append_of_more_parts_than_iov_max_writes_all_of_them(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"))
    parts = [bytes([i % 251]) * 3 for i in range(IOV_MAX * 2 + 5)]
    file.append([b"head"])
    assert file.append(parts) == 4
    assert file.read_at(4, 10**6) == b"".join(parts)
    file.close()


def test_append_continues_a_partial_write(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(str(tmp_path / "log"))
    file.append([b"before"])
    real = os.pwritev

    def short(fd: int, parts: Sequence[bytes], position: int) -> int:
        return real(fd, [parts[0][:2]], position)

    monkeypatch.setattr(os, "pwritev", short)
    assert file.append([b"abcdef", b"ghi"]) == 6
    assert file.read_at(0, 100) == b"beforeabcdefghi"
    file.close()


def test_refused_append_leaves_the_file_unchanged(disk: RealDisk, tmp_path: Path) -> None:
    # A real limit of the system: the write reaches 4 KiB, then fails with EFBIG.
    file = disk.open(str(tmp_path / "log"))
    file.append([b"x" * 4000])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError) as caught:
            file.append([b"y" * 1000, b"z" * 1000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert file.size() == 4000
    assert os.path.getsize(tmp_path / "log") == 4000
    assert file.append([b"after"]) == 4000
    file.close()


def test_write_at_truncate_and_append_change_the_file(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"))
    file.append([b"0123456789"])
    file.write_at(8, b"abc")
    assert file.size() == 11
    file.truncate(4)
    assert file.append([b"!"]) == 4
    file.sync()
    assert file.read_at(0, 10) == b"0123!"
    file.close()


def test_replace_leaves_no_temporary_file(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    disk.replace(path, b"one")
    disk.replace(path, b"two")
    assert disk.read(path) == b"two"
    assert disk.list(str(tmp_path)) == ["checkpoint"]
    assert disk.modified_ms(path) > 1_600_000_000_000


def test_folder_operations_work_and_reading_an_absent_file_is_refused(disk: RealDisk, tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    disk.make_folder(folder)
    disk.make_folder(folder)
    assert disk.is_folder(folder)
    disk.remove(folder + "/none")
    disk.remove_folder(folder + "/none")
    disk.open(folder + "/x").close()
    disk.rename(folder + "/x", folder + "/y")
    assert disk.list(folder) == ["y"]
    assert disk.exists(folder + "/y")
    disk.remove_folder(str(tmp_path / "a"))
    assert not disk.exists(folder)
    for call in (disk.read, disk.list):
        with pytest.raises(FileNotFoundError):
            call(folder)
    with pytest.raises(FileNotFoundError):
        disk.open(folder + "/y", create=False)
