"""Streams groups answer each heartbeat as those of Apache Kafka 4.4 (G2, KIP-1071).

Each script sends requests and notes the answers, which `kafka_files/streams_answers.json` has from Apache Kafka
(`support/group_scripts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from group_scripts import Script, check_answers, create_topic
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_groups import RawGroup
from streams_group_requests import subtopology, topic_info
from waiting import until

PARTITIONS = 3
GROUP_RESOURCE = 32
MISSING_INTERNAL = 3
Tasks = Mapping[str, Sequence[int]]


class RawStreamsGroup(RawGroup):
    """A group of Kafka Streams whose application has one source, and a store where `changelog` is set."""

    source = ""
    changelog = ""

    def use(self, source: str) -> None:
        """The source of the application; the first assignment is not delayed."""
        self.source, self.changelog = source, f"{self.name}-store-changelog"
        self.configure("streams.initial.rebalance.delay.ms", "0")

    def configure(self, name: str, value: str) -> None:
        """Set the first setting of the group; returns when its coordinator applies it."""
        row = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self.name, "configs": (row,)}
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.none, answer

        def is_applied() -> bool:
            # DescribeConfigs would not do: one of our brokers answers it before the coordinator has applied the setting
            found = self.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=(GROUP_RESOURCE,))
            return self.name in {row.resource_name for row in found.config_resources}

        until(is_applied, f"{self.name} has {name} = {value}")

    def topology(self, epoch: int = 0, **more: Any) -> dict[str, Any]:
        """The topology of the application."""
        stores = (topic_info(self.changelog, **{"cleanup.policy": "compact"}),)
        fields = {"state_changelog_topics": stores, **more}
        return {"epoch": epoch, "subtopologies": (subtopology("0", self.source, **fields),)}

    def beat(self, member: str, epoch: int, *, owned: Tasks | None = None, **more: Any) -> tuple[Any, ...]:
        """Error, message, epoch, statuses, active and standby tasks, endpoint epoch, endpoints."""
        answer = self.heard(member, epoch, 0, owned=owned, **more)
        return (
            answer.error_code,
            answer.error_message,
            answer.member_epoch,
            None if answer.status is None else [[row.status_code, row.status_detail] for row in answer.status],
            _tasks(answer.active_tasks),
            _tasks(answer.standby_tasks),
            answer.endpoint_information_epoch,
            _endpoints(answer.partitions_by_user_endpoint),
        )

    def heard(self, member: str, epoch: int, version: int, *, owned: Tasks | None = None, **more: Any) -> Any:
        """The response to a heartbeat of a version."""
        tasks = None
        if owned is not None:
            tasks = tuple({"subtopology_id": name, "partitions": tuple(numbers)} for name, numbers in owned.items())
        fields: dict[str, Any] = {
            "endpoint_information_epoch": 0,
            "rebalance_timeout": messages.milliseconds(-1),
            "topology": None,
            "active_tasks": tasks,
            "standby_tasks": None if tasks is None else (),
            "warmup_tasks": None if tasks is None else (),
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
        }
        return self.ask(
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            version,
            **{**fields, "group_id": self.name, "member_id": member, "member_epoch": epoch, **more},
        )

    def enter(self, member: str, **more: Any) -> tuple[Any, ...]:
        """A heartbeat that joins."""
        return self.beat(member, 0, **{**self.joining(member), **more})

    def joining(self, member: str) -> dict[str, Any]:
        """The fields of a heartbeat that joins."""
        return {
            "owned": {},
            "rebalance_timeout": messages.milliseconds(60_000),
            "topology": self.topology(),
            "process_id": f"process-{member}",
            "client_tags": (),
        }

    def settings_of(self, answer: Any) -> tuple[Any, ...]:
        """What a response says besides tasks: error, epoch, status codes and texts, times, lag, flag."""
        return (
            answer.error_code,
            answer.error_message,
            answer.member_epoch,
            [[row.status_code, row.status_detail] for row in answer.status],
            messages.to_milliseconds(answer.heartbeat_interval),
            messages.to_milliseconds(answer.task_offset_interval),
            answer.acceptable_recovery_lag,
            getattr(answer, "topology_description_required", None),
        )

    def described(self, version: int, **more: Any) -> tuple[Any, ...]:
        """What StreamsGroupDescribe says of descriptions, the assignor, and offsets of tasks."""
        (row,) = self.ask(ApiKey.STREAMS_GROUP_DESCRIBE, version, group_ids=(self.name,), **more).groups
        return (
            row.error_code,
            row.group_epoch,
            getattr(row, "topology_description", None),
            getattr(row, "topology_description_status", None),
            getattr(row, "assignor_name", None),
            [
                [(part.subtopology_id, part.partition, part.offset) for part in rows]
                for member in row.members
                for rows in (member.task_offsets, member.task_end_offsets)
            ],
        )

    def update(self, member: str, epoch: int, name: str | None = None) -> tuple[Any, ...]:
        """The answer to a description of the topology."""
        description = {"subtopologies": (), "global_stores": ()}
        answer = self.ask(
            ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
            0,
            group_id=self.name if name is None else name,
            member_id=member,
            topology_epoch=epoch,
            topology_description=description,
        )
        return answer.error_code, answer.error_message

    def streams(self) -> tuple[Any, ...]:
        """The group as StreamsGroupDescribe shows it."""
        (row,) = self.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=(self.name,)).groups
        topology = row.topology
        return (
            row.error_code,
            row.error_message,
            row.group_state,
            row.group_epoch,
            row.assignment_epoch,
            None
            if topology is None
            else [
                (
                    part.subtopology_id,
                    part.source_topics,
                    [(topic.name, topic.partitions) for topic in part.state_changelog_topics],
                )
                for part in topology.subtopologies
            ],
            sorted(
                (
                    member.member_id,
                    member.member_epoch,
                    member.topology_epoch,
                    member.process_id,
                    _tasks(member.assignment.active_tasks),
                    _tasks(member.target_assignment.active_tasks),
                )
                for member in row.members
            ),
        )


def _tasks(rows: Any) -> dict[str, list[int]] | None:
    return None if rows is None else {row.subtopology_id: list(row.partitions) for row in rows}


def _endpoints(rows: Any) -> Any:
    if rows is None:
        return None
    return sorted(
        (
            row.user_endpoint.host,
            row.user_endpoint.port,
            sorted((part.topic, sorted(part.partitions)) for part in row.active_partitions),
        )
        for row in rows
    )


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


SCRIPTS: list[Callable[[Groups], None]] = [
    a_second_member_gets_what_the_first_gives_up,
    a_member_that_loses_a_response,
    heartbeats_that_are_refused,
    statuses_of_topologies_and_of_the_end_of_the_application,
    later_versions,
]


@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_a_streams_group_answers_as_in_kafka(kafka: Any, play: Callable[[Groups], None]) -> None:
    script = Script(kafka, RawStreamsGroup, create_topic(kafka, "streams", PARTITIONS))
    script.group.use(script.topic)
    play(script)
    check_answers(script, play.__name__, "streams_answers.json")
