"""Streams groups answer each heartbeat as those of Apache Kafka 4.4 (G2, KIP-1071).

Each script sends requests and notes the answers, which `kafka_files/streams_answers.json` has from Apache Kafka
(`support/group_scripts.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from group_scripts import Script, check_answers, create_topic
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from raw_streams_groups import RawStreamsGroup
from streams_group_requests import topic_info
from waiting import until

PARTITIONS = 3
MISSING_INTERNAL = 3

Groups = Script[RawStreamsGroup]


def ready(script: Groups, member: str = "a", **more: Any) -> None:
    """A member joins; returns when its internal topics are there and it has every task."""
    group, note = script.group, script.note
    note("enters", group.enter(member, **more))
    last: list[tuple[Any, ...]] = []

    def is_ready() -> bool:
        last[:] = [group.beat(member, 2, owned={})]
        error, statuses = last[0][0], last[0][3]
        return error is ErrorCode.none and statuses == []

    until(is_ready, lambda: f"the internal topics are there; the last answer: {last}")
    note("the topics are there", last[0])


def a_second_member_gets_what_the_first_gives_up(script: Groups) -> None:
    group, note = script.group, script.note
    ready(script)
    note("nothing changed", group.beat("a", 3))
    note("described", group.streams())
    note("b enters", group.enter("b"))
    note("described", group.streams())
    note("a must revoke", group.beat("a", 3, owned={"0": [0, 1, 2]}))
    note("a has not", group.beat("a", 3, owned={"0": [0, 1, 2]}))
    note("commits", [group.commit(script.topic, 1, "a", epoch) for epoch in (2, 3, 4)])
    note("b waits", group.beat("b", 4, owned={}))
    note("a has revoked", group.beat("a", 3, owned={"0": [0, 1]}))
    note("b gets it", group.beat("b", 4, owned={}))
    note("described", group.streams())
    note("a repeats", group.beat("a", 3, owned={"0": [0, 1]}))
    note("a with what it gave up", group.beat("a", 3, owned={"0": [2]}))
    note("a is ahead", group.beat("a", 9))
    note("commits", [group.commit(script.topic, 1, "a", epoch) for epoch in (2, 3, 4, 5)])
    note("commits of b", [group.commit(script.topic, 1, "b", epoch) for epoch in (3, 4)])
    note("listed", group.listed())
    note("deleted", group.delete(group.name))
    note("b leaves", group.beat("b", -1))
    note("b is unknown", group.beat("b", 4))
    note("a gets all", group.beat("a", 4, owned={"0": [0, 1]}))
    note("a leaves", group.beat("a", -1))
    note("described", group.streams())
    note("listed", group.listed())
    note("deleted", group.delete(group.name))
    note("described", group.streams())


def heartbeats_that_are_refused(script: Groups) -> None:
    group, note = script.group, script.note
    note("no group", group.beat("a", 1))
    note("an unknown member leaves", group.beat("a", -1))
    note("no member id", group.enter(""))
    note("no topology", group.enter("a", topology=None))
    note("no timeout", group.enter("a", rebalance_timeout=messages.milliseconds(-1)))
    note("tasks", group.enter("a", owned={"0": [1]}))
    note("some kinds", group.enter("a", standby_tasks=None))
    note("epoch", group.beat("a", -3))
    note("static leave", group.beat("a", -2))
    twice = ({"subtopology_id": "0", "partition": 1, "offset": 5},) * 2
    note("offsets of a task twice", group.enter("a", task_offsets=twice))
    note("regex", group.enter("a", topology=group.topology(source_topic_regex=("x",))))
    note("internal", group.enter("a", topology=group.topology(source_topics=("__consumer_offsets",))))
    note("name", group.enter("a", topology=group.topology(source_topics=("a b",))))
    counted = (topic_info(group.changelog, 2),)
    note("counted changelog", group.enter("a", topology=group.topology(state_changelog_topics=counted)))
    looped: dict[str, Any] = {
        "repartition_source_topics": (topic_info("r"),),
        "repartition_sink_topics": ("r",),
        "source_topics": (),
    }
    note("loop", group.enter("a", topology=group.topology(**looped)))
    unwritten: dict[str, Any] = {"repartition_source_topics": (topic_info("r"),)}
    note("never written", group.enter("a", topology=group.topology(**unwritten)))
    note("described", group.streams())
    ready(script)
    note("another topology", group.enter("b", topology=group.topology(source_topics=("other",))))
    note("unknown subtopology", group.beat("a", 3, owned={"9": [0]}))
    note("unknown task", group.beat("a", 3, owned={"0": [3]}))
    note("topology later", group.beat("a", 3, topology=group.topology()))
    note("classic", group.join("c")[0])
    note("described", group.streams())


def statuses_of_topologies_and_of_the_end_of_the_application(script: Groups) -> None:
    group, note = script.group, script.note
    note("no source", group.enter("a", topology=group.topology(source_topics=("absent", "gone"))))
    note("described", group.streams())
    other = script.group = script.another("group")
    other.use(script.topic)
    script.aliases[other.name] = "OTHER"
    ready(script, topology=other.topology(1), user_endpoint={"host": "here", "port": 80})
    note("older topology", other.enter("b", user_endpoint={"host": "there", "port": 81}))
    note("b knows the endpoints", other.beat("b", 4, endpoint_information_epoch=2))
    note("a revokes", other.beat("a", 3, owned={"0": [0, 1, 2]}, endpoint_information_epoch=2))
    note("a asks for the end", other.beat("a", 3, shutdown_application=True))
    note("b must end", other.beat("b", 4))
    note("a leaves", other.beat("a", -1))
    note("b leaves", other.beat("b", -1))
    note("c enters", other.enter("c", topology=other.topology(1)))


def a_member_that_loses_a_response(script: Groups) -> None:
    """Its next heartbeat with the older epoch is accepted, and says nothing of the tasks that the response named."""
    group, note = script.group, script.note
    ready(script)
    note("the response with its tasks is lost", group.beat("a", 2, owned={}))
    note("again", group.beat("a", 2, owned={}))
    note("without tasks", group.beat("a", 2))
    note("it has the new epoch", group.beat("a", 3, owned={}))
    note("described", group.streams())
    note("b enters", group.enter("b"))
    note("a must revoke", group.beat("a", 3, owned={"0": [0, 1, 2]}))
    note("that is lost", group.beat("a", 3, owned={"0": [0, 1, 2]}))
    note("b waits", group.beat("b", 4, owned={}))
    note("it has revoked", group.beat("a", 3, owned={"0": [0, 1]}))
    note("that is lost", group.beat("a", 3, owned={"0": [0, 1]}))
    note("with the task", group.beat("a", 3, owned={"0": [0, 1, 2]}))
    note("before that", group.beat("a", 2, owned={"0": [0, 1]}))
    note("joins again", group.enter("a"))
    note("described", group.streams())


def later_versions(script: Groups) -> None:
    """Nothing is stored of a topology's description, because there is no plugin (KIP-1331)."""
    group, note = script.group, script.note
    note("enters", group.settings_of(group.heard("a", 0, 1, **group.joining("a"))))
    until(lambda: group.beat("a", 2, owned={})[3] == [], "the internal topics are there")
    note("v0", group.settings_of(group.heard("a", 3, 0)))
    rows = tuple({"subtopology_id": "0", "partition": number, "offset": 7 - number} for number in (2, 1))
    note("v1 with offsets", group.settings_of(group.heard("a", 3, 1, task_offsets=rows)))
    note("described", [group.described(0), group.described(1), group.described(1, include_topology_description=True)])
    note("ends of offsets", group.settings_of(group.heard("a", 3, 1, task_end_offsets=rows[:1])))
    note("described", group.described(1))
    note("other offsets", group.settings_of(group.heard("a", 3, 1, task_offsets=(), task_end_offsets=None)))
    note("described", group.described(1))
    note("a task twice", group.settings_of(group.heard("a", 3, 1, task_end_offsets=rows[:1] * 2)))
    note("updates", [group.update(member, epoch) for member in ("a", "x", "") for epoch in (0, 9)])
    note("updates of others", [group.update("a", 0, name) for name in ("", "nothing")])
    group.configure("streams.rack.aware.assignment.tags", "zone,cluster")
    held = {"0": [0, 1, 2]}
    until(lambda: group.beat("a", 3, owned=held)[2] == 4, "the setting begins another assignment")
    for version in (0, 1):
        note("no tags", group.settings_of(group.heard("a", 4, version, owned=held)))
    tags = ({"key": "cluster", "value": "k"},)
    note("one tag", group.settings_of(group.heard("a", 4, 1, owned=held, client_tags=tags)))
    both = (*tags, {"key": "zone", "value": "z"})
    note("both tags", group.settings_of(group.heard("a", 5, 1, owned=held, client_tags=both)))
    note("leaves", group.settings_of(group.heard("a", -1, 1)))
    note("described", group.described(1, include_topology_description=True))
    note("unknown", group.settings_of(group.heard("a", 5, 1)))


