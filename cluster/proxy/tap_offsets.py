"""Rows of offsets of groups: committed, sent in transactions, and read. Layout and meaning: `tap/layouts.py`.

Owns: no state. A commit whose response did not arrive may be in the log or not: its row has the error
REQUEST_TIMED_OUT. So has each offset of a transaction, beside its row of OFFSET_SENT, because no client sees when its
marker makes it valid. A commit that the coordinator refused has a row with its error, whether or not it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import ErrorCode
from ..host.seam import OFFSET_COMMITTED, OFFSET_READ, OFFSET_SENT, Committer, Tap
from ..ids import TopicPartition
from ..wire import messages
from .pending import PendingRequest
from .topic_names import TopicNames

Offset = tuple[TopicPartition, int]


def decode_request(request: PendingRequest) -> Any:
    """Return the entity of a request whose bytes were kept."""
    read = messages.request_reader(request.api_key, request.version)
    return read(request.frame, request.body_at)[0]


def decode_response(request: PendingRequest, response: bytes, body_at: int) -> Any:
    """Return the entity of the response to a request."""
    return messages.decode_response(request.api_key, request.version, response, body_at)


class TappedOffsets:
    """The requests of a group coordinator that read and write offsets."""

    def __init__(self, tap: Tap, names: TopicNames) -> None:
        self._tap = tap
        self._names = names

    def committed(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """OffsetCommit: the result of each partition."""
        body = decode_request(request)
        self._commit(request, body, decode_response(request, response, body_at))

    def unanswered(self, request: PendingRequest) -> None:
        """OffsetCommit without a response."""
        self._commit(request, decode_request(request), None)

    def _commit(self, request: PendingRequest, body: Any, answer: Any) -> None:
        by = Committer(
            request.client_id,
            getattr(body, "member_id", ""),
            getattr(body, "generation_id_or_member_epoch", getattr(body, "generation_id", -1)),
        )
        self._write(request, body, answer, by, OFFSET_COMMITTED)

    def sent(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """TxnOffsetCommit: offsets that become valid with their transaction."""
        body = decode_request(request)
        by = Committer(
            request.client_id,
            getattr(body, "member_id", ""),
            getattr(body, "generation_id_or_member_epoch", getattr(body, "generation_id", -1)),
            body.producer_id,
            body.producer_epoch,
        )
        self._write(request, body, decode_response(request, response, body_at), by, OFFSET_SENT)
        self._write(request, body, None, by, OFFSET_COMMITTED)

    def _write(self, request: PendingRequest, body: Any, answer: Any, by: Committer, kind: int) -> None:
        errors = dict(self._errors(answer))
        by_error: dict[int, list[Offset]] = {}
        for topic in body.topics:
            name = self._name(topic)
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                error = errors.get(tp, int(ErrorCode.request_timed_out))
                by_error.setdefault(error, []).append((tp, row.committed_offset))
        for error, offsets in by_error.items():
            if not error or kind == OFFSET_COMMITTED:
                self._tap.committed(
                    body.group_id, offsets, error=error, invoked_ns=request.invoked_ns, by=by, kind=kind
                )

    def _errors(self, answer: Any) -> Iterator[tuple[TopicPartition, int]]:
        for topic in () if answer is None else answer.topics:
            name = self._name(topic)
            for row in topic.partitions:
                yield TopicPartition(name, row.partition_index), int(row.error_code)

    def read(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """OffsetFetch: the offsets that the response has."""
        answer = decode_response(request, response, body_at)
        if hasattr(answer, "groups"):
            for group in answer.groups:
                self._read(request, group.group_id, group.topics)
        else:
            self._read(request, decode_request(request).group_id, answer.topics)

    def _read(self, request: PendingRequest, group_id: str, topics: Iterable[Any]) -> None:
        offsets = [
            (TopicPartition(self._name(topic), row.partition_index), row.committed_offset)
            for topic in topics
            for row in topic.partitions
            if row.committed_offset >= 0 and not row.error_code
        ]
        self._tap.committed(
            group_id, offsets, error=0, invoked_ns=request.invoked_ns, by=Committer(request.client_id), kind=OFFSET_READ
        )

    def _name(self, topic: Any) -> str:
        named: str | None = getattr(topic, "name", None)
        return named if named is not None else self._names.name(topic.topic_id)
