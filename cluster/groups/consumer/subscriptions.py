"""What a consumer group subscribes to: names, regular expressions, and the hash of the topics' metadata.

Owns: how regular expressions are read and resolved, and the hash that shows a changed topic.

A regular expression must match the whole name. It is one of RE2, as in Kafka: no look-around and no backreferences, and
a match takes linear time whatever a client sends.

Source: KIP-848; Kafka's Utils.computeGroupHash, GroupMetadataManager.refreshRegularExpressions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import re2

from ...errors import ErrorCode, KafkaError
from ...wire.topic_ids import UUID
from .group_records import RegexRecord, ResolvedRegex
from .group_state import Draft, GroupData
from .members import ConsumerMember

_RE2: Any = re2  # which has no types
_OPTIONS: Any = _RE2.Options()
_OPTIONS.log_errors = False


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


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """None unless the whole text matches."""
        ...


def compile_regex(regex: str) -> Pattern:
    """The compiled expression; KafkaError(INVALID_REGULAR_EXPRESSION)."""
    try:
        pattern: Pattern = _RE2.compile(regex, options=_OPTIONS)
    except _RE2.error as error:
        problem = error.args[0] if error.args else ""
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from None
    return pattern


def resolve(regex: str, view: TopicView) -> tuple[str, ...]:
    """The topics whose names match, sorted; none for an expression that RE2 cannot read."""
    try:
        pattern = compile_regex(regex)
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
    return frozenset(member.metadata.topics) | frozenset(
        () if resolved is None else resolved.topics
    )


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
