"""Share groups on brokers: what members acquire, how locks end, what survives a leader (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from harrow.cluster import Cluster
from harrow.cluster.errors import ErrorCode
from harrow.cluster.share_coordinator.values import SharePartition
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from raw_share_groups import ACCEPT, REJECT, RELEASE, RENEW, RawShareMember, initialized
from waiting import until

LOCK_MS = 1_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    locks = {f"group.share.{name}record.lock.duration.ms": LOCK_MS for name in ("", "min.")}
    with Cluster(brokers=3, config=locks) as running:
        yield running


def refusal(member: RawShareMember, *said: tuple[int, int, int], **fields: Any) -> int:
    """The error of a ShareFetch."""
    member.fetch(*said, **fields)
    return int(member.error)


@pytest.fixture
def links() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def topic(cluster: Cluster, name: str) -> UUID:
    with RawKafka(cluster.brokers[1].port) as raw:
        assert raw.create_topic(name, replication=3).error_code == 0
        row = until(lambda: (row := raw.metadata(name, version=12).topics[0]).error_code == 0 and row)
        found: UUID = row.topic_id
        until(lambda: raw.metadata(name).topics[0].partitions[0].leader_id > 0)
    return found


def leader(cluster: Cluster, name: str) -> int:
    """The node that leads the partition, as a live broker says."""

    def node() -> int:
        for broker in cluster.brokers.values():
            try:
                with RawKafka(broker.port) as raw:
                    return int(raw.metadata(name).topics[0].partitions[0].leader_id)
            except OSError:
                continue
        return 0

    return until(lambda: (found := node()) > 0 and found)


def share_coordinator(cluster: Cluster, share: SharePartition) -> int:
    def port() -> int:
        with RawKafka(cluster.brokers[1].port) as raw:
            asked = {"key_type": 2, "coordinator_keys": [share.coordinator_key]}
            (row,) = raw.ask(ApiKey.FIND_COORDINATOR, 6, **asked).coordinators
        return int(row.port) if row.error_code is ErrorCode.none else 0

    return until(port, "a share coordinator")


def member(cluster: Cluster, links: ExitStack, name: str, topic_id: UUID, who: str = "a") -> RawShareMember:
    link = links.enter_context(RawKafka(cluster.brokers[leader(cluster, name)].port, client_id=who))
    return RawShareMember(link, name, topic_id, member=who)


def begun(cluster: Cluster, links: ExitStack, name: str, *values: str) -> tuple[UUID, RawShareMember]:
    """A topic with these records, one batch each, a group of the same name, and its first member."""
    topic_id = topic(cluster, name)
    initialized(lambda: share_coordinator(cluster, SharePartition(name, topic_id, 0)), name, topic_id)
    first = member(cluster, links, name, topic_id)
    for value in values:
        assert first.link.produce(name, 0, [value]).error_code is ErrorCode.none
    return topic_id, first


def test_members_share_the_records_of_a_partition(cluster: Cluster, links: ExitStack) -> None:
    topic_id, a = begun(cluster, links, "shared", "0", "1", "2", "3")
    b = member(cluster, links, "shared", topic_id, "b")
    assert a.fetch(most=2) == [(0, 1, 1)]
    assert b.fetch() == [(2, 3, 1)]
    assert a.fetch((0, 0, ACCEPT), (1, 1, RELEASE)) == [(1, 1, 2)]
    assert a.acknowledged is ErrorCode.none
    assert b.acknowledge((2, 2, ACCEPT), (3, 3, REJECT)) is ErrorCode.none
    assert b.acknowledge((1, 1, ACCEPT)) is ErrorCode.invalid_record_state, "another member holds it"
    a.end()
    assert b.values() == [b"1"]
    assert b.acknowledge((1, 1, ACCEPT)) is ErrorCode.none
    assert b.fetch(wait_ms=0) == []


def test_a_lock_ends_unless_it_is_renewed(cluster: Cluster, links: ExitStack) -> None:
    topic_id, a = begun(cluster, links, "locked", "0", "1")
    b = member(cluster, links, "locked", topic_id, "b")
    assert a.fetch() == [(0, 1, 1)]
    assert a.acknowledge((1, 1, RENEW), is_renew_ack=True) is ErrorCode.none
    assert a.acknowledge((0, 1, RENEW)) is ErrorCode.invalid_request, "the request must say that it renews"
    found = b.fetch(wait_ms=20 * LOCK_MS)
    assert found[0] == (0, 0, 2)
    if len(found) == 1:  # the lock that was renewed ends later
        assert b.fetch((0, 0, ACCEPT), wait_ms=20 * LOCK_MS) == [(1, 1, 2)]
    assert a.acknowledge((1, 1, ACCEPT)) is ErrorCode.invalid_record_state, "its lock has ended"


def test_a_connection_that_ends_frees_its_records(cluster: Cluster, links: ExitStack) -> None:
    topic_id, b = begun(cluster, links, "closed", "0")
    with ExitStack() as short:
        assert member(cluster, short, "closed", topic_id, "b2").fetch() == [(0, 0, 1)]
    assert b.fetch(wait_ms=20 * LOCK_MS) == [(0, 0, 2)]


def test_records_are_given_up_after_the_most_deliveries(cluster: Cluster, links: ExitStack) -> None:
    _, a = begun(cluster, links, "poison", "0", "1")
    for count in range(1, 6):
        assert a.fetch(most=1, share_acquire_mode=1) == [(0, 0, count)]
        assert a.acknowledge((0, 0, RELEASE)) is ErrorCode.none
    assert a.fetch() == [(1, 1, 1)]


def test_sessions_have_epochs(cluster: Cluster, links: ExitStack) -> None:
    _, a = begun(cluster, links, "sessions", "0")
    a.epoch = 5
    assert refusal(a) == ErrorCode.share_session_not_found
    a.epoch = 0
    assert a.acknowledge((0, 0, ACCEPT)) is ErrorCode.invalid_share_session_epoch
    assert refusal(a, (0, 0, ACCEPT)) == ErrorCode.invalid_request
    assert refusal(a, member_id="") == ErrorCode.invalid_request
    assert a.fetch() == [(0, 0, 1)]
    a.epoch = 3
    assert refusal(a) == ErrorCode.invalid_share_session_epoch
    a.epoch = 1
    assert refusal(a, is_renew_ack=True) == ErrorCode.invalid_request, "a request that renews fetches nothing"
    for said in ((1, 0, ACCEPT), (0, 0, 9), (0, 0, RENEW)):
        assert a.acknowledge(said) is ErrorCode.invalid_request


def test_what_was_accepted_never_comes_again_wherever_the_leader_is(cluster: Cluster, links: ExitStack) -> None:
    topic_id, a = begun(cluster, links, "moved", *map(str, range(6)))
    assert a.fetch() == [(0, 5, 1)]
    assert a.acknowledge((0, 1, ACCEPT), (2, 2, RELEASE), (4, 4, ACCEPT)) is ErrorCode.none
    for _ in range(2):
        node = leader(cluster, "moved")
        cluster.brokers[node].kill()
        until(lambda: leader(cluster, "moved") != node, "another leader")  # noqa: B023

        found = set[int]()

        def has_all() -> bool:
            """The new leader gives what is below its high watermark, which may lag at first."""
            rows = member(cluster, links, "moved", topic_id, "b").fetch(wait_ms=2_000)
            found.update(offset for first, last, _ in rows for offset in range(first, last + 1))  # noqa: B023
            return found >= {2, 3, 5}  # noqa: B023

        until(has_all, lambda: f"records of the new leader, now {found}", amid=(OSError,))  # noqa: B023
        assert found == {2, 3, 5}
        cluster.brokers[node].start()
        cluster.await_converged()
