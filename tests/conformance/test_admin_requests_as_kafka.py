"""Admin requests are answered as by Apache Kafka 4.2: pages of partitions, config resources, quotas (A4, A7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from waiting import until

Code = ErrorCode
Row = tuple[str, str, list[int]]
Parts = Sequence[tuple[str, str | None]]


# ------------------------------------------------------ DescribeTopicPartitions


class Pages:
    """Two topics with two partitions each, and the pages of a broker that knows them."""

    def __init__(self, kafka: Any) -> None:
        self.raw = kafka.raw(1)
        self.first, self.second = sorted(kafka.topic(name, 1, 2) for name in ("pages-a", "pages-b"))
        controller = kafka.raw(self.raw.metadata().controller_id)
        rows = tuple(
            {"name": name, "count": 2, "assignments": ({"broker_ids": (2, 3)},)} for name in (self.first, self.second)
        )
        created = controller.ask(ApiKey.CREATE_PARTITIONS, 3, topics=rows, timeout=10_000, validate_only=False)
        assert [row.error_code for row in created.results] == [0, 0], created
        for name in (self.first, self.second):
            until(partial(self._has_two, name), "both partitions are known")

    def _has_two(self, topic: str) -> bool:
        return len(self.raw.metadata(topic).topics[0].partitions) == 2

    def ask(
        self, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
    ) -> tuple[list[Row], tuple[str, int] | None]:
        at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        answer = self.raw.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=tuple({"name": name} for name in names),
            response_partition_limit=limit,
            cursor=at,
        )
        rows = [
            (topic.name, topic.error_code.name, [row.partition_index for row in topic.partitions])
            for topic in answer.topics
        ]
        following = answer.next_cursor
        return rows, following and (following.topic_name, following.partition_index)


def test_pages_of_partitions_begin_and_end_as_in_kafka(kafka: Any) -> None:
    pages = Pages(kafka)
    a, b = pages.first, pages.second
    both = [0, 1]
    assert pages.ask(b, a) == ([(a, "none", both), (b, "none", both)], None)
    assert pages.ask(a, a) == ([(a, "none", both)], None)
    assert pages.ask(a, b, limit=1) == ([(a, "none", [0])], (a, 1))
    assert pages.ask(a, b, limit=2) == ([(a, "none", both)], (b, 0))
    assert pages.ask(a, b, limit=3, cursor=(a, 1)) == ([(a, "none", [1]), (b, "none", both)], None)
    assert pages.ask(a, b, cursor=(a, 7)) == ([(a, "none", []), (b, "none", both)], None)
    for limit in (0, -1):
        assert pages.ask(a, limit=limit) == ([(a, "none", [0])], (a, 1))
    everything, _ = pages.ask()
    assert {name for name, _, _ in everything} >= {a, b}
    rest, _ = pages.ask(cursor=(b, 1))
    assert rest[0] == (b, "none", [1])
    after, _ = pages.ask(cursor=(f"{a}-is-gone", 1))
    assert a not in [name for name, _, _ in after]
    assert (b, "none", both) in after


def test_unknown_topics_and_cursors_get_the_errors_of_kafka(kafka: Any) -> None:
    pages = Pages(kafka)
    a, b = pages.first, pages.second
    unknown: Row = ("aa-nowhere", "unknown_topic_or_partition", [])
    invalid: Row = ("a bad name", "invalid_topic_exception", [])
    assert pages.ask(a, "aa-nowhere", "a bad name", limit=1) == ([invalid, unknown, (a, "none", [0])], (a, 1))
    refused: list[Row] = [(a, "invalid_request", []), (b, "invalid_request", [])]
    for cursor in ((f"{a}-is-gone", 0), ("zz", 0), (a, -1), ("", 0)):
        assert pages.ask(a, b, cursor=cursor) == (refused, None), cursor
    assert pages.ask(b, a, a, cursor=("", 0)) == ([refused[1], refused[0], refused[0]], None)
    assert pages.ask(cursor=(a, -1)) == ([], None)


# ---------------------------------------------------------- ListConfigResources


def listed(kafka: Any, version: int, *kinds: int) -> tuple[str, set[tuple[int, str]]]:
    answer = kafka.raw(1).ask(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds)
    rows = {(getattr(row, "resource_type", 16), getattr(row, "resource_name", "")) for row in answer.config_resources}
    return answer.error_code.name, rows


GROUP = 32


def test_config_resources_are_listed_by_type_as_in_kafka(kafka: Any) -> None:
    topic = kafka.topic("configured", 1)
    brokers = {(kind, str(node)) for kind in (4, 8) for node in (1, 2, 3)}
    code, everything = listed(kafka, 1)
    assert code == "none"
    assert everything >= {*brokers, (2, topic)}
    assert {kind for kind, _ in everything} - {GROUP} == {2, 4, 8}
    assert listed(kafka, 1, 8, 4, 4) == ("none", brokers)
    assert (2, topic) in listed(kafka, 1, 2)[1]
    assert listed(kafka, 0) == listed(kafka, 1, 16) == ("none", set())
    # groups that another test configured
    groups = {(kind, name) for kind, name in everything if kind == GROUP}
    assert listed(kafka, 1, GROUP) == ("none", groups)
    for kinds in ((99,), (0,), (2, 99)):
        assert listed(kafka, 1, *kinds) == ("unsupported_version", set())


# ------------------------------------------------------------------ client quotas


def altered(
    kafka: Any, *entries: tuple[Parts, Sequence[tuple[str, float | None]]], dry: bool = False
) -> list[tuple[str, str | None]]:
    rows = tuple(
        {
            "entity": tuple({"entity_type": kind, "entity_name": name} for kind, name in parts),
            "ops": tuple({"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes),
        }
        for parts, changes in entries
    )
    answer = kafka.raw(1).ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=rows, validate_only=dry)
    return [(row.error_code.name, row.error_message) for row in answer.entries]


def described(kafka: Any, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    """The quotas by entity, or the name of the error."""
    rows = tuple({"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components)
    answer = kafka.raw(2).ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=rows, strict=strict)
    if answer.error_code:
        assert answer.error_message
        assert answer.entries is None
        return answer.error_code.name
    return {
        frozenset((part.entity_type, part.entity_name) for part in row.entity): {
            value.key: value.value for value in row.values
        }
        for row in answer.entries
    }


def entity(**parts: str | None) -> frozenset[tuple[str, str | None]]:
    return frozenset((kind.replace("_", "-"), name) for kind, name in parts.items())


RATE = "producer_byte_rate"
FINE = [("none", None)]


def test_quotas_are_stored_matched_and_removed_as_in_kafka(kafka: Any) -> None:
    user, client = "a/b <default>%2F.é", "c 1"
    assert altered(kafka, ([("user", user)], [(RATE, 5.0)]), dry=True) == FINE
    assert described(kafka, ("user", 0, user)) == {}
    for parts, changes in (
        ([("user", user)], [(RATE, 100.0), ("request_percentage", 12.5)]),
        ([("client-id", client), ("user", user)], [(RATE, 50.0)]),
        ([("client-id", client)], [("consumer_byte_rate", 7.0)]),
        ([("user", None)], [("controller_mutation_rate", 3.5)]),
        ([("user", None), ("client-id", None)], [(RATE, 9.0)]),
        ([("ip", "127.0.0.9")], [("connection_creation_rate", 5.0)]),
    ):
        assert altered(kafka, (parts, changes)) == FINE
    own = {RATE: 100.0, "request_percentage": 12.5}
    pair, other = entity(user=user, client_id=client), entity(client_id=client)
    default, defaults = entity(user=None), entity(user=None, client_id=None)
    until(lambda: len(described(kafka)) == 6, "all nodes have the quotas")
    assert described(kafka, ("user", 0, user)) == {entity(user=user): own, pair: {RATE: 50.0}}
    assert described(kafka, ("user", 0, user), strict=True) == {entity(user=user): own}
    assert described(kafka, ("client-id", 0, client), version=0).keys() == {pair, other}
    assert described(kafka, ("user", 1, None)).keys() == {default, defaults}
    assert described(kafka, ("user", 2, None), ("client-id", 2, None)).keys() == {pair, defaults}
    assert described(kafka, ("user", 2, None), strict=True).keys() == {entity(user=user), default}
    assert described(kafka, ("ip", 2, None)) == {entity(ip="127.0.0.9"): {"connection_creation_rate": 5.0}}
    assert described(kafka, strict=True) == {}
    for parts in described(kafka):
        keys = (RATE, "request_percentage", "consumer_byte_rate", "controller_mutation_rate")
        gone = [(key, None) for key in (*keys, "connection_creation_rate")]
        assert altered(kafka, (sorted(parts, key=str), gone)) == FINE
    until(lambda: described(kafka) == {}, "no quota is left")


@pytest.mark.parametrize(
    ("parts", "changes", "says"),
    [
        ([], [(RATE, 1.0)], "empty client quota entity"),
        ([("tenant", "x")], [(RATE, 1.0)], "Unhandled client quota entity type: tenant"),
        ([("user", "")], [(RATE, 1.0)], "Empty user not supported"),
        ([("user", "u"), ("ip", "1.2.3.4")], [(RATE, 1.0)], "entity combination"),
        ([("ip", "no address!")], [("connection_creation_rate", 1.0)], "not a valid IP"),
        ([("ip", "1.2.3.4")], [(RATE, 1.0)], f"Invalid configuration key {RATE}"),
        ([("user", "u")], [("connection_creation_rate", 1.0)], "Invalid configuration key"),
        ([("user", "u")], [("nonsense", 1.0)], "Invalid configuration key nonsense"),
        ([("user", "u")], [(RATE, 0.0)], f"Quota {RATE} must be greater than 0"),
        ([("user", "u")], [(RATE, -1.0)], f"Quota {RATE} must be greater than 0"),
        ([("user", "u")], [("request_percentage", math.inf)], "must be a finite number"),
        ([("user", "u")], [("request_percentage", math.nan)], "must be a finite number"),
        ([("user", "u")], [(RATE, 1.5)], f"{RATE} cannot be a fractional value."),
    ],
)
def test_quotas_that_are_not_valid_are_refused_as_by_kafka(
    kafka: Any, parts: Parts, changes: Sequence[tuple[str, float]], says: str
) -> None:
    ((code, message),) = altered(kafka, (parts, changes))
    assert code == "invalid_request"
    assert says in (message or "")


def test_quotas_of_an_entity_that_is_given_twice_are_refused_as_by_kafka(kafka: Any) -> None:
    parts = [("user", "twice")]
    ((code, message),) = altered(kafka, (parts, [(RATE, None)]), (parts, [(RATE, None)]))
    assert code == "invalid_request"
    assert "duplicate entity" in (message or "")


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 2, None), ("user", 1, None)], "invalid_request"),
        ([("user", 0, None)], "invalid_request"),
        ([("user", 1, "x")], "invalid_request"),
        ([("user", 2, "x")], "invalid_request"),
        ([("user", 5, None)], "invalid_request"),
        ([("", 2, None)], "invalid_request"),
        ([("ip", 2, None), ("user", 2, None)], "invalid_request"),
        ([("tenant", 2, None)], "unsupported_version"),
    ],
)
def test_quota_filters_that_are_not_valid_are_refused_as_by_kafka(
    kafka: Any, components: Sequence[tuple[str, int, str | None]], code: str
) -> None:
    assert described(kafka, *components) == code


# ------------------------------------------------------------- AlterReplicaLogDirs


def data_folder(kafka: Any, node: int) -> str:
    """The only data folder of a broker."""
    (row,) = kafka.raw(node).ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results
    return str(row.log_dir)


def test_data_folders_of_replicas_are_chosen_with_the_errors_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("folders", 1, 2)
    folder, other = data_folder(kafka, 1), data_folder(kafka, 3)

    def altered(node: int, path: str, name: str, *numbers: int) -> list[str]:
        dirs = [{"path": path, "topics": [{"name": name, "partitions": numbers}]}]
        (result,) = kafka.raw(node).ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs).results
        assert result.topic_name == name
        rows = sorted(result.partitions, key=lambda part: part.partition_index)
        return [part.error_code.name for part in rows]

    assert altered(1, folder, topic, 0) == ["none"]
    assert altered(1, f"{folder}-x", topic, 0) == ["log_dir_not_found"]
    assert altered(3, folder, topic, 0) == ["log_dir_not_found"]
    assert altered(3, other, topic, 0, 9) == ["replica_not_available", "unknown_topic_or_partition"]
    assert altered(3, other, "nowhere", 0) == ["unknown_topic_or_partition"]
