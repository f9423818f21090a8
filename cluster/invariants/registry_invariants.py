"""Invariants of what the registry commits: partition states, controller epochs, owners of ephemeral nodes.

Owns: `RegistryInvariants`, and `ObservedStore`, which shows it each transaction. The other invariants ask it what the
registry holds: which topic id a name has, which state a partition version had, which epoch an unclean election began.

Invariant of its own: it has seen every transaction, from the first one on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..controller.state_node import LeaderAndIsr, parse_state
from ..ids import NO_NODE, NodeId, TopicPartition
from ..registry import Stat
from ..registry.paths import CONTROLLER, CONTROLLER_EPOCH, DELETIONS, TOPICS, partition_of_state_path
from ..registry.store import MemoryStore
from ..registry.tree_rows import Changes, NodeRow
from ..wire.topic_ids import UUID, topic_id_of
from .violation import InvariantViolation


class ObservedStore(MemoryStore):
    """The registry's memory, which hands each committed transaction on."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[Changes] = []
        """Transactions that no check has read yet."""

    def commit(self, changes: Changes) -> None:
        """Take one transaction over, and keep it for the invariants."""
        super().commit(changes)
        self.committed.append(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTopic:
    """What a topic node says."""

    topic_id: UUID | None
    replicas: Mapping[int, frozenset[int]]


class RegistryInvariants:
    """The registry's history as far as the invariants need it."""

    def __init__(self) -> None:
        self.controller_epoch = 0
        """The largest that was committed."""
        self.controller_id: int | None = None
        """The broker that `/controller` names; None while the node does not exist."""
        self.on_unclean_election: Callable[[TopicPartition, int], None] = lambda _tp, _epoch: None
        """Called with the leader epoch that an unclean election began."""
        self._topics: dict[str, RegisteredTopic] = {}
        self._deletions: set[str] = set()
        self._states: dict[TopicPartition, LeaderAndIsr] = {}
        self._by_version: dict[TopicPartition, dict[int, LeaderAndIsr]] = {}
        self._owned: dict[str, int] = {}
        self._sessions: set[int] = set()

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a registered topic; None where the registry has none of that name."""
        found = self._topics.get(topic)
        return None if found is None else found.topic_id

    def is_being_deleted(self, topic: str) -> bool:
        """Whether the topic is to be deleted, and the deletion has not ended."""
        return topic in self._deletions

    def state_at(self, tp: TopicPartition, version: int) -> LeaderAndIsr | None:
        """The state that was committed as `version` of a partition's node."""
        return self._by_version.get(tp, {}).get(version)

    # ---------------------------------------------------------- transactions

    def committed(self, changes: Changes) -> None:
        """Check one transaction as a whole."""
        self._sessions |= {row.session_id for row in changes.sessions_put}
        self._sessions -= set(changes.sessions_drop)
        for path in changes.drop:
            self._dropped(path)
        # topics first: a reassignment writes the topic and its partitions' states in one transaction
        for row in sorted(changes.put, key=lambda row: row.path.count("/")):
            self._put(row)
        for path, owner in self._owned.items():
            if owner not in self._sessions:
                raise InvariantViolation("live-owner", f"{path} belongs to session {owner}, which has ended")

    def _dropped(self, path: str) -> None:
        self._owned.pop(path, None)
        if path == CONTROLLER:
            self.controller_id = None
        above, _, name = path.rpartition("/")
        if above == TOPICS:
            self._topics.pop(name, None)
        if above == DELETIONS:
            self._deletions.discard(name)
        tp = partition_of_state_path(path)
        if tp is not None:
            self._states.pop(tp, None)
            self._by_version.pop(tp, None)

    def _put(self, row: NodeRow) -> None:
        if row.owner:
            self._owned[row.path] = row.owner
        above, _, name = row.path.rpartition("/")
        if row.path == CONTROLLER:
            self.controller_id = int(json.loads(row.data)["brokerid"])
        elif row.path == CONTROLLER_EPOCH:
            self._controller_epoch(int(row.data))
        elif above == DELETIONS:
            self._deletions.add(name)
        elif above == TOPICS:
            self._topics[name] = _topic(row.data)
        elif (tp := partition_of_state_path(row.path)) is not None:
            self._partition_state(tp, row)

    def _controller_epoch(self, epoch: int) -> None:
        if epoch < self.controller_epoch:
            raise InvariantViolation(
                "controller-epoch-order", f"the registry's epoch goes back from {self.controller_epoch} to {epoch}"
            )
        self.controller_epoch = epoch

    # ------------------------------------------------------ partition states

    def _partition_state(self, tp: TopicPartition, row: NodeRow) -> None:
        before = self._states.get(tp)
        if before is not None and row.version == before.version:
            return  # the node was touched because a child was
        state = parse_state(row.data, Stat(row.version, row.czxid, row.mzxid, row.owner, 0))
        self._check_shape(tp, state)
        if before is not None:
            self._check_order(tp, before, state)
            self._check_election(tp, before, state)
        self._states[tp] = state
        self._by_version.setdefault(tp, {})[state.version] = state

    def _check_shape(self, tp: TopicPartition, state: LeaderAndIsr) -> None:
        topic = self._topics.get(tp.topic)
        assigned = frozenset[int]() if topic is None else topic.replicas.get(tp.partition, ())
        isr = state.isr
        problem = ""
        if not isr:
            problem = "the ISR is empty"
        elif len(set(isr)) != len(isr):
            problem = "the ISR names a broker twice"
        elif not set(isr) <= set(assigned):
            problem = f"the ISR is not within the replicas {sorted(assigned)}"
        elif state.leader != NO_NODE and state.leader not in isr:
            problem = "the leader is not in the ISR"
        if problem:
            raise InvariantViolation("state-shape", f"{tp}: {problem}", {"registry": state})

    def _check_order(self, tp: TopicPartition, before: LeaderAndIsr, state: LeaderAndIsr) -> None:
        problem = ""
        if state.version != before.version + 1:
            problem = f"version {before.version} is followed by {state.version}"
        elif state.leader_epoch < before.leader_epoch:
            problem = "the leader epoch goes back"
        elif state.controller_epoch < before.controller_epoch:
            problem = "the controller epoch goes back"
        elif state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            problem = "the leader changes within one leader epoch"
        if problem:
            raise InvariantViolation("state-order", f"{tp}: {problem}", {"before": before, "now": state})

    def _check_election(self, tp: TopicPartition, before: LeaderAndIsr, state: LeaderAndIsr) -> None:
        if state.leader_epoch == before.leader_epoch:
            return
        unclean = state.leader != NO_NODE and state.leader not in before.isr
        if unclean:
            self.on_unclean_election(tp, state.leader_epoch)
        allowed: set[NodeId] = {*before.isr, *([state.leader] if unclean else ())}
        if not set(state.isr) <= allowed:
            raise InvariantViolation(
                "isr-by-controller",
                f"{tp}: a controller adds {sorted(set(state.isr) - allowed)} to the ISR",
                {"before": before, "now": state},
            )


def _topic(data: str) -> RegisteredTopic:
    value: dict[str, Any] = json.loads(data) if data else {"partitions": {}}
    text = value.get("topic_id")
    return RegisteredTopic(
        topic_id=topic_id_of(text) if text else None,
        replicas={int(number): frozenset(replicas) for number, replicas in value["partitions"].items()},
    )
