"""What a test waits for: each condition looks at the cluster once, and says whether it holds and what is there instead.

    Assigned   a group is stable, with so many members        CaughtUp   a group has committed all records of topics
    Records    a topic has so many records                    Requested  clients have asked an API so often
    Led        a partition has a leader, another than before

`look` never waits. Arguments are checked when a condition is made (ConfigError). What may fail in a look: HarrowError
where something cannot be seen at this moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol, cast

from harrow.cluster.errors import ConfigError
from harrow.cluster.ids import TopicPartition
from harrow.faults.errors import absent, listed
from harrow.faults.request_checks import api_key
from harrow.faults.system import GROUPS
from harrow.faults.unreached_words import api_name, no_request

from ..topics import Topic
from ..wording import counted

if TYPE_CHECKING:
    from harrow.cluster.view import ClusterView, PartitionView

    from ..histories.live_taps import GroupSeen
    from ..histories.request_rows import RequestCount
    from .seen import ClusterSeen

STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the cluster found."""

    holds: bool
    there: str
    """What is there, as a sentence."""
    value: int = 0
    """What the wait returns when the condition holds."""


class Condition(Protocol):
    """One condition; `str(condition)` is the call that waits for it."""

    def look(self, seen: ClusterSeen) -> Look:
        """Look once."""
        ...


# ---------------------------------------------------------------------------------------- groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A consumer group is stable; `members`: with so many of them, None: with any."""

    group: str
    members: int | None = None

    def __post_init__(self) -> None:
        check_name("await_assigned", "group", self.group)
        if self.members is not None:
            check_count("await_assigned", "members", self.members)

    def __str__(self) -> str:
        members = "" if self.members is None else f", members={self.members}"
        return f"await_assigned({self.group!r}{members})"

    def look(self, seen: ClusterSeen) -> Look:
        """Look at the state of the group and at its members."""
        found = seen.group(self.group)
        if found is None:
            return Look(holds=False, there=absent(GROUPS, self.group, seen.group_names()))
        enough = found.members == self.members if self.members else found.members > 0
        return Look(holds=found.state == STABLE and enough, there=group_text(self.group, found), value=found.members)


def group_text(group: str, found: GroupSeen) -> str:
    """Say the state and the members of a group."""
    held = [f"{name} owns {listed(owned)}" for name, owned in found.owners.items()]
    more = f": {'; '.join(held)}" if held else ""
    return f"group {group!r} is {found.state} with {counted(found.members, 'member')}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """A consumer group has committed every record that the topics have at this moment."""

    group: str
    topics: Sequence[str]

    def __post_init__(self) -> None:
        check_name("await_caught_up", "group", self.group)
        if not self.topics:
            raise ConfigError(
                f"await_caught_up({self.group!r}): no topic was given; write await_caught_up({self.group!r}, orders)"
            )

    def __str__(self) -> str:
        return f"await_caught_up({', '.join(map(repr, (self.group, *self.topics)))})"

    def look(self, seen: ClusterSeen) -> Look:
        """Look at the committed offsets and at the records behind them."""
        view = seen.view()
        for topic in self.topics:
            if topic not in view.topics:
                return Look(holds=False, there=no_topic(topic, view))
        places = places_of(view, self.topics)
        committed = seen.committed(self.group, places)
        ends = seen.offsets(places)
        lags: dict[TopicPartition, int | None] = {}
        for where in places:
            if where not in ends:
                lags[where] = None
                continue
            start, end = ends[where].start, ends[where].end
            first = max(committed.get(where, start), start)
            if first > end:  # of a topic of the same name that was deleted
                first = start
            lags[where] = seen.readable(where, first, end) if first < end else 0
        holds = all(lag == 0 for lag in lags.values())
        there = "" if holds else self._lag_text(seen, lags, committed)
        return Look(holds=holds, there=there)

    def _lag_text(
        self, seen: ClusterSeen, lags: Mapping[TopicPartition, int | None], committed: Mapping[TopicPartition, int]
    ) -> str:
        group = seen.group(self.group)
        if group is None and not committed:
            return absent(GROUPS, self.group, seen.group_names())
        said = [
            f"{where}: {'its leader does not respond' if lag is None else lag}"
            + ("" if where in committed else " (nothing committed)" if lag else "")
            for where, lag in lags.items()
        ]
        state = f"; {group_text(self.group, group)}" if group is not None else ""
        return f"records that group {self.group!r} has not committed: {listed(said)}{state}"


# --------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A topic has at least `count` records that a consumer of committed data can read."""

    topic: str
    count: int

    def __post_init__(self) -> None:
        check_count("await_records", "count", self.count)

    def __str__(self) -> str:
        return f"await_records({self.topic!r}, {self.count})"

    def look(self, seen: ClusterSeen) -> Look:
        """Count the records of each partition."""
        view = seen.view()
        if self.topic not in view.topics:
            return Look(holds=False, there=no_topic(self.topic, view))
        places = places_of(view, (self.topic,))
        ends = seen.offsets(places)
        counts = {where: seen.readable(where, row.start, row.end) for where, row in ends.items()}
        total = sum(counts.values())
        said = [f"{where}: {counts.get(where, 'its leader does not respond')}" for where in places]
        there = f"topic {self.topic!r} has {counted(total, 'record')} ({listed(said)})"
        return Look(holds=total >= self.count, there=there, value=total)


# -------------------------------------------------------------------------------------- requests


Requests = Mapping[tuple[str, str, str, int], int]
"""How many requests there were, by client, API, error and broker."""


