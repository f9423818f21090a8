"""kafka-python and aiokafka in classic groups, unmodified: members come, leave, poll too late and return (G2).

The members of a test are in one process; each poll is short, so that they take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import CommitFailedError as AioCommitFailedError
from aiokafka.errors import IllegalStateError
from harrow import Harrow
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata, TopicPartition
from waiting import until

SETTINGS = {
    "offsets.topic.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
}
pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS)
PARTITIONS = 4
SESSION_MS, HEARTBEAT_MS = 3_000, 200


class Members:
    """kafka-python consumers of one group, which are closed at the end of a test."""

    def __init__(self, harrow: Harrow, exits: ExitStack) -> None:
        self.topic = harrow.topic(f"kp-group-{uuid4().hex[:6]}", partitions=PARTITIONS).name
        self.group = f"kp-{uuid4().hex[:6]}"
        self.live: list[Any] = []
        self._servers = harrow.bootstrap_servers
        self._exits = exits

    def add(self, **settings: Any) -> Any:
        member: Any = KafkaConsumer(
            bootstrap_servers=self._servers, group_id=self.group, session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS, enable_auto_commit=False, auto_offset_reset="earliest",
            **settings,
        )  # fmt: skip
        self._exits.callback(member.close)
        member.subscribe([self.topic])
        self.live.append(member)
        return member

    def remove(self, member: Any) -> None:
        self.live.remove(member)
        member.close()

    def shares(self) -> list[int]:
        for member in self.live:
            member.poll(timeout_ms=20)
        owned = [tp.partition for member in self.live for tp in member.assignment()]
        complete = sorted(owned) == list(range(PARTITIONS))
        return sorted(len(member.assignment()) for member in self.live) if complete else []

    def await_shares(self, *shares: int) -> None:
        until(lambda: self.shares() == sorted(shares), lambda: f"shares {shares}: {self.shares()}")


@pytest.fixture
def members(harrow: Harrow) -> Iterator[Members]:
    with ExitStack() as exits:
        yield Members(harrow, exits)


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_kafka_python_members_share_the_partitions_as_they_come_and_leave(
    members: Members, assignor: Any
) -> None:
    settings = {"partition_assignment_strategy": [assignor]}
    members.add(**settings)
    members.await_shares(4)
    second = members.add(**settings)
    members.await_shares(2, 2)
    members.remove(second)
    members.await_shares(4)


def test_a_static_member_of_kafka_python_returns_to_its_partitions(members: Members) -> None:
    members.add(group_instance_id="one")
    second = members.add(group_instance_id="two")
    members.await_shares(2, 2)
    before = second.assignment()
    members.remove(second)
    again = members.add(group_instance_id="two")
    until(
        lambda: members.shares() == [2, 2] and again.assignment() == before, "the same partitions"
    )


def test_a_kafka_python_member_that_polls_too_late_leaves_and_joins_again(members: Members) -> None:
    late = members.add(max_poll_interval_ms=1_000)
    members.await_shares(4)
    members.live.remove(late)
    members.add()
    members.await_shares(4)
    (where,) = [TopicPartition(members.topic, 0)]
    with pytest.raises(CommitFailedError):
        late.commit({where: OffsetAndMetadata(1, "", -1)})
    members.live.append(late)
    members.await_shares(2, 2)


# ------------------------------------------------------------------------------------- aiokafka


class AioMembers(AsyncExitStack):
    """aiokafka consumers of one group, which are stopped at the end."""

    def __init__(self, harrow: Harrow) -> None:
        super().__init__()
        self.topic = harrow.topic(f"aio-group-{uuid4().hex[:6]}", partitions=PARTITIONS).name
        self._servers = harrow.bootstrap_servers
        self._group = f"aio-{uuid4().hex[:6]}"

    async def add(self, **settings: Any) -> Any:
        """A started consumer."""
        member: Any = AIOKafkaConsumer(
            self.topic, bootstrap_servers=self._servers, group_id=self._group, session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS, enable_auto_commit=False, auto_offset_reset="earliest", **settings,
        )  # fmt: skip
        self.push_async_callback(member.stop)
        await member.start()
        return member


async def aio_until(condition: Callable[[], bool]) -> None:
    """Wait for the members' background tasks."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(0.02)


def sizes(*members: Any) -> list[int]:
    """How many partitions each member has."""
    return sorted(len(member.assignment()) for member in members)


async def come_and_leave(members: AioMembers) -> None:
    first = await members.add()
    await aio_until(lambda: sizes(first) == [4])
    second = await members.add()
    await aio_until(lambda: sizes(first, second) == [2, 2])
    await second.stop()
    await aio_until(lambda: sizes(first) == [4])


async def static_member_returns(members: AioMembers) -> None:
    first = await members.add()
    static = await members.add(group_instance_id="one")
    await aio_until(lambda: sizes(first, static) == [2, 2])
    before = static.assignment()
    await static.stop()
    again = await members.add(group_instance_id="one")
    await aio_until(lambda: again.assignment() == before)


async def poll_too_late(members: AioMembers) -> None:
    late = await members.add(max_poll_interval_ms=1_000)
    await aio_until(lambda: sizes(late) == [4])
    other = await members.add()
    await aio_until(lambda: sizes(other) == [4])
    with pytest.raises((IllegalStateError, AioCommitFailedError)):  # before or after it has noticed
        await late.commit({AioPartition(members.topic, 0): 1})
    async with asyncio.timeout(60):
        while sizes(late, other) != [2, 2]:
            await late.getmany(timeout_ms=50)


@pytest.mark.parametrize("story", [come_and_leave, static_member_returns, poll_too_late])
def test_aiokafka_members_share_the_partitions(harrow: Harrow, story: Any) -> None:
    async def run() -> None:
        async with AioMembers(harrow) as members:
            await story(members)

    asyncio.run(run())
