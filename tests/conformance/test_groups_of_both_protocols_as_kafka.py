"""Groups with members of both protocols answer each request as those of Apache Kafka 4.4 (G2, KIP-848).

A classic group becomes a consumer group and back while its members live; each script sends requests and notes the
answers, which `kafka_files/both_protocols_answers.json` has from Apache Kafka (`support/group_scripts.py`).

Apache Kafka runs with `group.consumer.assignment.interval.ms=0` and without `assignor.offload.enable`
(`support/apache_kafka.py`): else a target assignment is computed at most once a second, in the background (KIP-1263),
and answers depend on time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from group_scripts import Script, check_answers, create_topic
from harrow.cluster.wire.api_keys import ApiKey
from raw_consumer_groups import RawConsumerGroup
from raw_groups import RANGE
from raw_transactions import RawProducer
from waiting import until

PARTITIONS = 10
Groups = Script[RawConsumerGroup]
ROW = {"committed_offset": 5, "committed_metadata": ""}


def a_cooperative_group_moves_to_the_consumer_protocol_and_back(script: Groups) -> None:
    group, note, topic = script.group, script.note, script.topic
    group.classic("a")
    note("b enters", group.enter("b"))
    note("a: heartbeat", group.heartbeat("a", 1))
    note("a: sync before its join", group.synced("a", 1))
    note("a joins", group.rejoin("a", owned=range(PARTITIONS)))
    code, kept = group.synced("a", 1)
    note("a learns what it keeps", (code, len(kept)))
    note("a: heartbeat", group.heartbeat("a", 1))
    note("described", group.consumers())
    note("b waits", group.beat("b", 2))
    note("a has revoked", group.rejoin("a", owned=kept))
    note("a keeps", group.synced("a", 2)[1] == kept)
    _, _, given = group.beat("b", 2)
    note("b has the rest", sorted([*kept, *(given or ())]))
    note("described", group.consumers())
    note("commit", [group.commit(topic, 1, name, epoch) for name in "ab" for epoch in (1, 2)])
    note("b leaves by LeaveGroup", group.leave(("b", None), ("b", None), ("x", None), ("", "i")))
    note("described", group.consumers()[0])
    note("listed", group.listed())
    note("a: heartbeat", group.heartbeat("a", 2))
    note("a joins", group.rejoin("a", owned=kept)[:5])
    gives = {"a": group.assignment(*range(PARTITIONS))}
    note("a: sync", group.synced("a", 3, gives=gives))
    note("listed", group.listed())


def members_of_the_consumer_protocol_are_removed_by_leave_group(script: Groups) -> None:
    group, note = script.group, script.note
    note("b enters", group.enter("b", instance="i"))
    note("c enters", group.enter("c"))
    note("wrong ids", group.leave(("x", "i"), ("b", "j")))
    note("by id", group.leave(("b", None)))
    note("described", group.consumers())
    note("b enters", group.enter("b", instance="i")[:2])
    note("by instance", group.leave(("", "i"), ("", "i")))
    note("b enters", group.enter("b", instance="i")[:2])
    note("by both", group.leave(("b", "i")))
    note("v2", [group.leave_alone("x"), group.leave_alone("c")])
    note("described", group.consumers())
    note("listed", group.listed())
    note("no member", group.leave(("", "i"), ("c", None)))


def members_that_change_their_protocol(script: Groups) -> None:
    group, note = script.group, script.note
    everything = list(range(PARTITIONS))
    group.enter("b")
    note("a dynamic member joins", group.rejoin("b", owned=everything))
    note("listed", group.listed())
    note("described", group.consumers())
    note("its sync", group.synced("b", 2))
    note("it returns", group.beat("b", 2, topics=[script.topic], owned=everything, timeout_ms=9))
    note("described", group.consumers())
    static = script.another("static")
    static.use(script.topic, PARTITIONS)
    static.enter("b", instance="i")
    note("a static member joins", static.rejoin("m", "", instance="i"))
    note("listed", static.listed())
    note("its sync", static.synced("m", 2, instance="i"))
    note("another takes its place", static.enter("c", instance="i"))
    note("described", static.consumers())
    other = script.another("other")
    other.use(script.topic, PARTITIONS)
    other.enter("b", instance="i")
    note("with another subscription", other.rejoin("b", instance="i", topics=[]))
    note("listed", other.listed())
    note("its sync", other.synced("b", 2, instance="i"))


def requests_that_are_refused(script: Groups) -> None:
    group, note = script.group, script.note
    group.enter("b")
    note("another type", group.join("a", "a", protocols=RANGE, protocol_type="connect"))
    note("no protocol", group.join("a", "a", protocols=()))
    note("no id", group.rejoin("a", "")[0])
    note("a joins", group.rejoin("a"))
    note("its protocol changes", group.rejoin("a", protocol="range"))
    note("unreadable", group.join("x", "x", protocols=(("cooperative-sticky", b"?"),)))
    note("version -1", group.join("x", "x", protocols=(("cooperative-sticky", b"\xff\xff\0\0\0\0"),)))
    note("unknown instance", group.rejoin("x", instance="i"))
    note("b: classic requests", [group.heartbeat("b", 2), group.sync("b", 2)[0]])
    note("a: later generation", [group.heartbeat("a", 4), group.sync("a", 4)[0]])
    note("regex", group.beat("x", 1, subscribed_topic_regex="["))
    note("regex", group.beat("b", 2, subscribed_topic_regex="["))
    note("v0", group.beat("", -2, version=0, instance="i"))
    note("v0", group.beat("", -3, version=0))
    note("b leaves", group.leave(("b", None), ("a", None)))
    note("a member joins an empty group", group.rejoin("a"))
    note("without topics", group.enter("b", topics=())[1] - group.consumers()[2])


def assignments_with_user_data_of_an_assignor(script: Groups) -> None:
    """Those of librdkafka's cooperative-sticky have them from a member's second generation on."""
    group, note = script.group, script.note
    plain = group.assignment(*range(PARTITIONS))
    for name, assignment in (
        ("none", plain),
        ("empty", plain[:-4] + b"\0\0\0\0"),
        ("some", plain[:-4] + b"\0\0\0\2uu"),
        ("unreadable", b"?"),
    ):
        other = script.another(name)
        other.use(script.topic, PARTITIONS)
        other.rejoin("a", "")
        other.rejoin("a")
        other.sync("a", 1, gives={"a": assignment}, protocol=("consumer", "cooperative-sticky"))
        note(f"user data: {name}", other.enter("b"))
        note("listed", other.listed())
        note("a: heartbeat", other.heartbeat("a", 1))
    note("described", group.consumers()[0])


def subscriptions_that_are_empty(script: Groups) -> None:
    group, note = script.group, script.note
    note("the first member", group.enter("a", topics=()))
    note("described", group.consumers())
    note("a member with a topic", group.enter("b")[:2])
    note("a third member", group.enter("c", topics=()))
    note("a classic member", group.rejoin("d", "d", topics=(), version=3))
    note("described", group.consumers())
    note("a member has no topic any more", group.beat("b", 2, topics=()))
    note("described", group.consumers())


def offsets_of_topics_that_are_named_twice(script: Groups) -> None:
    group, note, topic = script.group, script.note, script.topic
    big = "x" * 5_000
    for rows in (
        [(topic, 0, 1, ""), (topic, 1, 2, "")],
        [(topic, 0, 1, ""), (topic, 99, 2, ""), (topic, 2, 3, "")],
        [(topic, 0, 7, ""), (topic, 0, 8, ""), (topic, 0, 9, big)],
        [("nowhere", 0, 1, ""), (topic, 0, 1, ""), ("nowhere", 1, 1, "")],
    ):
        note("commit", group.commit_topics(rows))
    note("no partitions", group.commit_topics([], topic, "nowhere"))
    note("fetch", group.fetch(group.name, topics={topic: [0, 0]}))
    note("delete", group.delete_offsets((topic, 0), (topic, 99), (topic, 1)))
    note("ids that are not known", group.fetch_by_id(None, uuid4()))


def transactional_offsets_of_a_consumer_group(script: Groups) -> None:
    group, note, topic = script.group, script.note, script.topic
    client = RawProducer(script.kafka.raw, f"t-{uuid4().hex[:8]}", min(script.kafka.ports))
    client.init()
    group.enter("b")

    def commit(member: str, epoch: int, version: int, name: str = group.name) -> Any:
        row = {"partition_index": 0, **ROW}
        answer = group.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=client.name,
            group_id=name,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            generation_id=epoch,
            member_id=member,
            topics=[{"name": topic, "partitions": [row]}],
        )
        return answer.topics[0].partitions[0].error_code

    until(lambda: commit("b", 2, 5) == 0, "the offset is in the transaction")
    note("member", [commit("b", epoch, 5) for epoch in (0, 1, 2, 3, -1)])
    note("no member", [commit("", -1, version) for version in (3, 4, 5)])
    note("stranger", [commit("x", epoch, 5) for epoch in (-1, 1)])
    note("no group", [commit("", -1, version, "") for version in (3, 5)])
    note("end", client.end(commit=True).error_code)


SCRIPTS: list[Callable[[Groups], None]] = [
    a_cooperative_group_moves_to_the_consumer_protocol_and_back,
    members_of_the_consumer_protocol_are_removed_by_leave_group,
    members_that_change_their_protocol,
    requests_that_are_refused,
    assignments_with_user_data_of_an_assignor,
    subscriptions_that_are_empty,
    offsets_of_topics_that_are_named_twice,
    transactional_offsets_of_a_consumer_group,
]


@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_a_group_of_both_protocols_answers_as_in_kafka(kafka: Any, play: Callable[[Groups], None]) -> None:
    script = Script(kafka, RawConsumerGroup, create_topic(kafka, "both", PARTITIONS))
    script.group.use(script.topic, PARTITIONS)
    play(script)
    check_answers(script, play.__name__, "both_protocols_answers.json")
