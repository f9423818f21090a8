"""Requests to share groups in order, and their answers in a form that two clusters can be compared by.

`asked` is a function (API, version, fields) -> decoded response; topics of the scripts are `orders` (three
partitions) and `absent`, which does not exist. `classic` is the id of a group that is no share group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from harrow.cluster.wire.api_keys import ApiKey
from waiting import until

ANSWERS = Path(__file__).parents[1] / "conformance" / "kafka_files" / "share_group_answers.json"
UNLIKE = ("throttle_time", "client_host", "client_id")
"""Fields that are not compared."""
Ask = Callable[[ApiKey, int, Mapping[str, Any]], Any]


class ShareScript:
    """One share group, and the answers so far."""

    def __init__(self, ask: Ask, group: str, classic: str, orders: str, topic_id: UUID, never: str) -> None:
        self._ask = ask
        self.group = group
        self.classic = classic
        self.orders = orders
        self.never = never
        """The id of a group that does not exist."""
        self._aliases = {group: "GROUP", classic: "CLASSIC", never: "never", orders: "orders"}
        self._aliases[str(topic_id)] = "ORDERS-ID"
        self.notes: list[list[Any]] = []

    def note(self, what: str, api: ApiKey, version: int = 0, **fields: Any) -> Any:
        """Send a request, and keep its answer."""
        response = self._ask(api, version, fields)
        if api is ApiKey.LIST_GROUPS:
            mine = tuple(row for row in response.groups if row.group_id in self._aliases)
            response = dataclasses.replace(response, groups=mine)
        self.notes.append([what, self._plain(response)])
        return response

    def beat(self, member: str, epoch: int, *topics: str, group: str = "", rack: str | None = None) -> Any:
        """A heartbeat; no topic: not changed."""
        return self.note(
            f"{member} {epoch} {topics and 'subscribes'}",
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=group or self.group,
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=topics or None,
        )

    def described(self, *groups: str) -> Any:
        """ShareGroupDescribe."""
        names = groups or (self.group,)
        return self.note(
            "described", ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=names, include_authorized_operations=False
        )

    def offsets(self, *topics: tuple[str, tuple[int, ...]], group: str = "", version: int = 1) -> Any:
        """DescribeShareGroupOffsets; no topic: all."""
        rows = tuple({"topic_name": name, "partitions": numbers} for name, numbers in topics) or None
        asked = ({"group_id": group or self.group, "topics": rows},)
        return self.note("offsets", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=asked)

    def alter(self, *rows: tuple[str, int, int], group: str = "") -> Any:
        """AlterShareGroupOffsets of single partitions: topic, partition, offset."""
        topics = tuple(
            {"topic_name": name, "partitions": ({"partition_index": number, "start_offset": offset},)}
            for name, number, offset in rows
        )
        return self.note("alter", ApiKey.ALTER_SHARE_GROUP_OFFSETS, group_id=group or self.group, topics=topics)

    def delete(self, *topics: str, group: str = "") -> Any:
        """DeleteShareGroupOffsets."""
        rows = tuple({"topic_name": name} for name in topics)
        return self.note("delete", ApiKey.DELETE_SHARE_GROUP_OFFSETS, group_id=group or self.group, topics=rows)

    def settle(self, count: int) -> None:
        """Wait until so many share-partitions are initialized: the answer to the request before does not wait."""
        asked = {"groups": ({"group_id": self.group, "topics": None},)}

        def initialized() -> int:
            (group,) = self._ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked).groups
            return sum(len(topic.partitions) for topic in group.topics)

        until(lambda: initialized() == count)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return value.name
        if dataclasses.is_dataclass(value):
            rows: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(value)
            names = [row.name for row in rows if row.name not in UNLIKE]
            return {name: self._plain(getattr(value, name)) for name in names}
        if isinstance(value, tuple):
            return sorted(map(self._plain, cast("Sequence[Any]", value)), key=str)
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, UUID):
            return self._aliases.get(str(value), "another id")
        if isinstance(value, str):
            for name, alias in self._aliases.items():
                value = value.replace(name, alias)
        return value


def membership(script: ShareScript) -> None:
    """Heartbeats: joins, epochs, leaves, and what is refused."""
    orders = script.orders
    script.described()
    script.beat("a", 5)
    script.beat("a", -1)
    script.beat("a", -2)
    script.beat("", 0, orders)
    script.beat("a" * 37, 0, orders)
    script.beat("a", 0)
    script.beat("a", 0, orders, rack="")
    script.beat("a", 0, orders, group=" ")
    script.beat("a", 0, orders, group=script.classic)
    script.beat("a", 1, group=script.classic)
    script.described(script.classic)
    script.beat("a", 0, orders)
    script.settle(3)
    script.beat("a", 2)
    script.beat("a", 3)
    script.beat("a", 2)
    script.beat("a", 7)
    script.beat("b", 1)
    script.beat("a", 0, orders, rack="r")
    script.beat("a", 3, orders, "absent")
    script.described()
    script.beat("a", 4, orders)
    script.beat("a", 3)
    script.beat("b", -1)
    script.alter((orders, 0, 5))
    script.delete(orders)
    script.note("delete the group", ApiKey.DELETE_GROUPS, 2, groups_names=(script.group,))
    script.beat("a", -1)
    script.described()


def offsets(script: ShareScript) -> None:
    """What administrators ask of an empty group, and of other groups."""
    orders = script.orders
    script.offsets()
    script.offsets(group=script.never)
    script.offsets((orders, (0, 1)), ("absent", (0,)))
    script.offsets((orders, (0,)), version=0)
    script.alter((orders, 0, 5), ("absent", 0, 1))
    script.settle(1)
    script.described()
    script.alter((orders, 9, 5))
    script.offsets()
    script.offsets((orders, (0, 1)))
    script.delete("absent")
    script.delete(orders)
    script.delete(orders)
    script.offsets()
    script.alter((orders, 1, 3))
    script.settle(1)
    script.alter((orders, 1, 3), group=script.classic)
    script.delete(orders, group=script.classic)
    script.delete(orders, group=script.never)
    script.alter((orders, 1, 3), group="")
    script.note("delete the group", ApiKey.DELETE_GROUPS, 2, groups_names=(script.group,))
    script.note("again", ApiKey.DELETE_GROUPS, 2, groups_names=(script.group,))
    script.offsets()


def other_requests(script: ShareScript) -> None:
    """Requests for groups of other types to a share group."""
    script.beat("a", 0, script.orders)
    group = script.group
    script.note(
        "join",
        ApiKey.JOIN_GROUP,
        5,
        group_id=group,
        session_timeout=timedelta(seconds=10),
        rebalance_timeout=timedelta(seconds=10),
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=({"name": "range", "metadata": b""},),
    )
    script.note("heartbeat", ApiKey.HEARTBEAT, 4, group_id=group, generation_id=1, member_id="a")
    script.note(
        "consumer heartbeat",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id="c",
        member_epoch=0,
        rebalance_timeout=timedelta(seconds=10),
        subscribed_topic_names=(script.orders,),
        topic_partitions=(),
    )
    script.note("consumer describe", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=(group,))
    script.note("describe", ApiKey.DESCRIBE_GROUPS, 6, groups=(group,))
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    script.note(
        "commit",
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=({"name": script.orders, "partitions": (row,)},),
    )
    wanted = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
    script.note("fetch", ApiKey.OFFSET_FETCH, 9, groups=(wanted,), require_stable=False)
    topics = ({"name": script.orders, "partitions": ({"partition_index": 0},)},)
    script.note("offset delete", ApiKey.OFFSET_DELETE, 0, group_id=group, topics=topics)
    script.beat("a", -1)
    for kind in ("share", "Share", "classic"):
        script.note(f"list {kind}", ApiKey.LIST_GROUPS, 5, states_filter=("empty",), types_filter=(kind,))


def odd_requests(script: ShareScript) -> None:
    """Names that are empty, unknown or there twice, and numbers that no client sends."""
    orders, group = script.orders, script.group
    script.note("describe nothing", ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=(), include_authorized_operations=False)
    script.described("", script.never, script.never, script.classic)
    script.alter()
    script.described()
    script.alter((orders, 0, 5), (orders, 2, 6), (orders, 1, -1))
    script.settle(3)
    script.described()
    script.offsets()
    script.offsets((orders, (0,)), (orders, (1,)))
    script.offsets((orders, (0, 9)))
    script.offsets((orders, (0, 0)))
    script.alter((orders, 0, 5), (orders, 0, 6))
    script.offsets((orders, (0,)))
    script.offsets(group=script.classic)
    script.offsets(group="")
    rows = tuple({"group_id": name, "topics": None} for name in (group, script.never, group))
    script.note("three groups", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=rows)
    script.note("no groups", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=())
    script.note("no topics", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=({"group_id": group, "topics": ()},))
    topics = ({"topic_name": orders, "partitions": ()},)
    described = ({"group_id": group, "topics": topics},)
    script.note("describe no partitions", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=described)
    described = ({"group_id": "", "topics": ({"topic_name": orders, "partitions": (0,)},)},)
    script.note("describe a partition without a group", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=described)
    unknown = ({"topic_name": "", "partitions": ()},)
    script.note("unknown, no partitions", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=unknown)
    script.note("no partitions", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics)
    script.delete()
    script.delete("")
    script.delete("", "")
    script.delete(orders, orders)
    script.delete(orders, orders)
    script.offsets()
    script.alter((orders, 0, -(2**63)))
    script.offsets((orders, (0,)))
    script.delete(group="")


SCRIPTS: Mapping[str, Callable[[ShareScript], None]] = {
    "membership": membership,
    "offsets": offsets,
    "other_requests": other_requests,
    "odd_requests": odd_requests,
}

COMMITTED = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}


def make_classic(ask: Ask, group: str, topic: str) -> bool:
    """Commit an offset, which makes a classic group; False while its coordinator does not serve it yet."""
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": ({"name": topic, "partitions": (COMMITTED,)},),
    }
    response = ask(ApiKey.OFFSET_COMMIT, 9, fields)
    return bool(response.topics[0].partitions[0].error_code.name == "none")
