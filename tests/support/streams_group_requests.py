"""Requests of members of a streams group (KIP-1071) to a coordinator without a cluster, and a client with its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from group_fakes import GroupTestBed
from group_requests import GROUP
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey

Owned = Mapping[str, Iterable[int]]
"""Subtopology -> partitions."""
REBALANCE_MS = 20_000
REPARTITION, CHANGELOG = "app-by-customer-repartition", "app-counts-changelog"


def topic_info(name: str, partitions: int = 0, /, **configs: str) -> dict[str, Any]:
    """An internal topic of a topology."""
    rows = tuple({"key": key, "value": value} for key, value in configs.items())
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": rows}


def subtopology(name: str, *sources: str, **more: Any) -> dict[str, Any]:
    """A subtopology of a topology; `more` are fields of the request."""
    fields: dict[str, Any] = {
        "subtopology_id": name,
        "source_topics": sources,
        "source_topic_regex": (),
        "state_changelog_topics": (),
        "repartition_sink_topics": (),
        "repartition_source_topics": (),
        "copartition_groups": (),
    }
    return {**fields, **more}


BILLS = {
    "epoch": 0,
    "subtopologies": (
        subtopology("0", "orders", repartition_sink_topics=(REPARTITION,)),
        subtopology(
            "1",
            repartition_source_topics=(topic_info(REPARTITION),),
            state_changelog_topics=(topic_info(CHANGELOG, **{"cleanup.policy": "compact"}),),
        ),
    ),
}
"""An application with a repartition topic and a state store; `orders` has three partitions."""


def streams_heartbeat(
    bed: GroupTestBed,
    member_id: str,
    epoch: int,
    *,
    owned: Owned | None = None,
    group_id: str = GROUP,
    version: int = 0,
    **more: Any,
) -> Any:
    """The response to a StreamsGroupHeartbeat; `owned` are active tasks, without standbys."""
    tasks = None
    if owned is not None:
        tasks = tuple({"subtopology_id": name, "partitions": tuple(numbers)} for name, numbers in owned.items())
    fields: dict[str, Any] = {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout": timedelta(milliseconds=-1),
        "endpoint_information_epoch": 0,
        "topology": None,
        "active_tasks": tasks,
        "standby_tasks": None if tasks is None else (),
        "warmup_tasks": None if tasks is None else (),
        "user_endpoint": None,
        "client_tags": None,
        "task_offsets": None,
        "task_end_offsets": None,
    }
    return bed.send(ApiKey.STREAMS_GROUP_HEARTBEAT, version, **{**fields, **more}).response


def streams_join(bed: GroupTestBed, member_id: str, **more: Any) -> Any:
    """A heartbeat that joins; each member is a process of its own unless `process_id` is given."""
    fields: dict[str, Any] = {
        "owned": {},
        "rebalance_timeout": timedelta(milliseconds=REBALANCE_MS),
        "topology": BILLS,
        "process_id": f"process of {member_id}",
        "client_tags": (),
    }
    return streams_heartbeat(bed, member_id, 0, **{**fields, **more})


def tasks_of(rows: Iterable[Any] | None) -> dict[str, list[int]] | None:
    """Tasks of a response, by subtopology; None: not changed."""
    return None if rows is None else {row.subtopology_id: list(row.partitions) for row in rows}


def statuses(response: Any) -> list[int]:
    """The codes of the statuses of a response."""
    return [row.status_code for row in response.status]


def streams_described(bed: GroupTestBed, group_id: str = GROUP) -> Any:
    """The group as StreamsGroupDescribe shows it."""
    return bed.send(ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=(group_id,)).response.groups[0]


class ModelStreams:
    """A client of KIP-1071: it gives up what it loses before it acknowledges, and keeps what it was given.

    `is_behind`: a response that named tasks may have been lost, and none has named tasks since. The coordinator names
    them when they change and when a member joins, not when a member repeats a heartbeat, so such a client keeps what it
    had (Kafka 4.2 and 4.4; `conformance/test_streams_groups_as_kafka.py: a_member_that_loses_a_response`).
    """

    def __init__(self, bed: GroupTestBed, member_id: str, process_id: str, instance_id: str | None = None) -> None:
        self.bed = bed
        self.member_id = member_id
        self.process_id = process_id
        self.instance_id = instance_id
        self.epoch = 0
        self.active: dict[str, list[int]] = {}
        self.standby: dict[str, list[int]] = {}
        self.is_behind = False

    def beat(self, *, lose_response: bool = False) -> ErrorCode:
        """One heartbeat; with `lose_response` the client does not see the response."""
        if self.epoch == 0:
            response = streams_join(self.bed, self.member_id, process_id=self.process_id, instance_id=self.instance_id)
        else:
            standby = tuple({"subtopology_id": name, "partitions": tuple(p)} for name, p in self.standby.items())
            response = streams_heartbeat(
                self.bed,
                self.member_id,
                self.epoch,
                owned=self.active,
                standby_tasks=standby,
                instance_id=self.instance_id,
            )
        if response is None or lose_response:
            if self.epoch > 0 and (
                response is None or response.error_code is not ErrorCode.none or response.active_tasks is not None
            ):
                self.is_behind = True
            return ErrorCode.request_timed_out
        if response.error_code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
            self.abandon()
        elif response.error_code is ErrorCode.none:
            self.epoch = response.member_epoch
            if response.active_tasks is not None:
                self.active = tasks_of(response.active_tasks) or {}
                self.standby = tasks_of(response.standby_tasks) or {}
                self.is_behind = False
        code: ErrorCode = response.error_code
        return code

    def abandon(self) -> None:
        """Give up everything; the next heartbeat joins."""
        self.epoch, self.active, self.standby, self.is_behind = 0, {}, {}, False

    def leave(self) -> None:
        """Leave the group."""
        streams_heartbeat(self.bed, self.member_id, -1, instance_id=self.instance_id)
        self.abandon()

    def restart(self) -> None:
        """Leave for a restart as a static member; the next heartbeat joins under another member id."""
        streams_heartbeat(self.bed, self.member_id, -2, instance_id=self.instance_id)
        self.abandon()
        self.member_id += "+"

    def tasks(self) -> list[tuple[str, int]]:
        """Its active tasks."""
        return [(name, number) for name, numbers in self.active.items() for number in numbers]
