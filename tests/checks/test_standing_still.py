"""`stalled` and the table of faults and clients: hand-made histories for each rule, planted both ways (L4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harrow.cluster.events.brokers import BrokerReady, BrokerStopping
from harrow.cluster.events.coordinators import GroupsLoaded
from harrow.cluster.events.partitions import PartitionEvent
from harrow.cluster.host.seam import COMPLETE_COMMIT, PREPARE_COMMIT, TRANSACTION_ONGOING
from harrow.harness.checks.progress.findings import ProgressFindings
from hypothesis import given, settings
from hypothesis import strategies as st
from progress_histories import COORDINATOR, History


def names(found: ProgressFindings) -> list[str]:
    return [str(row.explanation).split(" made no")[0] for row in found.anomalies]


def traffic(history: History, begin: int, end: int, *, lag_s: float = 0.01) -> None:
    """One record each half second, with the offset 2 s; it is delivered to bill and committed."""
    for half in range(begin * 2, end * 2):
        at = half / 2
        history.acked(at, half)
        history.delivered(at + lag_s, half)
        history.committed(at + 2 * lag_s, half + 1)


def reader_that_stalls(*, silent_s: int = 15) -> History:
    """Records are sent for 60 s; the reader of the group rests from 10 s on, and reads all of them later."""
    history = History()
    history.owns(0)
    history.state(0, "Stable")
    history.fault(9, 10, 3)
    traffic(history, 0, 10)
    for half in range(20, 120):
        history.acked(half / 2, half)
    history.delivered(10 + silent_s, 20, 2 * (10 + silent_s) - 1)
    history.committed(10.1 + silent_s, 2 * (10 + silent_s))
    for half in range(2 * (10 + silent_s), 120):
        history.delivered(half / 2 + 0.01, half)
    return history


# ---- a client that stalls although the cluster serves ----------------------------------------------


def test_a_group_that_reads_nothing_although_records_are_there_is_stalled() -> None:
    found = reader_that_stalls().judge(5)
    (anomaly,) = found.anomalies
    assert anomaly.name == "stalled"
    assert (anomaly.topic, anomaly.partition) == ("orders", 0)
    assert anomaly.offsets == [20, 50]
    text = anomaly.explanation
    assert "group billing made no progress for 15.0 s, from 10.00 s to 25.00 s" in text
    assert "broker 1 led the partition with the ISR [1, 2, 3] and broker 2 was the coordinator" in text
    assert "fault 1, fault 1, was healed at 10.00 s" in text
    assert "recovers_within allows 5 s" in text


def test_the_table_says_how_long_after_the_healing_a_group_went_on() -> None:
    found = reader_that_stalls().judge()
    row = next(row for row in found.table if row["kind"] == "group")
    assert (row["fault"], row["client"], row["partition"]) == ("1", "billing", "orders-0")
    assert row["without_progress_s"] == pytest.approx(15, abs=0.1)
    assert row["recovered_s"] == pytest.approx(15, abs=0.1)
    assert row["stalled_s"] == pytest.approx(15, abs=0.1)
    assert row["cluster_could_not_serve_s"] == 0


def test_the_first_progress_after_the_healing_may_come_before_the_standstill() -> None:
    history = reader_that_stalls()
    history.faults.clear()
    history.fault(8, 9.3, 3)
    row = next(row for row in history.judge().table if row["kind"] == "group")
    assert row["recovered_s"] == pytest.approx(0.2, abs=0.1)
    assert row["stalled_s"] == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize(("bound", "is_stalled"), [(14.0, True), (16.0, False), (None, True)])
def test_the_bound_decides_what_is_an_anomaly(bound: float | None, is_stalled: bool) -> None:
    assert bool(reader_that_stalls().judge(bound).anomalies) is is_stalled


def test_a_bound_of_a_chaos_block_is_about_its_faults() -> None:
    history = reader_that_stalls()
    assert names(history.judge(of_faults={"1": 5.0})) == ["group billing"]
    assert not history.judge(of_faults={"2": 5.0}).anomalies


def test_without_a_bound_a_standstill_of_less_than_ten_seconds_is_in_the_table_only() -> None:
    found = reader_that_stalls(silent_s=8).judge()
    assert not found.anomalies
    assert found.table[0]["stalled_s"] == pytest.approx(8, abs=0.1)


def test_a_producer_whose_records_wait_is_stalled() -> None:
    history = History()
    history.fault(9, 10, 3)
    for at in range(20):
        history.acked(at / 2, at)
    history.acked(22, 20, made_s=9.8, last=24)
    for at in range(5):
        history.acked(22.5 + at / 2, 25 + at)
    (anomaly,) = history.judge(5).anomalies
    assert anomaly.offsets == [20, 24]
    assert "producer shop made no progress for 12.0 s, from 10.00 s to 22.00 s" in anomaly.explanation
    assert "its records that got offsets 20 to 24 later were waiting" in anomaly.explanation


def test_a_producer_that_asks_the_wrong_broker_for_too_long_is_stalled() -> None:
    history = History()
    history.fault(9, 10, 3)
    for at in range(20):
        history.acked(at / 2, at)
    for tenth in range(100, 200):
        history.refused(tenth / 10)
    (anomaly,) = history.judge(5).anomalies
    assert "refused by brokers that did not lead" in anomaly.explanation
    assert "until the end of the run" in anomaly.explanation


def test_a_group_whose_new_owner_never_begins_is_stalled() -> None:
    """The next owner begins at the committed offset, below what the owner before had read."""
    history = History(end_s=40)
    history.state(0, "Stable")
    history.owns(0, "m1")
    traffic(history, 0, 10)
    history.delivered(9.9, 20, 29)
    history.acked(9.8, 20, last=29)
    history.fault(9, 10, 3)
    history.releases(10.5, "m1")
    history.owns(11, "m2", client="other")
    (anomaly,) = history.judge(5).anomalies
    assert anomaly.offsets == [20, 29]
    assert "from 11.00 s to 40.00 s" in anomaly.explanation


def test_a_member_that_is_cut_off_and_returns_stood_still_meanwhile() -> None:
    history = History(end_s=60)
    history.state(0, "Stable")
    history.owns(0, "m1")
    traffic(history, 0, 10)
    history.fault(9, 10, 3)
    for half in range(20, 120):
        history.acked(half / 2, half)
    history.releases(20, "m1", expired=True)
    history.state(20, "Empty")
    history.owns(40, "m2")
    history.state(40, "Stable")
    history.delivered(40.1, 20, 79)
    for half in range(80, 120):
        history.delivered(half / 2 + 0.2, half)
    assert "for 30.1 s" in history.judge(5).anomalies[0].explanation


def test_a_decided_transaction_that_is_not_completed_is_stalled() -> None:
    history = History(end_s=60)
    history.fault(9, 10, 3)
    history.transaction(5, TRANSACTION_ONGOING)
    history.transaction(8, PREPARE_COMMIT)
    history.transaction(30, COMPLETE_COMMIT)
    (anomaly,) = history.judge(5).anomalies
    assert "transactional id tx made no progress for 20.0 s" in anomaly.explanation
    assert "its transaction was decided and not completed" in anomaly.explanation


def test_a_reader_without_a_group_that_continues_late_is_stalled() -> None:
    history = reader_without_a_group(resumes_at=10 * 2)
    assert names(history.judge(5)) == ["reader bill"]


def reader_without_a_group(resumes_at: int) -> History:
    history = History()
    history.fault(9, 10, 3)
    for half in range(120):
        history.acked(half / 2, half)
        if half < 20:
            history.delivered(half / 2 + 0.01, half)
    history.delivered(25, resumes_at, 49)
    for half in range(50, 120):
        history.delivered(half / 2 + 0.01, half)
    return history


# ---- a cluster that does not serve -----------------------------------------------------------------


def no_leader(history: History) -> None:
    history.fault(10, 25, 1)


def too_small_an_isr(history: History) -> None:
    history.least_isr = 2
    history.isr(10, [1])
    history.isr(25, [1, 2])


def a_paused_follower_in_the_isr(history: History) -> None:
    history.fault(10, 25, 3)


def no_coordinator(history: History) -> None:
    history.events = [
        row for row in history.events if isinstance(row.event, PartitionEvent) and row.event.topic == "orders"
    ]
    history.leads(0, 2, isr=[2], place=COORDINATOR)
    history.fault(10, 25, 2)
    history.isr(9.9, [1, 3])


def a_coordinator_that_loads(history: History) -> None:
    history.broker(GroupsLoaded(partition=COORDINATOR[1], groups=1, took_ms=15_000), 25, 2)


def a_broker_that_stops(history: History) -> None:
    history.broker(BrokerStopping(node_id=1), 10, 1)
    history.broker(BrokerReady(node_id=1), 25, 1)


def a_dead_registry(history: History) -> None:
    history.fault(10, 25)


@pytest.mark.parametrize(
    "outage",
    [
        no_leader,
        too_small_an_isr,
        a_paused_follower_in_the_isr,
        no_coordinator,
        a_coordinator_that_loads,
        a_broker_that_stops,
        a_dead_registry,
    ],
)
def test_a_client_is_not_blamed_while_the_cluster_cannot_serve(outage: Callable[[History], None]) -> None:
    history = reader_that_stalls()
    outage(history)
    found = history.judge(5)
    assert not found.anomalies
    row = next(row for row in found.table if row["kind"] == "group")
    assert row["cluster_could_not_serve_s"] == pytest.approx(15, abs=0.2)
    assert row["stalled_s"] < 1


def test_a_new_leader_ends_the_time_in_which_the_cluster_could_not_serve() -> None:
    history = reader_that_stalls()
    history.fault(10, 25, 1)
    history.leads(12, 2, isr=[2, 3], epoch=1)
    history.leads(12, 2, isr=[2, 3], epoch=1, place=COORDINATOR)
    (anomaly,) = history.judge(5).anomalies
    assert "from 12.00 s to 25.00 s" in anomaly.explanation
    assert "the cluster could not serve for 2.0 s" in anomaly.explanation


def test_a_late_event_of_an_earlier_leader_changes_nothing() -> None:
    history = reader_that_stalls()
    history.leads(5, 2, isr=[2, 3], epoch=1)
    history.leads(6, 1, epoch=0)
    assert "broker 2 led the partition" in history.judge(5).anomalies[0].explanation


def test_a_topic_that_was_created_again_begins_with_leader_epoch_0() -> None:
    history = reader_that_stalls()
    history.leads(1, 2, epoch=4)
    history.leads(5, 3, epoch=0, topic_id="next")
    assert "broker 3 led the partition" in history.judge(5).anomalies[0].explanation


def test_a_rule_that_waits_for_a_request_disturbs_from_its_effect_on() -> None:
    history = reader_that_stalls()
    history.faults.clear()
    history.fault(9, 26, 1, acts_from_s=25.5)
    assert names(history.judge(5)) == ["group billing"]


def test_a_run_without_traces_of_leaders_blames_no_client() -> None:
    history = reader_that_stalls()
    history.events.clear()
    assert not history.judge(5).anomalies


def test_a_commit_of_what_was_read_before_is_no_progress() -> None:
    history = reader_that_stalls()
    history.commits = [row for row in history.commits if row["offset"] != 20]
    history.committed(14, 20)
    assert "from 10.00 s to 25.00 s" in history.judge(5).anomalies[0].explanation


# ---- what is no standstill of a client -------------------------------------------------------------


def test_a_group_that_waits_for_a_dead_member_is_reported_as_that() -> None:
    history = History()
    history.state(0, "Stable")
    history.owns(0, "m1", client="dead")
    traffic(history, 0, 10)
    history.fault(9, 10, 3)
    for half in range(20, 120):
        history.acked(half / 2, half)
    history.releases(20, "m1", client="dead", expired=True)
    history.owns(20.5, "m2")
    for half in range(20, 120):
        history.delivered(max(half / 2, 20.6), half)
    found = history.judge(5)
    assert not found.anomalies
    row = next(row for row in found.table if row["kind"] == "group")
    assert row["waited_for_members_s"] == pytest.approx(10, abs=0.2)


def test_the_time_of_a_rebalance_does_not_count() -> None:
    history = reader_that_stalls()
    history.state(10.2, "PreparingRebalance")
    history.state(24.5, "Stable")
    assert not history.judge(5).anomalies


def test_a_program_that_a_fault_stopped_is_not_stalled() -> None:
    history = reader_that_stalls()
    history.fault(10, 24, of_application=True)
    assert not history.judge(5).anomalies


def test_a_member_that_left_is_not_stalled() -> None:
    history = reader_that_stalls()
    history.releases(10.5)
    history.owns(24.9)
    assert not history.judge(5).anomalies


def test_a_reader_without_a_group_that_begins_elsewhere_was_another_one() -> None:
    assert not reader_without_a_group(resumes_at=30).judge(5).anomalies


def test_a_reader_without_a_group_that_rests_without_a_fault_is_left_alone() -> None:
    history = reader_without_a_group(resumes_at=20)
    history.faults.clear()
    assert not history.judge(5).anomalies


def test_an_application_that_works_on_what_it_has_read_makes_progress() -> None:
    """It has fetched half of the records, and commits one in two seconds."""
    history = History(end_s=60)
    history.owns(0)
    history.state(0, "Stable")
    history.fault(9, 10, 3)
    history.acked(0.5, 0, last=99)
    history.delivered(1, 0, 49)
    for offset in range(1, 29):
        history.committed(2 * offset, offset)
    assert not history.judge(5).anomalies


def test_an_application_that_is_slow_without_faults_is_not_stalled_with_one() -> None:
    """It takes eight seconds for what it has read, before the fault as after it."""
    history = History(end_s=100)
    history.owns(0)
    history.state(0, "Stable")
    for second in range(100):
        history.acked(second, second)
    for batch in range(1, 12):
        history.delivered(batch * 8, batch * 8 - 8, batch * 8 - 1)
    history.fault(49, 50, 3)
    assert not history.judge(5).anomalies


def test_records_of_an_open_transaction_are_no_work_of_a_reader_of_committed_data() -> None:
    history = History(end_s=40)
    history.owns(0)
    history.state(0, "Stable")
    history.fault(9, 10, 3)
    history.acked(1, 0)
    history.delivered(1.1, 0, committed=True)
    history.transaction(5, TRANSACTION_ONGOING)
    history.acked(6, 1, client="job")
    history.transaction(35, PREPARE_COMMIT)
    history.transaction(35.1, COMPLETE_COMMIT)
    history.delivered(35.2, 1, committed=True)
    assert not history.judge(5).anomalies


def test_records_of_a_committed_transaction_are_work_of_a_reader_of_committed_data() -> None:
    history = History(end_s=60)
    history.owns(0)
    history.state(0, "Stable")
    history.fault(9, 10, 3)
    history.acked(1, 0)
    history.delivered(1.1, 0, committed=True)
    history.transaction(5, TRANSACTION_ONGOING)
    history.acked(6, 1, client="job")
    history.transaction(15, PREPARE_COMMIT)
    history.transaction(15.1, COMPLETE_COMMIT)
    history.transaction(20, TRANSACTION_ONGOING)
    history.acked(21, 3, client="job")
    history.delivered(35.2, 1, committed=True)
    (anomaly,) = history.judge(5).anomalies
    assert "from 15.10 s to 35.20 s" in anomaly.explanation
    assert anomaly.offsets == [1]


def test_timestamps_that_are_never_the_time_of_sending_say_nothing() -> None:
    history = History()
    history.fault(9, 10, 3)
    for half in range(100):
        history.acked(half / 2 + 10, half, made_s=half / 200)
    assert not history.judge(5).anomalies


def test_refusals_that_are_the_clusters_do_not_make_a_producer_stand_still() -> None:
    history = History()
    history.fault(9, 10, 3)
    for at in range(20):
        history.acked(at / 2, at)
    for tenth in range(100, 300):
        history.refused(tenth / 10, error=19)
    assert not history.judge(5).anomalies


# ---- a property ------------------------------------------------------------------------------------


PAUSES = st.sampled_from([0.1, 1.0, 5.0, 20.0, 50.0])
DELAYS = st.sampled_from([0.0, 0.01, 0.3, 0.9])


@st.composite
def lively_runs(draw: st.DrawFn) -> History:
    """Sends with pauses of any length; each record is read soon after it was sent. Faults of any kind."""
    history = History(end_s=200)
    history.owns(0)
    history.state(0, "Stable")
    at = 0.1
    for offset, (pause, acked, read) in enumerate(draw(st.lists(st.tuples(PAUSES, DELAYS, DELAYS), max_size=12))):
        history.acked(at + acked, offset, made_s=at)
        history.delivered(at + acked + read, offset)
        at += acked + pause
    if draw(st.booleans()):
        history.releases(draw(st.integers(150, 199)))
    for begin, seconds in draw(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=3)):
        nodes = draw(st.sets(st.integers(1, 3), max_size=2))
        history.fault(begin, begin + seconds, *nodes, of_application=draw(st.booleans()))
    return history


@settings(max_examples=60, deadline=None)
@given(lively_runs(), st.sampled_from([None, 2.0, 5.0]))
def test_a_client_that_is_idle_or_goes_on_is_never_called_stalled(history: History, bound: float | None) -> None:
    found = history.judge(bound)
    assert not found.anomalies
    assert all(row["stalled_s"] <= 2.0 for row in found.table)
