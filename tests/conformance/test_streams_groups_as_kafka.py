"""Streams groups answer each heartbeat as those of Apache Kafka 4.2 (G2, KIP-1071).

Each script sends requests and notes the answers, which `kafka_files/streams_answers.json` has from Apache Kafka
(`support/group_scripts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from group_scripts import Script, check_answers
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_groups import RawGroup
from streams_group_requests import COMPACTED, subtopology, topic_info
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
        """Set a setting of the group; returns when its coordinator has it."""
        row = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self.name, "configs": (row,)}
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.none, answer
        asked = {"resource_type": GROUP_RESOURCE, "resource_name": self.name, "configuration_keys": (name,)}

        def is_set() -> bool:
            found = self.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=(asked,), include_synonyms=False)
            return [entry.value for entry in found.results[0].configs] == [value]

        until(is_set, f"{name} of {self.name} is {value}")

    def topology(self, epoch: int = 0, **more: Any) -> dict[str, Any]:
        """The topology of the application."""
        stores = (topic_info(self.changelog, **COMPACTED),)
        fields = {"state_changelog_topics": stores, **more}
        return {"epoch": epoch, "subtopologies": (subtopology("0", self.source, **fields),)}

    def beat(self, member: str, epoch: int, *, owned: Tasks | None = None, **more: Any) -> tuple[Any, ...]:
        """Error, message, epoch, statuses, active and standby tasks, endpoint epoch, endpoints."""
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
        answer = self.ask(
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            0,
            **{**fields, "group_id": self.name, "member_id": member, "member_epoch": epoch, **more},
        )
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

    def enter(self, member: str, **more: Any) -> tuple[Any, ...]:
        """A heartbeat that joins."""
        fields: dict[str, Any] = {
            "owned": {},
            "rebalance_timeout": messages.milliseconds(60_000),
            "topology": self.topology(),
            "process_id": f"process-{member}",
            "client_tags": (),
        }
        return self.beat(member, 0, **{**fields, **more})

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
        return bool(last[0][3] == [])

    until(is_ready, "the internal topics are there")
    note("the topics are there", last[0])


def heartbeats_that_are_refused(script: Groups) -> None:
    group, note = script.group, script.note
    note("no group", group.beat("a", 1))
    note("nobody leaves", group.beat("a", -1))
    note("no member id", group.enter(""))
    note("static", group.enter("a", instance_id="i"))
    note("no topology", group.enter("a", topology=None))
    note("no timeout", group.enter("a", rebalance_timeout=messages.milliseconds(-1)))
    note("tasks", group.enter("a", owned={"0": [1]}))
    note("some kinds", group.enter("a", standby_tasks=None))
    note("epoch", group.beat("a", -3))
    note("static leave", group.beat("a", -2))
    note("offsets", group.enter("a", task_offsets=()))
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


SCRIPTS: list[Callable[[Groups], None]] = [heartbeats_that_are_refused]


def create_topic(kafka: Any) -> str:
    """A topic with several partitions, which every broker knows."""
    name = f"streams-{uuid4().hex[:8]}"
    controller = kafka.raw(kafka.raw().metadata().controller_id)
    nodes = sorted(kafka.ports)
    created = controller.create_topic(name, assignment=[nodes[:1]] * PARTITIONS)
    assert created.error_code == 0, created

    def is_known(node: int) -> bool:
        return len(kafka.raw(node).metadata(name).topics[0].partitions) == PARTITIONS

    for node in nodes:
        until(partial(is_known, node), f"{name} is known to {node}")
    return name


@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_a_streams_group_answers_as_in_kafka(kafka: Any, play: Callable[[Groups], None]) -> None:
    script = Script(kafka, RawStreamsGroup, create_topic(kafka))
    script.group.use(script.topic)
    play(script)
    check_answers(script, play.__name__, "streams_answers.json")
