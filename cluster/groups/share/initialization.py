"""Which share-partitions of a group have a delivery state at the share coordinator, and how that changes.

Owns: pure functions on `StatePartitions`. A partition is initializing before the persister is asked, so that a
coordinator that takes over asks again; it is initialized once the persister has answered; a topic is deleting before
the persister is asked to delete.

Source: Kafka's GroupMetadataManager (subscribedTopicsChangeMap, addInitializingTopicsRecords,
initializeShareGroupState, uninitializeShareGroupState, shareGroupBuildPartitionDeleteRequest,
maybeCleanupShareGroupState).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from ...wire.topic_ids import UUID
from ..consumer.members import Partitions, by_topic_id
from ..consumer.subscriptions import TopicView
from .members import NO_STATE, NamedPartitions, StatePartitions, Topics

V = TypeVar("V")

UNKNOWN_NAME = "<UNKNOWN>"
"""Kafka's name of a topic that is not known."""


def uninitialized(state: StatePartitions, names: Iterable[str], view: TopicView, *, retry: bool) -> Topics:
    """Partitions of these topics that are to be initialized; `retry`: those that are initializing for long, too."""
    known = state.initialized if retry else joined(state.initialized, state.initializing)
    found: dict[UUID, NamedPartitions] = {}
    for name in sorted(names):
        topic_id = view.topic_id(name)
        if topic_id is None:
            continue
        there = known[topic_id].partitions if topic_id in known else frozenset[int]()
        missing = frozenset(range(view.partition_count(name))) - there
        if missing:
            found[topic_id] = NamedPartitions(name, missing)
    return found


def joined(topics: Topics, other: Topics) -> Topics:
    """The partitions of both; `other` has the name."""
    found = dict(topics)
    for topic_id, row in other.items():
        before = found[topic_id].partitions if topic_id in found else frozenset[int]()
        found[topic_id] = NamedPartitions(row.name, before | row.partitions)
    return found


def begin(state: StatePartitions, topics: Topics) -> StatePartitions:
    """The partitions are initializing; a topic among them is not deleting any more."""
    initializing = joined(state.initializing, topics)
    deleting = {topic_id: name for topic_id, name in state.deleting.items() if topic_id not in initializing}
    return replace(state, initializing=initializing, deleting=deleting)


def finish(state: StatePartitions, partitions: Partitions, view: TopicView) -> StatePartitions:
    """The persister has initialized the partitions; those of a topic that was deleted since are forgotten."""
    named = {
        topic_id: NamedPartitions(name, numbers)
        for topic_id, numbers in partitions.items()
        if (name := view.topic_name(topic_id)) is not None
    }
    return replace(abandon(state, partitions), initialized=joined(state.initialized, named))


def abandon(state: StatePartitions, partitions: Partitions) -> StatePartitions:
    """The partitions are not initializing any more."""
    left: dict[UUID, NamedPartitions] = {}
    for topic_id, row in state.initializing.items():
        numbers = row.partitions - partitions.get(topic_id, frozenset())
        if numbers:
            left[topic_id] = row._replace(partitions=numbers)
    return replace(state, initializing=left)


def delete_all(state: StatePartitions, view: TopicView) -> tuple[StatePartitions, Partitions]:
    """The group is to be deleted: the state in which every topic is deleting, and the partitions to delete."""
    topics = joined(state.initialized, state.initializing)
    retried = {
        topic_id: NamedPartitions(name, frozenset(range(view.partition_count(name))))
        for topic_id in state.deleting
        if (name := view.topic_name(topic_id)) is not None
    }
    topics = joined(topics, retried)
    deleting = {topic_id: row.name for topic_id, row in topics.items()}
    return replace(NO_STATE, deleting=deleting), {topic_id: row.partitions for topic_id, row in topics.items()}


def delete_topic(
    state: StatePartitions, topic_id: UUID, name: str, count: int
) -> tuple[StatePartitions, frozenset[int]]:
    """One topic is deleting, and which of its partitions to delete: none where the group has no state of it."""
    row = state.initialized.get(topic_id)
    if row is None:
        return state, frozenset(range(count)) if topic_id in state.deleting else frozenset()
    initialized = {other: kept for other, kept in state.initialized.items() if other != topic_id}
    return replace(state, initialized=initialized, deleting={**state.deleting, topic_id: name}), row.partitions


def deleted(state: StatePartitions, topic_ids: Collection[UUID]) -> StatePartitions:
    """The persister has deleted the state of these topics."""
    return replace(state, deleting=_without(state.deleting, topic_ids))


def without_topics(state: StatePartitions, names: Collection[str], view: TopicView) -> StatePartitions:
    """Topics of these names were deleted: the share coordinators forget their state by themselves."""
    rows = [*state.initializing.items(), *state.initialized.items()]
    named = [*((topic_id, row.name) for topic_id, row in rows), *state.deleting.items()]
    gone = {
        topic_id
        for topic_id, name in named
        if (name in names or name == UNKNOWN_NAME) and view.topic_name(topic_id) is None
    }
    if not gone:
        return state
    return StatePartitions(
        initializing=_without(state.initializing, gone),
        initialized=_without(state.initialized, gone),
        deleting=_without(state.deleting, gone),
    )


def partitions_of(topics: Topics) -> Partitions:
    """The partitions without the names."""
    return by_topic_id((topic_id, number) for topic_id, row in topics.items() for number in row.partitions)


def _without(table: Mapping[UUID, V], keys: Collection[UUID]) -> dict[UUID, V]:
    return {key: value for key, value in table.items() if key not in keys}
