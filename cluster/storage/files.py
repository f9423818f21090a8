"""Names in a log folder and in a data folder, as Kafka spells them.

A segment's files are named by its base offset in 20 digits; a partition's folder is `<topic>-<partition>`.
Source: Kafka's `LogFileUtils`, `LocalLog.parseTopicPartitionName`.
"""

from __future__ import annotations

from ..ids import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_FILES = (LOG, *INDEXES)

DELETED_FOLDER = "-delete"
FUTURE_FOLDER = "-future"
FOLDER_NAME_MAX = 255

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_DIGITS = 20


def file_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log`."""
    return f"{base_offset:0{_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The base offset in the name of a file with exactly this suffix; None for any other name."""
    if not name.endswith(suffix):
        return None
    digits = name[: -len(suffix)]
    return int(digits) if len(digits) == _DIGITS and digits.isdecimal() else None


def partition_of(folder: str) -> TopicPartition | None:
    """The partition of a log folder's name; None for other folders and `-delete`d ones."""
    topic, dash, number = folder.rpartition("-")
    if not topic or not dash or not number.isdecimal():
        return None
    return TopicPartition(topic, int(number))


def deleted_folder_name(partition: TopicPartition, unique: str) -> str:
    """`<topic>-<partition>.<unique>-delete`, the topic cut to the limit of file systems."""
    suffix = f"-{partition.partition}.{unique}{DELETED_FOLDER}"
    return partition.topic[: FOLDER_NAME_MAX - len(suffix)] + suffix
