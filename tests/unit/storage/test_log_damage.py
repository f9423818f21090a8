"""B9, B10: a random log whose folder is damaged in every way a crash or an operator can, and then opened.

No record before the first damaged byte is lost, no damaged batch is served, and every served batch was appended.
Leader epochs and producer states agree with the batches. A second opening changes nothing.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from log_damage import STEPS, Damage, History, check
from long_runs import examples
from storage_host import StorageHost


def recovery_events(host: StorageHost) -> list[dict[str, Any]]:
    return [fields for event, fields in host.notes.events if event == "log.recovered"]


@examples(20, 60)
@given(
    st.lists(st.sampled_from(STEPS), max_size=45),
    st.booleans(),
    st.integers(0, 2**32),
    st.sets(st.sampled_from(["index", "indexes missing", "leftovers", "swap", "epochs", "snapshots"])),
    st.sampled_from(["", "torn", "zeroed", "random"]),
    st.sampled_from(["as written", "missing", "from the future"]),
)
@example(
    ["append", "append", "append", "marker", "move start", "append"], False, 133, set(), "torn", "as written"
)  # the log end offset equals the log start offset, and an epoch started before it
@example(
    [*["append"] * 11, "marker", "follow"],
    False,
    36638,
    {"swap", "index", "indexes missing", "leftovers"},
    "",
    "as written",
)  # a swap file beside a smaller `.cleaned` file: the segments that it would replace stay
def test_open_of_a_damaged_folder_keeps_every_batch_before_the_damage(
    steps: list[str], clean: bool, seed: int, others: set[str], hurt: str, checkpoint: str
) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        chance = random.Random(seed)
        history = History(Path(tmp) / "orders-0", chance)
        for step in steps:
            history.operations[step]()
        history.stop(clean=clean)
        if checkpoint == "missing":
            history.point = history.start = 0
        elif checkpoint == "from the future":
            history.point += 1_000
        point = history.point
        if checkpoint == "from the future":  # the last segment is read nevertheless
            point = max(int(path.stem) for path in history.folder.glob("*.log"))
        damage = Damage(history.folder, chance, point, history.kept)
        if hurt and not clean:
            damage.log_kinds[hurt]()
        for name in sorted(others - ({"swap"} if hurt else set())):
            damage.other_kinds[name]()
        first = history.reopen()
        check(first, history, damage)
        found = (first.log_end_offset, first.epochs.entries(), first.producers.entries())
        first.abandon()
        history.clean = False
        again = history.reopen()
        assert sum(event["truncated_bytes"] for event in recovery_events(history.host)) == 0
        assert (again.log_end_offset, again.epochs.entries()) == found[:2]
        check(again, history, damage)
        history.stop(clean=True)
        last = history.reopen()
        assert recovery_events(history.host) == [], "a clean shutdown leaves nothing to recover"
        check(last, history, damage)
        last.abandon()


@pytest.mark.parametrize("cut_below", [True, False])
def test_recovery_event_names_the_removed_offsets_and_the_reason(tmp_path: Path, cut_below: bool) -> None:
    history = History(tmp_path / "orders-0", random.Random(1))
    for _ in range(30):
        history.append()
    history.stop(clean=False)
    victim = history.kept[12 if cut_below else -1]
    damage = Damage(history.folder, random.Random(2), 0, [victim])
    damage.scrambled()
    bases = sorted(int(path.stem) for path in history.folder.glob("*.log"))
    removed = [base for base in bases if base > victim.base]
    size = sum(path.stat().st_size for path in history.folder.glob("*.log"))
    log = history.reopen()
    (event,) = recovery_events(history.host)
    assert event["log_end_offset"] == log.log_end_offset == victim.base
    assert event["removed_base_offsets"] == removed
    assert event["truncated_bytes"] == size - log.size
    assert "byte" in event["reason"]
    assert ".log" in event["reason"]


def test_crash_while_recovery_removes_segments_leaves_no_gap(tmp_path: Path) -> None:
    """Recovery removes later segments before the bad batch, so that the next start finds the bad batch again."""
    history = History(tmp_path / "orders-0", random.Random(1))
    for _ in range(40):
        history.append()
    history.stop(clean=False)
    victim = history.kept[9]
    damage = Damage(history.folder, random.Random(2), 0, [victim])
    damage.scrambled()
    host = StorageHost()
    removals: list[str] = []
    remove = host.disk.remove

    class CrashError(Exception):
        pass

    def crashing(path: str) -> None:
        removals.append(path)
        if len(removals) == 6:
            raise CrashError
        remove(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(host.disk), "remove", staticmethod(crashing))
        with pytest.raises(CrashError):
            host.open(str(history.folder), {"internal.segment.bytes": 700}, clean=False)
    left = sorted(int(path.stem) for path in history.folder.glob("*.log"))
    log = history.reopen()
    assert log.log_end_offset == victim.base
    check(log, history, Damage(history.folder, random.Random(), 0, [], first_bad=victim.base))
    assert len(left) > 1
