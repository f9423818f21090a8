"""Refused records by their ids: with `record_id=` the verdict says which of them the topic has (L6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster import broker_folder
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.tap.layouts import REFUSED_BYTES_MOST
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.wire.records import build_batch
from harrow.harness import run_folder
from harrow.harness.checks import Status, Verdict, judge
from harrow.harness.checks.promise_findings import PromiseFindings, RefusedIds
from harrow.harness.histories.refused_records import read_refused
from harrow.harness.promises.topic_promise import TopicPromise
from harrow.harness.promises.topic_results import judge_topics
from judged_runs import NOW_MS, RunFolder, record_batch
from promised_runs import TOPIC, PromisedRun

NOT_LEADER = int(ErrorCode.not_leader_or_follower)
FENCED = int(ErrorCode.invalid_producer_epoch)


def orders(*numbers: int) -> list[bytes]:
    return [json.dumps({"order": number}).encode() for number in numbers]


def refuse(
    run: Path,
    *values: bytes,
    error: int = NOT_LEADER,
    timestamp_ms: int = NOW_MS,
    topic: str = TOPIC,
    transactional: bool = False,
) -> None:
    """Broker 1 refuses a batch of these records."""
    folder = run / run_folder.CLUSTER / broker_folder.broker_name(1)
    folder.mkdir(parents=True, exist_ok=True)
    batch = build_batch(
        [(b"k", value, ()) for value in values], timestamp_ms=timestamp_ms, is_transactional=transactional
    )
    tap = FileTap(str(folder), RealClock())
    tap.produced("app", topic, 0, base_offset=-1, error=error, acks=-1, invoked_ns=1, batches=batch, lost=False)
    tap.close()


def judged(run: PromisedRun, *, topics: Sequence[str] = (TOPIC,), **arguments: Any) -> PromiseFindings:
    given: dict[str, Any] = {"record_id": "order", "expected": None, "order_key": None, "guarantee": None}
    promise = TopicPromise.of(**{**given, **arguments})
    assert promise is not None
    return judge_topics(run.write(), topics, promise, engine="inline")


@pytest.fixture
def run(tmp_path: Path) -> PromisedRun:
    """A topic with the orders 1 and 2."""
    made = PromisedRun(tmp_path)
    made.record({"order": 1})
    made.record({"order": 2}, partition=1)
    return made


def test_refused_ids_are_compared_with_those_of_the_topic(run: PromisedRun) -> None:
    for attempt in range(3):  # each attempt has a timestamp of its own
        refuse(run.folder, *orders(1, 2), timestamp_ms=NOW_MS + attempt)
    refuse(run.folder, *orders(9), topic="another topic")
    assert judged(run).refused_ids == {TOPIC: RefusedIds(ids=2, lacking=0, shown=[])}
    refuse(run.folder, *orders(3, 4))
    assert judged(run).refused_ids == {TOPIC: RefusedIds(ids=4, lacking=2, shown=["3", "4"])}


def test_a_refused_record_may_be_in_a_topic_of_dead_letters(tmp_path: Path) -> None:
    run = PromisedRun(tmp_path, topics=(TOPIC, "dead"))
    run.record({"order": 1})
    run.record({"order": 2}, topic="dead")
    refuse(run.folder, *orders(2))
    assert judged(run).refused_ids[TOPIC].lacking == 1
    assert judged(run, topics=(TOPIC, "dead")).refused_ids[TOPIC].lacking == 0


def test_the_application_accounts_for_refused_records_by_what_it_expects(run: PromisedRun) -> None:
    refuse(run.folder, *orders(3))
    assert not judged(run, expected=[1, 2]).refused_ids


def test_records_of_a_fenced_transaction_need_not_be_there(run: PromisedRun) -> None:
    refuse(run.folder, *orders(3), error=FENCED, transactional=True)
    assert not judged(run).refused_ids


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def fill(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(REFUSED_BYTES_MOST)


@pytest.mark.parametrize("damage", [cut, fill, Path.unlink], ids=["cut off", "full", "of an earlier Harrow"])
def test_nothing_is_said_by_id_where_not_all_refused_records_are_known(
    run: PromisedRun, damage: Callable[[Path], None]
) -> None:
    refuse(run.folder, *orders(1))
    (path,) = broker_folder.broker_files(run.folder / run_folder.CLUSTER, broker_folder.TAP_REFUSED)
    damage(path)
    assert read_refused(run.folder, [TOPIC]) is None
    assert not judged(run).refused_ids


def test_a_refused_record_without_a_readable_id_leaves_all_of_them_unknown(run: PromisedRun) -> None:
    refuse(run.folder, *orders(1), b"no json")
    assert not judged(run).refused_ids


def test_refused_ids_are_unknown_where_records_were_removed(run: PromisedRun) -> None:
    run.remove()
    refuse(run.folder, *orders(3))
    assert not judged(run).refused_ids


def test_the_bytes_of_a_batch_are_kept_once(tmp_path: Path) -> None:
    tap = FileTap(str(tmp_path), RealClock())
    batch = build_batch([(b"k", b"v", ())], timestamp_ms=NOW_MS)
    sizes: list[int] = []
    for partition in (0, 0, 1):
        tap.produced(
            "app", TOPIC, partition, base_offset=-1, error=NOT_LEADER, acks=-1, invoked_ns=1, batches=batch, lost=False
        )
        sizes.append((tmp_path / broker_folder.TAP_REFUSED).stat().st_size)
    tap.produced("app", TOPIC, 0, base_offset=5, error=0, acks=-1, invoked_ns=1, batches=batch, lost=False)
    tap.close()
    assert sizes == [sizes[0], sizes[0], 2 * sizes[0]]
    assert (tmp_path / broker_folder.TAP_REFUSED).stat().st_size == sizes[-1]


def verdict_with(run: RunFolder, *, lacking: Sequence[str], recorded: bool = False) -> Verdict:
    """Broker 1 refused two records after the last one was appended."""
    first = record_batch(["x"])
    run.tapped(first, 0)
    run.logs(first)
    run.tapped(record_batch(["a", "b"], timestamp_ms=NOW_MS + 10), -1, error=NOT_LEADER)
    if recorded:
        run.send("x", 0)
    run.final({0: "x"})
    promised = PromiseFindings(refused_ids={TOPIC: RefusedIds(ids=2, lacking=len(lacking), shown=lacking)})
    return judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine="inline", promised=promised)


def test_refused_ids_that_the_topic_has_are_a_note(tmp_path: Path) -> None:
    verdict = verdict_with(RunFolder(tmp_path), lacking=[])
    assert verdict.status is Status.VALID, str(verdict)
    assert [note for note in verdict.notes if "refused" in note] == [
        "brokers refused 2 record ids of orders, and the judged topics have all of them"
    ]


def test_refused_ids_that_the_topic_does_not_have_are_a_doubt_that_names_them(tmp_path: Path) -> None:
    verdict = verdict_with(RunFolder(tmp_path), lacking=["17"])
    assert verdict.status is Status.UNKNOWN
    assert verdict.reasons[0].startswith(
        "brokers refused 2 record ids of orders, and no judged topic has 1 of them (17): what the application believes"
    )


def test_recording_producers_account_for_refused_records_themselves(tmp_path: Path) -> None:
    verdict = verdict_with(RunFolder(tmp_path), lacking=["17"], recorded=True)
    assert "17" not in str(verdict)
