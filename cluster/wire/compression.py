"""The codecs of record batches: gzip, snappy, lz4, zstd.

Snappy comes in two shapes: xerial's framing (Java) and one raw block (librdkafka); both are read,
xerial's is written, as Kafka does. What cannot be decompressed, or says that it is larger than anybody's batch, is
KafkaError(corrupt_message): a few bytes from a client may not take all memory (A6).

Source: Kafka's `CompressionType`; `org.xerial.snappy.SnappyOutputStream`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from ..errors import ErrorCode, KafkaError
from ..host.seam import Buffer

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Of one batch; Kafka, which walks the stream, has no bound."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_XERIAL_BLOCK_SIZE = 32 * 1024
_ROOM_FIRST, _ROOM_EACH = 4 * 1024, 8
_NO_ROOM = "whole buffer"
"""What cramjam says when the output does not fit; tests notice when it says so otherwise."""
_SNAPPY_RATIO_MAX = 64
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
            return _bounded(cramjam.gzip.decompress_into, bytes(data))
        if codec == Codec.SNAPPY:
            return _decompress_snappy(bytes(data))
        if codec == Codec.LZ4:
            return _bounded(cramjam.lz4.decompress_into, bytes(data))
        if codec == Codec.ZSTD:
            return _bounded(cramjam.zstd.decompress_into, bytes(data))
    except (cramjam.DecompressionError, struct.error, ValueError) as error:
        name = Codec(codec).name.lower()
        raise KafkaError(
            ErrorCode.corrupt_message, f"records are not valid {name}: {error}"
        ) from None
    raise KafkaError(ErrorCode.corrupt_message, f"unknown compression codec {codec}")


def _bounded(into: Callable[[bytes, bytearray], int], data: bytes) -> bytes:
    """Decompress with as much room as it takes, up to the bound."""
    room = _ROOM_FIRST + _ROOM_EACH * len(data)
    while True:
        out = bytearray(min(room, DECOMPRESSED_BYTES_MAX))
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error) or room >= DECOMPRESSED_BYTES_MAX:
                raise
            room *= _ROOM_EACH
        else:
            return bytes(memoryview(out)[:size])


def _raw_snappy(data: bytes, left: int) -> bytes:
    """One block of at most `left` bytes; it says at its front how many."""
    size = cramjam.snappy.decompress_raw_len(data)
    if size > min(left, _SNAPPY_RATIO_MAX * len(data)):
        raise ValueError(f"a block of {len(data)} bytes says that it holds {size}")
    return bytes(cramjam.snappy.decompress_raw(data))


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
        return _raw_snappy(data, DECOMPRESSED_BYTES_MAX)
    parts: list[bytes] = []
    position, left = _XERIAL_HEADER_SIZE, DECOMPRESSED_BYTES_MAX
    while position < len(data):
        (size,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if size < 0 or position + size > len(data):
            raise ValueError(f"snappy block of {size} bytes at byte {position} is cut off")
        parts.append(_raw_snappy(data[position : position + size], left))
        left -= len(parts[-1])
        position += size
    return b"".join(parts)


def _compress_xerial(data: bytes) -> bytes:
    parts = [XERIAL_MAGIC, _BLOCK_LENGTH.pack(1), _BLOCK_LENGTH.pack(1)]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        parts += [_BLOCK_LENGTH.pack(len(block)), block]
    return b"".join(parts)
