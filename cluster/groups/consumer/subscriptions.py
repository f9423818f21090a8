r"""What a consumer group subscribes to: names, regular expressions, and the hash of the topics' metadata.

Owns: how regular expressions are read and resolved, and the hash that shows a changed topic.

A regular expression must match the whole name, as in Kafka. Kafka has RE2, Harrow Python's `re`:

* what RE2 lacks (look-around, backreferences, atomic groups, possessive quantifiers) is refused in the same way;
* `\z` means the end of the text, as in RE2;
* what only RE2 has (`\pN`, `\Q…\E`, `[[:alpha:]]`, `\C`) is refused or read as Python reads it;
* RE2 takes linear time; Python may take long for nested quantifiers such as `(a+)+`.

Source: KIP-848; Kafka's Utils.computeGroupHash, GroupMetadataManager.refreshRegularExpressions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from ...errors import ErrorCode, KafkaError
from ...wire.topic_ids import UUID
from .group_records import RegexRecord, ResolvedRegex
from .group_state import Draft, GroupData
from .members import ConsumerMember

ONLY_IN_PYTHON = re.compile(
    r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9]|[*+?}]\+)", re.ASCII
)
"""Syntax that RE2 does not have."""


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


def compile_regex(regex: str) -> re.Pattern[str]:
    """The compiled expression; KafkaError(INVALID_REGULAR_EXPRESSION)."""
    problem = ""
    if ONLY_IN_PYTHON.search(regex):
        problem = "invalid or unsupported Perl syntax"
    else:
        try:
            return re.compile(regex.replace(r"\z", r"\Z"))
        except (re.error, RecursionError, OverflowError) as error:
            problem = str(error)
    raise KafkaError(
        ErrorCode.invalid_regular_expression,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {problem}.",
    )


def resolve(regex: str, view: TopicView) -> tuple[str, ...]:
    """The topics whose names match, sorted; none for an expression that Python cannot read."""
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
