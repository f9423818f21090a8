"""Settings of single groups are read and changed as in Apache Kafka 4.4, and coordinators use them at once (A4, G2)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_groups import RawGroup
from waiting import until

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"
INTERNAL = "consumer.assignor.offload.enable"
"""A group of Kafka shows it where its broker has it set; nothing reads it in Kafka 4.4."""
WARMUPS, LAG, ASSIGNOR = "streams.num.warmup.replicas", "streams.acceptable.recovery.lag", "streams.assignor.name"
OF_STREAMS = {
    *(f"streams.{name}" for name in ("session.timeout.ms", "heartbeat.interval.ms", "num.standby.replicas")),
    *(f"streams.{name}" for name in ("initial.rebalance.delay.ms", "assignment.interval.ms")),
    *("streams.rack.aware.assignment.tags", ASSIGNOR),
}
"""Without the internal ones."""
SET, DELETE, APPEND = 0, 1, 2
STATIC_SOURCE, DEFAULT_SOURCE, GROUP_SOURCE = 4, 5, 8
Code = ErrorCode


def change(kafka: Any, group: str, *given: tuple[str, int, str | None]) -> ErrorCode:
    return ErrorCode(kafka.raw().change_settings(GROUP, group, *given).error_code)


def described(kafka: Any, group: str) -> tuple[ErrorCode, dict[str, tuple[Any, ...]]]:
    """The settings of consumers; a group also has those of share and streams groups."""
    answer = kafka.raw().settings(GROUP, group)
    rows = {
        row.name: (
            row.value,
            row.config_source,
            row.config_type,
            row.read_only,
            [(found.name, found.value, found.source) for found in row.synonyms],
        )
        for row in answer.configs
        if row.name.startswith("consumer.") and row.name != INTERNAL
    }
    return ErrorCode(answer.error_code), rows


def listed(kafka: Any) -> set[str]:
    answer = kafka.raw().ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=(GROUP,))
    return {row.resource_name for row in answer.config_resources}


def row(name: str, value: int, default: int | None = None) -> tuple[Any, ...]:
    """A setting that the group has itself if there is a `default`; below it comes the broker's, of another name."""
    own = [(name, str(value), GROUP_SOURCE)] if default is not None else []
    brokers = (f"group.{name}", str(value if default is None else default), DEFAULT_SOURCE)
    return str(value), GROUP_SOURCE if own else DEFAULT_SOURCE, 3, False, [*own, brokers]


