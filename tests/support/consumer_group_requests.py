"""Requests of members of a consumer group (KIP-848) to a coordinator without a cluster, and a client with its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator_fakes import topic_id_of
from group_fakes import GroupTestBed
from group_requests import GROUP
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey

Owned = Mapping[str, Iterable[int]]
"""Topic -> partitions."""
REBALANCE_MS = 20_000


def consumer_heartbeat(
    bed: GroupTestBed,
    member_id: str,
    epoch: int,
    *,
    version: int = 1,
    group_id: str = GROUP,
    owned: Owned | None = None,
    **more: Any,
) -> Any:
    """The response to a ConsumerGroupHeartbeat."""
    rows = None
    if owned is not None:
        rows = tuple(
            {"topic_id": topic_id_of(topic), "partitions": tuple(partitions)} for topic, partitions in owned.items()
        )
    more.setdefault("rebalance_timeout", -1)
    return bed.send(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        version,
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=rows,
        **more,
    ).response


def consumer_join(bed: GroupTestBed, member_id: str, *topics: str, regex: str | None = None, **more: Any) -> Any:
    """A heartbeat that joins."""
    names = None if regex is not None else (topics or ("orders",))
    return consumer_heartbeat(
        bed,
        member_id,
        0,
        owned={},
        rebalance_timeout=REBALANCE_MS,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        **more,
    )


def assigned(response: Any, bed: GroupTestBed) -> dict[str, list[int]] | None:
    """The assignment of a response, by topic."""
    if response.assignment is None:
        return None
    return {
        bed.cache.topic_name(row.topic_id) or "deleted": list(row.partitions)
        for row in response.assignment.topic_partitions
    }


def described(bed: GroupTestBed, group_id: str = GROUP) -> Any:
    """The group as ConsumerGroupDescribe shows it."""
    response = bed.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=(group_id,)).response
    return response.groups[0]


class ModelConsumer:
    """A client of KIP-848: it revokes what it loses before it acknowledges, and keeps what it was given.

    After a response that was lost or an error, its next heartbeat has every field, as the protocol requires.
    """

    def __init__(self, bed: GroupTestBed, member_id: str, *topics: str) -> None:
        self.bed = bed
        self.member_id = member_id
        self.topics = topics or ("orders",)
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}
        self.epochs: list[int] = []
        self._sends_everything = False

    def beat(self, *, lose_response: bool = False) -> ErrorCode:
        """One heartbeat; with `lose_response` the client does not see the response."""
        if self.epoch == 0:
            response = consumer_join(self.bed, self.member_id, *self.topics)
        else:
            more: dict[str, Any] = {}
            if self._sends_everything:
                more["rebalance_timeout"] = REBALANCE_MS
                more["subscribed_topic_names"] = self.topics
            response = consumer_heartbeat(self.bed, self.member_id, self.epoch, owned=self.owned, **more)
        self._sends_everything = True
        if response is None or lose_response:
            return ErrorCode.request_timed_out
        self._sends_everything = response.error_code is not ErrorCode.none
        self._take(response)
        code: ErrorCode = response.error_code
        return code

    def resubscribe(self, *topics: str) -> None:
        """The next heartbeat has every field, with these topics."""
        self.topics, self._sends_everything = topics, True

    def leave(self) -> None:
        """Leave: the client gives up everything first."""
        self.owned = {}
        consumer_heartbeat(self.bed, self.member_id, -1)
        self.epoch = 0
        self.epochs.clear()

    def _take(self, response: Any) -> None:
        if response.error_code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
            self.owned, self.epoch = {}, 0
            self.epochs.clear()
        if response.error_code is not ErrorCode.none:
            return
        self.epoch = response.member_epoch
        self.epochs.append(self.epoch)
        given = assigned(response, self.bed)
        if given is not None:
            self.owned = given

    def partitions(self) -> set[tuple[str, int]]:
        """What the client believes that it has."""
        return {(topic, number) for topic, numbers in self.owned.items() for number in numbers}
