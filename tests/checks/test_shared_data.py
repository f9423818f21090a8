"""Data that is copied for executors on other machines gives the same verdicts, and is removed (L7)."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from harrow.harness.checks import SparkHandle, Verdict, judge
from harrow.harness.checks.kernels import judge_task
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.checks.record import Record
from harrow.harness.checks.shared_data import SharedData, SharedDataError
from harrow.harness.histories.format import ROW, OperationType
from harrow.harness.histories.layout import lay_out
from harrow.harness.promises.join import run_join
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_join import PipelineInputs, check_pipeline
from harrow.harness.promises.relations import mapped
from harrow.harness.promises.shapes import Rows
from harrow.harness.promises.sinks import stage
from harrow.harness.promises.topic_rows import SENT, TopicMapper, sends_chunks
from harrow.harness.run_folder import operation_files
from judged_runs import TOPIC, RunFolder, record_batch
from memory_file_system import URL, MemoryFiles, memory_files
from pipelines_by_hand import anomalies, chunks_of, record


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryFiles:
    return memory_files(monkeypatch)


class Copying:
    """Has plans judged in this process from copies, as executors on other machines judge them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.names: list[str] = []

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        with SharedData(self.url) as shared:
            tasks = shared.tasks(json.loads(plan.read_text()))
            for job in (job for task in tasks for job in task):
                parts = [*job["ops"], *job["pending"], *job["batches"]]
                self.names += [*(part[0] for part in parts), *job["logs"].values()]
            return [result for task in tasks for result in judge_task(task)]

    def cluster_queries(self) -> Copying:
        return self

    @contextlib.contextmanager
    def copies(self, folder: Path) -> Generator[Callable[[str], str]]:
        del folder
        with SharedData(self.url) as shared:

            def copied(path: str) -> str:
                self.names.append(shared.copied(path))
                return self.names[-1]

            yield copied

    def call(self, pickled: bytes) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = list(pickle.loads(pickled)())
        return results


def recorded_run(run: RunFolder) -> Path:
    """A run with each kind of row: lost, duplicated and unread records, unknown sends, taps, replicas that differ."""
    first, second = record_batch(["a", "b"]), record_batch(["c"], base_offset=2)
    for offset, value in enumerate("abc"):
        run.send(value, offset)
        run.read(value, offset)
    run.send("lost", 7)
    run.send("unknown", outcome=None)
    run.send("refused", outcome=OperationType.FAIL)
    for partition in (1, 2):
        run.send("a", 0, partition=partition)
        run.send("a", 1, partition=partition)
        run.final({0: "a", 1: "a"}, partition=partition)
    run.final({0: "a", 1: "b", 2: "c"})
    run.tapped(first, 0)
    run.tapped(second, 2, lost=True)
    run.tapped(first, 0, fetched=True, client="reader")
    run.log(1, first, second)
    run.log(2, first, record_batch(["other"], base_offset=2))
    run.log(3)
    return run.done()


def comparable(verdict: Verdict) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(verdict.to_json())
    del body["elapsed_ms"], body["engine"]
    return body


@pytest.mark.parametrize("where", ["mounted", "URL"])
def test_copies_give_the_same_verdict_as_the_run_folder_and_are_removed(
    run: RunFolder, tmp_path: Path, memory: MemoryFiles, where: str
) -> None:
    folder = recorded_run(run)
    directly = judge(folder, topics=[TOPIC], guarantee="exactly-once", engine="inline")
    assert set(directly.anomaly_counts) >= {"lost-write", "replica-divergence"}
    shared = tmp_path / "shared"
    copying = Copying(URL if where == "URL" else f"file://{shared}")
    verdict = judge(folder, topics=[TOPIC], guarantee="exactly-once", spark=copying)
    assert comparable(verdict) == comparable(directly)
    assert copying.names
    assert all(name.startswith(copying.url.removeprefix("file://")) for name in copying.names)
    assert memory.files == {}
    assert where == "URL" or list(shared.iterdir()) == []


