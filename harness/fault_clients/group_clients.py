"""Members that disturb a consumer group: one that joins and leaves again and again, one that does nothing.

The group is described first, so that the member joins as the user's members do: a classic group with its assignor, a
group of KIP-848 with its topics. A classic group's member that comes and goes subscribes to nothing: every member must
rejoin, and all partitions stay with the user's members.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from harrow.cluster.errors import ClusterError

from ..requests.blocking import PATIENCE_MS, BlockingTransport
from ..requests.coordinator import GROUP, Coordinator
from .background import BackgroundClient
from .classic_member import ClassicFaultMember
from .consumer_member import ConsumerMember
from .group_view import GroupView, Partitions, await_members, describe_group

LEFT_WAIT_MS, POLL_MS = 20_000, 100
STAY_MS = 500
"""A stuck member stays for so long between two looks at its assignment."""


class Member(Protocol):
    """A member of a group of either protocol."""

    member_id: str
    """The id that the coordinator knows it by, also after it has left."""
    assigned: Partitions
    """The partitions that it is assigned."""
    seen: list[int]
    """The generations or epochs of the group that it saw."""

    async def join(self) -> None:
        """Join."""
        ...

    async def stay(self, delay_ms: float) -> None:
        """Send heartbeats."""
        ...

    async def leave(self, coordinator: Coordinator) -> None:
        """Leave."""
        ...


class GroupClient(BackgroundClient):
    """A client that is, from time to time, a member of the group."""

    def __init__(self, name: str, bootstrap_servers: str, group: str) -> None:
        super().__init__(name, bootstrap_servers)
        self._group = group
        self._coordinator = self._reached_by(self.transport)
        self._member: Member | None = None

    def _reached_by(self, transport: BlockingTransport) -> Coordinator:
        return Coordinator(transport, GROUP, self._group, patience_ms=PATIENCE_MS)

    async def await_group(self) -> GroupView:
        """Return the group when it has members."""
        view = await await_members(self._coordinator, self.servers)
        self.facts |= {
            "group": self._group,
            "protocol": view.protocol if view.classic else "consumer (KIP-848)",
            "members": len(view.members),
        }
        return view

    def new_member(self, view: GroupView, topics: Sequence[str]) -> Member:
        """Return a member that has not joined yet."""
        if view.classic:
            self._member = ClassicFaultMember(self._coordinator, view.protocol, topics)
        else:
            self._member = ConsumerMember(self._coordinator, topics)
        return self._member

    async def leave(self, transport: BlockingTransport) -> None:
        """Leave the group, and observe that it has no member of this client any more."""
        member, coordinator = self._member, self._reached_by(transport)
        if member is None:
            return
        await member.leave(coordinator)
        for _ in range(round(LEFT_WAIT_MS / POLL_MS)):
            view = await describe_group(coordinator) if member.member_id else None
            if view is None or member.member_id not in view.members:
                self.facts["left"] = True
                return
            await transport.sleep(POLL_MS)
        raise ClusterError(f"group {self._group!r} still has a member of Harrow's")


class RebalancingClient(GroupClient):
    """Joins and leaves; `fired` counts the rebalances: by how much the generation or the group's epoch grew."""

    def __init__(self, bootstrap_servers: str, group: str, *, every_ms: tuple[int, int], seed: int) -> None:
        super().__init__("rebalance-storm", bootstrap_servers, group)
        self._every_ms = every_ms
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._seen: list[int] = []

    async def act(self) -> None:
        """Join and leave until the client is stopped."""
        view = await self.await_group()
        if not view.classic:
            self._seen.append(view.epoch)
        while True:
            member = self.new_member(view, () if view.classic else sorted(view.topics))
            await member.join()
            self._count(view, member.seen)
            await member.stay(self._draw_ms())
            self._count(view, member.seen)
            await member.leave(self._coordinator)
            self.facts["joined"] = int(self.facts.get("joined", 0)) + 1
            await self.transport.sleep(self._draw_ms())

    def _count(self, view: GroupView, seen: list[int]) -> None:
        self._seen += [number for number in seen if number not in self._seen]
        # the first generation of a classic group that was seen began with the first join
        self.fired = max(self._seen) - min(self._seen) + int(view.classic) if self._seen else 0
        name = "generations" if view.classic else "epochs"
        self.facts |= {"rebalances": self.fired, name: [min(self._seen), max(self._seen)]}

    def _draw_ms(self) -> float:
        return self._random.uniform(*self._every_ms)


class StuckMember(GroupClient):
    """Is assigned partitions and leaves them alone; `fired` is how many they are."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        super().__init__("stuck-consumer", bootstrap_servers, group)

    async def act(self) -> None:
        """Hold partitions until the client is stopped."""
        view = await self.await_group()
        member = self.new_member(view, sorted(view.topics))
        await member.join()
        while True:
            await self._note(member.assigned)
            await member.stay(STAY_MS if self.fired else POLL_MS)

    async def _note(self, assigned: Partitions) -> None:
        held = {topic: sorted(numbers) for topic, numbers in assigned.items() if numbers}
        self.facts["assigned"] = held
        self.fired = max(self.fired, sum(len(numbers) for numbers in held.values()))
        if not self.fired:
            found = await describe_group(self._coordinator)
            members = 0 if found is None else len(found.members)
            self.facts["waits"] = f"no partition is assigned to the member; the group has {members}"
        else:
            self.facts.pop("waits", None)
