"""`harrow dump-log` prints the same as Apache Kafka 4.4's DumpLogSegments for the same bytes (N1, B1, B3, B4).

A real Kafka wrote the files in `kafka_files` (a few were made by `odd_logs.py`). Beside them is the output of Kafka's
tool for them, including its error output. `kafka_writes.py` rewrites both. The dumps are of
4.4, the files of 4.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from click.testing import CliRunner, Result
from harrow.harness.commands import cli
from kafka_writes import DUMPS, GOLDEN, TOPICS, files_for


def dump_log(files: Iterable[str], *options: str) -> Result:
    return CliRunner().invoke(cli, ["dump-log", *options, "--files", ",".join(files)])


def complaints(err: bytes) -> list[str]:
    """Splits the error output by file and sorts it, because Kafka prints in the order of a hash table."""
    blocks: list[str] = []
    for line in err.decode().splitlines():
        if line.startswith("  "):
            blocks[-1] += "\n" + line
        else:
            blocks.append(line)
    return sorted(blocks)


@pytest.mark.parametrize("name", DUMPS)
def test_dumping_the_golden_files_prints_every_line_as_kafka(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    files = files_for(name)
    result = dump_log(files, *DUMPS[name])
    assert result.exception is None
    assert result.exit_code == 0
    assert result.stdout_bytes.splitlines() == (GOLDEN / f"{name}.out").read_bytes().splitlines()
    said = result.stderr_bytes.replace(str(GOLDEN).encode(), b"FOLDER")
    assert complaints(said) == complaints((GOLDEN / f"{name}.err").read_bytes())


def test_the_golden_files_contain_every_kind_of_record() -> None:
    """A golden file without, for example, tombstones would not test them."""
    content = (GOLDEN / "content.out").read_text()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec} " in content
    for sign in (
        "isTransactional: true isControl: true",
        "endTxnMarker: COMMIT",
        "endTxnMarker: ABORT",
        "LogAppendTime: ",
        "deleteHorizonMs: OptionalLong[",
        "headerKeys: [trace,,nothing]",
        "keySize: -1",
        "valueSize: -1",
        "žluťoučký",
        "partitionLeaderEpoch: 2",
    ):
        assert sign in content, sign
    shallow = (GOLDEN / "shallow.out").read_text()
    assert "currentTxnFirstOffset: OptionalLong[" in shallow
    assert re.search(r"^version: 0 producerId: \d+ firstOffset", shallow, re.MULTILINE)
    assert len(list((GOLDEN / "codecs-0").glob("*.log"))) > 1, "rolled"
    assert set(TOPICS) <= {folder.name[:-2] for folder in GOLDEN.iterdir() if folder.is_dir()}
    offsets = (GOLDEN / "offsets.out").read_text()
    for kind in (0, 1, 2, 3, 5, 8, 10, 15, 16, 17, 23):
        assert f'key: {{"type":"{kind}"' in offsets


def test_sanity_checking_untrimmed_indexes_gives_the_results_of_kafka() -> None:
    """With zeroes at the end an offset index passes a broker's check, and a time index fails it (also in Kafka)."""
    folder = GOLDEN / "damaged"
    index, times = folder / f"{0:020d}.index", folder / f"{0:020d}.timeindex"
    passed = dump_log([str(index)], "--index-sanity-check")
    assert passed.exit_code == 0
    assert passed.stdout == f"Dumping {index}\n{index} passed sanity check.\n"
    refused = dump_log([str(times)], "--index-sanity-check")
    assert refused.exit_code == 1
    assert str(refused.exception).startswith("Corrupt time index found, time index file")
    assert "the last timestamp is 0 which is less than the first timestamp" in str(refused.exception)
