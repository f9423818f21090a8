"""A compacted topic takes no record without a key: compaction could never say which one it supersedes (B8).

Only appends to compacted topics pay for it: their records are walked, decompressed where they are compressed.
Fails with KafkaError(invalid_record), naming topic, batch and record; nothing is appended then.
Source: Kafka's `LogValidator.validateKey`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CorruptLogError, ErrorCode, KafkaError
from ..host.seam import Buffer
from ..ids import TopicPartition
from ..wire.batch_header import HEADER_SIZE, PlacedBatch
from ..wire.compression import decompress
from .record_filter import record_spans


def require_keys(log: TopicPartition, records: Buffer, batches: Sequence[PlacedBatch]) -> None:
    """Refuse `batches` of `records`, whose CRCs were checked, when one of their records has no key."""
    view = memoryview(records)
    for number, (position, size, header) in enumerate(batches):
        if header.is_control:
            continue
        data = decompress(header.codec, view[position + HEADER_SIZE : position + size])
        try:
            spans = record_spans(data, header.record_count)
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.invalid_record, str(error)) from None
        for index, (_, _, _, key, _) in enumerate(spans):
            if key is None:
                raise KafkaError(
                    ErrorCode.invalid_record,
                    f"compacted topic {log.topic} takes no record without a key: "
                    f"record {index} of batch {number} for {log}",
                )
