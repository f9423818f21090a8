"""The compression codecs of record batches: gzip, snappy, lz4, zstd.

Snappy data has two formats: xerial's framing (Java clients) and a single raw block (librdkafka). Both are read;
xerial's framing is written, as Kafka does.
Data that does not decompress, or that claims a size above `DECOMPRESSED_BYTES_MAX`, is KafkaError(corrupt_message):
a client must not be able to use up the broker's memory with a few bytes (A6).

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
"""Largest decompressed size of a batch. Kafka has no bound, because it decompresses as a stream."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_XERIAL_BLOCK_SIZE = 32 * 1024
_ROOM_FIRST, _ROOM_EACH = 4 * 1024, 8
_NO_ROOM = "whole buffer"
"""Text in cramjam's error when the output does not fit; a test fails when a new cramjam words it differently."""
_SNAPPY_RATIO_MAX = 64
_BLOCK_LENGTH = struct.Struct(">i")


class Codec(IntEnum):
    """Compression codec of a batch: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, data: Buffer) -> bytes:
    """Returns the records' bytes; KafkaError(corrupt_message) when `data` is not valid for `codec`."""
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
        raise KafkaError(ErrorCode.corrupt_message, f"records are not valid {name}: {error}") from None
    raise KafkaError(ErrorCode.corrupt_message, f"unknown compression codec {codec}")


def _bounded(into: Callable[[bytes, bytearray], int], data: bytes) -> bytes:
    """Decompresses into a buffer that grows until the output fits, up to `DECOMPRESSED_BYTES_MAX`."""
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
            assert size <= len(out) <= DECOMPRESSED_BYTES_MAX, f"{size} bytes exceed the buffer"
            return bytes(memoryview(out)[:size])


def _raw_snappy(data: bytes, left: int) -> bytes:
    """Decompresses a raw block of at most `left` decompressed bytes; the block begins with that size."""
    size = cramjam.snappy.decompress_raw_len(data)
    if size > min(left, _SNAPPY_RATIO_MAX * len(data)):
        raise ValueError(f"a block of {len(data)} bytes claims to hold {size} decompressed bytes")
    return bytes(cramjam.snappy.decompress_raw(data))


def compress(codec: int, data: Buffer) -> bytes:
    """Compresses `data` in the format that a batch with this codec holds."""
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
    # Kafka's lz4 reader refuses blocks that depend on earlier blocks ("Dependent block stream").
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
            raise ValueError(f"the snappy block of {size} bytes at byte {position} is truncated")
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