def request_totals(rows: Iterable[RequestCount]) -> dict[tuple[str, str, str, int], int]:
    """Return the counts of the taps by what they count."""
    return {(row.client, row.api, row.error, row.broker): row.count for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """Brokers have responded to `count` requests of an API, of clients that match `client`, since `before`."""

    api: str | int
    client: str = "*"
    count: int = 1
    before: Requests

    def __post_init__(self) -> None:
        check_name("await_request", "client", self.client)
        check_count("await_request", "count", self.count)
        api_key(self.api, "await_request")

    def __str__(self) -> str:
        more = "" if self.client == "*" else f", client={self.client!r}"
        more += "" if self.count == 1 else f", count={self.count}"
        return f"await_request({self.api!r}{more})"

    def look(self, seen: ClusterSeen) -> Look:
        """Look at the counters of all brokers."""
        key = api_key(self.api, "await_request")
        name = api_name(key)
        brokers: dict[str, dict[str, Any]] = {}
        total = 0
        for (client, api, error, broker), all_of_them in request_totals(seen.requests()).items():
            count = all_of_them - self.before.get((client, api, error, broker), 0)
            if count <= 0:
                continue
            row = brokers.setdefault(str(broker), {"seen": 0, "clients": [], "others": {}})
            if api == name and fnmatchcase(client, self.client):
                row["seen"] += count
                total += count
            elif api == name:
                row["clients"].append(client)
            else:
                row["others"].setdefault(client, []).append(api_key_of(api))
        return Look(holds=total >= self.count, there=self._there(key, total, brokers), value=total)

    def _there(self, key: int, total: int, brokers: Mapping[str, Mapping[str, Any]]) -> str:
        if not total:
            nothing: dict[str, Any] = {"seen": 0, "clients": (), "others": {}}
            return no_request(key, self.client, self.count, brokers or {"": nothing})
        counts = (f"{row['seen']} to broker {node}" for node, row in brokers.items() if row["seen"])
        return f"{total} of {self.count} requests {api_name(key)} were sent: {listed(counts)}"


def api_key_of(name: str) -> int:
    """Return the number of an API by the name of a counter; -1 for one that has no name here."""
    try:
        return api_key(name, "await_request")
    except ConfigError:
        return -1


# --------------------------------------------------------------------------------------- leaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """A partition has a leader that is registered and is none of `other_than`."""

    topic: str
    partition: int
    other_than: Collection[int]

    def __post_init__(self) -> None:
        number = self.partition
        if type(number) is not int or number < 0:
            raise ConfigError(f"await_leader({self.topic!r}, {number!r}): expected a partition from 0 up")

    def __str__(self) -> str:
        nodes = sorted(self.other_than)
        other = f", other_than={nodes[0] if len(nodes) == 1 else nodes}" if nodes else ""
        return f"await_leader({self.topic!r}, {self.partition}{other})"

    def look(self, seen: ClusterSeen) -> Look:
        """Look at the state of the partitions."""
        view = seen.view()
        if self.topic not in view.topics:
            return Look(holds=False, there=no_topic(self.topic, view))
        partitions = view.topics[self.topic]
        found = partitions.get(self.partition)
        if found is None:
            there = f"topic {self.topic!r} has no partition {self.partition}; it has {len(partitions)}"
            return Look(holds=False, there=there)
        holds = found.leader in view.live and found.leader not in self.other_than
        said = [leader_text(self.topic, number, row) for number, row in sorted(partitions.items())]
        there = f"{listed(said)}; registered brokers: {listed(sorted(view.live)) or 'none'}"
        return Look(holds=holds, there=there, value=found.leader)


def leader_text(topic: str, partition: int, found: PartitionView) -> str:
    """Say which broker leads a partition."""
    leader = "has no leader" if found.leader < 0 else f"is led by broker {found.leader}"
    isr = ",".join(map(str, found.isr))
    return f"{topic}-{partition} {leader} (leader epoch {found.leader_epoch}, ISR {isr})"


# --------------------------------------------------------------------------------------- arguments


def topic_of(topic: object, call: str) -> str:
    """Return the name of a topic that a wait was given."""
    if isinstance(topic, Topic):
        return topic.name
    if isinstance(topic, str) and topic:
        return topic
    raise ConfigError(f"{call}({topic!r}): expected a topic or its name")


def nodes_of(value: object) -> frozenset[int]:
    """Return the brokers of `other_than=`: None, a node id, or several."""
    if value is None:
        return frozenset()
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        nodes = list(cast("Collection[object]", value))
    else:
        nodes = [value]
    found = [node for node in nodes if isinstance(node, int) and not isinstance(node, bool)]
    if len(found) < len(nodes):
        raise ConfigError(f"await_leader(…, other_than={value!r}): expected the node id of a broker, or several")
    return frozenset(found)


def check_name(call: str, name: str, value: object) -> None:
    """Raise ConfigError for a name that is no text."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{call}({name}={value!r}): expected a text that is not empty")


def check_count(call: str, name: str, value: object) -> None:
    """Raise ConfigError for what is no number from 1 up."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{call}(…, {name}={value!r}): expected a number from 1 up")


# ------------------------------------------------------------------------------------------- words


def no_topic(topic: str, view: ClusterView) -> str:
    """Say that the cluster lacks a topic, and which it has."""
    return absent("topic", topic, (name for name in view.topics if not name.startswith("__")))


def places_of(view: ClusterView, topics: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions of topics, in order."""
    return [TopicPartition(topic, number) for topic in topics for number in sorted(view.topics[topic])]
