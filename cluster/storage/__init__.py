"""One log on disk, its recovery, and all logs of a broker, byte-compatible with Apache Kafka's.

    results → files, checkpoints, metadata_files → leader_epochs, *_index, producer_* → segment, tail
    → recovery, local_log → log → loader, retention → log_manager

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
