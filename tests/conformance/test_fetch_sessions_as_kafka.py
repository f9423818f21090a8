"""Fetch sessions and fetch limits of consumers are those of Apache Kafka 4.2 (A4, KIP-227)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka, batch
from waiting import until

LARGE = 1 << 20
VALUE = "v" * 100
SIZE = len(batch([VALUE]))


@dataclass
class Fetching:
    """A consumer that names topics by name, or by the ids given."""

    raw: RawKafka
    ids: Mapping[str, Any] | None = None
    session: int = 0

    def ask(
        self,
        offsets: Mapping[str, int],
        *,
        epoch: int = -1,
        forget: Sequence[str] = (),
        partition_bytes: int = LARGE,
        max_bytes: int = LARGE,
        version: int | None = None,
    ) -> tuple[str, int, list[tuple[str, str, int]]]:
        """`(error, session id, [(topic, error, bytes)])` of the response."""
        if version is None:
            version = 12 if self.ids is None else 13
        rows: list[Any] = []
        for topic, offset in offsets.items():
            row = {
                "partition": 0,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": partition_bytes,
            }
            rows.append({"partitions": (row,), **self._name(topic)})
        answer = self.raw.ask(
            ApiKey.FETCH,
            version,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=self.session,
            session_epoch=epoch,
            topics=tuple(rows),
            forgotten_topics_data=tuple({"partitions": (0,), **self._name(topic)} for topic in forget),
            rack_id="",
        )
        found = [
            (self._topic(topic), row.error_code.name, len(row.records or b""))
            for topic in answer.responses
            for row in topic.partitions
        ]
        return answer.error_code.name, answer.session_id, found

    def begin(self, **offsets: int) -> list[tuple[str, str, int]]:
        error, self.session, rows = self.ask(offsets, epoch=0)
        assert error == "none"
        assert self.session > 0
        return rows

    def next(self, epoch: int, offsets: Mapping[str, int] | None = None, **fields: Any) -> Any:
        """The rows of the next response of the session."""
        error, session, rows = self.ask(offsets or {}, epoch=epoch, **fields)
        assert (error, session) == ("none", self.session)
        return rows

    def _name(self, topic: str) -> dict[str, Any]:
        return {"topic": topic} if self.ids is None else {"topic_id": self.ids[topic]}

    def _topic(self, row: Any) -> str:
        if self.ids is None:
            return str(row.topic)
        return next(name for name, number in self.ids.items() if number == row.topic_id)


def filled(kafka: Any, name: str, batches: int) -> str:
    topic: str = kafka.topic(name, 1)
    for _ in range(batches):
        kafka.raw(1).produce(topic, 0, [VALUE])
    return topic


def topic_ids(raw: RawKafka, *topics: str) -> dict[str, Any]:
    rows = tuple({"name": name, "topic_id": None} for name in topics)
    return {
        row.name: row.topic_id
        for row in raw.ask(
            ApiKey.METADATA, 12, topics=rows, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ).topics
    }


@pytest.mark.parametrize("by_id", [False, True])
def test_a_session_sends_what_changed_and_drops_forgotten_partitions(kafka: Any, by_id: bool) -> None:
    a, b = filled(kafka, "some", 2), filled(kafka, "none", 0)
    raw = kafka.raw(1)
    consumer = Fetching(raw, topic_ids(raw, a, b) if by_id else None)
    assert consumer.begin(**{a: 2, b: 0}) == [(a, "none", 0), (b, "none", 0)]
    assert consumer.next(1) == []
    raw.produce(b, 0, [VALUE])
    assert consumer.next(2) == [(b, "none", SIZE)]
    assert consumer.next(3) == [(b, "none", SIZE)], "the consumer has not moved on"
    assert consumer.next(4, {b: 1}) == []
    assert consumer.next(5, {a: 1}, forget=[b]) == [(a, "none", SIZE)]
    assert consumer.ask({}, epoch=6, forget=[a]) == ("none", 0, [])
    assert consumer.ask({}, epoch=7) == ("fetch_session_id_not_found", 0, [])


def test_a_full_response_moves_what_it_carried_to_the_end_of_the_session(kafka: Any) -> None:
    topics = [filled(kafka, name, 2) for name in ("one", "two", "three")]
    consumer = Fetching(kafka.raw(1))
    consumer.begin(**dict.fromkeys(topics, 2))
    consumer.next(1, dict.fromkeys(topics, 0))
    turns = [consumer.next(epoch, max_bytes=1) for epoch in range(2, 6)]
    a, b, c = ((topic, "none", SIZE) for topic in topics)
    assert turns == [[a], [b], [c], [a]]


def test_a_failed_partition_is_sent_until_its_error_has_gone(kafka: Any) -> None:
    topic = filled(kafka, "failing", 1)
    consumer = Fetching(kafka.raw(1))
    beyond = (topic, "offset_out_of_range", 0)
    nowhere = ("nowhere", "unknown_topic_or_partition", 0)
    assert consumer.begin(**{topic: 7, "nowhere": 0}) == [beyond, nowhere]
    assert consumer.next(1) == [beyond, nowhere]
    assert consumer.next(2, {topic: 1}, forget=["nowhere"]) == [(topic, "none", 0)]
    assert consumer.next(3) == []


def test_fetches_that_do_not_continue_a_session_get_the_errors_of_kafka(kafka: Any) -> None:
    topic = filled(kafka, "sessions", 1)
    raw = kafka.raw(1)
    consumer = Fetching(raw)
    consumer.begin(**{topic: 1})
    named = Fetching(raw, topic_ids(raw, topic), consumer.session)
    refused: tuple[str, int, list[Any]]
    for epoch in (2, 9, -2):
        refused = ("invalid_fetch_session_epoch", 0, [])
        assert consumer.ask({}, epoch=epoch) == named.ask({}, epoch=epoch) == refused
    assert named.ask({}, epoch=1) == ("fetch_session_topic_id_error", 0, [])
    assert consumer.next(1) == []
    assert Fetching(raw).ask({topic: 0}, epoch=3) == ("fetch_session_id_not_found", 0, [])
    assert Fetching(raw, session=-5).ask({}, epoch=3)[0] == "fetch_session_id_not_found"
    first = consumer.session
    consumer.begin(**{topic: 1})
    assert consumer.session != first
    assert Fetching(raw, session=first).ask({}, epoch=2)[0] == "fetch_session_id_not_found"
    assert consumer.ask({topic: 0}, epoch=-1) == ("none", 0, [(topic, "none", SIZE)])
    assert consumer.ask({}, epoch=1)[0] == "fetch_session_id_not_found"


def test_a_session_without_partitions_begins_and_takes_some_later(kafka: Any) -> None:
    topic = filled(kafka, "later", 1)
    consumer = Fetching(kafka.raw(1))
    assert consumer.begin() == []
    assert consumer.next(1, {topic: 0}) == [(topic, "none", SIZE)]


def test_a_session_survives_the_deletion_and_the_recreation_of_its_topic(kafka: Any) -> None:
    kept, topic = filled(kafka, "kept", 1), filled(kafka, "deleted", 1)
    raw = kafka.raw(1)
    controller = kafka.raw(raw.metadata().controller_id)
    ids = topic_ids(raw, kept, topic)
    consumer = Fetching(raw, ids)
    consumer.begin(**{kept: 1, topic: 1})
    assert controller.ask(ApiKey.DELETE_TOPICS, 5, topic_names=(topic,), timeout=10_000).responses[0].error_code == 0
    gone = {"harrow": "unknown_topic_id", "apache": "unknown_topic_or_partition"}[kafka.name]
    epoch = 0

    def error() -> str:
        nonlocal epoch
        epoch += 1
        rows = consumer.next(epoch)
        return rows[0][1] if rows else "none"

    until(lambda: error() == gone, "the deletion is known")
    assert controller.create_topic(topic, assignment=[[1]]).error_code == 0
    # docs/compatibility.md, "A fetch session names a deleted topic by its id"
    other = {"harrow": "unknown_topic_id", "apache": "inconsistent_topic_id"}[kafka.name]
    until(lambda: error() == other, "the new topic is known")
    raw.produce(kept, 0, [VALUE])
    assert (kept, "none", SIZE) in consumer.next(epoch + 1)
    assert consumer.next(epoch + 2, {kept: 2}, forget=[topic]) == []


# ---------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("limits", "whole"),
    [
        ((LARGE, 0), (1, 0)),
        ((LARGE, 1), (1, 0)),
        ((LARGE, SIZE - 1), (1, 0)),
        ((LARGE, SIZE), (1, 0)),
        ((LARGE, SIZE + 1), (1, 0)),
        ((LARGE, 2 * SIZE - 1), (1, 0)),
        ((LARGE, 2 * SIZE), (2, 0)),
        ((LARGE, 3 * SIZE - 1), (2, 0)),
        ((LARGE, 3 * SIZE), (2, 1)),
        ((LARGE, 4 * SIZE), (2, 2)),
        ((0, LARGE), (1, 0)),
        ((SIZE - 1, LARGE), (1, 0)),
        ((SIZE, LARGE), (1, 1)),
        ((SIZE, SIZE), (1, 0)),
        ((2 * SIZE - 1, LARGE), (1, 1)),
        ((SIZE, 2 * SIZE), (1, 1)),
    ],
)
def test_limits_hold_to_the_byte_and_the_first_batch_may_exceed_them(
    kafka: Any, limits: tuple[int, int], whole: tuple[int, int]
) -> None:
    a, b = filled(kafka, "first", 2), filled(kafka, "second", 2)
    of_partition, of_response = limits
    _, _, rows = Fetching(kafka.raw(1)).ask({a: 0, b: 0}, partition_bytes=of_partition, max_bytes=of_response)
    sizes = [size for _, _, size in rows]
    assert [size // SIZE for size in sizes] == list(whole)
    if kafka.name == "harrow":  # docs/compatibility.md, "A fetch response ends with a whole batch"
        assert [size % SIZE for size in sizes] == [0, 0]


def test_the_error_of_a_session_is_in_its_own_field(kafka: Any) -> None:
    error, session, rows = Fetching(kafka.raw(1), session=9).ask({}, epoch=1, version=7)
    assert (error, session, rows) == ("fetch_session_id_not_found", 0, [])
