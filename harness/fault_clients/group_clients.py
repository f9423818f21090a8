"""Members that disturb a consumer group: one that joins and leaves again and again, one that does nothing.

The group is described first, so that the member joins as the user's members do: a classic group with its assignor, a
group of KIP-848 with its topics. A classic group's member that comes and goes subscribes to nothing: every member must
rejoin, and all partitions stay with the user's members.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from harrow.cluster.errors import ClusterError

from .background import BackgroundClient
from .classic_member import ClassicMember
from .consumer_member import ConsumerMember
from .coordinator import GROUP, Coordinator
from .group_view import GroupView, Partitions, await_members, describe_group

LEFT_WAIT_S = 20.0
POLL_S = 0.1
STAY_S = 0.5
"""A stuck member stays for so long between two looks at its assignment."""


class Member(Protocol):
    """A member of a group of either protocol."""

    @property
    def assigned(self) -> Partitions:
        """The partitions that it is assigned."""
        ...

    def join(self) -> None:
        """Join."""
        ...

    def stay(self, seconds: float) -> None:
        """Send heartbeats."""
        ...

    def leave(self, coordinator: Coordinator) -> None:
        """Leave."""
        ...

    def is_listed(self, coordinator: Coordinator) -> bool:
        """Whether the group has this member."""
        ...


class GroupClient(BackgroundClient):
    """A client that is, from time to time, a member of the group."""

    def __init__(self, name: str, bootstrap_servers: str, group: str) -> None:
        super().__init__(name)
        self._servers = bootstrap_servers
        self._coordinator = Coordinator(bootstrap_servers, GROUP, group, self.stopped)
        self._member: Member | None = None

    def await_group(self) -> GroupView:
        """Return the group when it has members."""
        view = await_members(self._coordinator, self._servers)
        self.facts |= {
            "group": self._coordinator.name,
            "protocol": view.protocol if view.classic else "consumer (KIP-848)",
            "members": len(view.members),
        }
        return view

    def leave(self) -> None:
        """Leave the group, and observe that it has no member of this client any more."""
        member, coordinator = self._member, self._coordinator.unstopped()
        if member is None:
            return
        member.leave(coordinator)
        for _ in range(round(LEFT_WAIT_S / POLL_S)):
            if not member.is_listed(coordinator):
                self.facts["left"] = True
                return
            coordinator.pause(POLL_S)
        raise ClusterError(f"group {coordinator.name!r} still has a member of Harrow's")


class RebalancingClient(GroupClient):
    """Joins and leaves; `fired` counts the rebalances: by how much the generation or the group's epoch grew."""

    def __init__(self, bootstrap_servers: str, group: str, *, every_ms: tuple[int, int], seed: int) -> None:
        super().__init__("rebalance-storm", bootstrap_servers, group)
        self._every_ms = every_ms
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._seen: list[int] = []

    def act(self) -> None:
        """Join and leave until the client is stopped."""
        view = self.await_group()
        if not view.classic:
            self._seen.append(view.epoch)
        while True:
            member, seen = self._new_member(view)
            self._member = member
            member.join()
            self._count(view, seen)
            member.stay(self._draw_s())
            self._count(view, seen)
            member.leave(self._coordinator)
            self.facts["joined"] = int(self.facts.get("joined", 0)) + 1
            self._coordinator.pause(self._draw_s())

    def _new_member(self, view: GroupView) -> tuple[Member, list[int]]:
        if view.classic:
            classic = ClassicMember(self._coordinator, view.protocol, ())
            return classic, classic.generations
        consumer = ConsumerMember(self._coordinator, sorted(view.topics))
        return consumer, consumer.epochs

    def _count(self, view: GroupView, seen: list[int]) -> None:
        self._seen += [number for number in seen if number not in self._seen]
        # the first generation of a classic group that was seen began with the first join
        self.fired = max(self._seen) - min(self._seen) + int(view.classic) if self._seen else 0
        name = "generations" if view.classic else "epochs"
        self.facts |= {"rebalances": self.fired, name: [min(self._seen), max(self._seen)]}

    def _draw_s(self) -> float:
        return self._random.uniform(*self._every_ms) / 1000


class StuckMember(GroupClient):
    """Is assigned partitions and leaves them alone; `fired` is how many they are."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        super().__init__("stuck-consumer", bootstrap_servers, group)

    def act(self) -> None:
        """Hold partitions until the client is stopped."""
        view = self.await_group()
        topics = sorted(view.topics)
        member: Member
        if view.classic:
            member = ClassicMember(self._coordinator, view.protocol, topics)
        else:
            member = ConsumerMember(self._coordinator, topics)
        self._member = member
        member.join()
        while True:
            self._note(member.assigned)
            member.stay(STAY_S if self.fired else POLL_S)

    def _note(self, assigned: Partitions) -> None:
        held = {topic: sorted(numbers) for topic, numbers in assigned.items() if numbers}
        self.facts["assigned"] = held
        self.fired = max(self.fired, sum(len(numbers) for numbers in held.values()))
        if not self.fired:
            found: Any = describe_group(self._coordinator)
            members = 0 if found is None else len(found.members)
            self.facts["waits"] = f"no partition is assigned to the member; the group has {members}"
        else:
            self.facts.pop("waits", None)
