"""Share groups in simulations: nothing accepted comes again, one holder at a time, and all ends (KIP-932, G2, M1)."""

from __future__ import annotations

import pytest
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.ids import TopicPartition
from harrow.cluster.share_coordinator.values import DeliveryState
from harrow.cluster.share_partitions.acknowledgements import STATE_AFTER, AckType
from harrow.cluster.share_partitions.in_flight_records import Records
from harrow.cluster.share_partitions.share_partition import SharePartitionState
from harrow.faults.runs import SHARES
from harrow.harness.requests.share_member import ACCEPT, RELEASE
from harrow.harness.simulation import SimulationOptions, run_schedule, run_seed
from harrow.harness.simulation.share_checks import Delivery, Elected, ShareLog
from long_runs import seeds

OPTIONS = SimulationOptions(workload=SHARES)
TP = TopicPartition("orders", 0)


@pytest.mark.parametrize("seed", [953, 2106, 4018, *seeds(range(583, 584), range(1, 300))])
def test_a_share_group_under_random_faults(seed: int) -> None:
    result = run_seed(seed, OPTIONS)
    assert result.status == "valid", (result.anomalies, result.reasons)
    assert result.acknowledged > 50


def test_the_schedule_of_a_share_group_repeats_its_run() -> None:
    first = run_seed(2, OPTIONS)
    assert run_schedule(first.schedule).trace_sha256 == first.trace_sha256


def found_in(names: range) -> set[str]:
    return {name for seed in names for name, _ in run_seed(seed, OPTIONS).anomalies}


def test_a_leader_that_forgets_acceptances_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATE_AFTER, AckType.ACCEPT, DeliveryState.AVAILABLE)
    assert "redelivered-after-accept" in found_in(range(1, 3))


def test_a_leader_that_gives_what_is_locked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_free(row: Records) -> bool:
        return row.next_state is None and row.state in (DeliveryState.AVAILABLE, DeliveryState.ACQUIRED)

    def lock(state: object, row: Records, member: str, deadline_ms: int) -> None:
        assert state is not None
        row.state, row.member, row.deadline_ms = DeliveryState.ACQUIRED, member, deadline_ms
        row.delivery_count = min(row.delivery_count + 1, 2)

    monkeypatch.setattr(Records, "is_free", property(is_free))
    monkeypatch.setattr(SharePartitionState, "_lock", lock)
    assert "wrong-lock" in found_in(range(1, 3))


# --- the checks, by hand


def delivery(at_ms: int, count: int = 1, *, node: int = 1, said: int | None = None, known_ms: int = -1) -> Delivery:
    """A delivery whose fetch was sent at `at_ms`; its response came 2 ms later, and the session went on for long."""
    return Delivery(
        member=f"m-{at_ms}",
        tp=TP,
        offset=0,
        count=count,
        node=node,
        fetched_ns=at_ms * NS_PER_MS,
        got_ns=(at_ms + 2) * NS_PER_MS,
        held_until_ns=100_000 * NS_PER_MS,
        type=said,
        said_ns=-1 if said is None else (known_ms - 1) * NS_PER_MS,
        known_ns=-1 if known_ms < 0 else known_ms * NS_PER_MS,
    )


@pytest.mark.parametrize(
    ("first", "then", "name"),
    [
        (delivery(10), delivery(20, 2), "wrong-lock"),
        (delivery(10), delivery(1_020, 2), None),
        (delivery(10, node=2), delivery(20, 2), None),
        (delivery(10, said=ACCEPT, known_ms=30), delivery(40, 2), "redelivered-after-accept"),
        (delivery(10, said=ACCEPT, known_ms=1_200), delivery(1_300, 2), None),
        (delivery(10, node=2, said=ACCEPT, known_ms=30), delivery(40, 2), None),
        (delivery(10, said=RELEASE, known_ms=30), delivery(40, 1), "over-delivered"),
        (delivery(10, said=RELEASE, known_ms=30), delivery(40, 2), None),
        (delivery(10, 6), delivery(5_000, 1), "over-delivered"),
    ],
)
def test_each_anomaly_of_a_share_group_has_its_name(first: Delivery, then: Delivery, name: str | None) -> None:
    log = ShareLog(limit=5, lock_ms=1_000, deliveries=[first, then])
    elected = [Elected(0, TP, 1, 0), Elected(5, TP, 2, 1)]
    assert {found for found, _ in log.judge({}, elected)} == ({name} if name else set())


def test_a_record_that_is_over_was_delivered() -> None:
    log = ShareLog(limit=2, lock_ms=1_000, deliveries=[delivery(10)])
    assert [name for name, _ in log.judge({TP: 1}, [])] == ["never-delivered"]
    log.lost_fetches[TP] = 1
    assert not list(log.judge({TP: 1}, []))