def test_a_task_reads_the_rows_of_its_partitions_and_no_others(run: RunFolder, memory: MemoryFiles) -> None:
    for number in range(3000):
        run.send(f"{number}", number // 3, partition=number % 3)
    layout = lay_out(run.done(), [TOPIC])
    jobs = [
        PartitionJob(topic=TOPIC, partition=partition, ops=layout.place(TOPIC, partition).ops) for partition in range(3)
    ]
    with SharedData(URL) as shared:
        tasks = shared.tasks([[json.loads(json.dumps(job.to_dict()))] for job in jobs])
        for task in tasks:
            memory.read.clear()
            (result,) = judge_task(task)
            assert result["operation_counts"]["acknowledged"] == 1000
            assert ROW.size * 1000 in {size for _, _, size in memory.read}
            assert sum(size for _, at, size in memory.read if at) == ROW.size * 1000


def test_a_copy_that_is_cut_makes_its_partition_unknown(run: RunFolder, tmp_path: Path, memory: MemoryFiles) -> None:
    run.send("a", 0)
    layout = lay_out(run.done(), [TOPIC])
    job = PartitionJob(topic=TOPIC, partition=0, ops=layout.place(TOPIC, 0).ops).to_dict()
    for url in (URL, str(tmp_path / "shared")):
        with SharedData(url) as shared:
            ((moved,),) = shared.tasks([[json.loads(json.dumps(job))]])
            path = moved["ops"][0][0]
            if url == URL:
                (name,) = memory.files
                memory.files[name] = memory.files[name][:-1]
            else:
                Path(path).write_bytes(Path(path).read_bytes()[:-1])
            (result,) = judge_task([moved])
        assert "could not be read" in result["unknown"][0]


def test_a_log_folder_that_does_not_exist_keeps_its_own_name(tmp_path: Path, memory: MemoryFiles) -> None:
    job = PartitionJob(topic=TOPIC, partition=0, logs={"1": str(tmp_path / "nowhere")}).to_dict()
    with SharedData(URL) as shared:
        (task,) = shared.tasks([[job]])
        (result,) = judge_task(task)
    assert f"{tmp_path}/nowhere does not exist" in result["unknown"][0]
    assert memory.files == {}


def test_copies_are_removed_after_an_error(memory: MemoryFiles) -> None:
    def use() -> None:
        with SharedData(URL) as shared:
            shared.write("token", b"x")
            assert len(memory.files) == 1
            raise KeyError("token")

    with pytest.raises(KeyError):
        use()
    assert memory.files == {}


def test_a_folder_that_cannot_be_made_is_named_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def use(url: str) -> None:
        with SharedData(url):
            pass

    for url in (f"{tmp_path}/file", "nonsense://x"):
        with pytest.raises(SharedDataError, match=r"--harrow-spark-data=.*no folder can be made"):
            use(url)


def bill_of(order: Record) -> dict[str, Any]:
    return {"total": order["amount"] * 2}


@pytest.mark.parametrize("rows_of_sink", [False, True], ids=["topic", "frame"])
def test_pipelines_are_judged_from_copies(tmp_path: Path, memory: MemoryFiles, *, rows_of_sink: bool) -> None:
    orders = [record({"order": n, "amount": n}, offset=n) for n in range(5)]
    bills = [{"order": n, "total": 2 * n + (n == 3)} for n in range(4)]
    if rows_of_sink:
        import polars as pl

        sink = stage(pl.DataFrame(bills), tmp_path / "sink").chunks
    else:
        sink = chunks_of([record(bill, offset=n) for n, bill in enumerate(bills)], tmp_path / "sink", 2)
    copying = Copying(URL)
    pairing = Pairing(relation=mapped(bill_of), record_id="order", rows=Rows(rows_of_sink, "order"))
    found = check_pipeline(
        PipelineInputs(pairing=pairing, source=chunks_of(orders, tmp_path / "source", 2), sink=sink),
        folder=tmp_path / "join",
        spark=cast("SparkHandle", copying),
    )
    assert anomalies(found) == {"wrong-output": 1, "missing-output": 1}
    assert len(copying.names) == 3 + len(sink)
    assert memory.files == {}


def test_recorded_sends_are_read_from_copies_in_parts(
    run: RunFolder, tmp_path: Path, memory: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harrow.harness.promises.topic_rows.SENDS_CHUNK_ROWS", 8)
    for number in range(20):
        run.send(f"{number}", number)
    chunks = sends_chunks(operation_files(run.done() / "history"))
    assert len(chunks) == 5
    sent: list[list[int]] = []
    for spark in (None, cast("SparkHandle", Copying(URL))):
        results = run_join(
            chunks,
            Sends(TopicMapper(topics=(TOPIC,), judges_order=True)),
            no_rows,
            folder=tmp_path,
            spark=spark,
            engine="inline" if spark is None else "spark",
        )
        sent.append([offset for row in results for offset in row["sent"]])
    assert sent == [list(range(20))] * 2
    assert memory.files == {}


class Sends:
    """Yields the offsets of the mapper's rows."""

    def __init__(self, mapper: TopicMapper) -> None:
        self.mapper = mapper

    def __call__(self, chunk: Any) -> Iterator[dict[str, Any]]:
        from harrow.harness.promises.join import NumberedChunk

        for frame in self.mapper(NumberedChunk(chunk=chunk)):
            assert not isinstance(frame, dict)
            assert set(frame["kind"]) <= {SENT}
            yield {"sent": frame["offset"].to_list()}


def no_rows(rows: Any) -> Iterator[dict[str, Any]]:
    raise AssertionError(rows)
