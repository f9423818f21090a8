"""One log on disk, its recovery, and all logs of a broker, byte-compatible with Apache Kafka's.

    files, checkpoints, metadata_files    names, checkpoint files, small files of a folder
    indexes/                              offset, time and transaction index of a segment
    segment, segment_files, file_records  one segment; its files; the batches in its file
    producers/, leader_epochs             producer states and leader epoch cache of a log
    local_log, log_reads, log             the segments, the reads and the changes of one log
    tail, durability, flusher, retention  newest batches in memory; fsyncs; deletion of old segments
    opening/                              loading and recovery of a log folder
    compaction/                           the log cleaner
    log_folder, log_manager               one data folder; all logs of a broker

Synchronous; calls marked BLOCKS go through `tasks.run_blocking`.
"""

from .leader_epochs import EpochEntry, LeaderEpochs
from .log import Log
from .log_manager import LogManager
from .metadata_files import MetaProperties
from .opening.loader import LogOptions, open_log
from .producers.producer_states import ProducerStates
from .results import AppendInfo, FetchData, Origin

__all__ = [
    "AppendInfo",
    "EpochEntry",
    "FetchData",
    "LeaderEpochs",
    "Log",
    "LogManager",
    "LogOptions",
    "MetaProperties",
    "Origin",
    "ProducerStates",
    "open_log",
]
