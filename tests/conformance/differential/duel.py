"""Runs a case on both systems at the same time and compares what they say.

Owns: the two sessions of a lane and its world (a new one after a difference and after `WORLD_CASES` cases, because a
difference may leave the systems in different states), and what happens when one of our brokers ends: that is a
difference, too.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from .cases import Case
from .known import Known, unexplained
from .link import Outcome
from .message_files import messages
from .normal import Difference, Normaliser, differences
from .session import Session
from .worlds import World, Worlds

WORLD_CASES = 100
SETTLE_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses before a read that differs is sent again: markers and metadata arrive some time after the response."""
READS = frozenset(
    {
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetFetch",
        "DescribeGroups",
        "ListGroups",
        "DescribeConfigs",
        "DescribeLogDirs",
        "ListPartitionReassignments",
        "DescribeClientQuotas",
        "DescribeUserScramCredentials",
        "DescribeCluster",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
        "ConsumerGroupDescribe",
        "ListConfigResources",
        "DescribeTopicPartitions",
        "FindCoordinator",
        "OffsetForLeaderEpoch",
        "ShareGroupDescribe",
        "StreamsGroupDescribe",
        "DescribeShareGroupOffsets",
        "ReadShareGroupStateSummary",
        "DescribeAcls",
        "DescribeDelegationToken",
        "DescribeQuorum",
    }
)
"""Requests that change nothing (a Fetch without a session): a difference counts when it stays."""


class Pair(Protocol):
    """Compares two systems: what the runner and the shrinker need of them."""

    def compare(self, case: Case) -> list[Difference]:
        """Runs a case in the current world."""
        ...

    def renew(self) -> None:
        """Makes a new world."""
        ...


class Duel:
    """Both systems of a run, as one lane sees them."""

    def __init__(self, worlds: Worlds, known: Sequence[Known]) -> None:
        self._worlds = worlds
        self._known = known
        self._kafka = Session("kafka", worlds.systems.kafka)
        self._harrow = Session("harrow", worlds.systems.harrow)
        self._thread = ThreadPoolExecutor(1)
        self._pause = threading.Event()
        self._cases = 0
        self._world = self._taken()

    def close(self) -> None:
        self._kafka.close()
        self._harrow.close()
        self._thread.shutdown()

    def versions(self) -> dict[str, tuple[int, int]]:
        """Returns the versions that both systems advertise, by the name of the request."""
        names = {m.key: name.removesuffix("Request") for name, m in messages().items() if name.endswith("Request")}
        ranges: list[dict[int, tuple[int, int]]] = []
        for session in (self._kafka, self._harrow):
            body = session.ask("ApiVersions", 0, {})
            ranges.append({row["apiKey"]: (row["minVersion"], row["maxVersion"]) for row in body["apiKeys"]})
        theirs, ours = ranges
        shared = {
            key: (max(theirs[key][0], ours[key][0]), min(theirs[key][1], ours[key][1])) for key in theirs if key in ours
        }
        return {names[key]: each for key, each in sorted(shared.items()) if each[0] <= each[1]}

    def renew(self) -> None:
        self._worlds.give_back(self._world)
        self._cases = 0
        self._world = self._taken()

    def _taken(self) -> World:
        world = self._worlds.take()
        self._kafka.topic_ids = dict(world.kafka_ids)
        self._harrow.topic_ids = dict(world.harrow_ids)
        return world

    @property
    def _number(self) -> str:
        """What stands in the names of the present case; no number is the beginning of another one."""
        return f"{self._world.name}{self._cases}c"

    def compare(self, case: Case) -> list[Difference]:
        if self._cases >= WORLD_CASES:
            self.renew()
        self._cases += 1
        kafka, harrow = self._both(case)
        found = self._differences(case, kafka, harrow)
        for pause_s in SETTLE_S:
            new = unexplained(found, self._known)
            unsettled = {each.step for each in new if case.steps[each.step].api in READS}
            if not unsettled:
                break
            self._pause.wait(pause_s)
            for index in unsettled:
                theirs = self._thread.submit(self._kafka.again, case, index, kafka)
                harrow[index] = self._harrow.again(case, index, harrow)
                kafka[index] = theirs.result()
            found = self._differences(case, kafka, harrow)
        return [*found, *self._dead(case)]

    def _differences(self, case: Case, kafka: list[Outcome], harrow: list[Outcome]) -> list[Difference]:
        left, right = (
            [normal.outcome(step.api, each) for step, each in zip(case.steps, outcomes, strict=True)]
            for outcomes, session in ((kafka, self._kafka), (harrow, self._harrow))
            for normal in [Normaliser(session.ports, session.topic_ids, self._world.name, self._number)]
        )
        return differences(case, left, right)

    def _dead(self, case: Case) -> list[Difference]:
        dead = self._worlds.systems.revive()
        if not dead:
            return []
        self._harrow.close()
        self._harrow.ports = self._worlds.systems.harrow
        target = case.steps[case.target]
        died = Difference(
            step=case.target,
            api=target.api,
            version=target.version,
            role="target",
            path="(process)",
            kafka="alive",
            harrow=f"{len(dead)} brokers have ended",
        )
        return [died]

    def _both(self, case: Case) -> tuple[list[Outcome], list[Outcome]]:
        world, number = self._world.name, self._number
        theirs = self._thread.submit(self._kafka.run, case, world, number)
        ours = self._harrow.run(case, world, number)
        return theirs.result(), ours
