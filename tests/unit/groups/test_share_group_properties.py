"""Random runs of share groups: members converge to their targets, and a replay gives the state (KIP-932)."""

from __future__ import annotations

from group_fakes import GroupTestBed
from group_requests import GROUP, HOME
from harrow.cluster.config.group_table import SHARE_INTERVAL
from harrow.cluster.errors import ErrorCode
from hypothesis import given, settings
from hypothesis import strategies as st
from share_requests import ModelShareMember, share_state

TOPICS = ("orders", "more")
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ("beat", "beat", "beat", "lose", "leave", "expire", "resubscribe", "topic", "refuse", "move", "interval")
        ),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_any_order_of_requests_converges(steps: list[tuple[str, int]]) -> None:
    bed = GroupTestBed()
    bed.lead(HOME)
    members = [ModelShareMember(bed, name) for name in "abcd"]
    for what, place in steps:
        member = members[place]
        if what in ("beat", "lose"):
            member.beat(lose_response=what == "lose")
        elif what == "leave":
            member.leave()
        elif what == "expire":
            bed.host.advance(46_000)
        elif what == "resubscribe":
            member.leave()
            member.topics = TOPICS[: 1 + place % 2]
        elif what == "topic":
            count = bed.cache.partition_count("more")
            bed.cache.change(more=max(place, count) if place else 0)  # a topic never loses partitions
        elif what == "interval":
            bed.coordinator.service.config.groups[GROUP] = {SHARE_INTERVAL: 7_000 * (place % 2)}
        elif what == "refuse":
            bed.persister.errors.append(ErrorCode.coordinator_not_available)
        else:
            bed.resign(HOME)
            bed.lead(HOME)
    bed.persister.errors.clear()
    bed.host.advance(31_000)  # partitions that are initializing are initialized again
    for _ in range(6):
        bed.host.advance(3_500)
        for member in members:
            member.beat()
    state = share_state(bed, GROUP)
    epoch, _, target_epoch, data, targets, shares = state
    assert epoch == target_epoch
    assert {name: row.current.assigned for name, row in data.items()} == targets
    assert not shares.initializing
    for name in {topic for member in members for topic in member.topics}:
        held = {number for member in members for topic, number in member.assigned if topic == name}
        assert held == set(range(bed.cache.partition_count(name)))
    bed.resign(HOME)
    bed.lead(HOME)
    assert share_state(bed, GROUP) == state
