"""Prints the files of a log folder as Kafka's DumpLogSegments does: an independent check of storage (N1, B1-B4).

Depends on the file formats only, never on the classes that write them, so that its output shows the bytes of a file.
Each file type has its own module; `tool` dumps a list of files. A file is opened for reading only and never changed.
"""

from .messages import (
    CoordinatorParser,
    MessageParser,
    TextParser,
    offsets_parser,
    share_states_parser,
    transactions_parser,
)
from .source import DumpError, LogFiles, OpenFile
from .tool import DumpOptions, dump_files

__all__ = [
    "CoordinatorParser",
    "DumpError",
    "DumpOptions",
    "LogFiles",
    "MessageParser",
    "OpenFile",
    "TextParser",
    "dump_files",
    "offsets_parser",
    "share_states_parser",
    "transactions_parser",
]
