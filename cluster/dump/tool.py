"""Dumps a list of files as Kafka's DumpLogSegments does: by suffix, with a report of all mismatches.

Owns: the choice of the module by suffix, and the report on the error stream: entries of offset and time indexes
that do not match the log, and non-consecutive offsets. A file with an unknown suffix is ignored, with a message.
The report follows the order of the files (Kafka's follows the order of a hash table).
Source: Kafka 4.4's `DumpLogSegments.main`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .log import LogDump, LogDumpOptions
from .messages import MessageParser, TextParser
from .offset_index import IndexOptions, dump_index
from .snapshot import dump_snapshot
from .source import LogFiles, Streams, Write, name_of
from .time_index import TimeIndexErrors, dump_time_index
from .txn_index import dump_txn_index

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What the tool prints; the defaults are those of Kafka's tool."""

    log: LogDumpOptions = field(default_factory=LogDumpOptions)
    index: IndexOptions = field(default_factory=IndexOptions)
    parser: MessageParser = field(default_factory=TextParser)


@dataclass(slots=True)
class _MismatchReport:
    """The mismatches of all files, by absolute path, in the order of the files."""

    indexes: dict[str, Pairs] = field(default_factory=dict[str, Pairs])
    times: dict[str, TimeIndexErrors] = field(default_factory=dict[str, TimeIndexErrors])
    gaps: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])

    def print(self, err: Write) -> bool:
        """Prints the report; True when an index does not match its log."""
        for path, pairs in self.indexes.items():
            err(f"Mismatches in :{path}\n")
            # as in Kafka: each indexed offset once, the greatest one first
            for said, found in sorted(dict(pairs).items(), reverse=True):
                err(f"  Index offset: {said}, log offset: {found}\n")
        self._print_times(err)
        for path, gaps in self.gaps.items():
            err(f"Non-consecutive offsets in {path}\n")
            for first, second in sorted(gaps.items()):
                err(f"  {first} is followed by {second}\n")
        return bool(self.indexes or self.times)

    def _print_times(self, err: Write) -> None:
        for path, errors in self.times.items():
            if errors.mismatched:
                err(f"Found timestamp mismatch in :{path}\n")
            for said, found in errors.mismatched:
                err(f"  Index timestamp: {said}, log timestamp: {found}\n")
        for path, errors in self.times.items():
            if errors.out_of_order:
                err(f"Found out of order timestamp in :{path}\n")
            for said, before in errors.out_of_order:
                err(f"  Index timestamp: {said}, Previously indexed timestamp: {before}\n")
        for path, errors in self.times.items():
            if errors.not_found:
                err(f"The following indexed offsets are not found in :{path}\n")
            for said, found in errors.not_found:
                err(f"Indexed offset: {said}, found log offset: {found}\n")


def dump_files(files: LogFiles, paths: Iterable[str], options: DumpOptions, *, out: Write, err: Write) -> bool:
    """Prints every file; True when all indexes match their logs. DumpError or OSError ends the dump early."""
    streams = Streams(out, err)
    report = _MismatchReport()
    for path in paths:
        out(f"Dumping {path}\n")
        _dump(files, streams, path, options, report)
    return not report.print(err)


def _dump(files: LogFiles, streams: Streams, path: str, options: DumpOptions, report: _MismatchReport) -> None:
    absolute = files.absolute(path)
    suffix = name_of(path).rpartition(".")
    match suffix[1] + suffix[2]:
        case ".log" | ".checkpoint":
            log = LogDump(files, streams, options.log, options.parser)
            log.run(path)
            if log.gaps:
                report.gaps[absolute] = log.gaps
        case ".index":
            mismatches = dump_index(files, streams, path, options.index)
            if mismatches:
                report.indexes[absolute] = mismatches
        case ".timeindex":
            errors = dump_time_index(files, streams, path, options.index)
            if errors.mismatched or errors.out_of_order or errors.not_found:
                report.times[absolute] = errors
        case ".snapshot":
            dump_snapshot(files, streams, path)
        case ".txnindex":
            dump_txn_index(files, streams, path)
        case _:
            streams.err(f"Ignoring unknown file {path}\n")
