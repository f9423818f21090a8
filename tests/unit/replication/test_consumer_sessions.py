"""Fetch sessions of consumers (A4, KIP-227): epochs, what a response carries, turns, and who gets a slot."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.replication.consumer_sessions import EVICTION_MS, ConsumerFetch, ConsumerSessions
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest
from harrow.cluster.wire.fetch_response import FetchAnswer
from manual_host import ManualHost

Row = tuple[str, int]


def fetch(*named: Row, session: int = 0, epoch: int = 0, forgotten: tuple[str, ...] = ()) -> FetchRequest:
    rows = [FetchPartition(topic, 0, -1, offset, -1, -1, 100) for topic, offset in named]
    lost: list[tuple[Any, int]] = [(topic, 0) for topic in forgotten]
    return FetchRequest(-1, -1, 0, 1, 1_000, 0, session, epoch, rows, lost, "")


def answer(topic: str, high: int = 5, size: int = 0, **fields: Any) -> FetchAnswer:
    records = [bytes(size)] if size else []
    return FetchAnswer(topic, 0, fields.pop("error", 0), high, high, 0, records, **fields)


class Consumer:
    """One consumer of a broker with sessions."""

    def __init__(self, sessions: ConsumerSessions, *topics: str) -> None:
        self.sessions = sessions
        first = self.accepted(fetch(*((topic, 0) for topic in topics)))
        code, self.session, _ = first.response([answer(topic) for topic in topics])
        assert code is ErrorCode.none
        self.epoch = 0

    def accepted(self, request: FetchRequest) -> ConsumerFetch:
        found = self.sessions.fetch(request, by_id=False)
        assert isinstance(found, ConsumerFetch), found
        return found

    def next(self, *named: Row, forgotten: tuple[str, ...] = ()) -> ConsumerFetch:
        self.epoch += 1
        return self.accepted(fetch(*named, session=self.session, epoch=self.epoch, forgotten=forgotten))


def sessions_of(slots: int = 10) -> tuple[ManualHost, ConsumerSessions]:
    host = ManualHost()
    return host, ConsumerSessions(host, slots)


def names(found: ConsumerFetch) -> list[tuple[object, int]]:
    return [(row.topic, row.fetch_offset) for row in found.rows]


def test_the_next_fetch_reads_all_partitions_and_its_response_carries_the_changed_ones() -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a", "b", "c")
    found = consumer.next(("b", 7))
    assert names(found) == [("a", 0), ("b", 7), ("c", 0)]
    moved = answer("c", 6)
    code, session, sent = found.response([answer("a"), answer("b"), moved])
    assert (code, session, list(sent)) == (ErrorCode.none, consumer.session, [moved])
    nothing = consumer.next().response([answer("a"), answer("b"), moved])
    assert list(nothing[2]) == []


@pytest.mark.parametrize(
    "changed",
    [
        answer("a", size=3),
        answer("a", 6),
        answer("a")._replace(log_start_offset=2),
        answer("a", error=3),
        answer("a", diverging=(1, 2)),
        answer("a", preferred_read_replica=2),
    ],
)
def test_each_kind_of_change_is_sent(changed: FetchAnswer) -> None:
    _, sessions = sessions_of()
    found = Consumer(sessions, "a").next()
    assert list(found.response([changed])[2]) == [changed]


def test_a_partition_is_sent_again_when_its_error_has_gone() -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a")
    consumer.next().response([answer("a", error=6)])
    assert list(consumer.next().response([answer("a")])[2]) == [answer("a")]
    assert list(consumer.next().response([answer("a")])[2]) == []


def test_partitions_with_records_are_read_last_by_the_next_fetch() -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a", "b", "c")
    consumer.next().response([answer("a", size=9), answer("b"), answer("c", 6)])
    assert [topic for topic, _ in names(consumer.next())] == ["b", "c", "a"]


def test_forgotten_partitions_are_not_read_and_a_session_without_partitions_ends() -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a", "b")
    assert names(consumer.next(("c", 1), forgotten=("a",))) == [("b", 0), ("c", 1)]
    last = consumer.next(forgotten=("b", "c"))
    assert last.response([]) == (ErrorCode.none, 0, [])
    assert len(sessions) == 0


def test_a_fetch_that_does_not_continue_its_session_is_refused_and_changes_nothing() -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a")
    for session, epoch, code in (
        (consumer.session + 1, 1, ErrorCode.fetch_session_id_not_found),
        (0, 1, ErrorCode.fetch_session_id_not_found),
        (consumer.session, 2, ErrorCode.invalid_fetch_session_epoch),
        (consumer.session, -7, ErrorCode.invalid_fetch_session_epoch),
    ):
        request = fetch(("b", 0), session=session, epoch=epoch)
        assert sessions.fetch(request, by_id=False) is code
    by_id = sessions.fetch(fetch(session=consumer.session, epoch=1), by_id=True)
    assert by_id is ErrorCode.fetch_session_topic_id_error
    assert names(consumer.next()) == [("a", 0)]


def test_a_response_that_a_later_fetch_overtook_is_refused_and_not_remembered() -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a")
    waiting, later = consumer.next(), consumer.next()
    code, _, sent = waiting.response([answer("a", 6)])
    assert (code, list(sent)) == (ErrorCode.invalid_fetch_session_epoch, [])
    assert list(later.response([answer("a", 6)])[2]) == [answer("a", 6)]


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a")
    again = consumer.accepted(fetch(("a", 0), session=consumer.session, epoch=epoch))
    _, session, _ = again.response([answer("a")])
    assert (session == 0) == (epoch == -1)
    assert session != consumer.session
    request = fetch(session=consumer.session, epoch=1)
    assert sessions.fetch(request, by_id=False) is ErrorCode.fetch_session_id_not_found
    assert len(sessions) == (1 if session else 0)


def test_session_epochs_begin_again_at_one_after_the_largest() -> None:
    _, sessions = sessions_of()
    consumer = Consumer(sessions, "a")
    held: Any = vars(sessions)["_sessions"][consumer.session]
    held.epoch = consumer.epoch = 2**31 - 1
    assert names(consumer.accepted(fetch(session=consumer.session, epoch=2**31 - 1)))
    assert held.epoch == 1


def test_a_new_session_gets_a_slot_only_by_the_rules_of_kafka() -> None:
    host, sessions = sessions_of(slots=2)
    small, large = Consumer(sessions, "a", "b"), Consumer(sessions, "a", "b", "c")
    assert Consumer(sessions, *"abcdef").session == 0, "both are new and in use"
    host.advance(EVICTION_MS - 5)
    for consumer in (large, small):
        consumer.next()
    host.advance(6)
    assert Consumer(sessions, "a", "b").session == 0, "not larger than the smallest"
    larger = Consumer(sessions, "a", "b", "c")
    assert larger.session != 0, "the smallest has existed for two minutes"
    gone = sessions.fetch(fetch(session=small.session, epoch=2), by_id=False)
    assert gone is ErrorCode.fetch_session_id_not_found
    host.advance(EVICTION_MS)
    larger.next()
    assert Consumer(sessions, "a").session != 0, "one is unused for two minutes"
    unused = sessions.fetch(fetch(session=large.session, epoch=2), by_id=False)
    assert unused is ErrorCode.fetch_session_id_not_found
    assert larger.next().rows


def test_without_slots_consumers_go_on_with_full_fetches() -> None:
    _, sessions = sessions_of(slots=0)
    assert Consumer(sessions, "a").session == 0
    assert len(sessions) == 0