def static_members(script: Groups) -> None:
    """A static member comes back under another id, with its tasks and in the same group epoch (KIP-1071)."""
    group, note = script.group, script.note
    mine: dict[str, Any] = {"instance_id": "one", "process_id": "process-one"}
    here, there = ({"host": name, "port": 80} for name in ("here", "there"))
    ready(script, **mine, user_endpoint=here)
    note("b enters", group.enter("b", instance_id="two"))
    note("described", group.streams())
    note("a revokes", group.beat("a", 3, owned={"0": [0, 1, 2]}, instance_id="one"))
    note("a has revoked", group.beat("a", 3, owned={"0": [0, 1]}, instance_id="one"))
    note("b has a task", group.beat("b", 4, owned={}, instance_id="two"))
    for member, epoch, instance in (
        *(("a2", 0, "one"), ("a2", 4, "one"), ("a2", -1, "one"), ("a2", -2, "one"), ("a", 4, "three")),
        *(("a", -1, "three"), ("a", -2, "three"), ("a", -2, None), ("a", 9, "one"), ("a", 0, "")),
    ):
        fields: dict[str, Any] = {**(group.joining("a") | mine if epoch == 0 else {}), "instance_id": instance}
        note(f"{member} {epoch} {instance}", group.beat(member, epoch, **fields))
    note("a goes away", group.beat("a", -2, instance_id="one"))
    note("described", group.streams())
    note("b knows nothing of it", group.beat("b", 4, owned={"0": [2]}, instance_id="two"))
    note("a is away", group.beat("a", 4, instance_id="one"))
    note("without its instance", group.beat("a", 4))
    note("comes back", group.enter("a2", **mine, user_endpoint=here))
    note("described", group.streams())
    note("the id of before", group.beat("a", 4, instance_id="one"))
    note("the present id", group.beat("a2", 4, instance_id="one"))
    note("goes away", group.beat("a2", -2, instance_id="one"))
    note("another process", group.enter("a3", **{**mine, "process_id": "new"}, user_endpoint=there))
    note("described", group.streams())
    note("b hears", group.beat("b", 4, owned={"0": [2]}, instance_id="two"))
    note("goes away", group.beat("a3", -2, instance_id="one"))
    note("is not static any more", group.enter("a3"))
    note("leaves", group.beat("a3", -1))
    note("b goes away", group.beat("b", -2, instance_id="two"))
    note("described", group.streams())
    note("b leaves", group.beat("b", -1, instance_id="two"))
    note("described", group.streams())


