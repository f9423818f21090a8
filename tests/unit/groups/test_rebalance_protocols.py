"""`group.coordinator.rebalance.protocols`: a coordinator without the consumer protocol (G2)."""

from __future__ import annotations

from consumer_group_requests import consumer_join, described
from group_fakes import GroupTestBed
from group_requests import HOME
from harrow.cluster.errors import ErrorCode


def test_without_the_consumer_protocol_its_requests_are_refused_as_by_kafka() -> None:
    bed = GroupTestBed(group_coordinator_rebalance_protocols="classic")
    bed.lead(HOME)
    assert consumer_join(bed, "a").error_code is ErrorCode.unsupported_version
    assert described(bed).error_code is ErrorCode.unsupported_version


def test_by_default_both_protocols_are_served() -> None:
    bed = GroupTestBed()
    bed.lead(HOME)
    assert consumer_join(bed, "a").error_code is ErrorCode.none
