"""A compacted topic refuses records without a key: compaction finds superseded records by key (B8).

Only appends to compacted topics have this cost: their records are walked, and decompressed before if necessary.
What may fail: KafkaError(invalid_record), which names topic and record; nothing is appended then.
Source: Kafka's `LogValidator.validateKey`.
"""

from __future__ import annotations

from ..errors import CorruptLogError, ErrorCode, KafkaError
from ..host.seam import Buffer
from ..ids import TopicPartition
from ..wire.batch_header import HEADER_SIZE, BatchHeader
from ..wire.compression import decompress
from .record_spans import record_spans


def require_keys(log: TopicPartition, records: Buffer, header: BatchHeader) -> None:
    """Refuse the batch `records`, whose CRC was checked, when one of its records has no key."""
    if header.is_control:
        return
    data = decompress(header.codec, memoryview(records)[HEADER_SIZE : header.size])
    try:
        spans = record_spans(data, header.record_count)
    except CorruptLogError as error:
        raise KafkaError(ErrorCode.invalid_record, str(error)) from None
    for index, (_, _, _, key, _) in enumerate(spans):
        if key is None:
            raise KafkaError(
                ErrorCode.invalid_record,
                f"compacted topic {log.topic} takes no record without a key: record {index} for {log} has none; "
                "send a key, or set cleanup.policy=delete",
            )
