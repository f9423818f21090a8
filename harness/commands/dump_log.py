"""`harrow dump-log`: prints the files of a log folder, with the output and the options of Kafka's DumpLogSegments (N1).

Owns: the command line, and the files, which it opens for reading only. `harrow.cluster.dump` makes the output.
Exit code 0 when every file was dumped (as in Kafka, also when the report lists mismatches), 1 when a file could not
be read to its end.

Not supported: decoders for cluster metadata and remote log metadata, because no log of Harrow holds such records, and
the user's own decoder classes, because they are Java.
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
    share_states_parser,
    transactions_parser,
)
from harrow.cluster.dump.batches import MAX_INT
from harrow.cluster.dump.log import LogDumpOptions
from harrow.cluster.dump.messages import DECODERS
from harrow.cluster.dump.offset_index import IndexOptions

STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
UNSUPPORTED = ("cluster-metadata-decoder", "remote-log-metadata-decoder")


class ReadOnlyFile:
    """A file of a log folder, read at positions."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_at(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer at the end of the file."""
        return os.pread(self._fd, size, position)

    def size(self) -> int:
        """Returns the size of the file in bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileSystem:
    """The files of this machine, for reading only."""

    def open(self, path: str) -> ReadOnlyFile:
        """Opens a file; OSError when that fails."""
        return ReadOnlyFile(path)

    def absolute(self, path: str) -> str:
        """Returns the path after the working folder."""
        return path if path.startswith("/") else f"{os.getcwd()}/{path}"


def java_path(path: str) -> str:
    """Returns the path as `java.io.File` writes it: no double slash, and no slash at the end."""
    single = re.sub("/+", "/", path)
    return single.rstrip("/") or single[:1]


def _refuse(ctx: click.Context, option: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    if value:
        raise click.UsageError(
            f"{option.opts[0]} is not supported, because Harrow does not decode such records; "
            "use Kafka's kafka-dump-log for them"
        )


def _parser(
    offsets: bool, transactions: bool, share_states: bool, key_decoder: str | None, value_decoder: str | None
) -> MessageParser:
    if offsets:
        return offsets_parser()
    if transactions:
        return transactions_parser()
    if share_states:
        return share_states_parser()
    names = (key_decoder or STRING_DECODER, value_decoder or STRING_DECODER)
    for name in names:
        if name not in DECODERS:
            raise click.UsageError(f"decoder class {name} is not supported; use one of {', '.join(DECODERS)}")
    return TextParser(DECODERS[names[0]], DECODERS[names[1]])


def _add_unsupported_options(command: click.Command) -> None:
    """Adds the options that only Kafka's tool supports, so that the error can name the remedy."""
    for name in UNSUPPORTED:
        option = click.Option([f"--{name}"], is_flag=True, expose_value=False, hidden=True, callback=_refuse)
        command.params.append(option)


@click.command()
@click.option("--files", required=True, help="files to dump, separated by commas")
@click.option("--deep-iteration", is_flag=True, help="also print a line for each record")
@click.option(
    "--print-data-log", is_flag=True, help="also print the keys and values of records; implies --deep-iteration"
)
@click.option("--skip-record-metadata", is_flag=True, help="print only key and value of each record")
@click.option(
    "--max-bytes", type=click.IntRange(0, MAX_INT), default=MAX_INT, help="how many bytes of each .log file to dump"
)
@click.option(
    "--max-message-size",
    type=click.IntRange(0, MAX_INT),
    default=IndexOptions().max_message_size,
    help="largest batch that an offset index may point to",
)
@click.option(
    "--verify-index-only", is_flag=True, help="compare the indexes with their log, without printing the entries"
)
@click.option("--index-sanity-check", is_flag=True, help="make only the check that a broker makes at its start")
@click.option("--offsets-decoder", is_flag=True, help="decode the records as those of __consumer_offsets")
@click.option("--transaction-log-decoder", is_flag=True, help="decode the records as those of __transaction_state")
@click.option("--share-group-state-decoder", is_flag=True, help="decode the records as those of __share_group_state")
@click.option(
    "--key-decoder-class", is_flag=False, flag_value=STRING_DECODER, help="name of Kafka's decoder class for keys"
)
@click.option(
    "--value-decoder-class", is_flag=False, flag_value=STRING_DECODER, help="name of Kafka's decoder class for values"
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
    share_group_state_decoder: bool,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
) -> None:
    """Print the files of a log folder as Kafka's DumpLogSegments does."""
    named = key_decoder_class is not None or value_decoder_class is not None
    decodes = offsets_decoder or transaction_log_decoder or share_group_state_decoder or named
    contents = print_data_log or decodes
    options = DumpOptions(
        log=LogDumpOptions(
            deep=deep_iteration or contents,
            print_contents=contents,
            skip_record_metadata=skip_record_metadata,
            max_bytes=max_bytes,
        ),
        index=IndexOptions(
            sanity_only=index_sanity_check, verify_only=verify_index_only, max_message_size=max_message_size
        ),
        parser=_parser(
            offsets_decoder, transaction_log_decoder, share_group_state_decoder, key_decoder_class, value_decoder_class
        ),
    )
    _run([java_path(path) for path in files.rstrip(",").split(",")], options)


_add_unsupported_options(command)


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
            raise  # from the output stream, for example a closed pipe
        raise HarrowError(f"{error.filename}: {error.strerror}") from None
    finally:
        out.flush()