def test_settings_of_a_group_replace_the_brokers(kafka: Any) -> None:
    group = f"a/group.{uuid4().hex[:8]}"
    brokers = [(f"group.{INTERVAL}", "0", STATIC_SOURCE), (f"group.{INTERVAL}", "1000", DEFAULT_SOURCE)]
    interval = ("0", STATIC_SOURCE, 3, False, brokers)  # both clusters begin with it
    usual = {SESSION: row(SESSION, 45_000), HEARTBEAT: row(HEARTBEAT, 5_000), INTERVAL: interval}
    assert described(kafka, group) == (Code.none, usual)
    assert group not in listed(kafka)
    assert change(kafka, group, (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")) is Code.none
    own = {SESSION: row(SESSION, 50_000, 45_000), HEARTBEAT: row(HEARTBEAT, 6_000, 5_000), INTERVAL: interval}
    until(lambda: described(kafka, group) == (Code.none, own), "the group's own settings")
    until(lambda: group in listed(kafka), "the group is listed")
    assert change(kafka, group, (SESSION, DELETE, None)) is Code.none
    until(lambda: described(kafka, group)[1][SESSION] == usual[SESSION], "the broker's setting")
    assert described(kafka, group)[1][HEARTBEAT] == own[HEARTBEAT]


def test_settings_that_do_not_fit_are_refused(kafka: Any) -> None:
    group = f"group-{uuid4().hex[:8]}"
    values: dict[str, list[str | None]] = {
        SESSION: ["1", "x", "-1", "70000", None],
        HEARTBEAT: ["4000", "16000"],
        "what": ["1"],
    }
    refused = {name: [change(kafka, group, (name, SET, value)) for value in given] for name, given in values.items()}
    bad, null = Code.invalid_config, Code.invalid_request
    assert refused == {SESSION: [bad] * 4 + [null], HEARTBEAT: [bad] * 2, "what": [bad]}
    assert change(kafka, group, (SESSION, APPEND, "1")) is bad
    twice = ((SESSION, SET, "50000"), (SESSION, SET, "51000"))
    assert change(kafka, group, *twice) is Code.invalid_request
    assert change(kafka, "", (SESSION, SET, "50000")) is Code.invalid_request
    assert described(kafka, "")[0] is Code.invalid_request
    assert group not in listed(kafka)


def test_internal_settings_of_streams_groups_are_shown_where_they_are_set(kafka: Any) -> None:
    group = f"group-{uuid4().hex[:8]}"

    def shown() -> dict[str, tuple[Any, ...]]:
        rows = kafka.raw().settings(GROUP, group).configs
        return {
            row.name: (
                row.value,
                row.config_source,
                row.config_type,
                [(s.name, s.value, s.source) for s in row.synonyms],
            )
            for row in rows
            if row.name.startswith("streams.") and not row.name.endswith(".assignor.offload.enable")
        }

    assert shown().keys() == OF_STREAMS
    assert shown()[ASSIGNOR] == ("sticky", DEFAULT_SOURCE, 2, [("group.streams.assignors", "sticky", DEFAULT_SOURCE)])
    given = ((WARMUPS, SET, " 5 "), (LAG, SET, "7"), (ASSIGNOR, SET, "sticky"))
    assert change(kafka, group, *given) is Code.none
    own = {
        name: (value, GROUP_SOURCE, kind, [(name, value, GROUP_SOURCE), (brokers, default, DEFAULT_SOURCE)])
        for name, value, kind, brokers, default in (
            (WARMUPS, " 5 ", 3, f"group.{WARMUPS}", "2"),
            (LAG, "7", 5, f"group.{LAG}", "10000"),
            (ASSIGNOR, "sticky", 2, "group.streams.assignors", "sticky"),
        )
    }
    until(lambda: {name: row for name, row in shown().items() if name in own} == own, "the group's own settings")
    refused = ((WARMUPS, "21"), (WARMUPS, "-1"), (LAG, "-1"), (LAG, "x"), (ASSIGNOR, "mine"), (ASSIGNOR, ""))
    for name, value in refused:
        assert change(kafka, group, (name, SET, value)) is Code.invalid_config, (name, value)
    assert change(kafka, group, (WARMUPS, SET, "20"), (ASSIGNOR, DELETE, None), (LAG, DELETE, None)) is Code.none
    until(lambda: shown().keys() == OF_STREAMS | {WARMUPS}, "the internal setting that is left")


def test_the_coordinator_uses_a_changed_interval_at_once(kafka: Any) -> None:
    topic = kafka.topic("intervals", 1)
    group = RawGroup(kafka.raw, f"group-{uuid4().hex[:8]}", min(kafka.ports))
    group.await_loaded()

    def heartbeat(epoch: int) -> Any:
        joins = epoch == 0
        return group.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=group.name,
            member_id="a-member",
            member_epoch=epoch,
            rebalance_timeout=30_000 if joins else -1,
            subscribed_topic_names=(topic,) if joins else None,
            topic_partitions=() if joins else None,
        )

    def interval_ms(answer: Any) -> int:
        assert answer.error_code is Code.none, answer
        return messages.to_milliseconds(answer.heartbeat_interval)

    joined = heartbeat(0)
    assert interval_ms(joined) == 5_000
    assert change(kafka, group.name, (HEARTBEAT, SET, "7000")) is Code.none
    until(lambda: interval_ms(heartbeat(joined.member_epoch)) == 7_000, "the group's interval")
    assert change(kafka, group.name, (HEARTBEAT, DELETE, None)) is Code.none
    until(lambda: interval_ms(heartbeat(joined.member_epoch)) == 5_000, "the broker's interval")
