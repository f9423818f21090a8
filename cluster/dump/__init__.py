"""Reading the files of a log folder as Kafka's DumpLogSegments prints them: the judge's half of storage (N1, B1-B4).

Depends on formats only, never on the classes that write them: what it prints is what lies in the bytes. One file a
file type; `tool` goes over many. Nothing is ever changed, and a file is opened for reading only.
"""

from .messages import (
    CoordinatorParser,
    MessageParser,
    TextParser,
    offsets_parser,
    transactions_parser,
)
from .source import DumpError, Reader, Source
from .tool import DumpOptions, dump_files

__all__ = [
    "CoordinatorParser",
    "DumpError",
    "DumpOptions",
    "MessageParser",
    "Reader",
    "Source",
    "TextParser",
    "dump_files",
    "offsets_parser",
    "transactions_parser",
]
