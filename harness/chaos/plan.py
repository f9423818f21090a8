"""From the arguments of `Harrow.chaos` to a schedule: the caller's faults in turn, random faults, or a recorded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harrow.cluster.errors import ConfigError
from harrow.faults.errors import CapabilityError
from harrow.faults.planning import ALL_RANDOM, DEFAULT_RANDOM, check_faults, in_turn, possible_kinds, random_schedule
from harrow.faults.target_checks import cap_for, check_targets

if TYPE_CHECKING:
    from harrow.faults import Fault, Schedule

    from ..running_cluster import RunningCluster
    from ..topics import Topic

RANDOM_SECONDS = 5.0
"""How long random faults are injected when the caller gives no `duration`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRequest:
    """The arguments of `Harrow.chaos`, checked as far as that needs no cluster."""

    faults: tuple[Fault, ...]
    duration: float | None
    cap: int | None
    kinds: Sequence[str] | Mapping[str, int] | None
    """None: the usual ones that the backend can inject. A mapping has their weights."""
    schedule: Schedule | None
    reached_within: float
    """How many seconds with traffic a fault may wait for what it acts at."""

    @classmethod
    def of(
        cls,
        faults: Sequence[object],
        duration: float | None,
        cap: int | None,
        kinds: Sequence[str] | Mapping[str, int] | None,
        schedule: Schedule | None,
        reached_within: float = 1.0,
    ) -> ChaosRequest:
        """Check the arguments; ConfigError says what to write instead."""
        if schedule is not None and (faults or duration is not None or cap is not None or kinds is not None):
            raise ConfigError(
                "chaos() accepts faults or a schedule to replay, not both: "
                "a schedule has its own faults, kinds, duration and cap"
            )
        if faults and kinds is not None:
            raise ConfigError(
                f"chaos({', '.join(map(str, faults))}, kinds={kinds!r}): kinds= says which random faults are drawn; "
                "beside faults none is drawn; leave out kinds=, or the faults"
            )
        if kinds is not None and not kinds:
            raise ConfigError(f"chaos(kinds={kinds!r}): expected at least one kind, such as 'kill'")
        if schedule is not None and not schedule.steps:
            raise ConfigError(
                "chaos(schedule=…): the schedule has no step, so it injects no fault; leave the chaos block out, or "
                "give it steps"
            )
        if not 0 < reached_within <= 24 * 3600:
            raise ConfigError(f"chaos(reached_within={reached_within}): expected a number of seconds above 0")
        if duration is not None and duration <= 0:
            raise ConfigError(f"chaos(duration={duration}): expected a number of seconds above 0")
        if cap is not None and (isinstance(cap, bool) or cap < 1):
            raise ConfigError(f"chaos(cap={cap}): expected how many brokers may be disturbed, from 1")
        if isinstance(kinds, str):
            raise ConfigError(f"chaos(kinds={kinds!r}): expected several names, as in kinds=({kinds!r},)")
        return cls(
            faults=check_faults(faults),
            duration=duration,
            cap=cap,
            kinds=kinds,
            schedule=schedule,
            reached_within=reached_within,
        )

    def plan(
        self,
        cluster: RunningCluster,
        capabilities: frozenset[str],
        topics: Sequence[Topic],
        *,
        seed: int,
        first_id: int,
    ) -> Schedule:
        """Return the schedule; ConfigError for a target that the cluster does not have, or that the cap forbids.

        `capabilities`: of the backend.
        """
        view, nodes = cluster.describe(), list(cluster.brokers)
        if self.schedule is not None:
            check_targets((s.fault for s in self.schedule.steps if s.nodes is None), view, nodes)
            return self.schedule
        default = default_cap(topics, cluster.config.number("min.insync.replicas"))
        if self.faults:
            check_targets(self.faults, view, nodes)
            cap = cap_for(self.faults, len(nodes), self.cap, default)
            return in_turn(self.faults, seed, duration_s=self.duration, first_id=first_id, cap=cap)
        kinds = self.kinds
        if kinds is None:
            kinds = injectable_kinds(DEFAULT_RANDOM, capabilities)
        return random_schedule(
            seed,
            kinds,
            duration_s=self.duration or RANDOM_SECONDS,
            topics=topics,
            first_id=first_id,
            cap=self.cap or default,
        )


def injectable_kinds(kinds: Sequence[str], capabilities: frozenset[str]) -> tuple[str, ...]:
    """Return those of the kinds of random faults that a backend can inject, else all that it can.

    CapabilityError where it can inject none.
    """
    found = possible_kinds(kinds, capabilities) or possible_kinds(ALL_RANDOM, capabilities)
    if not found:
        raise CapabilityError(
            f"the backend can inject none of the random faults {', '.join(ALL_RANDOM)}; name what it can, such as "
            "lose_response(…), fail_response(…), refuse_request(…) or isolate(…, peers='clients')"
        )
    return found


def default_cap(topics: Iterable[Topic], min_insync_replicas: int) -> int:
    """Return how many brokers may fail while every topic accepts acks=all; at least 1."""
    spare = [
        topic.replication_factor - int(str(topic.config.get("min.insync.replicas", min_insync_replicas)))
        for topic in topics
    ]
    return max(1, min(spare, default=1))
