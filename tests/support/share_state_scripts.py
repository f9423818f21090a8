"""Requests to leaders and share coordinators with input that no client sends, and their answers (KIP-932).

`ShareFetch` and `ShareAcknowledge` go to the leader of partition 0 of `orders`, requests 83 to 87 to the share
coordinator. The answers are in a form that two clusters can be compared by: names instead of ids, no record data.
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

ANSWERS = Path(__file__).parents[1] / "conformance" / "kafka_files" / "share_state_answers.json"
UNLIKE = ("throttle_time", "records", "node_endpoints", "acquisition_lock_timeout")
"""Fields that are not compared."""
ALIKE = {
    "The offset cannot be acknowledged. The offset is not acquired.": "not acquired",
    "The batch cannot be acknowledged. The batch is not in the acquired state.": "not acquired",
    "Member is not the owner of offset": "not the owner",
    "Member is not the owner of batch record": "not the owner",
}
"""Apache Kafka says offset where it has split a batch of its memory; Harrow says batch."""
RECORDS = 20
LONG = 20_000
"""Time in ms in which a leader reads the state of a share-partition."""
NO_ID, ANOTHER_ID = UUID(int=0), UUID(int=77)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Ask = Callable[..., Any]
Said = tuple[int, int, Sequence[int]]
"""First offset, last offset, types."""


@dataclasses.dataclass
class StateScript:
    """One topic and one group, and the answers so far."""

    ask_leader: Ask
    """`ask_leader(api, version, **fields)`: the response of the leader of partition 0."""
    ask_coordinator: Ask
    """`ask_coordinator((topic id, partition), api, version, **fields)`: the response of that share coordinator."""
    ask_another: Ask
    """The same of a broker that is not the coordinator."""
    group: str
    topic_id: UUID
    notes: list[list[Any]] = dataclasses.field(default_factory=list[list[Any]])

    def _note(self, what: str, response: Any) -> Any:
        self.notes.append([what, self._plain(response)])
        return response

    def fetch(
        self, what: str, epoch: int, *said: Said, member: str | None = "a", version: int = 2, **fields: Any
    ) -> Any:
        """ShareFetch of partition 0, or of the topics in `fields`."""
        known: dict[str, Any] = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "forgotten_topics_data": [],
            "topics": self.topics(*said),
            "group_id": self.group,
        }
        asked = {**known, **fields}
        response = self.ask_leader(ApiKey.SHARE_FETCH, version, member_id=member, share_session_epoch=epoch, **asked)
        return self._note(f"fetch: {what}", response)

    def acknowledge(self, what: str, epoch: int, *said: Said, member: str | None = "a", **fields: Any) -> Any:
        """ShareAcknowledge for partition 0, or for the topics in `fields`."""
        asked = {"group_id": self.group, "topics": self.topics(*said), **fields}
        response = self.ask_leader(ApiKey.SHARE_ACKNOWLEDGE, 2, member_id=member, share_session_epoch=epoch, **asked)
        return self._note(f"acknowledge: {what}", response)

    def topics(self, *said: Said, topic_id: UUID | None = None, partition: int = 0) -> list[dict[str, Any]]:
        """One partition, with acknowledgements."""
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in said
        ]
        row = {"partition_index": partition, "acknowledgement_batches": batches}
        return [{"topic_id": topic_id or self.topic_id, "partitions": [row]}]

    def state(
        self,
        what: str,
        api: ApiKey,
        *rows: Mapping[str, Any],
        version: int = 0,
        topic_id: UUID | None = None,
        wrong: bool = False,
        **fields: Any,
    ) -> Any:
        """A request 83 to 87 about rows of `orders`; a row without a partition is about 0."""
        named = topic_id or self.topic_id
        partitions = [{"partition": 0, **row} for row in rows]
        asked = {"group_id": self.group, "topics": [{"topic_id": named, "partitions": partitions}], **fields}
        place = (named, partitions[0]["partition"] if partitions else 0)
        ask = self.ask_another if wrong else self.ask_coordinator
        return self._note(f"{api.name}: {what}", ask(place, api, version, **asked))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return value.name
        if dataclasses.is_dataclass(value):
            own: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(value)
            names = [row.name for row in own if row.name not in UNLIKE]
            return {name: self._plain(getattr(value, name)) for name in names}
        if isinstance(value, tuple):
            rows = [self._plain(each) for each in cast("Sequence[Any]", value)]
            return sorted(rows, key=str)
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, UUID):
            return "ORDERS-ID" if value == self.topic_id else "another id"
        if isinstance(value, str):
            value = ALIKE.get(value, value)
            return value.replace(str(self.topic_id), "ORDERS-ID").replace(self.group, "GROUP")
        return value


INITIALIZE, READ, WRITE, DELETE, SUMMARY = (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)


def new(epoch: int = 2, start: int = 5, **more: Any) -> dict[str, Any]:
    """A row of InitializeShareGroupState."""
    return {"state_epoch": epoch, "start_offset": start, **more}


def change(
    *batches: tuple[int, int, int, int], leader: int = 3, epoch: int = 2, start: int = 5, complete: int = 0, **more: Any
) -> dict[str, Any]:
    """A row of WriteShareGroupState; a batch is first offset, last offset, state, deliveries."""
    rows = [
        {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
        for first, last, state, count in batches
    ]
    return {
        "state_epoch": epoch,
        "leader_epoch": leader,
        "start_offset": start,
        "delivery_complete_count": complete,
        "state_batches": rows,
        **more,
    }


def led(epoch: int = 3, **more: Any) -> dict[str, Any]:
    """A row of a request that reads."""
    return {"leader_epoch": epoch, **more}


def _each_refuses(script: StateScript) -> None:
    """Requests that name nothing, or what does not exist, and negative epochs."""
    rows = {INITIALIZE: new(), READ: led(), WRITE: change(), DELETE: {}, SUMMARY: led()}
    for api, row in rows.items():
        version = 1 if api in (WRITE, SUMMARY) else 0
        if api is not INITIALIZE:
            script.state("before it is initialized", api, row, version=version)
        script.state("no partition", api, version=version)
        script.state("no topic", api, version=version, topics=[])
        script.state("no group", api, row, version=version, group_id="")
        script.state("negative partition", api, {**row, "partition": -1}, version=version)
        script.state("unknown partition", api, {**row, "partition": 9}, version=version)
        script.state("no topic id", api, row, version=version, topic_id=NO_ID)
        script.state("unknown topic", api, row, version=version, topic_id=ANOTHER_ID)
        script.state("not the coordinator", api, row, version=version, wrong=True)
        for epoch in ("state_epoch", "leader_epoch"):
            if epoch in row:
                script.state(f"negative {epoch}", api, {**row, epoch: -1}, version=version)


def states(script: StateScript) -> None:
    """Requests to a share coordinator."""
    _each_refuses(script)
    script.state("new", INITIALIZE, new())
    script.state("after a start", SUMMARY, led(), version=1)
    script.state("version 0", SUMMARY, led())
    script.state("the same again", INITIALIZE, new())
    script.state("older epoch", INITIALIZE, new(1))
    script.state("new leader", READ, led(3))
    script.state("older leader", READ, led(2))
    script.state("older leader", SUMMARY, led(2), version=1)
    script.state("older leader", WRITE, change(leader=2), version=1)
    script.state("older epoch", WRITE, change(epoch=1), version=1)
    script.state("later leader and epoch", WRITE, change((5, 6, 0, 1), leader=4, epoch=4, complete=0), version=1)
    script.state("after it", READ, led(3))
    script.state("greater start", WRITE, change((7, 9, 2, 1), start=7, complete=3), version=1)
    script.state("after it", SUMMARY, led(), version=1)
    script.state("smaller start", WRITE, change((5, 6, 0, 2), start=5, complete=9), version=1)
    script.state("after it", SUMMARY, led(), version=1)
    script.state("the same start, version 0", WRITE, change((10, 12, 0, 1), start=7), version=0)
    script.state("after it", SUMMARY, led(), version=1)
    script.state("no start", WRITE, change((13, 14, 4, 3), start=-1, complete=5), version=1)
    script.state("after it", READ, led(3))
    script.state("overlapping batches", WRITE, change((10, 14, 0, 2), (12, 18, 2, 4), start=7), version=1)
    script.state("after it", READ, led(3))
    script.state("a gap, and batches in disorder", WRITE, change((40, 44, 0, 1), (30, 34, 0, 1), start=7), version=1)
    script.state("below the start", WRITE, change((1, 3, 0, 9), (5, 8, 0, 9), start=7), version=1)
    script.state("after it", READ, led(3))
    script.state("twice in one request", READ, led(3), led(3))
    script.state("begun again", INITIALIZE, new(3, -1))
    script.state("after it", SUMMARY, led(), version=1)
    script.state("after it", READ, led(3))
    script.state("deleted", DELETE, {})
    script.state("deleted again", DELETE, {})
    script.state("after it", READ, led(3))


def sessions(script: StateScript) -> None:
    """Sessions of ShareFetch, and limits."""
    script.state("new", INITIALIZE, new(0, 0))
    script.fetch("without a session", 5)
    script.fetch("end without a session", -1)
    script.fetch("epoch -2", -2)
    script.acknowledge("without a session", 5, (0, 0, [ACCEPT]))
    script.acknowledge("epoch 0", 0, (0, 0, [ACCEPT]))
    script.acknowledge("end without a session", -1)
    script.fetch("acknowledgement in the first", 0, (0, 0, [ACCEPT]))
    script.fetch("no group", 0, group_id=None)
    script.fetch("no member", 0, member=None)
    script.fetch("empty member", 0, member="")
    script.fetch("member of 37 characters", 0, member="m" * 37)
    script.fetch("no topics", 0, member="n", topics=[])
    script.fetch("unknown topic", 0, member="u", topics=script.topics(topic_id=ANOTHER_ID))
    script.fetch("no topic id", 0, member="z", topics=script.topics(topic_id=NO_ID))
    script.fetch("unknown partition", 0, member="p", topics=script.topics(partition=9))
    script.fetch("negative partition", 0, member="q", topics=script.topics(partition=-1))
    script.fetch("no record wanted", 0, member="r", max_records=0)
    script.fetch("no bytes wanted", 0, member="s", max_bytes=0)
    script.fetch("less than no bytes", 0, member="t", max_bytes=-1, max_wait=LONG)
    script.fetch("first", 0, max_records=5, batch_size=5, max_wait=LONG)
    script.fetch("the same epoch again", 0, max_records=5, batch_size=5)
    script.fetch("a later epoch", 7)
    script.fetch("an earlier epoch", -3)
    forgotten = [{"topic_id": ANOTHER_ID, "partitions": [4]}]
    script.fetch("forgets what is not there", 1, topics=[], forgotten_topics_data=forgotten)
    forgotten = [{"topic_id": script.topic_id, "partitions": [0]}]
    script.fetch("forgets", 2, topics=[], forgotten_topics_data=forgotten)
    script.acknowledge("later epoch", 9, (0, 0, [ACCEPT]))
    script.acknowledge("after it was forgotten", 3, (0, 0, [ACCEPT]))
    script.acknowledge("unknown topic", 4, topics=script.topics((0, 0, [ACCEPT]), topic_id=ANOTHER_ID))
    script.acknowledge("unknown partition", 5, topics=script.topics((0, 0, [ACCEPT]), partition=9))
    script.fetch("end, with a topic", -1)
    script.fetch("after the end", 6)


def _twice(script: StateScript, *said: Said) -> list[dict[str, Any]]:
    """Topics of a request with a row of partition 0 for each of `said`."""
    return [row for each in said for row in script.topics(each)]


def acknowledgements(script: StateScript) -> None:
    """Acknowledgements of records 0 to 9, which one member has."""
    script.state("new", INITIALIZE, new(0, 0))
    script.fetch("first", 0, max_records=10, batch_size=10, max_wait=LONG)
    number = 0

    def say(what: str, *said: Said, **fields: Any) -> None:
        nonlocal number
        number += 1
        response = script.acknowledge(what, number, *said, **fields)
        if response.error_code.name != "none":  # a new session, because one of the systems may have counted the request
            script.fetch("a new session", 0, topics=[])
            number = 0

    say("no batch")
    say("first after last", (3, 2, [ACCEPT]))
    say("negative offset", (-1, 0, [ACCEPT]))
    say("no type", (0, 1, []))
    say("too many types", (0, 1, [ACCEPT, ACCEPT, ACCEPT]))
    say("too few types", (0, 2, [ACCEPT, ACCEPT]))
    say("type 5", (0, 0, [5]))
    say("type -1", (0, 0, [-1]))
    say("type 9 within others", (0, 1, [ACCEPT, 9]))
    say("overlapping batches", (0, 2, [ACCEPT]), (2, 3, [ACCEPT]))
    say("the same batch twice", (0, 1, [ACCEPT]), (0, 1, [ACCEPT]))
    say("batches in disorder", (4, 5, [ACCEPT]), (0, 1, [ACCEPT]))
    say("not acquired", (15, 15, [ACCEPT]))
    say("partly acquired", (8, 12, [ACCEPT]))
    say("beyond the end", (100, 100, [ACCEPT]))
    say("another partition of the topic", topics=script.topics((0, 0, [ACCEPT]), partition=1))
    say("a partition twice, the last one wrong", topics=_twice(script, (1, 1, [ACCEPT]), (1, 0, [ACCEPT])))
    say("a partition twice, the first one wrong", topics=_twice(script, (1, 0, [ACCEPT]), (-9, -8, [ACCEPT])))
    say("renew without the flag", (0, 0, [RENEW]))
    say("renew", (0, 0, [RENEW]), is_renew_ack=True)
    say("the flag, and no renewal", (1, 1, [ACCEPT]), is_renew_ack=True)
    say("a gap between batches", (2, 2, [ACCEPT]), (4, 4, [REJECT]))
    say("the type gap", (3, 3, [GAP]))
    say("accepted again", (2, 2, [ACCEPT]))
    say("released", (5, 6, [RELEASE]))
    say("released again", (5, 6, [RELEASE]))
    say("a type for each", (7, 9, [ACCEPT, RELEASE, REJECT]))
    script.fetch("of another member", 0, member="b", max_records=2, batch_size=2)
    say("of another member", (5, 5, [ACCEPT]))
    script.fetch("acknowledges by a fetch what is not its own", number + 1, (5, 5, [ACCEPT]), max_records=1)
    script.fetch("renews by a fetch that asks for records", 1, (5, 5, [RENEW]), member="b", is_renew_ack=True)
    script.fetch(
        "renews by a fetch",
        1,
        (5, 5, [RENEW]),
        member="b",
        is_renew_ack=True,
        max_records=0,
        max_bytes=0,
        min_bytes=0,
    )
    script.acknowledge("ends, with an acknowledgement", -1, (5, 5, [ACCEPT]), member="b")
    script.fetch("what is left", 0, member="c", max_wait=LONG)


SCRIPTS: Mapping[str, Callable[[StateScript], None]] = {
    "states": states,
    "sessions": sessions,
    "acknowledgements": acknowledgements,
}
