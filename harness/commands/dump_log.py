"""`harrow dump-log`: the files of a log folder, in the words and with the options of Kafka's DumpLogSegments (N1).

Owns: the command line and the files behind it, opened for reading only. What is printed is `harrow.cluster.dump`'s.
Exit code 0 when every file was dumped (Kafka's too, whatever it complained about), 1 when one could not be read on.

Not here: decoders for cluster metadata, remote log metadata and share group state, whose records no log of
Harrow's holds, and decoder classes of one's own, which are Java.
Source: Kafka's `DumpLogSegments.DumpLogSegmentsOptions`.
"""

from __future__ import annotations

import os
import re
import sys

import click
from harrow.cluster import HarrowError
from harrow.cluster.dump import (
    DumpOptions,
    MessageParser,
    TextParser,
    dump_files,
    offsets_parser,
    transactions_parser,
)
from harrow.cluster.dump.batches import MAX_INT
from harrow.cluster.dump.log import LogOptions
from harrow.cluster.dump.messages import DECODERS
from harrow.cluster.dump.offset_index import IndexOptions

STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
NOT_HERE = ("cluster-metadata-decoder", "remote-log-metadata-decoder", "share-group-state-decoder")


class ReadOnlyFile:
    """A file that is read at positions."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end."""
        return os.pread(self._fd, size, position)

    def size(self) -> int:
        """Bytes in it."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give it back; closing twice is no error."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileSystem:
    """The machine's files, for reading."""

    def open(self, path: str) -> ReadOnlyFile:
        """OSError where it cannot be."""
        return ReadOnlyFile(path)

    def absolute(self, path: str) -> str:
        """Prefixed by the working folder."""
        return path if path.startswith("/") else f"{os.getcwd()}/{path}"


def java_path(path: str) -> str:
    """As `java.io.File` writes it: no doubled slash, none at the end."""
    single = re.sub("/+", "/", path)
    return single.rstrip("/") or single[:1]


def _refuse(ctx: click.Context, option: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    if value:
        raise click.UsageError(
            f"{option.opts[0]} is not here: no log of Harrow's holds such records; Kafka's own tool reads them"
        )


def _parser(
    offsets: bool, transactions: bool, key_decoder: str | None, value_decoder: str | None
) -> MessageParser:
    if offsets:
        return offsets_parser()
    if transactions:
        return transactions_parser()
    names = (key_decoder or STRING_DECODER, value_decoder or STRING_DECODER)
    for name in names:
        if name not in DECODERS:
            raise click.UsageError(
                f"decoder class {name} is not here; there are {', '.join(DECODERS)}"
            )
    return TextParser(DECODERS[names[0]], DECODERS[names[1]])


def _not_here(command: click.Command) -> click.Command:
    """Give `command` the options that only Kafka's tool can fulfil."""
    for name in NOT_HERE:
        option = click.Option(
            [f"--{name}"], is_flag=True, expose_value=False, hidden=True, callback=_refuse
        )
        command.params.append(option)
    return command


@click.command()
@click.option("--files", required=True, help="files to dump, separated by commas")
@click.option("--deep-iteration", is_flag=True, help="a line for each record too")
@click.option("--print-data-log", is_flag=True, help="keys and values too; means --deep-iteration")
@click.option("--skip-record-metadata", is_flag=True, help="of a record only key and value")
@click.option(
    "--max-bytes", type=click.IntRange(0, MAX_INT), default=MAX_INT, help="of each .log file"
)
@click.option(
    "--max-message-size",
    type=click.IntRange(0, MAX_INT),
    default=IndexOptions().max_message_size,
    help="largest batch that an offset index may point to",
)
@click.option(
    "--verify-index-only", is_flag=True, help="compare indexes with their log, in silence"
)
@click.option("--index-sanity-check", is_flag=True, help="only what a broker checks at its start")
@click.option("--offsets-decoder", is_flag=True, help="records are those of __consumer_offsets")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="records are those of __transaction_state"
)
@click.option(
    "--key-decoder-class", is_flag=False, flag_value=STRING_DECODER, help="one of Kafka's decoders"
)
@click.option(
    "--value-decoder-class",
    is_flag=False,
    flag_value=STRING_DECODER,
    help="one of Kafka's decoders",
)
def command(
    files: str,
    deep_iteration: bool,
    print_data_log: bool,
    skip_record_metadata: bool,
    max_bytes: int,
    max_message_size: int,
    verify_index_only: bool,
    index_sanity_check: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
) -> None:
    """The files of a log folder, printed as Kafka's DumpLogSegments prints them."""
    named = key_decoder_class is not None or value_decoder_class is not None
    contents = print_data_log or offsets_decoder or transaction_log_decoder or named
    options = DumpOptions(
        log=LogOptions(
            deep=deep_iteration or contents,
            print_contents=contents,
            skip_record_metadata=skip_record_metadata,
            max_bytes=max_bytes,
        ),
        index=IndexOptions(
            sanity_only=index_sanity_check,
            verify_only=verify_index_only,
            max_message_size=max_message_size,
        ),
        parser=_parser(
            offsets_decoder, transaction_log_decoder, key_decoder_class, value_decoder_class
        ),
    )
    _run([java_path(path) for path in files.rstrip(",").split(",")], options)


_not_here(command)


def _run(paths: list[str], options: DumpOptions) -> None:
    out, err = sys.stdout.buffer, sys.stderr.buffer

    def complain(text: str) -> None:
        out.flush()
        err.write(text.encode(errors="surrogateescape"))

    try:
        dump_files(
            FileSystem(),
            paths,
            options,
            out=lambda text: out.write(text.encode(errors="surrogateescape")),
            err=complain,
        )
    except OSError as error:
        if error.filename is None:
            raise  # the pipe that it prints to
        raise HarrowError(f"{error.filename}: {error.strerror}") from None
    finally:
        out.flush()
