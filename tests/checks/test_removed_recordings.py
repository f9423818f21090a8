"""A verdict is never valid where a forbidden anomaly could not be judged (L6).

Any part of what a run recorded is removed; the verdict must not become valid. `needs.py` has a row for each anomaly.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from harrow.cluster import broker_folder
from harrow.harness import run_folder
from harrow.harness.checks import Status, judge
from harrow.harness.checks.guarantees import ALL_ANOMALIES, FORBIDDEN
from harrow.harness.checks.needs import NEEDS, unjudged_anomalies
from harrow.harness.checks.promise_findings import PromiseFindings, write_findings
from harrow.harness.histories.group_states import GroupsAtTheEnd, write_groups
from harrow.harness.histories.recordings import Recording, Recordings
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from judged_runs import TOPIC, RunFolder, record_batch
from long_runs import LONG, examples
from run_stories import BAD, GOOD, Story

NODES = (1, 2, 3)
BROKER_FILES = (
    broker_folder.TAP,
    broker_folder.TAP_NAMES,
    broker_folder.TAP_COMMITS,
    broker_folder.TAP_TRANSACTIONS,
    broker_folder.TAP_MEMBERS,
    broker_folder.TAP_WATERMARKS,
    broker_folder.TAP_SHARES,
    broker_folder.TRACE,
    broker_folder.DATA,
)
PARTS = (
    run_folder.RUN,
    run_folder.GROUPS,
    run_folder.FAULTS,
    run_folder.HISTORY,
    run_folder.DRAIN,
    run_folder.CLUSTER,
    run_folder.PROMISE_FINDINGS,
    *(f"{run_folder.CLUSTER}/{broker_folder.broker_name(node)}" for node in NODES),
    *(f"{run_folder.CLUSTER}/{broker_folder.broker_name(2)}/{name}" for name in BROKER_FILES),
)
OF_A_BROKER = f"{run_folder.CLUSTER}/{broker_folder.broker_name(2)}"
NOT_NEEDED = {
    "best-effort": {
        run_folder.GROUPS,
        run_folder.PROMISE_FINDINGS,
        f"{OF_A_BROKER}/{broker_folder.TAP}",
        f"{OF_A_BROKER}/{broker_folder.TAP_NAMES}",
    },
    "at-most-once": {run_folder.GROUPS},
}
"""By guarantee, what none of its anomalies needs; every part is needed for the other guarantees."""
STRICTEST = "exactly-once, ordered"
BY_HAND = {Recording.REPLICA_LOGS, Recording.LOG}
"""What a story may lack: it is declared as not recorded."""


def complete(run: RunFolder, story: Story) -> Path:
    """Write a story with everything else that a run of three brokers records; return the folder."""
    story(run)
    for node in NODES:
        folder = run.folder / run_folder.CLUSTER / broker_folder.broker_name(node)
        (folder / broker_folder.DATA).mkdir(parents=True, exist_ok=True)
        for name in BROKER_FILES:
            if name != broker_folder.DATA:
                (folder / name).touch()
    write_groups(run.folder, GroupsAtTheEnd(asked_ns=run.tick()))
    findings = PromiseFindings()
    write_findings(run.folder, [TOPIC], findings)
    folder = run.done()
    logs = list((folder / run_folder.CLUSTER).glob(f"*/{broker_folder.DATA}/{TOPIC}-0"))
    run_folder.write_run(
        folder,
        seed=1,
        brokers=3,
        config={},
        log_dirs=dict.fromkeys(NODES, ()),
        started_ns=1,
        unrecorded=() if logs else sorted(BY_HAND),
    )
    run_folder.note(folder, histories=1, promised=True, chaos_blocks=int((folder / run_folder.FAULTS).exists()))
    return folder


def with_a_fault(run: RunFolder) -> None:
    """Records before and during a fault, on three replicas, read by a client."""
    run.send("a", 0)
    start = run.tick()
    run.send("b", 1)
    run.read("a", 0)
    run.read("b", 1)
    run.fault(start, run.tick())
    run.final({0: "a", 1: "b"})
    run.logs(record_batch(["a", "b"]))


def without(folder: Path, removed: Iterable[str], place: Path) -> Path:
    """Return a copy of a run folder without some of its parts."""
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    for part in removed:
        path = copy / part
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return copy


def test_every_anomaly_that_is_forbidden_has_needs() -> None:
    assert set(NEEDS) == ALL_ANOMALIES
    assert all(needs for needs in NEEDS.values())
    assert {name for names in FORBIDDEN.values() for name in names} <= set(NEEDS)


def test_a_run_with_everything_is_valid(run: RunFolder) -> None:
    folder = complete(run, with_a_fault)
    verdict = judge(folder, topics=[TOPIC], guarantee=STRICTEST, engine="inline")
    assert verdict.status is Status.VALID, verdict
    assert "not judged" not in str(verdict)


@pytest.mark.parametrize("part", PARTS)
def test_without_a_part_the_verdict_is_unknown_and_names_what_is_missing(
    part: str, run: RunFolder, tmp_path: Path
) -> None:
    folder = without(complete(run, with_a_fault), [part], tmp_path)
    verdict = judge(folder, topics=[TOPIC], guarantee=STRICTEST, engine="inline")
    assert verdict.status is Status.UNKNOWN, verdict
    words = "\n".join(verdict.reasons)
    assert "the run folder has no" in words or "could not be read" in words, words


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_run_is_never_valid_whatever_part_is_removed(name: str, run: RunFolder, tmp_path: Path) -> None:
    story, guarantee, _ = BAD[name]
    folder = complete(run, story)
    parts = list(PARTS)
    random.Random(name).shuffle(parts)
    for part in parts if LONG else parts[:4]:
        less = without(folder, [part], tmp_path)
        verdict = judge(less, topics=[TOPIC], guarantee=guarantee, engine="inline")
        assert verdict.status is not Status.VALID, (part, str(verdict))


def has_part(folder: Path, part: str) -> bool:
    """Whether a part says anything: a data folder without logs is as good as none."""
    path = folder / part
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


STORIES = {**{name: story for name, (story, *_) in BAD.items()}, **GOOD, "fault": with_a_fault}


@given(
    name=st.sampled_from(sorted(STORIES)),
    removed=st.sets(st.sampled_from(PARTS), min_size=1),
    guarantee=st.sampled_from(sorted(FORBIDDEN)),
)
@settings(
    examples(20, 2_000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_verdict_is_valid_unless_every_forbidden_anomaly_was_judged(
    name: str, removed: set[str], guarantee: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("removed")
    whole = complete(RunFolder(place / "run"), STORIES[name])
    existed = {part for part in removed if has_part(whole, part)}
    assume(existed)
    folder = without(whole, removed, place)
    verdict = judge(folder, topics=[TOPIC], guarantee=guarantee, engine="inline")
    if verdict.status is Status.VALID:
        assert existed <= NOT_NEEDED.get(guarantee, set()), str(verdict)
    shutil.rmtree(place)


def test_what_a_backend_does_not_record_is_a_note(run: RunFolder) -> None:
    folder = complete(run, with_a_fault)
    unrecorded = [Recording.REPLICA_LOGS, Recording.BROKER_EVENTS]
    run_folder.note(folder, unrecorded=unrecorded)
    verdict = judge(folder, topics=[TOPIC], guarantee="no-loss", engine="inline")
    assert verdict.status is Status.VALID, verdict
    assert any("the logs on the brokers' disks were not judged" in note for note in verdict.notes)
    assert any("two-leaders" in note and "does not record the trace" in note for note in verdict.notes)


def test_a_part_of_a_partition_is_enough_for_a_doubt_that_names_it() -> None:
    everything = frozenset({Recording.FINAL_READ, Recording.LOG, Recording.REPLICA_LOGS})
    partitions = {("orders", at): everything for at in range(9)}
    partitions[("orders", 4)] -= {Recording.FINAL_READ}
    found = unjudged_anomalies(["unseen", "duplicate", "lost-write"], Recordings(), partitions)
    needs = "it needs the final read, which a test makes by harrow.verify(…)"
    assert found.reasons == [f"unseen and duplicate were not judged in orders-4: {needs}"]
    assert not found.notes
