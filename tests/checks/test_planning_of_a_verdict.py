"""What a verdict is planned from: fault windows, and the rows that were laid out for each partition (L6)."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from harrow.harness.checks.fault_windows import (
    FOREVER_NS,
    FaultWindow,
    Traffic,
    are_of_missed_faults,
    overlap_doubts,
    read_fault_windows,
)
from harrow.harness.checks.kernels import judge_partition
from harrow.harness.checks.log_changes import Leadership
from harrow.harness.checks.plans import JOB_BYTES, TASK_BYTES, PartitionJob, pack
from harrow.harness.checks.rows import PartitionTraffic
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType
from harrow.harness.histories.layout import lay_out
from harrow.harness.histories.row_index import RowRange
from harrow.harness.run_folder import RunTimes


def fault_file(folder: Path, *rows: tuple[str, int, int]) -> Path:
    path = folder / "faults.jsonl"
    lines = [json.dumps({"event": event, "id": number, "t_ns": at}) for event, number, at in rows]
    path.write_text("\n".join(lines))
    return folder


def test_fault_windows_are_ordered_by_start_and_an_unhealed_fault_has_no_end(tmp_path: Path) -> None:
    run = fault_file(
        tmp_path,
        *(("inject", 1, 10), ("inject", 2, 20), ("effect", 2, 21), ("heal", 2, 29)),
        *(("healed", 2, 30), ("inject", 3, 5)),
    )
    windows, problems = read_fault_windows(run)
    assert windows is not None
    assert [(w.id, w.start_ns, w.end_ns, w.took_effect) for w in windows] == [
        ("3", 5, FOREVER_NS, False),
        ("1", 10, FOREVER_NS, False),
        ("2", 20, 30, True),
    ]
    assert problems == []


def test_fault_that_was_healed_before_its_injection_is_a_problem_of_the_file(tmp_path: Path) -> None:
    windows, problems = read_fault_windows(fault_file(tmp_path, ("inject", 1, 10), ("healed", 1, 9)))
    assert windows == []
    assert "fault 1 was healed at 9 ns, before its injection at 10 ns" in problems[0]


def test_run_without_planned_faults_has_no_windows(tmp_path: Path) -> None:
    assert read_fault_windows(tmp_path) == (None, [])


SECOND = 10**9


def window(number: int, start_s: float, end_s: float, *, took_effect: bool = True) -> FaultWindow:
    return FaultWindow(
        id=str(number),
        label="pause(leader('orders', 0))",
        nodes=(3,),
        start_ns=round(start_s * SECOND),
        end_ns=round(end_s * SECOND),
        took_effect=took_effect,
    )


def traffic(began_s: float, ended_s: float, *met: int) -> Traffic:
    found = Traffic()
    began_ns, ended_ns = round(began_s * SECOND), round(ended_s * SECOND)
    found.add(PartitionTraffic(began_ns=began_ns, ended_ns=ended_ns, met=met, met_any=sum(met)))
    return found


def test_fault_that_met_nothing_is_named_with_its_time_and_a_remedy() -> None:
    doubts = overlap_doubts(
        [window(1, 10.3, 10.6), window(2, 11.2, 11.7)], traffic(10.2, 10.8, 5, 0), ["orders"], RunTimes(10 * SECOND)
    )
    assert doubts == [
        "fault 2, pause(leader('orders', 0)) on broker 3, from 1.20 s to 1.70 s, met no operation",
        (
            "traffic on orders lasted from 0.20 s to 0.80 s after the start of the run, the first fault that met "
            "nothing began at 1.20 s: send for longer, for example `while chaos.running`"
        ),
    ]


def test_fault_without_proved_effect_need_not_meet_an_operation() -> None:
    windows = [window(1, 1, 2), window(2, 3, 4, took_effect=False)]
    assert overlap_doubts(windows, traffic(0, 2, 5, 0), ["orders"], RunTimes()) == []
    windows = [window(1, 1, 2, took_effect=False)]
    assert overlap_doubts(windows, traffic(0, 2, 5), ["orders"], RunTimes()) == [
        "no fault took effect, though faults were injected"
    ]


def test_optional_fault_after_the_end_of_the_traffic_is_no_doubt_when_others_were_met() -> None:
    late = replace(window(2, 3, 4), required=False)
    assert overlap_doubts([window(1, 1, 2), late], traffic(0, 2.5, 5, 0), ["orders"], RunTimes()) == []
    alone = overlap_doubts([late], traffic(0, 2.5, 0), ["orders"], RunTimes())
    assert alone[0].startswith("fault 2, ")
    amid = replace(window(2, 2.2, 2.3), required=False)
    assert overlap_doubts([window(1, 1, 2), amid], traffic(0, 2.5, 5, 0), ["orders"], RunTimes())


def test_schedules_say_which_faults_are_optional(tmp_path: Path) -> None:
    run = fault_file(tmp_path, ("inject", 1, 10), ("inject", 2, 20), ("inject", 3, 30))
    for name, ids in (("schedule.json", (1, 2)), ("schedule-2.json", (3,))):
        steps = [{"id": str(number), "required": number == 1} for number in ids]
        (tmp_path / name).write_text(json.dumps({"steps": steps}))
    windows, _ = read_fault_windows(run)
    assert windows is not None
    assert [w.required for w in windows] == [True, False, False]
    (tmp_path / "schedule.json").write_text("{")
    windows, _ = read_fault_windows(run)
    assert windows is not None
    assert [w.required for w in windows] == [True, True, False]


def test_many_faults_that_met_nothing_are_counted() -> None:
    windows = [window(number, number, number + 0.5) for number in range(1, 7)]
    doubts = overlap_doubts(windows, Traffic(), ["orders"], RunTimes())
    assert len(doubts) == 5
    assert doubts[3] == "3 more faults met no operation"
    assert doubts[4].startswith("no client used orders: send or read while the faults last")


@pytest.mark.parametrize("missed", [1, 2, 6])
def test_reasons_that_are_only_of_missed_faults_are_known_as_such(missed: int) -> None:
    windows = [window(number, number, number + 0.5) for number in range(1, missed + 1)]
    doubts = overlap_doubts(windows, Traffic(), ["orders"], RunTimes())
    assert are_of_missed_faults(doubts)
    other = "replicas of orders-0 were not in sync"
    assert not are_of_missed_faults([other, *doubts])
    assert not are_of_missed_faults([*doubts, other])
    assert not are_of_missed_faults([other])
    assert not are_of_missed_faults([])
    assert not are_of_missed_faults(overlap_doubts([], Traffic(), ["orders"], RunTimes()))


def test_faults_before_and_between_the_traffic_have_their_own_remedies() -> None:
    before = overlap_doubts([window(1, 1, 2)], traffic(3, 4, 0), ["orders"], RunTimes())
    assert "send from the beginning of the chaos block on" in before[-1]
    between = overlap_doubts([window(1, 1, 2)], traffic(0, 4, 0), ["orders"], RunTimes())
    assert "with a pause in which these faults fell" in between[-1]


def test_windows_out_of_order_are_refused_by_a_job() -> None:
    with pytest.raises(AssertionError):
        PartitionJob(topic="t", partition=0, windows=[(5, 6), (1, 2)])
    with pytest.raises(AssertionError):
        PartitionJob(topic="t", partition=0, windows=[(5, 4)])


def test_partition_with_fewer_rows_than_were_laid_out_is_unknown(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history") as history:
        client, topic = history.name("c"), history.name("t")
        for offset in range(2):
            history.append(OperationFunction.POLL, OperationType.OK, client, topic, 0, offset)
    (part,) = lay_out(tmp_path, ["t"]).partitions["t", 0].ops
    whole = PartitionJob(topic="t", partition=0, ops=[part])
    assert judge_partition(whole).unknown == []
    short = PartitionJob(topic="t", partition=0, ops=[part._replace(rows=3)])
    assert "could not be read" in judge_partition(short).unknown[0]


def test_tasks_have_bounded_bytes_and_the_neighbours_of_a_task_are_in_order() -> None:
    sizes = [random.Random(1).randrange(80_000) for _ in range(2_000)]
    jobs = [PartitionJob(topic="t", partition=n, size=size) for n, size in enumerate(sizes)]
    tasks = pack(jobs)
    judged: list[list[int]] = [[job["partition"] for job in task] for task in tasks]
    assert sorted(number for task in judged for number in task) == list(range(2_000))
    assert all(task == sorted(task) for task in judged)
    costs = [sum(sizes[number] + JOB_BYTES for number in task) for task in judged]
    assert max(costs) <= TASK_BYTES
    assert len(tasks) <= sum(costs) // (TASK_BYTES - 80_000 - JOB_BYTES) + 1


def test_job_larger_than_a_task_is_a_task_of_its_own() -> None:
    jobs = [PartitionJob(topic="t", partition=n, size=TASK_BYTES * (n == 1)) for n in range(3)]
    judged = [[job["partition"] for job in task] for task in pack(jobs)]
    assert judged == [[1], [0, 2]]


def test_job_is_the_same_after_it_was_written_and_read_as_json() -> None:
    job = PartitionJob(
        topic="t",
        partition=3,
        ops=[RowRange("0.rows", 5, 7)],
        logs={"1": "/log"},
        windows=[(1, 2)],
        leaderships=[Leadership(5, 1, 2, 3)],
        size=9,
    )
    assert PartitionJob.from_dict(json.loads(json.dumps(job.to_dict()))) == job
