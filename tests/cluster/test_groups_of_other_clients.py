"""kafka-python and aiokafka in classic groups, unmodified: members come, leave, poll too late and return (G2).

The members of a test are in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from threading import Event, Thread
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
POLL_MS = 1_000
"""kafka-python 3.0 now and then waits for ever for the coordinator when many short polls end during its search."""


class PollingMember:
    """A kafka-python consumer that is polled in a thread of its own: a poll may wait for the other members."""

    def __init__(self, *topics: str, **settings: Any) -> None:
        self.consumer: Any = KafkaConsumer(
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **settings,
        )
        self.consumer.subscribe(topics)
        self.may_poll = Event()
        self.may_poll.set()
        self.is_idle = Event()
        self._ended = False
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            if not self.may_poll.is_set():
                self.is_idle.set()
                self.may_poll.wait()
                self.is_idle.clear()
            self.consumer.poll(timeout_ms=POLL_MS)
        self.consumer.close()

    @property
    def owned(self) -> list[int]:
        """The partitions that the member has."""
        return sorted(tp.partition for tp in self.consumer.assignment())

    def close(self) -> None:
        """Leave the group, where the member is not static."""
        self._ended = True
        self.may_poll.set()
        self._thread.join()


class Members:
    """kafka-python consumers of one group, which are closed at the end of a test."""

    def __init__(self, harrow: Harrow, exits: ExitStack) -> None:
        self.topic = harrow.topic(f"kp-group-{uuid4().hex[:6]}", partitions=PARTITIONS).name
        self._settings = {"bootstrap_servers": harrow.bootstrap_servers, "group_id": f"kp-{uuid4().hex[:6]}"}
        self._exits = exits

    def add(self, **settings: Any) -> PollingMember:
        """A new member."""
        member = PollingMember(self.topic, **self._settings, **settings)
        self._exits.callback(member.close)
        return member


def await_shares(*members: PollingMember) -> None:
    """Wait until the members have all partitions in equal shares."""

    def shared() -> bool:
        owned = [member.owned for member in members]
        complete = sorted(number for numbers in owned for number in numbers) == list(range(4))
        return complete and {len(numbers) for numbers in owned} == {PARTITIONS // len(members)}

    until(shared, lambda: f"shares: {[member.owned for member in members]}")


@pytest.fixture
def members(harrow: Harrow) -> Iterator[Members]:
    with ExitStack() as exits:
        yield Members(harrow, exits)


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_kafka_python_members_share_the_partitions_as_they_come_and_leave(members: Members, assignor: Any) -> None:
    settings = {"partition_assignment_strategy": [assignor]}
    first = members.add(**settings)
    await_shares(first)
    second = members.add(**settings)
    await_shares(first, second)
    second.close()
    await_shares(first)


def test_a_static_member_of_kafka_python_returns_to_its_partitions(members: Members) -> None:
    first = members.add(group_instance_id="one")
    second = members.add(group_instance_id="two")
    await_shares(first, second)
    before = second.owned
    second.close()
    again = members.add(group_instance_id="two")
    until(lambda: again.owned == before, "the same partitions")


def test_a_kafka_python_member_that_polls_too_late_leaves_and_joins_again(members: Members) -> None:
    late = members.add(max_poll_interval_ms=1_000)
    await_shares(late)
    late.may_poll.clear()
    assert late.is_idle.wait(30)
    other = members.add()
    await_shares(other)
    with pytest.raises(CommitFailedError):
        late.consumer.commit({TopicPartition(members.topic, 0): OffsetAndMetadata(1, "", -1)})
    late.may_poll.set()
    await_shares(late, other)


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
            self.topic,
            bootstrap_servers=self._servers,
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **settings,
        )
        self.push_async_callback(member.stop)
        await member.start()
        return member


async def aio_until(condition: Callable[[], bool]) -> None:
    """Wait for the members' background tasks."""
    await asyncio.to_thread(until, condition, "the shares of the members")


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
