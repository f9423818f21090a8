"""A verdict shows what the records contained, counts records and finds the cause in taps, logs and faults (L6, J6)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from harrow.cluster.events.partitions import PartitionLeader
from harrow.harness import run_folder
from harrow.harness.checks import Verdict
from harrow.harness.checks.causes.recorded import read_evidence
from harrow.harness.checks.judgement import judge
from harrow.harness.histories.format import HistoryWriter
from harrow.harness.histories.sent_contents import FILE_MOST, KEY_MOST, SUFFIX, VALUE_MOST, SentContents, sent_records
from judged_runs import TOPIC, RunFolder, record_batch


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def judged(run: RunFolder, guarantee: str = "exactly-once") -> Verdict:
    return judge(run.done(), topics=[TOPIC], guarantee=guarantee, engine="inline")


def test_a_lost_batch_of_50_records_counts_as_50_records_and_names_its_cause(run: RunFolder) -> None:
    kept = record_batch(["kept"])
    lost = record_batch([f"order {number}" for number in range(50)], base_offset=1)
    run.tapped(kept, 0, acks=1)
    first = PartitionLeader(topic=TOPIC, partition=0, leader=1, leader_epoch=0, isr=(1, 2, 3))
    run.trace(1, first, t_ns=1_000_500)
    run.tapped(lost, 1, acks=1)
    (run.folder / run_folder.FAULTS).write_text(
        "".join(
            json.dumps({"t_ns": t, "event": e, "id": 1, "fault": "isolate", "targets": [1]}) + "\n"
            for t, e in ((1_003_000, "inject"), (1_003_000, "effect"), (900_000_000, "heal"), (901_000_000, "healed"))
        )
    )
    run.trace(2, replace(first, leader=2, leader_epoch=1, isr=(2, 3)), t_ns=800_000_000)
    run.logs(kept)
    run.final({0: "kept"})
    verdict = judged(run, "no-loss")
    assert verdict.anomaly_counts == {"lost-write": 50}
    assert verdict.anomalies[0].records == 50
    (cause,) = verdict.causes["lost-write"]
    assert cause == (
        "broker 1 was isolated from 0.00 s to 0.90 s; with acks=1 it acknowledged 50 records of orders-0 at 0.00 s; "
        "broker 2 became leader in leader epoch 1 at 0.80 s without them"
    )
    assert "50 records were acknowledged or read, and are not in the topic any more" in str(verdict)
    assert "offsets 1 to 50 (50 records)" in str(verdict)


def test_a_retry_after_a_lost_response_shows_both_copies_decoded_and_its_cause(run: RunFolder) -> None:
    first, again = record_batch(["order 1"]), record_batch(["order 1"], base_offset=1)
    run.tapped(first, 0, lost=True, client="shop")
    run.tapped(again, 1, client="shop")
    run.logs(first, again)
    run.final({0: "order 1", 1: "order 1"})
    verdict = judged(run)
    assert verdict.anomaly_counts == {"duplicate": 1}
    assert [row["value"] for row in verdict.anomalies[0].operations] == ["order 1", "order 1"]
    assert verdict.causes["duplicate"][0].startswith(
        "a producer without idempotence (shop) sent 1 record of orders-0 again, after the responses of broker 1"
    )


def test_acknowledgements_are_found_by_offset_unless_the_response_was_lost(run: RunFolder) -> None:
    run.tapped(record_batch(["a", "b"]), 0, client="shop")
    run.tapped(record_batch(["a"]), 2, client="shop", lost=True)
    run.tapped(record_batch(["a"]), 3, client="shop", fetched=True)
    places = {(TOPIC, 0, offset) for offset in range(4)} | {("other", 0, 0), (TOPIC, 1, 0)}
    evidence = read_evidence(run.done(), [TOPIC], started_ns=1, facts=[], clients=[], places=places)
    assert evidence.acknowledgements.keys() == {(TOPIC, 0, 0), (TOPIC, 0, 1)}
    assert evidence.acknowledgements[TOPIC, 0, 1].client == "shop"


def test_a_lost_recorded_send_is_shown_with_the_key_and_value_that_its_producer_kept(
    run: RunFolder, tmp_path: Path
) -> None:
    run.send("order 1", 0)
    run.final({})
    (history,) = (tmp_path / "run" / run_folder.HISTORY).glob("*.ops")
    contents = SentContents(history.with_suffix(SUFFIX))
    contents.append(0, 1, "k", "order 1")
    contents.close()
    (shown,) = judged(run, "no-loss").anomalies
    assert [(row["key"], row["value"]) for row in shown.operations] == [("k", "order 1")]


def test_a_record_that_nothing_has_any_more_is_shown_with_its_hash(run: RunFolder) -> None:
    run.send("order 1", 0)
    run.final({})
    (shown,) = judged(run, "no-loss").anomalies
    assert "value" not in shown.operations[0]
    assert "value with hash" in str(judged(run, "no-loss"))


def test_damaged_logs_and_contents_leave_the_example_without_contents(run: RunFolder) -> None:
    batch = record_batch(["a"])
    run.tapped(batch, 0, lost=True)
    run.tapped(record_batch(["a"], base_offset=1), 1)
    run.logs(batch, record_batch(["a"], base_offset=1))
    run.final({0: "a", 1: "a"})
    for log in run.folder.rglob("*.log"):
        if log.parent.name == f"{TOPIC}-0":
            data = bytearray(log.read_bytes())
            data[61:66] = b"\xff" * 5  # the first record's length
            log.write_bytes(data)
    (run.folder / run_folder.HISTORY / "1-1.sent").write_bytes(b"\xff" * 100)
    verdict = judged(run)
    assert "duplicate" in verdict.anomaly_counts
    assert "crashed" not in str(verdict)


def kept(path: Path, *wanted: tuple[str, int]) -> dict[tuple[str, int], tuple[bytes | None, bytes | None]]:
    found = sent_records(path, ["shop"], wanted)
    return {place: (record.key, record.value) for place, record in found.items()}


def test_contents_keep_nulls_empty_texts_and_the_first_bytes_of_long_ones(tmp_path: Path) -> None:
    path = tmp_path / "1-1.sent"
    contents = SentContents(path)
    contents.append(0, 0, None, None)
    contents.append(0, 1, "", b"")
    contents.append(0, 2, "k" * 1_000, "ü" * 1_000)
    assert kept(path, ("shop", 1)) == {("shop", 1): (b"", b"")}, "readable while it is written"
    contents.close()
    wanted = [("shop", number) for number in range(4)]
    found = kept(path, *wanted)
    assert found == {
        ("shop", 0): (None, None),
        ("shop", 1): (b"", b""),
        ("shop", 2): (b"k" * KEY_MOST, "ü".encode() * VALUE_MOST),
    }
    assert [r.value_cut for r in sent_records(path, ["shop"], wanted).values()] == [False, False, True]
    contents.append(0, 3, "k", "after close")
    assert kept(path, *wanted) == found


def test_contents_are_bounded_and_later_sends_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FILE_MOST <= 1 << 26
    monkeypatch.setattr("harrow.harness.histories.sent_contents.FILE_MOST", 1 << 16)
    path = tmp_path / "1-1.sent"
    contents = SentContents(path)
    for number in range(2_000):
        contents.append(0, number, "key", "v" * VALUE_MOST)
    contents.close()
    assert path.stat().st_size <= 1 << 16
    assert kept(path, ("shop", 0), ("shop", 1_999)).keys() == {("shop", 0)}


def test_a_forked_child_keeps_its_contents_in_a_file_of_its_own(tmp_path: Path) -> None:
    history = HistoryWriter(tmp_path)
    history.sent.append(0, 1, "k", "parent")
    child = os.fork()
    if child == 0:
        history.sent.append(0, 2, "k", "child")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    history.sent.append(0, 3, "k", "parent again")
    history.close()
    files = sorted(kept(path, *(("shop", n) for n in range(4))).keys() for path in tmp_path.glob("*.sent"))
    assert sorted(map(sorted, files)) == [[("shop", 1), ("shop", 3)], [("shop", 2)]]


KILLED = """
import os, signal, sys
from harrow.harness.histories.format import HistoryWriter
history = HistoryWriter(sys.argv[1])
history.sent.append(0, 1, "k", "before the kill")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_contents_of_a_killed_process_are_there(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (path,) = tmp_path.glob("*.sent")
    assert kept(path, ("shop", 1)) == {("shop", 1): (b"k", b"before the kill")}


SENT: tuple[tuple[str, bytes | None], ...] = (("trace-id", b"17"), ("source", b"web"))


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ((("trace-id", b"18"), SENT[1]), "sent trace-id=17, in the log trace-id=18"),
        ((SENT[0],), "sent source=web, in the log nothing"),
        ((*SENT, ("retry", b"1")), "sent nothing, in the log retry=1"),
        ((("trace-id", None), SENT[1]), "sent trace-id=17, in the log trace-id="),
    ],
)
def test_a_changed_header_is_found_and_shown(
    run: RunFolder, stored: tuple[tuple[str, bytes | None], ...], shown: str
) -> None:
    run.send("paid", 0, headers=SENT)
    run.final({0: "paid"}, headers=stored)
    run.logs(record_batch(["paid"], headers=stored))
    verdict = judged(run, "no-loss")
    assert verdict.anomaly_names() == {"lost-write", "inconsistent-offsets"}, verdict
    for anomaly in verdict.anomalies:
        assert f"the headers differ: {shown}" in anomaly.explanation
    text = str(verdict)
    assert f"the headers differ: {shown}" in text
    assert "headers trace-id=17, source=web" in text


