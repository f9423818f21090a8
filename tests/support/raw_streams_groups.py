"""Requests of members of one streams group over `RawKafka`, with answers that runs can be compared by (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_groups import RawGroup
from streams_group_requests import subtopology, topic_info
from waiting import until

GROUP_RESOURCE = 32
Tasks = Mapping[str, Sequence[int]]


class RawStreamsGroup(RawGroup):
    """A group of Kafka Streams whose application has one source, and a store where `changelog` is set."""

    source = ""
    changelog = ""

    def use(self, source: str) -> None:
        """The source of the application; the first assignment is not delayed."""
        self.source, self.changelog = source, f"{self.name}-store-changelog"
        self.configure("streams.initial.rebalance.delay.ms", "0")

    def configure(self, name: str, value: str, **others: str) -> None:
        """Set the first settings of the group, all at once; returns when its coordinator applies them.

        A later call returns at once. `others`: names with `_` for the dots.
        """
        given = {name: value, **{other.replace("_", "."): text for other, text in others.items()}}
        rows = tuple({"name": key, "config_operation": 0, "value": text} for key, text in given.items())
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self.name, "configs": rows}
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.none, answer

        def is_applied() -> bool:
            # DescribeConfigs would not do: one of our brokers answers it before the coordinator has applied the setting
            found = self.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=(GROUP_RESOURCE,))
            return self.name in {row.resource_name for row in found.config_resources}

        until(is_applied, f"{self.name} has {given}")

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
