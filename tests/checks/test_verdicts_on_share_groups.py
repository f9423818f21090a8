"""Share groups, from the files of the taps to the verdict, on Spark and in this process (KIP-932, L2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.seam import (
    SHARE_ACCEPTED,
    SHARE_ACQUIRED,
    SHARE_ARCHIVED,
    SHARE_EXPIRED,
    SHARE_LOADED,
    SHARE_RELEASED,
    TappedRequest,
)
from harrow.harness import run_folder
from harrow.harness.checks import SparkHandle, Status, Verdict, judge
from harrow.harness.histories.recordings import Recording
from harrow.harness.run.share_claims import note_consumed_by, share_groups
from judged_runs import TOPIC, RunFolder

LIMIT = "group.share.delivery.count.limit"


def history(run: RunFolder) -> None:
    for offset, value in enumerate("abcd"):
        run.send(value, offset)
    run.final(dict(enumerate("abcd")))
    run.shared(SHARE_LOADED, 0, -1)


def verdict_on(
    run: RunFolder,
    guarantee: str,
    *,
    claims: tuple[str, ...] = (),
    spark: SparkHandle | None = None,
    limit: int | None = None,
    traced: bool = False,
) -> Verdict:
    """`traced`: the brokers are Harrow's, which write traces."""
    folder = run.done()
    run_folder.write_run(
        folder,
        seed=1,
        brokers=1,
        config={} if limit is None else {LIMIT: limit},
        log_dirs={1: ()},
        started_ns=1,
        unrecorded=sorted(
            {*run_folder.read_run(folder)["unrecorded"]} - ({Recording.BROKER_EVENTS} if traced else set())
        ),
    )
    if claims:
        note_consumed_by(folder, [TOPIC], claims)
    run.coordinators_did_nothing(1, 2)
    return judge(
        folder, topics=[TOPIC], guarantee=guarantee, engine="inline" if spark is None else "spark", spark=spark
    )


def test_each_engine_names_group_member_and_records(tmp_path: Path, spark: SparkHandle) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.shared(SHARE_ACQUIRED, 0, 3, count=1)
    run.shared(SHARE_ACCEPTED, 0, 3)
    run.shared(SHARE_ACQUIRED, 2, 3, member="m-2", count=2)
    for engine in (spark, None):
        verdict = verdict_on(run, "at-most-once", spark=engine)
        assert verdict.status is Status.INVALID, str(verdict)
        assert verdict.anomaly_counts == {"redelivered-after-accept": 2}
        assert "share group workers: m-1 (accept on broker 1); m-2 (ShareFetch on broker 1, delivery 2)" in str(verdict)


def test_a_leader_that_was_paused_gives_what_a_later_one_has_stored(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.shared(SHARE_ACQUIRED, 0, 0, count=1, node=2, leader_epoch=5)
    run.shared(SHARE_ACCEPTED, 0, 0, node=2, leader_epoch=5)
    run.shared(SHARE_ACQUIRED, 0, 0, member="m-2", count=2, node=1, leader_epoch=4)
    assert not verdict_on(run, "at-most-once").anomaly_counts
    run.shared(SHARE_ACQUIRED, 0, 0, member="m-2", count=2, node=1, leader_epoch=6)
    assert verdict_on(run, "at-most-once").anomaly_counts == {"redelivered-after-accept": 1}


def test_an_acceptance_after_the_lock_has_ended_says_nothing(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.shared(SHARE_ACQUIRED, 0, 0, count=5)
    run.shared(SHARE_EXPIRED, 0, 0)
    run.shared(SHARE_ARCHIVED, 0, 0)
    run.shared(SHARE_ACCEPTED, 0, 0)  # below the start offset: no error, and nothing is stored
    run.shared(SHARE_ACQUIRED, 0, 0, member="m-2", count=5)
    assert not verdict_on(run, "at-most-once").anomaly_counts


def test_what_a_guarantee_allows_is_a_note(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.shared(SHARE_ACQUIRED, 0, 3, count=1)
    run.shared(SHARE_ACQUIRED, 3, 3, member="m-2", count=2)
    assert verdict_on(run, "at-most-once").anomaly_counts == {"wrong-lock": 1}
    allowed = verdict_on(run, "at-least-once")
    assert allowed.status is not Status.INVALID
    assert any("at-least-once allows this" in note for note in allowed.notes)


@pytest.mark.parametrize("limit", [None, 3])
def test_the_limit_of_deliveries_is_that_of_the_brokers(tmp_path: Path, limit: int | None) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.shared(SHARE_ACQUIRED, 0, 0, count=4)
    run.shared(SHARE_RELEASED, 0, 0)
    found = verdict_on(run, "at-most-once", limit=limit)
    assert found.anomaly_counts == ({} if limit is None else {"over-delivered": 1})


@pytest.mark.parametrize("ours", [True, False], ids=["on our brokers", "on others"])
def test_a_limit_that_a_client_may_have_changed_is_a_doubt(tmp_path: Path, ours: bool) -> None:
    run = RunFolder(tmp_path / "run")
    run.requested(TappedRequest("admin", 44, 0, 5, 6), node=2)
    history(run)
    run.shared(SHARE_ACQUIRED, 0, 0, count=4)
    found = verdict_on(run, "at-most-once", limit=3, traced=ours)
    if ours:  # the limit is the brokers' own, which no request changes
        assert found.anomaly_counts == {"over-delivered": 1}
    else:
        assert found.status is Status.UNKNOWN
        assert any("the limit of deliveries is not known" in reason for reason in found.reasons)


@pytest.mark.parametrize("api", [42, 91, 92])
def test_deliveries_after_a_client_moved_a_group_are_a_doubt(tmp_path: Path, api: int) -> None:
    run = RunFolder(tmp_path / "run")
    run.requested(TappedRequest("admin", api, 0, 5, 6), node=2)
    history(run)
    for _ in range(2):
        run.shared(SHARE_ACQUIRED, 0, 0, count=1)
        run.shared(SHARE_ACCEPTED, 0, 0)
    found = verdict_on(run, "at-most-once")
    assert found.status is Status.UNKNOWN
    assert any("moved or deleted share groups" in reason for reason in found.reasons)


def test_a_group_that_must_have_consumed_the_topic(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.shared(SHARE_ACQUIRED, 0, 2, count=1)
    run.shared(SHARE_ACCEPTED, 0, 0)
    run.shared(SHARE_ACQUIRED, 1, 1, count=5)
    run.shared(SHARE_ARCHIVED, 1, 1)
    assert verdict_on(run, "at-least-once").anomaly_counts == {"given-up": 1}
    found = verdict_on(run, "at-least-once", claims=share_groups("workers"))
    assert found.anomaly_counts == {"never-delivered": 1, "given-up": 1, "stuck-in-flight": 1}
    assert found.status is Status.INVALID


def test_a_claim_about_a_group_without_rows_is_a_doubt(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    found = verdict_on(run, "at-least-once", claims=("wrokers",))
    assert found.status is Status.UNKNOWN
    assert any("check the name of the group" in reason for reason in found.reasons)


@pytest.mark.parametrize("given", [7, None, [""], [7]])
def test_a_claim_needs_names(given: object) -> None:
    with pytest.raises(ConfigError, match=r"expected the group\.id of a share group"):
        share_groups(given)
    assert share_groups("workers") == share_groups(["workers"]) == ("workers",)
