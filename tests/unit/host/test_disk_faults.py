"""K3: a rule fails matching calls from the n-th on, as often as armed, only on its paths, until it is cleared."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.knobs.disk_faults import DiskFaults
from harrow.cluster.host.knobs.rules import rule_operations
from harrow.cluster.host.real.disk import RealDisk


@pytest.fixture
def faults() -> DiskFaults:
    return DiskFaults()


@pytest.fixture
def disk(faults: DiskFaults) -> RealDisk:
    return RealDisk(faults)


def result_of(call: Any, *args: Any) -> str:
    try:
        call(*args)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def test_armed_write_fault_fails_from_the_nth_call_for_count_calls(
    disk: RealDisk, faults: DiskFaults, tmp_path: Path
) -> None:
    file = disk.open(str(tmp_path / "x"))
    faults.arm("write", nth=2, count=2, error="ENOSPC")
    assert [result_of(file.append, [b"ab"]) for _ in range(5)] == ["ok", "ENOSPC", "ENOSPC", "ok", "ok"]
    assert file.read_at(0, 10) == b"ababab"
    assert not faults.live
    (row,) = faults.report()
    assert (row["fired"], row["armed"]) == (2, False)


def test_armed_sync_fault_fails_its_folder_until_it_is_cleared(
    disk: RealDisk, faults: DiskFaults, tmp_path: Path
) -> None:
    for name in ("good", "bad"):
        disk.make_folder(str(tmp_path / name))
    files = {name: disk.open(str(tmp_path / name / "log")) for name in ("good", "bad")}
    rule = faults.arm("sync", path="*/bad/*")
    assert [result_of(files["bad"].sync) for _ in range(3)] == ["EIO"] * 3
    assert result_of(disk.replace, str(tmp_path / "bad" / "c"), b"x") == "EIO"
    assert result_of(files["good"].sync) == result_of(files["bad"].append, [b"x"]) == "ok"
    faults.remove(rule)
    assert result_of(files["bad"].sync) == "ok"


@pytest.mark.parametrize(
    ("operation", "calls"),
    [
        ("write", ["append", "write_at", "truncate", "replace", "resize"]),
        ("sync", ["sync", "sync_file", "sync_map", "replace"]),
        ("read", ["read_at", "region", "read", "list"]),
        ("rename", ["open", "map", "rename", "remove", "make_folder", "remove_folder", "lock"]),
    ],
)
def test_armed_fault_fails_each_call_of_its_operation(
    disk: RealDisk, faults: DiskFaults, tmp_path: Path, operation: str, calls: list[str]
) -> None:
    path = str(tmp_path / "x")
    file, mapped = disk.open(path), disk.map(str(tmp_path / "m"), 10)
    file.append([b"0123"])
    every: dict[str, Any] = {
        "append": lambda: file.append([b"x"]),
        "write_at": lambda: file.write_at(0, b"x"),
        "truncate": lambda: file.truncate(1),
        "replace": lambda: disk.replace(str(tmp_path / "r"), b"x"),
        "resize": lambda: mapped.resize(20),
        "sync": file.sync,
        "sync_file": lambda: disk.sync_file(path),
        "sync_map": mapped.sync,
        "read_at": lambda: file.read_at(0, 1),
        "region": lambda: file.region(0, 1),
        "read": lambda: disk.read(path),
        "list": lambda: disk.list(str(tmp_path)),
        "open": lambda: disk.open(str(tmp_path / "new")),
        "map": lambda: disk.map(str(tmp_path / "m"), 10),
        "rename": lambda: disk.rename(path, path),
        "remove": lambda: disk.remove(str(tmp_path / "none")),
        "make_folder": lambda: disk.make_folder(str(tmp_path / "f")),
        "remove_folder": lambda: disk.remove_folder(str(tmp_path / "none")),
        "lock": lambda: disk.lock(str(tmp_path / "l")),
    }
    faults.arm(operation)
    assert {name for name, call in every.items() if result_of(call) == "EIO"} == set(calls)
    faults.remove()
    assert {result_of(call) for call in every.values()} == {"ok"}


def test_control_operations_add_list_and_remove_a_rule(faults: DiskFaults, disk: RealDisk) -> None:
    operations = rule_operations({"disk": faults})
    armed = operations["rules.add"]({"kind": "disk", "operation": "rename", "path": "*/no/*", "error": "EROFS"})
    assert result_of(disk.make_folder, "/no/where") == "EROFS"
    (row,) = operations["rules.list"]({"kind": "disk"})["rules"]
    assert (row["id"], row["seen"], row["last_path"]) == (armed["id"], 1, "/no/where")
    operations["rules.remove"]({"kind": "disk", **armed})
    assert not faults.live


@pytest.mark.parametrize(
    "fields", [{"operation": "seek"}, {"error": "ENOTHING"}, {"nth": 0}, {"error": "", "delay_ms": 0}]
)
def test_arm_with_an_invalid_field_is_refused(faults: DiskFaults, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        faults.add({"operation": "write", **fields})
    assert not faults.live


def test_lock_is_exclusive_until_released(disk: RealDisk, tmp_path: Path) -> None:
    first = disk.lock(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        disk.lock(str(tmp_path / ".lock"))
    first.release()
    first.release()
    disk.lock(str(tmp_path / ".lock")).release()


def test_region_is_readable_after_its_file_is_closed_and_removed(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"))
    file.append([b"0123456789"])
    region = file.region(2, 5)
    file.close()
    disk.remove(str(tmp_path / "log"))
    assert (region.read(), len(region), region.size) == (b"23456", 5, 5)
    truncated = disk.open(str(tmp_path / "log"))
    truncated.append([b"0123456789"])
    region = truncated.region(2, 8)
    truncated.truncate(4)
    with pytest.raises(OSError, match="cut"):
        region.read()
    truncated.close()
    with pytest.raises(OSError, match="closed"):
        truncated.sync()
