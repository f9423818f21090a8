"""Reads the files that brokers wrote, for assertions: the codec of every batch in a partition's log files."""

from __future__ import annotations

import struct
from pathlib import Path

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def codecs_on_disk(cluster_folder: Path, topic: str) -> dict[int, set[str]]:
    """Returns by node id the codecs in the attributes of all batches of `topic`."""
    found: dict[int, set[str]] = {}
    for log in cluster_folder.glob(f"broker-*/data/{topic}-*/*.log"):
        node = int(log.relative_to(cluster_folder).parts[0].split("-")[1])
        data, at = log.read_bytes(), 0
        while at + 61 <= len(data):
            (size,) = struct.unpack_from(">i", data, at + 8)
            (attributes,) = struct.unpack_from(">h", data, at + 21)
            found.setdefault(node, set()).add(CODECS[attributes & 7])
            at += 12 + size
    return found
