"""Faults and schedules as strategies of Hypothesis, of the kinds and roles that random chaos draws (`planning.py`).

`faults` draws a kind, a role and a duration, each by Hypothesis, so that a failing example shrinks: to the first kind
and role in the order of the pools (a leader of the first topic, where there is one), and to the shortest duration.
`schedules` draws a list of them, which shrinks towards fewer faults and shorter gaps.

This module imports Hypothesis, which the extra `hypothesis` installs; `harrow.strategies` says so where it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from .errors import ConfigError
from .planning import DEFAULT_RANDOM, FIRST_GAP_MS, GAP_MS, OVERLAP_MS, drawn_fault, random_roles, weighted_kinds
from .schedule import Schedule, ScheduledFault
from .spec import DURATION_MAX_S, Fault, Seconds, amount_within, least_and_most
from .targets import Target, TopicLike

SECONDS = (0.3, 2.5)
"""How long a drawn fault lasts, in seconds: around the session timeout of Harrow's brokers."""
FAULTS_MOST = 3
SEED_MAX = 2**31 - 1


def faults(
    *,
    kinds: Sequence[str] | Mapping[str, int] = DEFAULT_RANDOM,
    topics: Sequence[TopicLike] = (),
    groups: Sequence[str] = (),
    seconds: Seconds = SECONDS,
) -> st.SearchStrategy[Fault]:
    """Draw one fault, such as `kill(leader('orders'), seconds=0.3)`.

    * `kinds`: names as in `harrow.chaos(kinds=…)`, those of extensions too. They shrink to the first one. In a mapping,
      a kind with weight 3 is drawn three times as often as one with weight 1.
    * `topics`: whose leaders and followers are targets, beside the controller and any broker. No follower is drawn of a
      `Topic` with replication factor 1.
    * `groups`: consumer groups whose coordinators are targets.
    * `seconds`: how long each fault lasts, a number or a (least, most) pair; it shrinks to the least. Faults of
      requests have no duration.

    ConfigError for a kind that cannot be drawn, and for durations that are out of bounds.
    """
    names = weighted_kinds(kinds)
    least, most = least_and_most(amount_within(seconds, DURATION_MAX_S, "faults(seconds", "seconds", least=0))
    durations = st.integers(round(least * 1000), round(most * 1000)).map(lambda ms: ms / 1000)
    roles = roles_in_order(topics, groups)
    return st.builds(drawn_fault, st.sampled_from(names), st.sampled_from(roles), seconds=durations)


def roles_in_order(topics: Sequence[TopicLike], groups: Sequence[str]) -> list[Target]:
    """Return the roles of random faults, those of topics first: drawn roles shrink towards the first one."""
    pools = [
        *(random_roles(topic) for topic in topics),
        *(random_roles(None, group) for group in groups),
        random_roles(),
    ]
    alone = {_name(topic) for topic in topics if getattr(topic, "replication_factor", 2) == 1}
    found = [role for pool in pools for role in pool]
    found = [role for role in found if role.role != "follower" or role.topic not in alone]
    rank = ("leader", "follower", "group_coordinator")
    return sorted(found, key=lambda role: rank.index(role.role) if role.role in rank else len(rank))


def _name(topic: TopicLike) -> str:
    return topic if isinstance(topic, str) else topic.name


def schedules(
    *,
    kinds: Sequence[str] | Mapping[str, int] = DEFAULT_RANDOM,
    topics: Sequence[TopicLike] = (),
    groups: Sequence[str] = (),
    seconds: Seconds = SECONDS,
    most: int = FAULTS_MOST,
    cap: int = 1,
) -> st.SearchStrategy[Schedule]:
    """Draw a schedule of 1 to `most` faults, for `harrow.chaos(schedule=…)`.

    With `cap=1` faults are injected in turn. With more, each fault has a time of its own, and so many brokers may be
    disturbed at once. The other arguments are those of `faults`. ConfigError for bounds that cannot be used.
    """
    if most < 1 or cap < 1:
        raise ConfigError(f"schedules(most={most}, cap={cap}): expected numbers from 1 up")
    least_ms, most_ms = OVERLAP_MS if cap > 1 else GAP_MS
    first, fault = (st.integers(*FIRST_GAP_MS), faults(kinds=kinds, topics=topics, groups=groups, seconds=seconds))
    later = st.lists(st.tuples(st.integers(least_ms, most_ms), fault), max_size=most - 1)
    drawn = st.tuples(st.tuples(first, fault), later, st.integers(0, SEED_MAX))
    return drawn.map(lambda row: schedule_of([row[0], *row[1]], seed=row[2], cap=cap))


def schedule_of(drawn: Sequence[tuple[int, Fault]], *, seed: int, cap: int) -> Schedule:
    """Return the schedule of faults, each with its gap in milliseconds before it; the first one must fire."""
    steps: list[ScheduledFault] = []
    planned_ms = 0
    for number, (gap_ms, fault) in enumerate(drawn, 1):
        planned_ms += gap_ms
        overlap = cap > 1
        steps.append(
            ScheduledFault(
                id=str(number),
                fault=fault,
                required=number == 1,
                at_ms=planned_ms if overlap else gap_ms,
                trigger="traffic" if overlap else "healed",
            )
        )
    return Schedule(steps=tuple(steps), seed=seed, cap=cap, notes={"planned_by": "strategies"})
