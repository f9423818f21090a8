"""Events that a step of a schedule waits for, before it begins (`after`) or until it heals (`until`) (K9).

    began('1')                       step 1 was injected: what it arms is armed
    took_effect('1')                 the effect of step 1 was proved: a broker is dead, a failpoint was reached, …
    healed('1')                      nothing of step 1 is left
    new_leader('orders', 0, '1')     another broker leads the partition than when step 1 took effect
    isr_count('orders', 0, 2)        the ISR of the partition has so many members

An event is a frozen value with a JSON form. A schedule of events has no times, so it means the same on a slow machine,
on a fast machine and on a virtual clock. The nemesis looks for events at each of its turns. What it sees of the cluster
is what the registry has: while that does not respond, no event of a partition happens.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from harrow.cluster.argument_types import checked, json_object
from harrow.cluster.view import ClusterView

from .errors import ConfigError
from .targets import TopicLike, topic_name

STEP_EVENTS = BEGAN, TOOK_EFFECT, HEALED = "began", "took_effect", "healed"
NEW_LEADER, ISR_COUNT = "new_leader", "isr_count"
EVENTS = (*STEP_EVENTS, NEW_LEADER, ISR_COUNT)


@dataclass(slots=True, kw_only=True)
class Progress:
    """What has happened to the steps of a schedule so far; kept by the nemesis."""

    steps: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Events of steps (`STEP_EVENTS`), with the id of the step."""
    views: dict[str, ClusterView] = field(default_factory=dict[str, ClusterView])
    """The cluster when a step took effect; "" is the first traffic. Only of steps that a `new_leader` names."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Event:
    """Something that happens to a step, or to a partition; made by the functions below."""

    event: str
    step: str = ""
    """The id of the step; of `new_leader` "" is the first traffic."""
    topic: str | None = None
    partition: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        if self.event not in EVENTS:
            near = difflib.get_close_matches(self.event, EVENTS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"event {self.event!r}: expected one of {', '.join(EVENTS)}{hint}")
        if self.event in STEP_EVENTS and not self.step:
            raise ConfigError(f"{self.event}(''): expected the id of a step, such as '1'")
        if not self.of_step and not self.topic:
            raise ConfigError(f"{self.event}: expected a topic")

    def __repr__(self) -> str:
        given: list[object] = [self.step]
        if self.event == NEW_LEADER:
            given = [self.topic, self.partition, *([self.step] if self.step else [])]
        elif self.event == ISR_COUNT:
            given = [self.topic, self.partition, self.count]
        return f"{self.event}({', '.join(map(repr, given))})"

    @property
    def of_step(self) -> bool:
        """Whether the event needs no look at the cluster."""
        return self.event in STEP_EVENTS

    def happened(self, progress: Progress, view: ClusterView | None) -> bool:
        """Whether it has happened; `view`: the cluster now, None where it does not respond."""
        if self.of_step:
            return (self.event, self.step) in progress.steps
        assert self.topic is not None
        now = None if view is None else view.partition(self.topic, self.partition)
        if now is None:
            return False
        if self.event == ISR_COUNT:
            return len(now.isr) == self.count
        before = progress.views.get(self.step)
        led = None if before is None else before.partition(self.topic, self.partition)
        return led is not None and now.leader not in (-1, led.leader)

    def to_json(self) -> dict[str, Any]:
        """Return the given fields only."""
        given = ((row.name, getattr(self, row.name)) for row in fields(self))
        kept = ("event", "topic", "partition") if self.topic is not None else ("event",)
        return {name: value for name, value in given if name in kept or value}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Event:
        """Read what `to_json` wrote; ConfigError for an event or a field that does not exist."""
        values = json_object(raw, cls)
        if "event" not in values:
            known = ", ".join(row.name for row in fields(cls) if row.name != "event")
            raise ConfigError(f"event {values!r}: expected the field event, and of {known} what it needs")
        return cls(**values)


@checked
def began(step: str) -> Event:
    """Step `step` was injected: its failpoint or its rule is armed, its signal is sent."""
    return Event(event=BEGAN, step=step)


@checked
def took_effect(step: str) -> Event:
    """The effect of step `step` was proved; of a failpoint that is armed: a broker reached it."""
    return Event(event=TOOK_EFFECT, step=step)


@checked
def healed(step: str) -> Event:
    """Step `step` is healed, and that was proved: its brokers run, nothing of it is left."""
    return Event(event=HEALED, step=step)


@checked
def new_leader(topic: TopicLike, partition: int = 0, since: str = "") -> Event:
    """Another broker leads the partition than when step `since` took effect; without it: than at the first traffic."""
    name = topic_name(topic, NEW_LEADER)
    return Event(event=NEW_LEADER, topic=name, partition=partition, step=since)


@checked
def isr_count(topic: TopicLike, partition: int, count: int) -> Event:
    """The ISR of the partition has `count` members."""
    name = topic_name(topic, ISR_COUNT)
    return Event(event=ISR_COUNT, topic=name, partition=partition, count=count)
