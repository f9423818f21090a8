"""Taps while brokers write them: the new rows at each look, and what groups, commits and transactional ids there are.

Owns: `RowTail`, which reads a file of each broker from where the last look ended; `GroupRows`, `CommitRows` and
`TransactionalIds` on it. Layout and meaning of the rows: `harrow.cluster.tap.layouts`, `request_tap`.

A new coordinator writes rows of what it found in the log, so the rows of the highest leader epoch are those of the
group's present coordinator. Of commits the row of the latest time counts. May fail: OSError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harrow.cluster.broker_folder import TAP_COMMITS, TAP_GROUPS, TAP_MEMBERS, TAP_NAMES, TAP_REQUESTS, broker_files
from harrow.cluster.host.seam import GROUP_STATES, OFFSET_COMMITTED
from harrow.cluster.ids import TopicPartition
from harrow.cluster.tap.layouts import COMMIT_ROW, GROUP_ROW, MEMBER_OWNS, MEMBER_ROW, NO_SUBJECT, REQUEST_ROW
from harrow.cluster.wire.api_keys import ApiKey

from .format import read_names

DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """A consumer group as its coordinator has it."""

    state: str
    """Kafka's name: Stable, PreparingRebalance, Empty, …"""
    members: int
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Client id or member id -> its partitions, such as "orders-0"."""


class RowTail:
    """The rows of one kind of file of every broker that were not returned yet."""

    def __init__(self, cluster: Path, name: str, row: struct.Struct) -> None:
        self._cluster = cluster
        self._name = name
        self._row = row
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """Yield each new row and the names to which its numbers refer; a torn last row is left for the next look."""
        for path in broker_files(self._cluster, self._name):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = len(data) // self._row.size * self._row.size
            if not whole:
                continue
            self._read[path] = self._read.get(path, 0) + whole
            names = read_names(path.with_name(TAP_NAMES))
            for row in self._row.iter_unpack(memoryview(data)[:whole]):
                yield names, row


class GroupRows:
    """The groups by the rows of all coordinators so far."""

    def __init__(self, cluster: Path) -> None:
        self._groups = RowTail(cluster, TAP_GROUPS, GROUP_ROW)
        self._members = RowTail(cluster, TAP_MEMBERS, MEMBER_ROW)
        self._states: dict[str, tuple[int, int, str, int]] = {}
        """Leader epoch, time, state and members, by group; the greatest counts."""
        self._owners: dict[str, tuple[int, dict[tuple[str, str], set[TopicPartition]]]] = {}
        """By group: leader epoch, and the partitions of each (client id, member id)."""

    def names(self) -> list[str]:
        """Return the groups that exist."""
        self._read()
        return sorted(name for name, row in self._states.items() if row[2] != DEAD)

    def group(self, name: str) -> GroupSeen | None:
        """Return one group; None where there is none."""
        self._read()
        row = self._states.get(name)
        if row is None or row[2] == DEAD:
            return None
        _, held = self._owners.get(name, (-1, {}))
        clients = [client for client, _ in held]
        owners = {
            client if clients.count(client) == 1 else member: [str(tp) for tp in sorted(owned)]
            for (client, member), owned in sorted(held.items())
            if owned
        }
        return GroupSeen(state=row[2], members=row[3], owners=owners)

    def _read(self) -> None:
        for names, row in self._groups.new():
            state, group, _, _, epoch, members, _, time_ns = row
            found = (epoch, time_ns, GROUP_STATES[state], members)
            name = names[group]
            self._states[name] = max(found, self._states.get(name, found))
        for names, row in self._members.new():
            kind, group, member, client, topic, _, partition, _, epoch, _ = row
            known, held = self._owners.get(names[group], (-1, {}))
            if epoch < known:
                continue
            held = held if epoch == known else {}
            self._owners[names[group]] = epoch, held
            owned = held.setdefault((names[client], names[member]), set())
            change = owned.add if kind == MEMBER_OWNS else owned.discard
            change(TopicPartition(names[topic], partition))


class CommitRows:
    """The committed offsets by the rows of all coordinators so far."""

    def __init__(self, cluster: Path) -> None:
        self._rows = RowTail(cluster, TAP_COMMITS, COMMIT_ROW)
        self._last: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        """The time and the offset of the last commit of a group for a partition."""

    def groups(self) -> set[str]:
        """Return the groups that committed an offset."""
        self._read()
        return {group for group, _ in self._last}

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets of one group."""
        self._read()
        return {where: offset for (name, where), (_, offset) in self._last.items() if name == group}

    def _read(self) -> None:
        for names, row in self._rows.new():
            kind, error, number, topic, partition = row[:5]
            offset, completed_ns = row[9], row[12]
            if kind != OFFSET_COMMITTED or error:
                continue
            key = names[number], TopicPartition(names[topic], partition)
            if self._last.get(key, (0, 0))[0] <= completed_ns:
                self._last[key] = completed_ns, offset


def known_groups(groups: GroupRows, commits: CommitRows) -> set[str]:
    """Return the groups that exist: one without members, of a client with `assign()`, has rows of its commits only."""
    return {*groups.names(), *commits.groups()}


class TransactionalIds:
    """The transactional ids for which a coordinator returned a producer id."""

    def __init__(self, cluster: Path) -> None:
        self._requests = RowTail(cluster, TAP_REQUESTS, REQUEST_ROW)
        self._known: set[str] = set()

    def names(self) -> list[str]:
        """Return them in order."""
        for names, row in self._requests.new():
            api, error, _, _, subject = row[:5]
            if api == ApiKey.INIT_PRODUCER_ID and not error and subject != NO_SUBJECT:
                self._known.add(names[subject])
        return sorted(self._known)