SCRIPTS: list[Callable[[Groups], None]] = [
    a_second_member_gets_what_the_first_gives_up,
    a_member_that_loses_a_response,
    heartbeats_that_are_refused,
    statuses_of_topologies_and_of_the_end_of_the_application,
    later_versions,
    static_members,
]


@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_a_streams_group_answers_as_in_kafka(kafka: Any, play: Callable[[Groups], None]) -> None:
    script = Script(kafka, RawStreamsGroup, create_topic(kafka, "streams", PARTITIONS))
    script.group.use(script.topic)
    play(script)
    check_answers(script, play.__name__, "streams_answers.json")


def test_tasks_go_to_the_members_that_reported_offsets_of_them(kafka: Any) -> None:
    """Members that join together, before the first assignment; their processes are alike otherwise (Kafka 4.4)."""
    script = Script(kafka, RawStreamsGroup, create_topic(kafka, "streams", PARTITIONS))
    group = script.group
    group.source, group.changelog = script.topic, f"{group.name}-store-changelog"
    kept: dict[str, tuple[int, ...]] = {"a": (1, 2), "b": (0,)}
    epochs, held = dict.fromkeys(kept, 1), {name: list[int]() for name in kept}

    def beat(member: str, epoch: int, **more: Any) -> None:
        rows = tuple({"subtopology_id": "0", "partition": number, "offset": 5} for number in kept[member])
        answer = group.beat(member, epoch, task_offsets=rows, **more)
        assert answer[0] is ErrorCode.none, answer
        epochs[member], tasks = answer[2], answer[4]
        held[member] = held[member] if tasks is None else [number for numbers in tasks.values() for number in numbers]

    for member in kept:
        beat(member, 0, **group.joining(member))

    def both_have_tasks() -> bool:
        for member in kept:
            beat(member, epochs[member], owned={"0": held[member]} if held[member] else {})
        return all(held.values())

    until(both_have_tasks, lambda: f"both have tasks: {held}, epochs {epochs}")
    assert held == {name: list(numbers) for name, numbers in kept.items()}
