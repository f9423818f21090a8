"""Dumps `.txnindex` files: 34-byte entries, one for each transaction that was aborted in the segment (KIP-98).

    version i2 · producer id i8 · first offset i8 · last offset i8 · last stable offset i8

A partial entry at the end is ignored. Source: Kafka's `TransactionIndex`, `AbortedTxn`.
"""

from __future__ import annotations

import struct

from .offset_index import read_whole
from .source import DumpError, LogFiles, Streams, base_offset_of

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


def dump_txn_index(files: LogFiles, streams: Streams, path: str) -> None:
    """Prints the file; DumpError for an entry of a later version, before any line is printed."""
    base_offset_of(path)
    data = read_whole(files, path)
    whole = memoryview(data)[: len(data) // ENTRY.size * ENTRY.size]
    lines: list[str] = []
    for version, producer_id, first, last, stable in ENTRY.iter_unpack(whole):
        if version > VERSION:
            raise DumpError(
                f"Unexpected aborted transaction version {version} in transaction index "
                f"{files.absolute(path)}, current version is {VERSION}"
            )
        lines.append(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}\n"
        )
    streams.out("".join(lines))