def test_headers_in_another_order_are_found(run: RunFolder) -> None:
    run.send("paid", 0, headers=SENT)
    run.final({0: "paid"}, headers=SENT[::-1])
    run.logs(record_batch(["paid"], headers=SENT[::-1]))
    assert "the headers differ in their order" in str(judged(run, "no-loss"))


def test_headers_that_are_unchanged_are_valid(run: RunFolder) -> None:
    run.send("paid", 0, headers=SENT)
    run.final({0: "paid"}, headers=SENT)
    run.logs(record_batch(["paid"], headers=SENT))
    assert not judged(run, "no-loss").anomalies


def test_headers_are_kept_with_their_send(tmp_path: Path) -> None:
    path = tmp_path / "1-1.sent"
    contents = SentContents(path)
    contents.append(0, 1, "k", "v" * 300, [("a", b"1"), ("b", None)])
    contents.append(0, 2, None, None, {"c": "text"})
    contents.append(0, 3, "k", "v", [("long", b"x" * 5_000)])
    contents.append(0, 4, "k", "v", 5)
    contents.close()
    found = sent_records(path, ["shop"], [("shop", number) for number in range(1, 5)])
    assert [found["shop", number].headers for number in range(1, 5)] == [
        (("a", b"1"), ("b", None)),
        (("c", b"text"),),
        None,
        None,
    ]
    assert found["shop", 1].value == b"v" * 256
    assert found["shop", 2].key is None
