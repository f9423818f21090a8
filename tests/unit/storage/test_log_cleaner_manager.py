"""When a log may be cleaned (B8): state table, checkpoints, events that abort a cleaning, the cleaners' I/O pace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from compacted_logs import EPOCH, Compaction, records
from harrow.cluster.config import BrokerConfig
from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.storage.compaction.cleaner import Cleaning, CleaningAbortedError, Replacement
from harrow.cluster.storage.compaction.log_cleaner import LogCleaner
from harrow.cluster.storage.compaction.log_cleaner_manager import LogCleanerManager, Phase
from harrow.cluster.storage.compaction.offset_map import ENTRY_BYTES
from harrow.cluster.storage.compaction.segment_swap import can_swap
from harrow.cluster.storage.retention import clean_up
from harrow.cluster.wire.batches import build_batch
from manual_host import ManualHost
from storage_host import TP, StorageHost


@pytest.fixture
def log(tmp_path: Path) -> Compaction:
    return Compaction(str(tmp_path / "orders-0"))


def filled(log: Compaction) -> Compaction:
    for number in range(40):
        log.put((b"k%d" % (number % 5), b"%d" % number))
    log.log.roll()
    return log


# -- the state table

GRAB, PAUSE, RESUME, DONE = "grab", "pause", "resume", "done"
TABLE: list[tuple[list[str], Phase | None]] = [
    ([], None),
    ([GRAB], Phase.CLEANING),
    ([GRAB, DONE], None),
    ([PAUSE], Phase.PAUSED),
    ([PAUSE, PAUSE, RESUME], Phase.PAUSED),
    ([PAUSE, RESUME], None),
    ([GRAB, PAUSE], Phase.ABORTING),
    ([GRAB, PAUSE, RESUME], Phase.ABORTING),
    ([GRAB, PAUSE, RESUME, DONE], None),
    ([GRAB, PAUSE, DONE], Phase.PAUSED),
    ([GRAB, PAUSE, PAUSE, DONE, RESUME], Phase.PAUSED),
    ([GRAB, PAUSE, PAUSE, DONE, RESUME, RESUME], None),
]


@pytest.mark.parametrize(("events", "phase"), TABLE)
def test_events_lead_to_the_state_of_the_table(log: Compaction, events: list[str], phase: Phase | None) -> None:
    filled(log)
    manager = log.cleaner.manager
    calls: dict[str, Callable[[], object]] = {
        GRAB: manager.grab_filthiest,
        PAUSE: lambda: manager.pause(TP),
        RESUME: lambda: manager.resume(TP),
        DONE: lambda: manager.done(log.log, Offset(40)),
    }
    for event in events:
        calls[event]()
    assert manager.phase(TP) is phase
    if phase is not None:
        assert manager.grab_filthiest() is None
    if phase is Phase.CLEANING:
        manager.check(log.log)
    else:
        with pytest.raises(CleaningAbortedError):
            manager.check(log.log)
    aborted = PAUSE in events and DONE in events
    assert (manager.to_clean(log.log, 0).first_dirty == 40) == (DONE in events and not aborted)


def test_resume_without_a_pause_is_refused(log: Compaction) -> None:
    with pytest.raises(AssertionError):
        log.cleaner.manager.resume(TP)


# -- checkpoints


def checkpoint(tmp_path: Path) -> str:
    return (tmp_path / "cleaner-offset-checkpoint").read_text()


def test_checkpoint_is_used_after_a_restart(tmp_path: Path, log: Compaction) -> None:
    assert filled(log).clean()
    assert checkpoint(tmp_path) == "0\n1\norders 0 40\n"
    assert not log.clean()
    log.log.close()
    again = Compaction(log.folder)
    assert again.cleaner.manager.to_clean(again.log, 0).first_dirty == 40
    assert not again.clean()


def test_truncate_lowers_the_checkpoint_permanently(tmp_path: Path, log: Compaction) -> None:
    assert filled(log).clean()
    log.log.truncate_to(Offset(38))
    log.host.tasks.run()
    assert checkpoint(tmp_path) == f"0\n1\norders 0 {log.log.log_end_offset}\n"
    low = log.log.log_end_offset
    assert low <= 38
    for number in range(20):
        log.put((b"k1", b"again %d" % number))
    assert log.cleaner.manager.to_clean(log.log, 0).first_dirty == low
    assert log.seal_and_clean()
    assert [record.offset for record in records(log.log)][-1] == log.log.log_end_offset - 1


@pytest.mark.parametrize("content", ["0\n1\norders 0 99\n", "nonsense", "0\n1\norders 0 -4\n"])
def test_restart_with_an_invalid_checkpoint_cleans_the_whole_log(tmp_path: Path, log: Compaction, content: str) -> None:
    filled(log)
    (tmp_path / "cleaner-offset-checkpoint").write_text(content)
    log.log.close()
    log = Compaction(log.folder)
    assert log.clean()
    assert len(records(log.log)) == 5
    assert checkpoint(tmp_path) == "0\n1\norders 0 40\n"


def test_recovery_that_loses_the_log_resets_the_cleaner_checkpoint(tmp_path: Path, log: Compaction) -> None:
    """With the old checkpoint a round would remove a tombstone below it and keep the value that it deletes."""
    assert filled(log).clean()
    log.log.abandon()
    for path in Path(log.folder).iterdir():
        path.unlink()  # the whole log is lost, but not its checkpoint
    again = Compaction(log.folder, {"delete.retention.ms": 0}, host=log.host)
    assert checkpoint(tmp_path) == "0\n0\n"
    again.put((b"a", b"deleted later"))
    again.put((b"a", None))
    for number in range(60):
        again.put((b"k%d" % (number % 3), b"%d" % number))
    for _ in range(3):
        again.seal_and_clean()
        again.host.clock.now += 10
        again.put((b"k0", b"more"))
    assert b"a" not in [record.key for record in records(again.log)]


def test_log_start_above_the_checkpoint_is_the_first_dirty_offset(log: Compaction) -> None:
    filled(log)
    log.log.increment_log_start_offset(Offset(17))
    assert log.cleaner.manager.to_clean(log.log, 0).first_dirty == 17
    assert log.clean()
    assert len(records(log.log)) == 5


def test_delete_of_a_log_removes_its_checkpoint_entry(tmp_path: Path, log: Compaction) -> None:
    assert filled(log).clean()
    log.cleaner.manager.deleted(log.log)
    log.host.tasks.run()
    assert checkpoint(tmp_path) == "0\n0\n"


def test_grab_filthiest_returns_logs_by_falling_dirty_ratio(tmp_path: Path) -> None:
    host = StorageHost()
    logs = [Compaction(str(tmp_path / f"orders-{n}"), host=host).log for n in range(3)]
    for number, log in enumerate(logs):
        log.topic_partition = TopicPartition("orders", number)
        for _ in range(8):
            log.append_as_leader(build_batch([(b"k", b"v" * 100, ())], timestamp_ms=1), EPOCH)
        log.roll()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\norders 0 6\norders 2 3\n")
    manager = LogCleanerManager(host.host, lambda: logs)
    order: list[int] = []
    while (task := manager.grab_filthiest()) is not None:
        order.append(task.log.topic_partition.partition)
    assert order == [1, 2, 0]


# -- events that abort a cleaning, at each of its steps


def steps_of(log: Compaction) -> Cleaning:
    task = log.cleaner.manager.grab_filthiest()
    assert task is not None
    manager = log.cleaner.manager
    return Cleaning(log.host.host, task, log.offsets, lambda: manager.check(log.log))


def truncated(log: Compaction) -> None:
    log.log.truncate_to(Offset(3))


def emptied(log: Compaction) -> None:
    log.log.truncate_fully_and_start_at(Offset(100))


def closed(log: Compaction) -> None:
    log.log.abandon()


def failed(log: Compaction) -> None:
    log.log.fail("try", OSError("no"))


def paused(log: Compaction) -> None:
    log.cleaner.manager.pause(TP)


@pytest.mark.parametrize("event", [truncated, emptied, closed, failed, paused])
@pytest.mark.parametrize("after", range(12))
def test_aborted_cleaning_swaps_no_segment_in(log: Compaction, event: Callable[[Compaction], None], after: int) -> None:
    filled(log)
    steps = steps_of(log).steps()
    for number, step in enumerate(steps):
        if number == after:
            event(log)
            with pytest.raises(CleaningAbortedError):
                log.cleaner.manager.check(log.log)  # the cleaner's check before a swap
            if not isinstance(step, Replacement):
                with pytest.raises((CleaningAbortedError, OSError, ValueError)):
                    list(steps)
            break
        if isinstance(step, Replacement):
            break  # this test does not swap, so the cleaning cannot reach the later groups
    steps.close()
    assert not list(Path(log.folder).glob("*.cleaned"))


def test_retention_between_two_steps_prevents_the_swap(tmp_path: Path) -> None:
    log = filled(Compaction(str(tmp_path / "orders-0"), {"cleanup.policy": "compact,delete"}))
    steps = steps_of(log).steps()
    replacement = next(step for step in steps if isinstance(step, Replacement))
    assert can_swap(log.log, replacement.old)
    log.log.increment_log_start_offset(Offset(30))
    clean_up(log.host.host, log.log)
    assert not can_swap(log.log, replacement.old)


def test_policy_compact_and_delete_cleans_and_expires(tmp_path: Path) -> None:
    topic = {"cleanup.policy": "compact,delete", "retention.ms": 1_000}
    log = filled(Compaction(str(tmp_path / "orders-0"), topic))
    assert log.clean()
    assert len(records(log.log)) == 5
    log.host.clock.now += 1_001
    log.put((b"fresh", b"1"))
    log.cleaner.retain()
    assert [record.key for record in records(log.log)] == [b"fresh"]
    assert log.log.log_start_offset == 40


def test_clean_with_a_refused_fsync_takes_the_log_offline(log: Compaction) -> None:
    filled(log)
    log.host.disk.refuse_syncs = True
    assert not log.clean()
    assert log.log.failed is not None
    assert not list(Path(log.folder).glob("*.cleaned"))


def test_clean_with_a_refused_rename_takes_the_log_offline_and_loses_no_key(
    log: Compaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(log)
    renamed: list[str] = []

    def refuse(_disk: object, source: str, target: str) -> None:
        if len(renamed) == 4:
            raise OSError(5, "refused by the test", source)
        renamed.append(target)
        Path(source).rename(target)

    with monkeypatch.context() as patched:
        patched.setattr(type(log.host.disk), "rename", refuse)
        assert not log.clean()
    assert log.log.failed is not None
    log.log.abandon()
    again = log.host.open(log.folder, log.topic, clean=False)
    assert {record.key: record.value for record in records(again)} == {b"k%d" % (n % 5): b"%d" % n for n in range(40)}


def test_pace_is_shared_by_all_cleaners(log: Compaction) -> None:
    log.broker.dynamic["log.cleaner.io.max.bytes.per.second"] = 1_000.0
    assert log.cleaner.pace_ms(100) == 100
    assert log.cleaner.pace_ms(50) == 150
    log.host.clock.now += 1_000
    assert log.cleaner.pace_ms(0) == 0


def test_a_running_broker_starts_and_ends_cleaner_threads() -> None:
    host = ManualHost()
    config = BrokerConfig.parse({"log.cleaner.threads": 1, "log.cleaner.dedupe.buffer.size": 10**7})
    cleaner = LogCleaner(host, config, list)
    cleaner.settings_changed()
    assert host.running == [], "before the start"
    cleaner.start()
    for threads in (3, 1, 0, 2):
        config.dynamic["log.cleaner.threads"] = threads
        cleaner.settings_changed()
        host.run_due()
        assert host.running == [f"log-cleaner-{number}" for number in range(threads)]
    host.run(cleaner.stop())
    assert host.running == []


def test_a_running_broker_changes_the_memory_of_its_cleaners(log: Compaction) -> None:
    assert log.cleaner.offset_map().entries_max == int(10**7 * 0.9) // ENTRY_BYTES
    log.broker.dynamic |= {
        "log.cleaner.dedupe.buffer.size": 2 * 10**7,
        "log.cleaner.threads": 4,
        "log.cleaner.io.buffer.load.factor": 0.5,
    }
    assert log.cleaner.offset_map().entries_max == 25 * 10**5 // ENTRY_BYTES
