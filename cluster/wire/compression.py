"""The codecs of record batches: gzip, snappy, lz4, zstd.

Snappy comes in two shapes: xerial's framing (Java) and one raw block (librdkafka); both are read,
xerial's is written, as Kafka does. What cannot be decompressed is KafkaError(corrupt_message).

Source: Kafka's `CompressionType`; `org.xerial.snappy.SnappyOutputStream`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import cramjam

from ..errors import ErrorCode, KafkaError
from ..host.seam import Buffer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_XERIAL_BLOCK_SIZE = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")


class Codec(IntEnum):
    """Attribute bits 0 to 2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, data: Buffer) -> bytes:
    """The records' bytes; KafkaError(corrupt_message) when `data` is not what `codec` writes."""
    if codec == Codec.NONE:
        return bytes(data)
    try:
        if codec == Codec.GZIP:
            return bytes(cramjam.gzip.decompress(bytes(data)))
        if codec == Codec.SNAPPY:
            return _decompress_snappy(bytes(data))
        if codec == Codec.LZ4:
            return bytes(cramjam.lz4.decompress(bytes(data)))
        if codec == Codec.ZSTD:
            return bytes(cramjam.zstd.decompress(bytes(data)))
    except (cramjam.DecompressionError, struct.error, ValueError) as error:
        name = Codec(codec).name.lower()
        raise KafkaError(
            ErrorCode.corrupt_message, f"records are not valid {name}: {error}"
        ) from None
    raise KafkaError(ErrorCode.corrupt_message, f"unknown compression codec {codec}")


def compress(codec: int, data: Buffer) -> bytes:
    """`data` as a batch of that codec holds it."""
    raw = bytes(data)
    if codec == Codec.NONE:
        return raw
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(raw))
    if codec == Codec.SNAPPY:
        return _compress_xerial(raw)
    if codec == Codec.LZ4:
        return _compress_lz4(raw)
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(raw))
    raise ValueError(f"unknown compression codec {codec}")


def _compress_lz4(data: bytes) -> bytes:
    # Kafka's reader refuses blocks that depend on one another ("Dependent block stream")
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    parts: list[bytes] = []
    position = _XERIAL_HEADER_SIZE
    while position < len(data):
        (size,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if size < 0 or position + size > len(data):
            raise ValueError(f"snappy block of {size} bytes at byte {position} is cut off")
        parts.append(bytes(cramjam.snappy.decompress_raw(data[position : position + size])))
        position += size
    return b"".join(parts)


def _compress_xerial(data: bytes) -> bytes:
    parts = [XERIAL_MAGIC, _BLOCK_LENGTH.pack(1), _BLOCK_LENGTH.pack(1)]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        parts += [_BLOCK_LENGTH.pack(len(block)), block]
    return b"".join(parts)
