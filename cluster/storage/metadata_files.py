"""Small files that say whose a folder is and how it was left.

    partition.metadata      version: 0 / topic_id: <base64url>                  one for each partition
    meta.properties         version=0, cluster.id, broker.id, directory.id      one for each data folder
    .kafka_cleanshutdown    {"version":0,"brokerEpoch":N}                       only after a clean stop

Source: Kafka's `PartitionMetadataFile`, `MetaProperties`, `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ..errors import CorruptLogError
from ..host.seam import Disk
from .files import CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA

_TOPIC_ID = re.compile(r"[\w-]{22}", re.ASCII)


def write_topic_id(disk: Disk, folder: str, topic_id: str) -> None:
    """Say which topic (not only which name) the partition folder belongs to; durable with the log's first flush."""
    text = f"version: 0\ntopic_id: {topic_id}"
    disk.replace(f"{folder}/{PARTITION_METADATA}", text.encode(), durable=False)


def read_topic_id(disk: Disk, folder: str) -> str:
    """The topic id in base64url; "" where there is no file. CorruptLogError when malformed."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        lines = disk.read(path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    for number, (key, line) in enumerate(zip(("version", "topic_id"), lines, strict=False), 1):
        name, colon, _ = line.partition(":")
        if name.strip() != key or not colon:
            raise CorruptLogError(f"{path}:{number}: {line!r}, expected `{key}: …`")
    if len(lines) != 2 or lines[0].partition(":")[2].strip() != "0":
        raise CorruptLogError(f"{path}: expected `version: 0` and `topic_id: …`, found {lines!r}")
    text = lines[1].partition(":")[2].strip()
    if not _TOPIC_ID.fullmatch(text):
        raise CorruptLogError(f"{path}:2: {text!r} is not a topic id; remove the file to start without it")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of a data folder: a broker refuses a folder of another cluster or broker."""

    cluster_id: str
    broker_id: int
    directory_id: str = ""
    """Identifies the folder under any mount point (KIP-858); "" in a file of an older broker."""

    def write(self, disk: Disk, folder: str) -> None:
        """BLOCKS briefly."""
        text = f"#\nversion=0\ncluster.id={self.cluster_id}\nbroker.id={self.broker_id}\n"
        if self.directory_id:
            text += f"directory.id={self.directory_id}\n"
        disk.replace(f"{folder}/{META_PROPERTIES}", text.encode())

    @classmethod
    def read(cls, disk: Disk, folder: str) -> MetaProperties | None:
        """The file's content; None in a new folder; CorruptLogError when it is malformed.

        KRaft's version 1, in which a broker's id is `node.id`, is read too.
        """
        path = f"{folder}/{META_PROPERTIES}"
        try:
            lines = disk.read(path).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return None
        rows = (line.partition("=") for line in lines if line and not line.startswith("#"))
        values = {name.strip(): value.strip() for name, _, value in rows}
        try:
            return cls(
                cluster_id=values["cluster.id"],
                broker_id=int(values.get("broker.id") or values["node.id"]),
                directory_id=values.get("directory.id", ""),
            )
        except (KeyError, ValueError) as error:
            raise CorruptLogError(f"{path}: no usable cluster.id and broker.id ({error})") from None


def write_clean_shutdown(disk: Disk, folder: str, broker_epoch: int) -> None:
    """BLOCKS briefly. Record that every log in `folder` was closed, flushed and checkpointed."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.replace(f"{folder}/{CLEAN_SHUTDOWN}", content.encode())


def remove_clean_shutdown(disk: Disk, folder: str) -> None:
    """BLOCKS briefly. Remove the marker durably; no error where there is none.

    Otherwise a power loss soon after the start would count as a clean shutdown.
    """
    path = f"{folder}/{CLEAN_SHUTDOWN}"
    if disk.exists(path):
        disk.remove(path)
        disk.sync_file(folder)


def read_clean_shutdown(disk: Disk, folder: str) -> tuple[bool, int]:
    """Return whether the shutdown was clean, and its broker epoch or -1."""
    try:
        data = disk.read(f"{folder}/{CLEAN_SHUTDOWN}")
    except FileNotFoundError:
        return False, -1
    try:
        content: Any = json.loads(data)
        return True, int(content["brokerEpoch"])
    except (ValueError, KeyError, TypeError):  # empty before Kafka 3.7: a clean shutdown, too
        return True, -1
