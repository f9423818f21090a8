"""Names of topics by id, as far as responses that passed the proxy say them.

Owns: the names, for all brokers of one proxy. Clients learn an id from Metadata, DescribeTopicPartitions or
CreateTopics, so the proxy has it before a client uses it, unless the client learnt it elsewhere. An id without a name
stands for itself, as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.topic_ids import UUID

ID_VERSIONS: Mapping[int, int] = {
    ApiKey.METADATA: 10, ApiKey.CREATE_TOPICS: 7, ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}  # fmt: skip
"""APIs whose responses have names with ids, and the first version that does."""


class TopicNames:
    """The topics of one cluster."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}

    def learns_from(self, api_key: int, version: int) -> bool:
        """Whether `learn` reads this response."""
        first = ID_VERSIONS.get(api_key)
        return first is not None and version >= first

    def learn(self, api_key: int, version: int, frame: bytes, body_at: int) -> None:
        """Remember the topics of a response; WireError when it does not decode."""
        entity: Any = messages.decode_response(api_key, version, frame, body_at)
        for topic in entity.topics:
            if topic.name and topic.topic_id is not None:
                self._names[topic.topic_id] = str(topic.name)

    def name(self, topic: str | UUID) -> str:
        """The name of a topic that a message names by its name or its id."""
        return topic if isinstance(topic, str) else self._names.get(topic) or str(topic)
