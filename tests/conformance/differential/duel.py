"""Runs a case on both systems at the same time and compares what they say.

Owns: the two sessions, the worlds (a new one after a difference and after `WORLD_CASES` cases, because a difference
may leave the systems in different states), and what happens when one of our brokers ends: that is a difference, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from .cases import Case
from .known import Known, unexplained
from .link import Outcome
from .normal import Difference, Normaliser, differences
from .session import Session, error_codes
from .systems import Systems
from .world import internal_topics, prepared, retired

TOPIC_EXISTS = 36
WORLD_CASES = 100
WORLDS_AT_ONCE = 12
"""Worlds are made together, because Apache Kafka needs a second until the first acks=all to a new topic."""
SETTLE_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses before a read that differs is sent again: markers and metadata arrive some time after the response."""
READS = frozenset({
    "Fetch", "ListOffsets", "Metadata", "OffsetFetch", "DescribeGroups", "ListGroups", "DescribeConfigs",
    "DescribeLogDirs", "ListPartitionReassignments", "DescribeClientQuotas", "DescribeCluster", "DescribeProducers",
    "DescribeTransactions", "ListTransactions", "ConsumerGroupDescribe", "ListConfigResources",
    "DescribeTopicPartitions", "FindCoordinator", "OffsetForLeaderEpoch",
})  # fmt: skip
"""Requests that change nothing (a Fetch without a session): a difference counts when it stays."""
Report = Callable[[str], None]


class Pair(Protocol):
    """Compares two systems: what the runner and the shrinker need of them."""

    def compare(self, case: Case) -> list[Difference]:
        """Runs a case in the current world."""
        ...

    def renew(self) -> None:
        """Makes a new world."""
        ...


class Duel:
    """Both systems of a run."""

    def __init__(self, systems: Systems, known: Sequence[Known]) -> None:
        self._systems = systems
        self._known = known
        self._kafka = Session("kafka", systems.kafka)
        self._harrow = Session("harrow", systems.harrow)
        self._threads = ThreadPoolExecutor(2)
        self._pause = threading.Event()
        self._batches = self._cases = 0
        self._made: list[str] = []
        self._ready: list[str] = []
        self._world = ""
        self._run = (
            int(time.time()) & 0xFFFFFF
        )  # Apache Kafka may have the topics of an earlier run
        self.controller = 1
        self.find_controller()
        self._prepare(internal_topics(self.controller))
        self.renew()

    def close(self) -> None:
        self._kafka.close()
        self._harrow.close()
        self._threads.shutdown()

    def versions(self) -> dict[str, tuple[int, int]]:
        """Returns the versions that both systems advertise, by the name of the request."""
        from .message_files import messages

        names = {
            m.key: name.removesuffix("Request")
            for name, m in messages().items()
            if name.endswith("Request")
        }
        ranges: list[dict[int, tuple[int, int]]] = []
        for session in (self._kafka, self._harrow):
            body = session.ask("ApiVersions", 0, {})
            ranges.append(
                {row["apiKey"]: (row["minVersion"], row["maxVersion"]) for row in body["apiKeys"]}
            )
        theirs, ours = ranges
        shared = {
            key: (max(theirs[key][0], ours[key][0]), min(theirs[key][1], ours[key][1]))
            for key in theirs
            if key in ours
        }
        return {names[key]: each for key, each in sorted(shared.items()) if each[0] <= each[1]}

    def find_controller(self) -> None:
        """Learns which of our brokers is the controller."""
        body = self._harrow.ask("Metadata", 9, {"topics": []})
        self.controller = max(body["controllerId"], 1)

    def renew(self) -> None:
        self._cases = 0
        if self._ready:
            self._world = self._ready.pop()
            return
        self.find_controller()
        if self._made:
            self._both(retired(self.controller, self._made))
        self._made = [
            f"r{self._run:x}w{self._batches * WORLDS_AT_ONCE + each}x"
            for each in range(WORLDS_AT_ONCE)
        ]
        self._batches += 1
        self._prepare(prepared(self.controller, self._made))
        self._ready = [*self._made]
        self._world = self._ready.pop()

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
                asked = [
                    self._threads.submit(session.again, case, index, outcomes)
                    for session, outcomes in ((self._kafka, kafka), (self._harrow, harrow))
                ]
                kafka[index], harrow[index] = (each.result() for each in asked)
            found = self._differences(case, kafka, harrow)
        return [*found, *self._dead(case)]

    def _differences(
        self, case: Case, kafka: list[Outcome], harrow: list[Outcome]
    ) -> list[Difference]:
        left, right = (
            [
                normal.outcome(step.api, each)
                for step, each in zip(case.steps, outcomes, strict=True)
            ]
            for outcomes, session in ((kafka, self._kafka), (harrow, self._harrow))
            for normal in [
                Normaliser(
                    session.ports, session.topic_ids, self._world, f"{self._world}{self._cases}"
                )
            ]
        )
        return differences(case, left, right)

    def _dead(self, case: Case) -> list[Difference]:
        dead = self._systems.revive()
        if not dead:
            return []
        self._harrow.close()
        self._harrow.ports = self._systems.harrow
        target = case.steps[case.target]
        died = Difference(
            step=case.target, api=target.api, version=target.version, role="target", path="(process)", kafka="alive",
            harrow=f"{len(dead)} brokers have ended",
        )  # fmt: skip
        return [died]

    def _prepare(self, case: Case) -> None:
        """Runs set-up steps; ConnectionError, which names the step, when a system refuses one."""
        for session, outcomes in zip((self._kafka, self._harrow), self._both(case), strict=True):
            for step, outcome in zip(case.steps, outcomes, strict=True):
                codes = set(error_codes(outcome.body)) - {0, TOPIC_EXISTS}
                if outcome.kind != "response" or (codes and step.role != "cleanup"):
                    found = sorted(codes) or outcome.kind
                    raise ConnectionError(
                        f"{session.name} did not prepare a world: {step.api} gave {found}"
                    )

    def _both(self, case: Case) -> tuple[list[Outcome], list[Outcome]]:
        world, number = self._world, f"{self._world}{self._cases}"
        runs = [
            self._threads.submit(each.run, case, world, number)
            for each in (self._kafka, self._harrow)
        ]
        return runs[0].result(), runs[1].result()
