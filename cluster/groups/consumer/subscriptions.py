"""What a consumer group subscribes to: names, regular expressions, and the hash of the topics' metadata.

Owns: how regular expressions are read and resolved, and the hash that shows a changed topic.

A regular expression must match the whole name.

Source: KIP-848; Kafka's Utils.computeGroupHash, GroupMetadataManager.refreshRegularExpressions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from ...errors import KafkaError
from ...regular_expressions import compile_regex
from ...wire.topic_ids import UUID
from .group_records import RegexRecord, ResolvedRegex
from .group_state import Draft, GroupData
from .members import ConsumerMember

REGEX_FIELD = "SubscribedTopicRegex"
"""The field of ConsumerGroupHeartbeat with the expression, as error messages name it."""


class TopicView(Protocol):
    """The topics of the cluster; `MetadataCache` is one."""

    def topic_names(self) -> Iterable[str]:
        """Every topic."""
        ...

    def topic_id(self, name: str) -> UUID | None:
        """The id of a topic; None where it does not exist."""
        ...

    def topic_name(self, topic_id: UUID | None) -> str | None:
        """The inverse of `topic_id`."""
        ...

    def partition_count(self, topic: str) -> int:
        """Number of partitions; 0 where the topic does not exist."""
        ...


class DescribedTopics:
    """The topics of the cluster, where names are those that the member may describe which sent the last request."""

    def __init__(self, view: TopicView, denied: Callable[[Iterable[str]], Collection[str]]) -> None:
        """`denied`: which of some topics the member may not describe."""
        self._view = view
        self._denied = denied
        self.topic_id = view.topic_id
        self.topic_name = view.topic_name
        self.partition_count = view.partition_count

    def topic_names(self) -> Iterable[str]:
        """Every topic that the member may know of."""
        names = list(self._view.topic_names())
        denied = self._denied(names)
        return [name for name in names if name not in denied]


def resolve(regex: str, view: TopicView) -> tuple[str, ...]:
    """The topics whose names match, sorted; none for an expression that RE2 cannot read."""
    try:
        pattern = compile_regex(regex, REGEX_FIELD)
    except KafkaError:
        return ()  # a partition that Kafka wrote may have one
    return tuple(name for name in sorted(view.topic_names()) if pattern.fullmatch(name))


def update_regexes(draft: Draft, view: TopicView, wall_ms: int) -> None:
    """Resolve every expression that a member subscribes to, and drop the others."""
    used = {m.metadata.regex for m in draft.state.members.values() if m.metadata.regex}
    for regex in sorted(used):
        topics, known = resolve(regex, view), draft.state.regexes.get(regex)
        if known is None or known.topics != topics:
            draft.add(RegexRecord(regex, ResolvedRegex(topics, 0, wall_ms)))
    for regex in [regex for regex in draft.state.regexes if regex not in used]:
        draft.add(RegexRecord(regex, None))


def topics_of(member: ConsumerMember, state: GroupData) -> frozenset[str]:
    """Every topic that a member subscribes to, existing or not."""
    resolved = state.regexes.get(member.metadata.regex or "")
    return frozenset(member.metadata.topics) | frozenset(() if resolved is None else resolved.topics)


def subscribed_topics(state: GroupData) -> frozenset[str]:
    """Every topic that a member subscribes to."""
    names: set[str] = set()
    for member in state.members.values():
        names |= topics_of(member, state)
    return frozenset(names)


def partition_counts(names: Iterable[str], view: TopicView) -> dict[UUID, int]:
    """Topic id -> number of partitions of the topics that exist."""
    found = ((view.topic_id(name), view.partition_count(name)) for name in sorted(names))
    return {topic_id: count for topic_id, count in found if topic_id is not None and count > 0}


def metadata_hash(counts: Mapping[UUID, int]) -> int:
    """64 bits that change with the subscribed topics, their ids and their numbers of partitions; 0: no topic."""
    if not counts:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic_id, count in sorted(counts.items()):
        digest.update(topic_id.bytes + count.to_bytes(4))
    return int.from_bytes(digest.digest(), signed=True) or 1
