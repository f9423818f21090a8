"""Names of topics by id, as far as responses that passed the proxy say them.

Owns: the names, for all brokers of one proxy. Clients learn an id from Metadata, DescribeTopicPartitions or
CreateTopics, so the proxy has it before a client uses it, unless the client learnt it elsewhere. An id without a name
stands for itself, as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.topic_ids import UUID

ID_VERSIONS: Mapping[int, int] = {ApiKey.METADATA: 10, ApiKey.CREATE_TOPICS: 7, ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0}
"""APIs whose responses have names with ids, and the first version that does."""


class TopicNames:
    """The topics of one cluster."""

    __slots__ = ("_ids", "_names")

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}
        self._ids: dict[str, UUID] = {}
        """The id of a name that was learnt last."""

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
                self._ids[str(topic.name)] = topic.topic_id

    def name(self, topic: str | UUID) -> str:
        """The name of a topic that a message names by its name or its id."""
        return topic if isinstance(topic, str) else self._names.get(topic) or str(topic)

    def mark(self, topic: str | UUID) -> int:
        """The CRC-32 of the id of a topic, 0 where it is not known: a topic that is created again has another one."""
        topic_id = self._ids.get(topic) if isinstance(topic, str) else topic
        return 0 if topic_id is None else crc32(topic_id.bytes)
