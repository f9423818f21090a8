"""The simulated disk: files after a killed process and after a power loss (B2, B5), against a simple model."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from harrow.cluster.host.simulated.disk import SimDisk
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

SEEDS = range(60)


def disk() -> SimDisk:
    made = SimDisk(lambda: 1)
    made.make_folder("/data")
    made.sync_file("/data")
    return made


def after_power_loss(made: SimDisk, seed: int) -> SimDisk:
    return made.survivor(random.Random(seed))


def test_kill_keeps_all_bytes_and_separates_the_files_of_the_incarnations() -> None:
    made = disk()
    file = made.open("/data/log")
    file.append([b"abc", b"def"])
    made.replace("/data/note", b"x", durable=False)
    survivor = made.survivor()
    file.append([b"zombie"])
    assert survivor.read("/data/log") == b"abcdef"
    assert survivor.read("/data/note") == b"x"
    # The bytes that were not synced are still not synced.
    assert {after_power_loss(survivor, seed).exists("/data/log") for seed in SEEDS} == {True, False}


def test_sync_makes_bytes_and_names_durable() -> None:
    made = disk()
    file = made.open("/data/log")
    file.append([b"stable"])
    file.sync()
    file.append([b"-lost"])
    left = {after_power_loss(made, seed).read("/data/log") for seed in SEEDS}
    assert all(content.startswith(b"stable") and len(content) <= 11 for content in left)
    assert b"stable" in left
    assert b"stable-lost" in left
    assert any(0 < len(content) - 6 < 5 for content in left), "some power loss must tear the append"
    assert any(content.endswith(b"\0") for content in left), "some power loss must leave zeros"


def test_power_loss_may_undo_an_unsynced_truncation() -> None:
    made = disk()
    file = made.open("/data/log")
    file.append([b"0123456789"])
    file.sync()
    file.truncate(4)
    file.write_at(1, b"x")
    left = {after_power_loss(made, seed).read("/data/log") for seed in SEEDS}
    assert left == {b"0123456789", b"0123", b"0x23"}


def test_replace_is_atomic_and_durable_by_default() -> None:
    made = disk()
    made.replace("/data/note", b"old")
    made.replace("/data/note", b"new")
    for seed in SEEDS:
        assert after_power_loss(made, seed).read("/data/note") == b"new"
    made.replace("/data/note", b"newest", durable=False)
    left = {after_power_loss(made, seed).read("/data/note") for seed in SEEDS}
    assert b"new" in left
    assert b"newest" in left
    made.sync_file("/data/note")
    assert {after_power_loss(made, seed).read("/data/note") for seed in SEEDS} == {b"newest"}


def test_power_loss_keeps_a_prefix_of_the_name_changes() -> None:
    made = disk()
    made.open("/data/one").append([b"1"])
    made.rename("/data/one", "/data/two")
    made.make_folder("/data/folder")
    left = {tuple(after_power_loss(made, seed).list("/data")) for seed in SEEDS}
    assert left == {(), ("one",), ("two",), ("folder", "two")}
    made.open("/data/folder/x").sync()
    for seed in SEEDS:
        assert after_power_loss(made, seed).list("/data") == ["folder", "two"]
    made.rename("/data/folder", "/data/gone")
    assert made.list("/data/gone") == ["x"]
    made.remove_folder("/data/gone")
    assert made.list("/data") == ["two"]


def test_power_loss_of_a_mapped_file_keeps_whole_pages() -> None:
    made = disk()
    mapped = made.map("/data/index", 8_192)
    mapped.view[0:4] = b"page"
    mapped.sync()
    mapped.view[0:4] = b"PAGE"
    mapped.view[4_096:4_099] = b"two"
    assert made.survivor().read("/data/index")[:4] == b"PAGE"
    left = {
        (content[:4], content[4_096:4_099])
        for content in (after_power_loss(made, seed).read("/data/index") for seed in SEEDS)
    }
    assert left == {(a, b) for a in (b"page", b"PAGE") for b in (b"two", b"\0\0\0")}
    mapped.resize(4)
    assert (mapped.size, bytes(mapped.view)) == (4, b"PAGE")
    mapped.close()
    assert made.open("/data/index").read_at(0, 10) == b"PAGE"


def test_regions_and_locks_work_and_absent_files_are_refused() -> None:
    made = disk()
    file = made.open("/data/log")
    file.append([b"0123456789"])
    region = file.region(2, 3)
    assert (region.size, len(region), region.read()) == (3, 3, b"234")
    lock = made.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        made.lock("/data/.lock")
    made.survivor().lock("/data/.lock")  # a lock ends with its process
    lock.release()
    lock.release()
    made.lock("/data/.lock")
    for absent in (made.read, made.list, made.modified_ms):
        with pytest.raises(FileNotFoundError):
            absent("/data/nothing")
    with pytest.raises(FileNotFoundError):
        made.open("/data/nothing", create=False)
    with pytest.raises(FileNotFoundError):
        made.open("/nowhere/log")
    made.refuses = 28
    with pytest.raises(OSError, match="No space"):
        file.append([b"x"])
    assert file.size() == 10


def test_a_disk_error_fails_the_calls_that_it_names_and_ends_with_the_incarnation() -> None:
    made = disk()
    file = made.open("/data/log")
    made.faults.arm("write", path="*/log", nth=2, count=1)
    file.append([b"01"])
    with pytest.raises(OSError, match="/data/log"):
        file.append([b"23"])
    file.append([b"45"])
    assert file.read_at(0, 10) == b"0145"
    made.faults.arm("rename", path="*/new")
    made.replace("/data/new", b"x")  # as on a real disk, a replacement is a write
    with pytest.raises(OSError, match="/data/new"):
        made.remove("/data/new")
    made.faults.arm("read", path="*/new")
    with pytest.raises(OSError, match="/data/new"):
        made.read("/data/new")
    assert made.survivor().read("/data/new") == b"x"


def test_an_fsync_that_failed_loses_its_blocks_for_the_next_incarnation() -> None:
    made = disk()
    file = made.open("/data/log")
    file.append([b"a" * 600])
    file.sync()
    file.append([b"b" * 1_000])
    made.faults.arm("sync", count=1)
    with pytest.raises(OSError, match="/data/log"):
        file.sync()
    file.append([b"c" * 100])
    file.sync()  # writes the block of the new bytes, and none of the others
    written = b"a" * 600 + b"b" * 1_000 + b"c" * 100
    assert file.read_at(0, 2_000) == written
    kept = b"a" * 600 + bytes(3 * 512 - 600) + written[3 * 512 :]
    assert made.survivor().read("/data/log") == kept
    assert made.survivor(random.Random(1)).read("/data/log") == kept


def test_a_wiped_folder_is_empty_also_after_a_power_loss() -> None:
    made = disk()
    made.make_folder("/data/orders-0")
    made.open("/data/orders-0/log").append([b"0"])
    made.replace("/data/meta.properties", b"1")
    assert made.wipe("/data") == 2
    assert made.wipe("/data") == 0
    for left in (made.survivor(), made.survivor(random.Random(1))):
        assert not left.exists("/data")
        left.make_folder("/data")
        assert left.list("/data") == []


STEP = st.one_of(
    st.tuples(st.just("append"), st.binary(min_size=1, max_size=6)),
    st.tuples(st.just("write"), st.integers(0, 12), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("truncate"), st.integers(0, 14)),
    st.tuples(st.just("sync")),
)


@given(st.lists(STEP, max_size=14), st.integers(0, 1_000))
@examples(50, 150)
def test_power_loss_leaves_a_state_that_the_file_had_since_its_last_sync(
    steps: list[tuple[object, ...]], seed: int
) -> None:
    made = disk()
    file = made.open("/data/log")
    file.sync()
    model = b""
    since: list[bytes] = [model]
    appended: list[tuple[bytes, bytes]] = []  # content before an append, and the appended bytes
    for step in steps:
        before = model
        match step:
            case ("append", bytes(data)):
                file.append([data])
                model = before + data
                appended.append((before, data))
            case ("write", int(at), bytes(data)):
                at = min(at, len(before))
                file.write_at(at, data)
                model = before[:at] + data + before[at + len(data) :]
            case ("truncate", int(size)):
                file.truncate(size)
                model = before[:size] + bytes(max(0, size - len(before)))
            case _:
                file.sync()
                since, appended = [], []
        since.append(model)
    assert file.read_at(0, 1_000) == model
    left = after_power_loss(made, seed).read("/data/log")
    torn = [
        candidate
        for before, data in appended
        for kept in range(len(data) + 1)
        for candidate in (before + data[:kept], before + bytes(kept))
    ]
    grown = [
        state + after[len(state) :][:kept]  # a write beyond the end, and an extension, tear the same way
        for state, after in pairwise(since)
        for kept in range(len(after) + 1)
    ]
    zeroed = [
        state + bytes(kept) for state, after in pairwise(since) for kept in range(max(0, len(after) - len(state)) + 1)
    ]
    assert left in since or left in torn or left in grown or left in zeroed
