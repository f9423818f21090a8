"""A member of a share group that sends its own requests: ShareFetch, also with acknowledgements, ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import decode_records, headers
from raw_kafka import RawKafka
from waiting import until

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Said = tuple[int, int, int]
"""First offset, last offset, type."""


class RawShareMember:
    """One member on one connection; `link` leads the partitions that it fetches."""

    def __init__(
        self, link: RawKafka, group: str, topic_id: UUID, *, member: str = "member", partition: int = 0
    ) -> None:
        self.link = link
        self._group, self._topic_id, self._member, self._partition = group, topic_id, member, partition
        self.epoch = 0
        self.error = ErrorCode.none
        self.acknowledged = ErrorCode.none
        """The error of the acknowledgements that the last request carried."""

    def _topics(self, said: Sequence[Said]) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]} for first, last, kind in said
        ]
        partition = {"partition_index": self._partition, "acknowledgement_batches": batches}
        return [{"topic_id": self._topic_id, "partitions": [partition]}]

    def _who(self) -> dict[str, Any]:
        return {"group_id": self._group, "member_id": self._member, "share_session_epoch": self.epoch}

    def fetch(
        self, *said: Said, wait_ms: int = 500, most: int = 500, size: int = 500, version: int = 2, **fields: Any
    ) -> list[tuple[int, int, int]]:
        """Fetches, with acknowledgements; returns what was acquired: first offset, last offset, delivery count."""
        rows = self.fetched(*said, wait_ms=wait_ms, most=most, size=size, version=version, **fields)
        return [
            (part.first_offset, part.last_offset, part.delivery_count) for row in rows for part in row.acquired_records
        ]

    def values(self, **fields: Any) -> list[bytes]:
        """Fetches, and returns the values of the acquired records."""
        found: list[bytes] = []
        for row in self.fetched(wait_ms=500, most=500, size=500, version=2, **fields):
            data = bytes(row.records or b"")
            got = {o for part in row.acquired_records for o in range(part.first_offset, part.last_offset + 1)}
            records = [
                r
                for at, size, head in headers(data)
                if not head.is_control
                for r in decode_records(data[at : at + size])
            ]
            found += [bytes(r.value or b"") for r in records if r.offset in got]
        return found

    def fetched(self, *said: Said, wait_ms: int, most: int, size: int, version: int, **fields: Any) -> list[Any]:
        """The partitions of the response to a ShareFetch; the next request has the next epoch."""
        limits = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": most, "batch_size": size}
        answer = self.link.ask(
            ApiKey.SHARE_FETCH,
            version,
            topics=self._topics(said),
            forgotten_topics_data=[],
            **{**limits, **self._who(), **fields},
        )
        self._took(answer)
        rows = [row for topic in answer.responses for row in topic.partitions]
        if rows and self.error is ErrorCode.none:
            self.error = rows[0].error_code
            self.acknowledged = ErrorCode(rows[0].acknowledge_error_code)
        return rows

    def acknowledge(self, *said: Said, version: int = 2, **fields: Any) -> ErrorCode:
        """Sends a ShareAcknowledge; returns the error of the partition, or of the request."""
        answer = self.link.ask(
            ApiKey.SHARE_ACKNOWLEDGE, version, topics=self._topics(said), **{**self._who(), **fields}
        )
        self._took(answer)
        rows = [row for topic in answer.responses for row in topic.partitions]
        return ErrorCode(rows[0].error_code) if rows else self.error

    def _took(self, answer: Any) -> None:
        self.error = answer.error_code
        if self.error is ErrorCode.none:
            self.epoch = 0 if self.epoch == -1 else self.epoch + 1

    def end(self) -> None:
        """Ends the session."""
        self.epoch = -1
        self.fetch()


def initialized(find: Callable[[], int], group: str, topic_id: UUID, partition: int = 0, start: int = 0) -> None:
    """Makes the state of a share-partition, as a group coordinator does; `find`: the port of the share coordinator."""
    row = {"partition": partition, "state_epoch": 0, "start_offset": start}
    topics = [{"topic_id": topic_id, "partitions": [row]}]
    with RawKafka(find()) as raw:

        def asked() -> ErrorCode:
            answer = raw.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, group_id=group, topics=topics)
            return ErrorCode(answer.results[0].partitions[0].error_code)

        # the broker of the coordinator may not know the topic yet
        error = until(lambda: (found := asked()) is not ErrorCode.unknown_topic_or_partition and [found], "the topic")
    assert error == [ErrorCode.none], error
