"""The options, errors and Java-style text of `harrow dump-log` (N1), without a broker and without Kafka.

tests/conformance/test_dump_as_kafka.py compares the output for whole files with the output of Kafka's tool.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harrow.cluster import HarrowError
from harrow.cluster.dump.java_text import json_text, text
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.share_coordinator.records import Update, encode
from harrow.cluster.share_coordinator.values import DeliveryState, SharePartition, StateBatch
from harrow.cluster.wire.batches import build_batch
from harrow.cluster.wire.topic_ids import UUID
from harrow.harness.commands import cli
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

NAME = f"{0:020d}"
TIME = 1_600_000_000_000


def dump_log(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["dump-log", *arguments])


def write(folder: Path, suffix: str, data: bytes, name: str = NAME) -> str:
    path = folder / f"{name}{suffix}"
    path.write_bytes(data)
    return str(path)


def seed_batch(base_offset: int) -> bytes:
    """Builds a batch of seed 002: 819 records, 16377 bytes."""
    return build_batch([(None, b"hello world ", ())] * 819, timestamp_ms=TIME, base_offset=base_offset, leader_epoch=0)


def test_dumping_the_log_of_seed_002_prints_all_fields_in_order(tmp_path: Path) -> None:
    """The lines of Kafka 2.x differ: `isvalid` stands further to the front, and there is no `count`."""
    log = write(tmp_path, ".log", seed_batch(0) + seed_batch(819))
    lines = dump_log("--files", log).stdout.splitlines()
    assert lines[:2] == [f"Dumping {log}", "Log starting offset: 0"]
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 818 count: 819 baseSequence: -1 lastSequence: -1 producerId: -1"
        " producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false isControl: false"
        " deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1600000000000 size: 16377"
        " magic: 2 compresscodec: none crc: "
    )
    assert lines[3].startswith("baseOffset: 819 lastOffset: 1637 count: 819 ")
    assert " position: 16377 " in lines[3]
    assert all(line.endswith(" isvalid: true") for line in lines[2:])


def test_dumping_the_index_of_seed_002_prints_every_entry(tmp_path: Path) -> None:
    write(tmp_path, ".log", b"".join(seed_batch(819 * turn) for turn in range(3)))
    entries = [(818, 0), (1637, 16377), (2456, 32754)]
    index = write(tmp_path, ".index", b"".join(struct.pack(">ii", *entry) for entry in entries))
    result = dump_log("--files", index)
    assert result.stdout.splitlines()[1:] == [f"offset: {offset} position: {position}" for offset, position in entries]
    assert result.stderr == ""
    assert dump_log("--verify-index-only", "--files", index).stdout == f"Dumping {index}\n"


def test_index_entries_that_do_not_match_the_log_are_reported_last_first(tmp_path: Path) -> None:
    write(tmp_path, ".log", seed_batch(0) + seed_batch(819))
    index = write(tmp_path, ".index", struct.pack(">iiii", 5, 0, 1600, 16377))
    result = dump_log("--verify-index-only", "--files", index)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"Mismatches in :{index}",
        "  Index offset: 1600, log offset: 1637",
        "  Index offset: 5, log offset: 818",
    ]


@pytest.mark.parametrize(
    ("suffix", "data", "words"),
    [
        (".log", bytes(100), "Found record size 0 smaller than minimum record overhead (14) in file"),
        (".log", bytes(11) + b"\x60" + bytes(4) + b"\x01" + bytes(200), "magic 1"),
        (".log", build_batch([(b"k", b"v", ())], timestamp_ms=1)[:61] + bytes(9), "the batch does not decode"),
        (".index", struct.pack(">ii", 3, 900), "slice from position 900 exceeds"),
        (".index", struct.pack(">ii", 3, 0) + b"x", "no complete batch"),
        (".txnindex", struct.pack(">hqqqq", 1, 7, 10, 20, 15), "Unexpected aborted transaction version 1"),
        (".snapshot", b"\0", "too few for a version"),
    ],
)
def test_a_file_that_cannot_be_dumped_further_ends_the_command_with_the_reason(
    tmp_path: Path, suffix: str, data: bytes, words: str
) -> None:
    if suffix == ".index":
        write(tmp_path, ".log", b"")
    path = write(tmp_path, suffix, data)
    result = dump_log("--deep-iteration", "--files", path)
    assert result.exit_code == 1
    assert words in str(result.exception)
    assert result.stdout.startswith(f"Dumping {path}\n"), "the lines before the error must be printed"


def test_the_sanity_check_refuses_sizes_and_offsets_that_no_index_has(tmp_path: Path) -> None:
    write(tmp_path, ".log", b"")
    index = write(tmp_path, ".index", struct.pack(">ii", 3, 0) + b"xyz")
    times = write(tmp_path, ".timeindex", struct.pack(">qi", TIME, 3) + b"xyz")
    for path, size, entry in ((index, 11, 8), (times, 15, 12)):
        refused = dump_log("--index-sanity-check", "--files", path)
        assert refused.exit_code == 1
        wrong = f"found {size} bytes which is neither positive nor a multiple of {entry}"
        assert wrong in str(refused.exception)
    negative = write(tmp_path, ".index", struct.pack(">ii", -3, 0))
    assert "last offset is -3" in str(dump_log("--index-sanity-check", "--files", negative).exception)


def test_files_that_are_not_segments_are_ignored_or_refused(tmp_path: Path) -> None:
    unknown = write(tmp_path, ".index.deleted", b"")
    passed = dump_log("--files", unknown)
    assert (passed.exit_code, passed.stderr) == (0, f"Ignoring unknown file {unknown}\n")
    for name in ("orders", "00000000000000000012x"):
        refused = dump_log("--files", write(tmp_path, ".log", b"", name=name))
        assert refused.exit_code == 1
        assert "must begin with an offset" in str(refused.exception)
    absent = dump_log("--files", str(tmp_path / f"{7:020d}.log"))
    assert absent.exit_code == 1
    assert "No such file" in str(absent.exception)


@pytest.mark.parametrize("decoder", ["cluster-metadata", "remote-log-metadata"])
def test_an_unsupported_decoder_option_is_refused_with_the_remedy(decoder: str) -> None:
    refused = dump_log(f"--{decoder}-decoder", "--files", "x.log")
    assert refused.exit_code == 2
    assert "Harrow does not decode such records" in refused.stderr


def test_decoder_classes_decode_numbers_and_refuse_other_sizes(tmp_path: Path) -> None:
    numbers = build_batch([(struct.pack(">i", -5), struct.pack(">q", 1 << 40), ())], timestamp_ms=1)
    log = write(tmp_path, ".log", numbers)
    tools = "org.apache.kafka.tools.api"
    printed = dump_log(
        f"--key-decoder-class={tools}.IntegerDecoder",
        f"--value-decoder-class={tools}.LongDecoder",
        "--skip-record-metadata",
        "--files",
        log,
    )
    assert printed.stdout.splitlines()[-1] == "| key: -5 payload: 1099511627776"
    short = dump_log(f"--key-decoder-class={tools}.LongDecoder", "--files", log)
    assert "Size of data received by LongDeserializer is not 8" in str(short.exception)
    other = dump_log("--value-decoder-class=my.Decoder", "--files", log)
    assert other.exit_code == 2
    assert "my.Decoder is not supported" in other.stderr


def test_a_header_key_that_is_not_utf8_is_printed_with_replacement_characters(tmp_path: Path) -> None:
    batch = bytearray(build_batch([(b"k", b"v", [("abc", b"")])], timestamp_ms=1))
    at = batch.index(b"abc")
    batch[at : at + 3] = b"a\xffc"
    log = write(tmp_path, ".log", bytes(batch))
    printed = dump_log("--deep-iteration", "--files", log)
    assert printed.exit_code == 0
    assert "headerKeys: [a\ufffdc]" in printed.stdout
    assert "isvalid: false" in printed.stdout


def test_malformed_text_is_decoded_as_java_does() -> None:
    """A surrogate in three bytes becomes a single replacement character; the rest is as in Python."""
    assert text(b"a\xed\xa0\x80b") == "a\ufffdb"
    assert text(b"\xe0\x80\x80") == "\ufffd" * 3
    assert text(b"\xf0\x9f\x99") == "\ufffd"
    assert text("žluť 🙂".encode()) == "žluť 🙂"


def test_json_is_written_as_jackson_does() -> None:
    assert json_text({"a": [1, None, '\x01\n"ž\x1f'], "b": b"\x00\xff"}) == (
        '{"a":[1,null,"\\u0001\\n\\"ž\\u001F"],"b":"AP8="}'
    )
    assert json_text("\\u00ff") == '"\\\\u00ff"', "text that looks like an escape must not change"


@given(data=st.binary(max_size=300), suffix=st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]))
@examples(20, 60)
def test_random_and_damaged_bytes_are_printed_or_refused_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    """The dump prints garbage and damaged batches, or ends with a HarrowError, never with another exception."""
    folder = tmp_path_factory.mktemp("garbage")
    batch = bytearray(build_batch([(b"k", b"v", [("h", b"x")])] * 3, timestamp_ms=1, codec=data[0] % 5 if data else 0))
    for at in data[:3]:
        batch[at % len(batch)] ^= 0x55
    write(folder, ".log", bytes(batch) + data)
    write(folder, ".index", data)
    path = write(folder, f".{suffix}", bytes(batch) if suffix == "log" else data)
    result = dump_log("--offsets-decoder", "--files", path)
    assert result.exit_code in (0, 1)
    assert result.exception is None or isinstance(result.exception, HarrowError)


def test_records_of_share_groups_are_decoded(tmp_path: Path) -> None:
    share = SharePartition("workers", UUID(int=7), 1)
    batches = (StateBatch(Offset(4), Offset(6), DeliveryState.AVAILABLE, 2),)
    update = Update(snapshot_epoch=3, leader_epoch=LeaderEpoch(5), start_offset=Offset(4), completed=9, batches=batches)
    path = write(tmp_path, ".log", build_batch([(*encode(share, update), ())], timestamp_ms=1))
    printed = dump_log("--share-group-state-decoder", "--files", path)
    assert printed.exit_code == 0, printed.output
    line = printed.stdout.splitlines()[-1]
    for part in ('"groupId":"workers"', '"partition":1', '"snapshotEpoch":3', '"startOffset":4', '"deliveryCount":2'):
        assert part in line, line
