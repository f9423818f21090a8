"""Prepared worlds for all lanes of a run.

Owns: the internal topics of both systems, the worlds that are ready, and the deletion of those that were given back.
Worlds are made many at once, because Apache Kafka needs a second until the first acks=all to a new topic. Fails with
ConnectionError, which names the step, when a system refuses to prepare one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

from .cases import Case
from .link import Outcome
from .session import Session, error_codes
from .systems import Systems
from .world import internal_topics, prepared, retired

TOPIC_EXISTS = 36
AT_ONCE = 12
HIGHEST_SMALL_ID = 1_000
"""Up to here producer ids are edge values (`mutations.py`), so no producer of a case may have one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A prepared world; the ids are those that a system gave its topics, by name."""

    name: str
    kafka_ids: Mapping[str, str]
    harrow_ids: Mapping[str, str]


class Worlds:
    """Worlds on two systems."""

    def __init__(self, systems: Systems) -> None:
        self.systems = systems
        self._kafka = Session("kafka", systems.kafka)
        self._harrow = Session("harrow", systems.harrow)
        self._threads = ThreadPoolExecutor(2)
        self._lock = threading.Lock()
        self._ready: list[World] = []
        self._used: list[str] = []
        # Apache Kafka may have the topics of an earlier run
        self._names = map(f"r{int(time.time()) & 0xFFFFFF:x}w{{}}x".format, count())
        self.controller = 1
        self.made = 0
        """How many worlds this run has made."""
        self._find_controller()
        self._prepare(internal_topics(self.controller))
        for session in (self._kafka, self._harrow):
            session.use_producer_ids(HIGHEST_SMALL_ID)

    def close(self) -> None:
        self._kafka.close()
        self._harrow.close()
        self._threads.shutdown()

    def take(self) -> World:
        """Returns a world that no other lane has."""
        with self._lock:
            if not self._ready:
                self._make()
            return self._ready.pop()

    def give_back(self, world: World) -> None:
        """Takes a world that is used no more; its topics are deleted when new worlds are made."""
        with self._lock:
            self._used.append(world.name)

    def _make(self) -> None:
        self._find_controller()
        used, self._used = self._used, []
        if used:
            self._both(retired(self.controller, used))
        made = [next(self._names) for _ in range(AT_ONCE)]
        for session in (self._kafka, self._harrow):
            session.topic_ids.clear()
        self._prepare(prepared(self.controller, made))
        self.made += len(made)
        self._ready = [
            World(name=name, kafka_ids=self._kafka.ids_of(name), harrow_ids=self._harrow.ids_of(name)) for name in made
        ]

    def _find_controller(self) -> None:
        """Learns which of our brokers is the controller."""
        body = self._harrow.ask("Metadata", 9, {"topics": []})
        self.controller = max(body["controllerId"], 1)

    def _prepare(self, case: Case) -> None:
        for session, outcomes in zip((self._kafka, self._harrow), self._both(case), strict=True):
            for step, outcome in zip(case.steps, outcomes, strict=True):
                codes = set(error_codes(outcome.body)) - {0, TOPIC_EXISTS}
                if outcome.kind != "response" or (codes and step.role != "cleanup"):
                    found = sorted(codes) or outcome.kind
                    raise ConnectionError(f"{session.name} did not prepare a world: {step.api} gave {found}")

    def _both(self, case: Case) -> list[list[Outcome]]:
        runs = [self._threads.submit(each.run, case, "", "") for each in (self._kafka, self._harrow)]
        return [each.result() for each in runs]
